import { randomBytes } from "node:crypto";
import {
  type BoxReport,
  type DownloadLimits,
  type ExecOptions,
  type ExecResult,
  isAbsolutePath,
  isRuntimeError,
  type KillReport,
  type NetworkPolicy,
  type OperationOptions,
  parseNetworkPolicy,
  type PathComponent,
  type Proof,
  refusals,
  type Runtime,
  type RuntimeCapabilities,
  RuntimeError,
  type RuntimeErrorCode,
  type RuntimeErrorDetails,
  type RuntimeService,
  type RuntimeSpec,
  type RuntimeState,
  sameNetworkPolicy,
  type UploadEntry,
  type UploadOptions,
} from "@breakwater/runtime-api";
import {
  type AbnormalEnd,
  deadline,
  type Deadline,
  joinArchives,
  labelsFor,
  type PathArchive,
  readSingleFile,
  runExec,
  settlesWithin,
  uploadThroughHelper,
} from "@breakwater/driver-kit";
import { type Engine, operate, readAll } from "./engine.ts";
import { type Doing, DRIVER, isStatus, toRuntimeError } from "./errors.ts";
import { abnormalEnd, Demultiplexer, EngineExec, type ExecInspection } from "./exec.ts";
import { archiveOf, canonicalPath, locate, type Located, memoryMountOf, onlyMember, type PathStat } from "./files.ts";
import type { Images } from "./images.ts";
import { PublicNetwork } from "./networks.ts";
import type { EngineFacts } from "./probe.ts";
import {
  archiveThroughHelper,
  type HelperContext,
  inspectPath,
  interfaces,
  killProcesses,
  memoryMounts,
  removePaths,
  usage,
} from "./in-box.ts";
import {
  classifyEnd,
  type EngineEvent,
  type KnownEnd,
  type StatsAnswer,
  UNKNOWN_USAGE,
  type Usage,
  usageOf,
} from "./report.ts";
import { type ContainerInspection, inspectContainer, removeUntilGone } from "./teardown.ts";
import {
  BOX_LABEL,
  containerOptions,
  defaultUser,
  defaultWorkdir,
  execOptions,
  HELPER_PATH,
  type ImageFacts,
  programEnvironment,
} from "./translate.ts";

const START_TIMEOUT_MS = 40 * 60 * 1000;
const CREATE_TIMEOUT_MS = 2 * 60 * 1000;
const OPEN_EXEC_TIMEOUT_MS = 60_000;
const HELPER_TIMEOUT_MS = 60_000;
const TRANSFER_TIMEOUT_MS = 60 * 60 * 1000;
const READ_TIMEOUT_MS = 60_000;
const NETWORK_TIMEOUT_MS = 60_000;
const FREEZE_TIMEOUT_MS = 60_000;
const STOP_TIMEOUT_MS = 60_000;
const TEARDOWN_TIMEOUT_MS = 60_000;
const REPORT_TIMEOUT_MS = 30_000;
const USAGE_TIMEOUT_MS = 5000;
const COUNTERS_TIMEOUT_MS = 3000;
const MAX_LOG_BYTES = 64 * 1024;
const MAX_EVENTS_BYTES = 1024 * 1024;
const SHORT_PAUSE_MS = 50;
/** How long the engine may take to notice that a program or a box has ended. */
const NOTICE_MS = 3000;

/** What a box needs of its driver. */
export interface BoxContext {
  readonly engine: Engine;
  readonly images: Images;
  /** The bridge that boxes share, where the engine can keep them apart on it. */
  readonly publicNetwork: PublicNetwork;
  readonly kind: () => Promise<EngineFacts["kind"]>;
  readonly probe: (options?: OperationOptions) => Promise<RuntimeCapabilities>;
  /** The helper as a plain tar archive to be unpacked at `/`. */
  readonly helperArchive: () => Promise<Buffer>;
}

/** One container. The order of the methods is the order of a box's life. */
export class DockerBox implements Runtime {
  readonly id: string = `breakwater-${randomBytes(10).toString("hex")}`;
  readonly driver: string = DRIVER;
  readonly spec: RuntimeSpec;
  readonly #context: BoxContext;
  readonly #engine: Engine;
  #state: RuntimeState = "new";
  #network: NetworkPolicy;
  #kind: EngineFacts["kind"] = "docker";
  #publicNetwork: PublicNetwork;
  #image: ImageFacts | null = null;
  /** The engine's id, once it has answered. Until then our id, which is the container's name, stands for it. */
  #container: string | null = null;
  #creating: Promise<string> | null = null;
  #startedAtMs = 0;
  #memoryMounts: readonly string[] = [];
  #end: KnownEnd | null = null;

  constructor(spec: RuntimeSpec, context: BoxContext) {
    this.spec = spec;
    this.#context = context;
    this.#engine = context.engine;
    this.#network = spec.network.initial;
    this.#publicNetwork = context.publicNetwork;
  }

  get state(): RuntimeState {
    return this.#state;
  }

  // Start.

  async start(options?: OperationOptions): Promise<void> {
    if (this.#state !== "new") throw this.#wrongState("start", "a box is started once; create another one");
    this.#state = "starting";
    let work: Promise<void> | undefined;
    try {
      await operate(
        options,
        this.#doing("start", `starting a box from ${this.spec.image}`),
        (clock) => (work = this.#start(clock)),
        START_TIMEOUT_MS,
      );
      this.#state = "running";
    } catch (error) {
      // Nothing may be under way any more when we look for what is left.
      if (work !== undefined) await settlesWithin(work, CREATE_TIMEOUT_MS);
      throw await this.#undoStart(error);
    }
  }

  async #start(clock: Deadline): Promise<void> {
    const refused = refusals(
      this.spec,
      await this.#context.probe({ signal: clock.signal, timeoutMs: clock.remainingMs() }),
    );
    if (refused.length > 0) {
      throw this.#error(
        "start",
        "ERR_UNSUPPORTED",
        refused.map(({ key, message, advice }) => `${key}: ${message}; ${advice}`).join(". "),
        {
          refusals: refused,
        },
      );
    }
    this.#kind = await clock.race(this.#context.kind());
    if (this.#kind === "podman") this.#publicNetwork = new PublicNetwork(this.#engine, this.id, { isShared: false });
    const container = await this.#createAndRun(clock);
    const inspection = await inspectContainer(this.#engine, clock, container);
    if (inspection?.State.Running !== true) throw await this.#endedAtStart(clock, container, inspection);
    await this.#checkNetworks(clock, inspection);
    this.#memoryMounts = await this.#proveItWorks(clock, container);
  }

  async #createAndRun(clock: Deadline): Promise<string> {
    for (let attempt = 1; ; attempt++) {
      const container = await this.#create(clock);
      try {
        await this.#engine.done(clock, {
          method: "PUT",
          path: `/containers/${container}/archive`,
          query: { path: "/" },
          file: await this.#context.helperArchive(),
        });
        // Where the policy may become "public" later the box is made on the bridge and taken off it before it runs: engines refuse to
        // connect a box that was made without any network.
        if (this.#network.mode === "no-network" && this.#onBridge) await this.#disconnect(clock, container);
        this.#startedAtMs = Date.now();
        await this.#engine.done(clock, { method: "POST", path: `/containers/${container}/start` });
        return container;
      } catch (error) {
        clock.throwIfOver();
        if (attempt > 1 || !(await this.#bridgeIsGone(clock))) throw await this.#startFailure(clock, container, error);
        // Somebody found the bridge unused and removed it: from the beginning, once.
        await removeUntilGone(this.#engine, clock, container);
      }
    }
  }

  async #bridgeIsGone(clock: Deadline): Promise<boolean> {
    if (!this.#onBridge) return false;
    const network = await this.#publicNetwork.id(clock);
    if (await this.#publicNetwork.exists(clock, network)) return false;
    this.#publicNetwork.forget(network);
    return true;
  }

  /** Whether the box was made on the shared bridge. */
  get #onBridge(): boolean {
    return [this.spec.network.initial, ...this.spec.network.later].some(({ mode }) => mode === "public");
  }

  async #create(clock: Deadline): Promise<string> {
    for (let pulled = false, attempt = 1; ; attempt++) {
      let image = await this.#context.images.find(clock, this.spec.image);
      if (image === null) {
        image = await this.#context.images.pull(clock, this.spec.image);
        pulled = true;
      }
      this.#image = image;
      const networkMode = this.#onBridge ? await this.#publicNetwork.id(clock) : "none";
      const identity = { name: this.id, labels: this.#labels() };
      const body = containerOptions(this.spec, image, identity, networkMode);
      // The engine finishes a create call whose caller has gone. So the call is not aborted, but awaited by whoever cleans up.
      this.#creating = operate(
        undefined,
        this.#doing("start", "creating the box", "other"),
        async (own) => {
          const { name, ...rest } = body;
          const answer = await this.#engine.json<{ readonly Id: string }>(own, {
            method: "POST",
            path: "/containers/create",
            query: { name },
            body: rest,
          });
          return answer.Id;
        },
        CREATE_TIMEOUT_MS,
      );
      this.#creating.catch(() => undefined);
      try {
        this.#container = await clock.race(this.#creating);
        return this.#container;
      } catch (error) {
        // The image or the network went away since we looked: 404, in Podman also 500 for the network. Both can be had again, once.
        const { cause } = error as { cause?: unknown };
        if (attempt > 1 || !(isStatus(cause, 404) || (isStatus(cause, 500) && (await this.#bridgeIsGone(clock))))) {
          throw error;
        }
        if (networkMode !== "none") this.#publicNetwork.forget(networkMode);
        if (pulled && (await this.#context.images.find(clock, this.spec.image)) === null) throw error;
      }
    }
  }

  #labels(): Record<string, string> {
    const expiresAtMs = Date.now() + this.spec.lifetimeMs;
    return { ...labelsFor({ role: "box", trial: this.spec.trial, expiresAtMs }), [BOX_LABEL]: this.id };
  }

  async #startFailure(clock: Deadline, container: string, cause: unknown): Promise<unknown> {
    if (!isStatus(cause, 400, 403, 404, 409, 500)) return cause;
    const inspection = await inspectContainer(this.#engine, clock, container).catch(() => null);
    if (inspection === null)
      return this.#error("start", "ERR_BOX_LOST", "the box was removed by something else while it was started", {
        cause,
      });
    return this.#error(
      "start",
      "ERR_BOX_START",
      `the engine could not start the box: ${cause.detail}; see whether the image's working directory and the limits are usable`,
      { cause },
    );
  }

  async #endedAtStart(
    clock: Deadline,
    container: string,
    inspection: ContainerInspection | null,
  ): Promise<RuntimeError> {
    if (inspection === null)
      return this.#error("start", "ERR_BOX_LOST", "the box was removed by something else while it was started");
    const log = await this.#lastLogLines(clock, container).catch(() => "");
    return this.#error(
      "start",
      "ERR_BOX_START",
      `the box ended at once with exit code ${inspection.State.ExitCode}${log === "" ? "" : `; its last lines: ${log}`}; see whether its limits leave room for our hold`,
    );
  }

  async #lastLogLines(clock: Deadline, container: string): Promise<string> {
    const response = await this.#engine.send(clock.signal, {
      method: "GET",
      path: `/containers/${container}/logs`,
      query: { stdout: true, stderr: true, tail: 20 },
    });
    const frames = new Demultiplexer().push(await readAll(response, MAX_LOG_BYTES));
    return Buffer.concat(frames.map(({ chunk }) => chunk))
      .toString("utf8")
      .trim();
  }

  /** One program has run, which also tells which folders of the box are memory. */
  async #proveItWorks(clock: Deadline, container: string): Promise<readonly string[]> {
    try {
      return await memoryMounts(this.#inBox(container, "start"), { signal: clock.signal });
    } catch (error) {
      clock.throwIfOver();
      const inspection = await inspectContainer(this.#engine, clock, container);
      if (inspection?.State.Running !== true) throw await this.#endedAtStart(clock, container, inspection);
      throw this.#error("start", "ERR_BOX_START", "the box runs and cannot run our helper; see the cause", {
        cause: error,
      });
    }
  }

  /** Removes whatever the failed start has made. Gives the error to be thrown. */
  async #undoStart(error: unknown): Promise<unknown> {
    if (this.#creating === null) {
      const doing = this.#doing("start", "removing the bridge of the box", "network");
      await operate(undefined, doing, (clock) => this.#removeOwnBridge(clock)).catch(() => undefined);
      this.#state = "gone";
      return error;
    }
    await settlesWithin(this.#creating, CREATE_TIMEOUT_MS);
    try {
      await this.#remove(undefined);
      this.#state = "gone";
      return error;
    } catch (leak) {
      this.#state = "unfit";
      const leftovers = isRuntimeError(leak) ? leak.leftovers : [this.#handle];
      return this.#error(
        "start",
        "ERR_BOX_START",
        `start failed, and what it had made could not be removed (${leftovers.join(", ")}); sweep later`,
        {
          cause: error,
          leftovers,
        },
      );
    }
  }

  // Exec.

  async exec(argv: readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    this.#requireRunning("exec");
    const image = this.#image as ImageFacts;
    return this.#runProgram(this.#handle, options, {
      argv,
      env: programEnvironment(this.spec, image, options.env),
      cwd: options.cwd ?? defaultWorkdir(this.spec, image),
      user: options.user ?? defaultUser(this.spec, image),
    });
  }

  async #runProgram(
    container: string,
    options: ExecOptions,
    request: Parameters<typeof runExec>[0]["request"],
  ): Promise<ExecResult> {
    const execs = new Map<string, { readonly engineId: string; readonly transport: EngineExec }>();
    try {
      return await runExec({
        driver: DRIVER,
        boxId: this.id,
        request,
        options,
        // A box whose lifetime is over is asked all the same: it says itself that it has ended.
        deadlineMs: Math.max(NOTICE_MS, this.#startedAtMs + this.spec.lifetimeMs - Date.now()),
        open: async (execId, signal) => {
          const exec = await this.#openExec(container, ["exec", execId], signal);
          execs.set(execId, exec);
          return exec.transport;
        },
        killByExec: (execId) => this.#killExec(container, execId),
        afterAbnormalEnd: (execId) => this.#afterAbnormalEnd(container, execs.get(execId)),
        streamsEndWithProgram: this.#kind === "podman",
      });
    } catch (error) {
      if (isRuntimeError(error, "ERR_BOX_UNFIT")) this.#state = "unfit";
      throw error;
    }
  }

  /** Two calls, create and start. Creating may be repeated, as nothing runs by it; starting never. */
  async #openExec(
    container: string,
    helperArgv: readonly string[],
    signal: AbortSignal,
  ): Promise<{ readonly engineId: string; readonly transport: EngineExec }> {
    const doing = this.#doing("exec", "starting a program");
    try {
      return await operate(
        { signal },
        doing,
        async (clock) => {
          const { Id: engineId } = await this.#engine.json<{ readonly Id: string }>(
            clock,
            { method: "POST", path: `/containers/${container}/exec`, body: execOptions(helperArgv) },
            { idempotent: true },
          );
          const connection = await this.#engine.hijack(clock.signal, {
            method: "POST",
            path: `/exec/${engineId}/start`,
            body: { Detach: false, Tty: false },
          });
          return { engineId, transport: new EngineExec(connection) };
        },
        OPEN_EXEC_TIMEOUT_MS,
      );
    } catch (error) {
      const cause = (error as { cause?: unknown }).cause;
      // 500: the box ended between the two calls.
      if (isStatus(cause, 404, 409, 500)) throw await this.#whyNotRunning("exec", cause);
      throw error;
    }
  }

  async #killExec(container: string, execId: string): Promise<void> {
    const signal = AbortSignal.timeout(HELPER_TIMEOUT_MS);
    const { transport } = await this.#openExec(container, ["kill", execId], signal);
    try {
      for await (const { chunk } of transport.output) if (signal.aborted || chunk.length < 0) break;
    } finally {
      transport.close();
    }
  }

  async #afterAbnormalEnd(
    container: string,
    exec: { readonly engineId: string; readonly transport: EngineExec } | undefined,
  ): Promise<AbnormalEnd> {
    return operate(undefined, this.#doing("exec", "asking what became of a program"), async (clock) => {
      const end = performance.now() + NOTICE_MS;
      for (;;) {
        const program = exec === undefined ? null : await this.#inspectExec(clock, exec.engineId);
        const box = await inspectContainer(this.#engine, clock, container);
        if (box?.State.Running !== true) {
          await this.#noteEnd(clock, container, box);
          return { kind: "lost" };
        }
        // A box that is being killed loses its programs first.
        const settled = program !== null && !program.Running && program.ExitCode !== 137;
        if (settled || performance.now() > end) {
          if (program === null) return { kind: "running", exitCode: null };
          return abnormalEnd(program, exec?.transport.firstOutput ?? "");
        }
        await clock.sleep(SHORT_PAUSE_MS);
      }
    });
  }

  async #inspectExec(clock: Deadline, engineId: string): Promise<ExecInspection | null> {
    try {
      return await this.#engine.json<ExecInspection>(clock, { method: "GET", path: `/exec/${engineId}/json` });
    } catch (error) {
      if (isStatus(error, 404)) return null;
      throw error;
    }
  }

  // Files.

  async upload(
    files: readonly UploadEntry[] | AsyncIterable<Uint8Array>,
    directory: string,
    options?: UploadOptions,
  ): Promise<void> {
    checkPath("upload", directory);
    this.#requireRunning("upload");
    const container = this.#handle;
    await uploadThroughHelper({
      context: { driver: DRIVER, boxId: this.id, operation: "upload" },
      files,
      directory: canonicalPath(directory),
      options: { ...options, timeoutMs: options?.timeoutMs ?? TRANSFER_TIMEOUT_MS },
      runHelper: (argv, execOptions) => this.#runHelper(container, argv, execOptions),
    });
  }

  async *download(
    paths: readonly string[],
    limits: DownloadLimits,
    options?: OperationOptions,
  ): AsyncGenerator<Uint8Array, void, undefined> {
    for (const path of paths) checkPath("download", path);
    this.#requireState("download", "running", "frozen", "stopped");
    const context = { driver: DRIVER, boxId: this.id, operation: "download" } as const;
    const doing = this.#doing("download", `downloading ${paths.join(", ")}`);
    using clock = deadline(options, TRANSFER_TIMEOUT_MS, { driver: DRIVER, ...doing });
    try {
      clock.throwIfOver();
      yield* joinArchives(this.#archives(clock, "download", paths, limits), limits, context);
    } catch (error) {
      throw toRuntimeError(doing, clock.translate(error));
    }
  }

  async readBounded(
    path: string,
    limits: { readonly maxBytes: number },
    options?: OperationOptions,
  ): Promise<Uint8Array | null> {
    checkPath("readBounded", path);
    if (!Number.isSafeInteger(limits.maxBytes) || limits.maxBytes < 0) {
      throw new TypeError(`maxBytes: expected a whole number, got ${String(limits.maxBytes)}`);
    }
    this.#requireState("readBounded", "running", "frozen", "stopped");
    const context = { driver: DRIVER, boxId: this.id, operation: "readBounded" } as const;
    return operate(
      options,
      this.#doing("readBounded", `reading ${path}`),
      async (clock) => {
        try {
          for await (const archive of this.#archives(clock, "readBounded", [path], { ...limits, maxEntries: 1 })) {
            return await readSingleFile(archive, limits, context);
          }
        } catch (error) {
          if (!isRuntimeError(error, "ERR_PATH_NOT_FOUND")) throw error;
        }
        return null;
      },
      READ_TIMEOUT_MS,
    );
  }

  /** The archive of each path. What is on a memory file system the engine cannot see, and our helper sends it while the box runs. */
  async *#archives(
    clock: Deadline,
    operation: "download" | "readBounded",
    paths: readonly string[],
    limits: DownloadLimits,
  ): AsyncGenerator<PathArchive, void, undefined> {
    const container = this.#handle;
    for (const path of paths.map(canonicalPath)) {
      const onMemory = memoryMountOf(path, this.#memoryMounts) !== null;
      if (onMemory && this.#state !== "running") {
        throw this.#error(
          operation,
          "ERR_PATH_MEMORY",
          `${path} is on a memory file system, which is out of reach while the box is ${this.#state}; read it while the box runs`,
          { path },
        );
      }
      if (onMemory) {
        const { archive, close } = archiveThroughHelper(this.#inBox(container, operation), path, limits, clock.signal);
        try {
          yield archive;
        } finally {
          await close();
        }
        continue;
      }
      const located = await this.#locate(clock, operation, path);
      if (located.at === "missing") {
        throw this.#error(operation, "ERR_PATH_NOT_FOUND", `there is no ${located.path} in the box`, { path });
      }
      if (located.at === "link") {
        throw this.#error(operation, "ERR_PATH_LINK", `${located.path} is a link, and no link is followed`, { path });
      }
      if (operation === "readBounded") this.#checkReadable(path, located.stat, limits.maxBytes);
      // A link that leads to itself no engine can send, and Podman sends what a link leads to: then the folder that it is in is sent.
      const folder = path.slice(0, path.lastIndexOf("/")) || "/";
      const inFolder = located.stat.isLoop || (located.stat.kind === "link" && this.#kind === "podman");
      const response = await archiveOf(this.#engine, clock.signal, container, inFolder ? folder : path);
      try {
        if (inFolder) yield { path, stream: onlyMember(response, path.slice(path.lastIndexOf("/") + 1)) };
        else yield { path, ...(path === "/" ? { name: "" } : {}), stream: response };
      } finally {
        response.destroy();
      }
    }
  }

  async #locate(clock: Deadline, operation: string, path: string): Promise<Located> {
    try {
      return await locate(this.#engine, clock, this.#handle, path);
    } catch (error) {
      if (isStatus(error, 404)) throw await this.#lost(operation, clock, this.#handle, null, error);
      throw error;
    }
  }

  #checkReadable(path: string, stat: PathStat, maxBytes: number): void {
    if (stat.kind === "link") {
      throw this.#error("readBounded", "ERR_PATH_LINK", `${path} is a link, and no link is followed`, { path });
    }
    if (stat.kind !== "file") {
      const what = stat.kind === "directory" ? "a directory" : "neither a file, a directory nor a link";
      throw this.#error("readBounded", "ERR_PATH_KIND", `${path} is ${what}, not a regular file`, { path });
    }
    if (stat.size > maxBytes) {
      throw this.#error(
        "readBounded",
        "ERR_LIMIT",
        `${path} has ${stat.size} bytes, ${maxBytes} are allowed (maxBytes)`,
        { path },
      );
    }
  }

  async inspectPath(path: string, options?: OperationOptions): Promise<readonly PathComponent[]> {
    checkPath("inspectPath", path);
    return this.#ask("inspectPath", options, (context, helperOptions) =>
      inspectPath(context, canonicalPath(path), helperOptions),
    );
  }

  async removePaths(paths: readonly string[], options?: OperationOptions): Promise<void> {
    for (const path of paths) checkPath("removePaths", path);
    await this.#ask("removePaths", options, async (context, helperOptions) => {
      try {
        await removePaths(context, paths.map(canonicalPath), helperOptions);
      } catch (error) {
        // A component on the way that is no folder: then there is nothing at the path.
        if (!isRuntimeError(error, "ERR_PATH_KIND")) throw error;
      }
    });
  }

  async killProcesses(options?: OperationOptions): Promise<KillReport> {
    return this.#ask("killProcesses", options, killProcesses);
  }

  async #ask<T>(
    operation: string,
    options: OperationOptions | undefined,
    question: (context: HelperContext, options: ExecOptions) => Promise<T>,
  ): Promise<T> {
    this.#requireRunning(operation);
    const { signal, timeoutMs = HELPER_TIMEOUT_MS } = options ?? {};
    return question(this.#inBox(this.#handle, operation), { signal, timeoutMs });
  }

  #inBox(container: string, operation: string): HelperContext {
    return {
      boxId: this.id,
      operation,
      runHelper: (argv, options) => this.#runHelper(container, argv, options),
    };
  }

  async #runHelper(container: string, argv: readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    return this.#runProgram(
      container,
      { timeoutMs: HELPER_TIMEOUT_MS, ...options },
      { argv: [HELPER_PATH, ...argv], env: {}, cwd: "/", user: null },
    );
  }

  // Network.

  async setNetwork(policy: NetworkPolicy, options?: OperationOptions): Promise<void> {
    const wanted = parseNetworkPolicy(policy);
    const announced = [this.spec.network.initial, ...this.spec.network.later];
    if (!announced.some((known) => sameNetworkPolicy(known, wanted))) {
      throw new TypeError(
        `setNetwork: the policy ${JSON.stringify(wanted)} is not among those that the spec announced`,
      );
    }
    this.#requireState("setNetwork", "running", "frozen");
    if (this.#kind === "podman" && this.#state === "frozen") {
      // Podman says that it has changed the network of a paused box, and has not.
      throw this.#wrongState("setNetwork", "Podman changes the network of running boxes only; thaw it first");
    }
    const container = this.#handle;
    try {
      await operate(
        options,
        this.#doing("setNetwork", `changing the network to ${wanted.mode}`),
        async (clock) => {
          const before = await inspectContainer(this.#engine, clock, container);
          if (before?.State.Running !== true) throw await this.#lost("setNetwork", clock, container, before);
          if (wanted.mode === "public") await this.#connect(clock, container, before);
          else if (attachedNetworks(before).length > 0) await this.#disconnect(clock, container);
          this.#network = wanted;
          const after = await inspectContainer(this.#engine, clock, container);
          if (after?.State.Running !== true) throw await this.#lost("setNetwork", clock, container, after);
          await this.#checkNetworks(clock, after);
          if (this.#state === "running") await this.#checkInterfaces(clock, container);
        },
        NETWORK_TIMEOUT_MS,
      );
    } catch (error) {
      if (error instanceof TypeError || isRuntimeError(error, "ERR_BOX_LOST", "ERR_BOX_STATE")) throw error;
      this.#state = "unfit";
      throw this.#error(
        "setNetwork",
        "ERR_NETWORK_CHANGE",
        `it is not known that the network is ${wanted.mode} now; tear the box down`,
        {
          cause: error,
        },
      );
    }
  }

  async #connect(clock: Deadline, container: string, before: ContainerInspection): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      const network = await this.#publicNetwork.id(clock);
      if (attachedNetworks(before).includes(network)) return;
      try {
        await this.#engine.done(clock, {
          method: "POST",
          path: `/networks/${network}/connect`,
          body: { Container: container },
        });
        return;
      } catch (error) {
        if (!isStatus(error, 404) || attempt > 1) throw error;
        this.#publicNetwork.forget(network);
      }
    }
  }

  async #disconnect(clock: Deadline, container: string): Promise<void> {
    const inspection = await inspectContainer(this.#engine, clock, container);
    for (const network of Object.keys(inspection?.NetworkSettings?.Networks ?? {})) {
      await this.#engine.done(clock, {
        method: "POST",
        path: `/networks/${encodeURIComponent(network)}/disconnect`,
        body: { Container: container, Force: true },
      });
    }
  }

  /** Reads back what the box is attached to: anything but the expected set is fatal. */
  async #checkNetworks(clock: Deadline, inspection: ContainerInspection): Promise<void> {
    const attached = attachedNetworks(inspection);
    const expected = this.#network.mode === "public" ? [await this.#publicNetwork.id(clock)] : [];
    if (attached.length === expected.length && attached.every((network) => expected.includes(network))) return;
    throw this.#error(
      "setNetwork",
      "ERR_NETWORK_CHANGE",
      `the policy is ${this.#network.mode}, and the engine says that the box is attached to ${JSON.stringify(Object.keys(inspection.NetworkSettings?.Networks ?? {}))}`,
    );
  }

  /** The box's own view: which interfaces there are. */
  async #checkInterfaces(clock: Deadline, container: string): Promise<void> {
    const names = await interfaces(this.#inBox(container, "setNetwork"), { signal: clock.signal });
    const others = names.filter((name) => name !== "lo");
    if (names.includes("lo") && (this.#network.mode === "public" ? others.length > 0 : others.length === 0)) return;
    throw this.#error(
      "setNetwork",
      "ERR_NETWORK_CHANGE",
      `the policy is ${this.#network.mode}, and the box has the interfaces ${names.join(", ")}`,
    );
  }

  // Freeze.

  async freeze(options?: OperationOptions): Promise<void> {
    this.#requireState("freeze", "running");
    await this.#pause(options, "freeze", "pause", true);
    this.#state = "frozen";
  }

  async thaw(options?: OperationOptions): Promise<void> {
    this.#requireState("thaw", "frozen");
    await this.#pause(options, "thaw", "unpause", false);
    this.#state = "running";
  }

  async #pause(
    options: OperationOptions | undefined,
    operation: "freeze" | "thaw",
    verb: "pause" | "unpause",
    paused: boolean,
  ): Promise<void> {
    const { freeze } = await this.#context.probe();
    if (freeze === "none")
      throw this.#error(operation, "ERR_UNSUPPORTED", "this engine cannot freeze boxes; use another one");
    const container = this.#handle;
    await operate(
      options,
      this.#doing(operation, `${verb} of the box`),
      async (clock) => {
        let refusal: unknown;
        try {
          await this.#engine.done(clock, { method: "POST", path: `/containers/${container}/${verb}` });
        } catch (error) {
          // What counts is what the engine says the box is, below.
          refusal = error;
          clock.throwIfOver();
        }
        const inspection = await inspectContainer(this.#engine, clock, container);
        if (inspection?.State.Running !== true) throw await this.#lost(operation, clock, container, inspection);
        if (inspection.State.Paused !== paused) {
          throw this.#error(
            operation,
            "ERR_BACKEND",
            `the engine says that the box is ${inspection.State.Status}; try again`,
            { cause: refusal },
          );
        }
      },
      FREEZE_TIMEOUT_MS,
    );
  }

  // Stop.

  async stop(options?: OperationOptions): Promise<void> {
    if (!["running", "frozen", "unfit"].includes(this.#state)) return;
    await this.stopConfirmed(options).catch(() => undefined);
  }

  async stopConfirmed(options?: OperationOptions): Promise<Proof> {
    this.#requireState("stopConfirmed", "running", "frozen", "unfit", "stopped");
    const container = this.#handle;
    const wasUnfit = this.#state === "unfit";
    let proof: Proof;
    try {
      proof = await operate(
        options,
        this.#doing("stopConfirmed", "stopping the box"),
        (clock) => this.#stop(clock, container),
        STOP_TIMEOUT_MS,
      );
    } catch (error) {
      if (error instanceof TypeError || isRuntimeError(error, "ERR_BOX_LOST", "ERR_ABORTED")) throw error;
      throw this.#error(
        "stopConfirmed",
        "ERR_STOP_UNCONFIRMED",
        `the box could not be shown to have stopped; tear it down`,
        {
          cause: error,
          leftovers: [container],
        },
      );
    }
    if (!wasUnfit) this.#state = "stopped";
    return proof;
  }

  async #stop(clock: Deadline, container: string): Promise<Proof> {
    const before = await inspectContainer(this.#engine, clock, container);
    if (before === null) throw await this.#lost("stopConfirmed", clock, container, before);
    if (before.State.Running) {
      // What the box has used can only be asked while it runs.
      const used = await this.#usageIfQuick(container);
      clock.throwIfOver();
      try {
        await this.#engine.done(clock, {
          method: "POST",
          path: `/containers/${container}/kill`,
          query: { signal: "SIGKILL" },
        });
        this.#end ??= { endedBy: "stopped", exitCode: null, ...used };
      } catch (error) {
        // 409: it has ended by itself meanwhile.
        if (!isStatus(error, 409)) throw error;
      }
    }
    for (;;) {
      const after = await inspectContainer(this.#engine, clock, container);
      if (after === null) throw await this.#lost("stopConfirmed", clock, container, after);
      if (!after.State.Running && !after.State.Paused && after.State.Pid === 0) {
        await this.#noteEnd(clock, container, after);
        return {
          id: container,
          question: `GET /containers/${container}/json`,
          answer: `200 State: Status=${after.State.Status}, Running=false, Pid=0, ExitCode=${after.State.ExitCode}`,
          at: new Date().toISOString(),
        };
      }
      await clock.sleep(SHORT_PAUSE_MS);
    }
  }

  // Teardown.

  async teardownConfirmed(options?: OperationOptions): Promise<Proof> {
    if (this.#state === "starting") throw this.#wrongState("teardownConfirmed", "wait for start to end, or abort it");
    if (this.#creating === null) {
      this.#state = "gone";
      return {
        id: this.id,
        question: "was anything created for this box",
        answer: "no create call was made",
        at: new Date().toISOString(),
      };
    }
    const proof = await this.#remove(options);
    this.#state = "gone";
    return proof;
  }

  async #remove(options: OperationOptions | undefined): Promise<Proof> {
    const container = this.#handle;
    try {
      return await operate(
        options,
        this.#doing("teardownConfirmed", "removing the box"),
        async (clock) => {
          const proof = await removeUntilGone(this.#engine, clock, container);
          await this.#removeOwnBridge(clock);
          return proof;
        },
        TEARDOWN_TIMEOUT_MS,
      );
    } catch (error) {
      if (error instanceof TypeError || isRuntimeError(error, "ERR_TEARDOWN_UNCONFIRMED")) throw error;
      throw this.#error(
        "teardownConfirmed",
        "ERR_TEARDOWN_UNCONFIRMED",
        `the container ${container} could not be shown to be gone; call again, or sweep later`,
        {
          cause: error,
          leftovers: [container],
        },
      );
    }
  }

  /** Nothing is attached to the bridge any more. What cannot be removed now, sweep finds. */
  async #removeOwnBridge(clock: Deadline): Promise<void> {
    if (this.#publicNetwork === this.#context.publicNetwork || !this.#publicNetwork.used) return;
    await this.#publicNetwork.removeIfUnused(clock).catch(() => undefined);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#state === "gone") return;
    await this.teardownConfirmed().catch(() => undefined);
  }

  // Report.

  async report(options?: OperationOptions): Promise<BoxReport> {
    this.#requireState("report", "running", "frozen", "stopped", "unfit", "gone");
    const container = this.#handle;
    return operate(
      options,
      this.#doing("report", "asking what became of the box"),
      async (clock) => {
        const memoryMounts = this.#memoryMounts;
        if (this.#end === null && this.#state !== "gone") {
          const inspection = await inspectContainer(this.#engine, clock, container);
          if (inspection?.State.Running === true) {
            return { endedBy: null, exitCode: null, ...(await this.#usage(clock, container)), memoryMounts };
          }
          await this.#noteEnd(clock, container, inspection);
        }
        const end = this.#end ?? UNKNOWN_END;
        return { ...end, memoryMounts };
      },
      REPORT_TIMEOUT_MS,
    );
  }

  /** Records how the box ended, once, from the engine's own records. */
  async #noteEnd(clock: Deadline, container: string, inspection: ContainerInspection | null): Promise<void> {
    if (inspection === null) {
      this.#end ??= UNKNOWN_END;
      return;
    }
    if (this.#end === null) {
      const events = await this.#events(clock, container);
      const end = classifyEnd(inspection.State, events, this.spec.memoryMb !== null);
      const isCounted = this.#kind !== "podman" || inspection.State.OOMKilled;
      this.#end = isCounted ? end : { ...end, oomKills: null };
    } else if (this.#end.exitCode === null && this.#end.endedBy === "stopped") {
      this.#end = { ...this.#end, exitCode: inspection.State.ExitCode };
    }
  }

  /** What a box has used is not worth waiting for long when it is to be stopped. */
  async #usageIfQuick(container: string): Promise<Usage> {
    const doing = this.#doing("stopConfirmed", "asking what the box has used");
    const asked = operate(undefined, doing, (clock) => this.#usage(clock, container), USAGE_TIMEOUT_MS);
    return asked.catch(() => UNKNOWN_USAGE);
  }

  /** The counters of the box's control group; where nothing can be started in the box, what the engine knows. */
  async #usage(clock: Deadline, container: string): Promise<Usage> {
    if (this.#state === "running") {
      try {
        const used = await usage(this.#inBox(container, "report"), {
          signal: clock.signal,
          timeoutMs: COUNTERS_TIMEOUT_MS,
        });
        if (used.oomKills !== null) return used;
      } catch (error) {
        clock.throwIfOver();
        if (!isRuntimeError(error)) throw error;
      }
    }
    const stats = await this.#engine.json<StatsAnswer>(clock, {
      method: "GET",
      path: `/containers/${container}/stats`,
      query: { stream: false, "one-shot": true },
    });
    return { ...usageOf(stats), oomKills: await this.#oomEvents(clock, container) };
  }

  async #oomEvents(clock: Deadline, container: string): Promise<number | null> {
    if (this.#kind === "podman") return null; // it has no such event
    const events = await this.#events(clock, container);
    return events.filter(({ Action }) => Action === "oom").length;
  }

  /** What the engine still remembers of what happened to the box: its last events. */
  async #events(clock: Deadline, container: string): Promise<readonly EngineEvent[]> {
    const response = await this.#engine.send(clock.signal, {
      method: "GET",
      path: "/events",
      query: {
        since: Math.floor(this.#startedAtMs / 1000) - 1,
        // Podman leaves nearly all out when it is given an end, and Docker never ends without.
        ...(this.#kind === "podman" ? { stream: false } : { until: (Date.now() / 1000).toFixed(3) }),
        filters: { type: ["container"], container: [container], event: ["oom", "kill", "die", "stop"] },
      },
    });
    const lines = (await readAll(response, MAX_EVENTS_BYTES)).toString("utf8").split("\n");
    return lines.filter((line) => line.trim() !== "").map((line) => JSON.parse(line) as EngineEvent);
  }

  service(name: string): RuntimeService {
    throw new TypeError(`the spec has no service ${JSON.stringify(name)}`);
  }

  // What several of the above need.

  get #handle(): string {
    return this.#container ?? this.id;
  }

  #doing(operation: string, what: string, subject: Doing["subject"] = "box"): Doing {
    return { operation, what, boxId: this.id, subject };
  }

  #error(
    operation: string,
    code: RuntimeErrorCode,
    message: string,
    more?: Partial<RuntimeErrorDetails>,
  ): RuntimeError {
    return new RuntimeError({ ...more, code, driver: DRIVER, operation, boxId: this.id, message });
  }

  #wrongState(operation: string, advice: string): RuntimeError {
    return this.#error(
      operation,
      "ERR_BOX_STATE",
      `${operation} is not possible while the box is ${this.#state}; ${advice}`,
    );
  }

  #requireRunning(operation: string): void {
    this.#requireState(operation, "running");
  }

  #requireState(operation: string, ...states: readonly RuntimeState[]): void {
    if (states.includes(this.#state)) return;
    if (this.#state === "unfit") {
      throw this.#error(
        operation,
        "ERR_BOX_UNFIT",
        `${operation} is not possible: a promise about the box could not be kept; tear it down`,
      );
    }
    if (this.#state === "gone" && this.#end !== null && this.#end.endedBy !== "stopped") {
      throw this.#error(operation, "ERR_BOX_LOST", `${operation} is not possible: the box is gone`);
    }
    throw this.#wrongState(operation, `it has to be ${states.join(" or ")}`);
  }

  /** The engine refused a call because of the box's state, or does not know the box: finds out which. */
  async #whyNotRunning(operation: string, cause: unknown): Promise<unknown> {
    return operate(undefined, this.#doing(operation, "asking for the box"), async (clock) => {
      const container = this.#handle;
      const inspection = await inspectContainer(this.#engine, clock, container);
      if (inspection?.State.Running === true) {
        if (inspection.State.Paused)
          return this.#error(operation, "ERR_BOX_STATE", `${operation} is not possible while the box is frozen`, {
            cause,
          });
        return toRuntimeError(this.#doing(operation, `${operation} in the box`, "other"), cause);
      }
      return this.#lost(operation, clock, container, inspection, cause);
    });
  }

  async #lost(
    operation: string,
    clock: Deadline,
    container: string,
    inspection: ContainerInspection | null,
    cause?: unknown,
  ): Promise<RuntimeError> {
    await this.#noteEnd(clock, container, inspection);
    if (this.#state === "running" || this.#state === "frozen") this.#state = inspection === null ? "gone" : "stopped";
    const how =
      inspection === null
        ? "no longer exists"
        : `has ended with exit code ${inspection.State.ExitCode} (${this.#end?.endedBy ?? "unknown"})`;
    return this.#error(operation, "ERR_BOX_LOST", `the box ${how}, and we did not end it; see report()`, { cause });
  }
}

const UNKNOWN_END: KnownEnd = { endedBy: "unknown", exitCode: null, ...UNKNOWN_USAGE };

function checkPath(operation: string, path: string): void {
  if (!isAbsolutePath(path)) {
    throw new TypeError(`${operation}: ${JSON.stringify(path)} is not an absolute path without ".." and NUL`);
  }
}

function attachedNetworks(inspection: ContainerInspection): readonly string[] {
  // Docker lists the absence of a network as the network "none".
  return Object.entries(inspection.NetworkSettings?.Networks ?? {})
    .filter(([name]) => name !== "none")
    .map(([name, network]) => network.NetworkID || name);
}
