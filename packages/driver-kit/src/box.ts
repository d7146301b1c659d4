import { randomBytes } from "node:crypto";
import { BOX_HELPER_PATH } from "@breakwater/box-helper";
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
  type BackendBox,
  type BoxEnd,
  type BoxExec,
  type BoxOperation,
  type BoxUsage,
  type OpenArchive,
  type StartedBox,
  UNKNOWN_USAGE,
} from "./backend-box.ts";
import { type Deadline, deadline, withDeadline } from "./deadline.ts";
import { joinArchives, readSingleFile } from "./download.ts";
import { type AbnormalEnd, type ExecRequest, runExec } from "./exec-session.ts";
import { programEnvironment } from "./first-process.ts";
import {
  archiveThroughHelper,
  type HelperContext,
  inspectPath,
  isOnMemory,
  killProcesses,
  memoryMounts,
  type Mount,
  mounts,
  removePaths,
  usage,
} from "./in-box.ts";
import { proofOf } from "./proof.ts";
import { settlesWithin } from "./timers.ts";
import { uploadThroughHelper } from "./upload.ts";

const START_TIMEOUT_MS = 40 * 60 * 1000;
/** How long what a failed start has under way is waited for. */
const SETTLE_TIMEOUT_MS = 2 * 60 * 1000;
const TRANSFER_TIMEOUT_MS = 60 * 60 * 1000;
/** For everything else. */
const TIMEOUT_MS = 60_000;
const QUESTION_TIMEOUT_MS = 30_000;
const USAGE_TIMEOUT_MS = 5000;
const COUNTERS_TIMEOUT_MS = 3000;
/** For showing a change from within: shorter than the change may take, so that it is known what took too long. */
const PROOF_TIMEOUT_MS = 20_000;
/** How long the backend may take to notice that a program or a box has ended. */
const NOTICE_MS = 3000;
const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 400;
/** The exit code of a program that was killed, as those of a box are that is being ended. */
const KILLED = 137;

/** How calls of our helper fail that something in the box ends, stops or starves. */
const PREVENTED_CODES = ["ERR_TRANSFER", "ERR_TIMEOUT", "ERR_EXEC_START", "ERR_BOX_UNFIT"] as const;
const UNFIT_CODES = ["ERR_BOX_UNFIT", "ERR_NETWORK_LOST"] as const;

const UNKNOWN_END: BoxEnd = { endedBy: "unknown", exitCode: null, ...UNKNOWN_USAGE };

/** What `createBox` takes. */
export interface BoxOptions {
  /** The driver's name. */
  readonly driver: string;
  readonly spec: RuntimeSpec;
  /** The driver's `probe`. */
  readonly probe: (options?: OperationOptions) => Promise<RuntimeCapabilities>;
  /** Makes the backend's side of the box with this id, a name that every backend takes. No I/O. */
  readonly backend: (id: string) => BackendBox;
}

/** A `Runtime` that keeps the contract on top of what one backend can do. Does no I/O before `start`. */
export function createBox(options: BoxOptions): Runtime {
  return new Box(options);
}

/** One box. The order of the methods is the order of its life. */
class Box implements Runtime {
  readonly id: string = `breakwater-${randomBytes(10).toString("hex")}`;
  readonly driver: string;
  readonly spec: RuntimeSpec;
  readonly #backend: BackendBox;
  readonly #probe: BoxOptions["probe"];
  #state: RuntimeState = "new";
  #network: NetworkPolicy;
  #capabilities: RuntimeCapabilities | null = null;
  /** Whether the backend was asked to make anything. */
  #asked = false;
  #started: StartedBox | null = null;
  #mounts: readonly Mount[] = [];
  #end: BoxEnd | null = null;
  /** A stop is under way: no program of a caller is started any more. */
  #stopping = false;
  /** The box ran when we began to end it: an end from outside is ours. */
  #ending = false;
  /** What makes the box unfit for good. A kill that could not be confirmed does not: a stop confirms it. */
  #broken: RuntimeError | null = null;
  /** Settles when no change of the box is under way any more. */
  #changed: Promise<unknown> = Promise.resolve();

  constructor({ driver, spec, probe, backend }: BoxOptions) {
    this.driver = driver;
    this.spec = spec;
    this.#probe = probe;
    this.#backend = backend(this.id);
    this.#network = spec.network.initial;
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
      const what = `starting a box from ${this.spec.image}`;
      await this.#within("start", what, options, START_TIMEOUT_MS, (clock) => (work = this.#start(clock)));
      this.#state = "running";
    } catch (error) {
      // Nothing may be under way any more when we look for what is left.
      if (work !== undefined) await settlesWithin(work, SETTLE_TIMEOUT_MS);
      throw await this.#undoStart(error);
    }
  }

  async #start(clock: Deadline): Promise<void> {
    this.#capabilities = await this.#probe({ signal: clock.signal, timeoutMs: clock.remainingMs() });
    const refused = refusals(this.spec, this.#capabilities);
    if (refused.length > 0) {
      const reasons = refused.map(({ key, message, advice }) => `${key}: ${message}; ${advice}`).join(". ");
      throw this.#error("start", "ERR_UNSUPPORTED", reasons, { refusals: refused });
    }
    clock.throwIfOver();
    this.#asked = true;
    this.#started = await this.#backend.start(clock);
    clock.throwIfOver();
    // One program has run then, which also tells which folders of the box are memory.
    try {
      this.#mounts = await mounts(this.#inside("start"), { signal: clock.signal });
    } catch (error) {
      clock.throwIfOver();
      throw await this.#unusable(error, clock);
    }
    await this.#backend.prove?.(this.#inside("start"), clock);
  }

  async #unusable(cause: unknown, clock: Deadline): Promise<RuntimeError> {
    const seen = await this.#backend.look(clock);
    if (seen === "gone") {
      const message = "the box was removed by something else while it was started";
      return this.#error("start", "ERR_BOX_LOST", message, { cause });
    }
    if (seen !== "ended") {
      const message = "the box runs and cannot run our helper; see the cause";
      return this.#error("start", "ERR_BOX_START", message, { cause });
    }
    const { exitCode } = await this.#backend.howItEnded(clock);
    const said = (await this.#backend.lastWords?.(clock).catch(() => "")) ?? "";
    const message = `the box ended at once with exit code ${exitCode}${said === "" ? "" : `; its last lines: ${said}`}; see whether its limits leave room for our hold`;
    return this.#error("start", "ERR_BOX_START", message, { cause });
  }

  /** Removes whatever the failed start has made. Gives the error to be thrown. */
  async #undoStart(error: unknown): Promise<unknown> {
    this.#end = null;
    try {
      if (this.#asked) await this.#remove(undefined);
      this.#state = "gone";
      return error;
    } catch (leak) {
      const leftovers = isRuntimeError(leak) ? leak.leftovers : [this.#backend.handle];
      const message = `start failed, and what it had made could not be removed (${leftovers.join(", ")}); sweep later`;
      return this.#break(this.#error("start", "ERR_BOX_START", message, { cause: error, leftovers }));
    }
  }

  // Programs.

  async exec(argv: readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    this.#requireState("exec", "running");
    const { image } = this.#started as StartedBox;
    if (options.user !== undefined && this.#capabilities?.users === "image") {
      const message = `programs cannot be run as ${JSON.stringify(options.user)} here, only as the image's user`;
      throw this.#error("exec", "ERR_UNSUPPORTED", message);
    }
    const ofPolicy = this.#backend.environmentFor?.(this.#network);
    const request = {
      argv,
      env: programEnvironment(this.spec, image, { ofPolicy, ofCall: options.env }),
      cwd: options.cwd ?? this.spec.workdir ?? image.workdir ?? "/",
      user: options.user ?? this.spec.user ?? image.user,
    };
    const result = await this.#runProgram(options, request, (open) => this.#unlessStopping(open));
    if (this.#backend.afterProgram !== undefined) {
      const ask = async (clock: Deadline): Promise<void> => this.#backend.afterProgram?.(clock);
      const what = "asking whether the network policy still holds";
      await this.#orUnfit(this.#within("exec", what, undefined, QUESTION_TIMEOUT_MS, ask));
    }
    return result;
  }

  /** A connection that is made while the box is stopped is given up before anything is run by it. */
  async #unlessStopping(open: Promise<BoxExec>): Promise<BoxExec> {
    const program = await open;
    if (!this.#stopping) return program;
    program.close();
    throw this.#wrongState("exec", "it is being stopped");
  }

  async #runHelper(argv: readonly string[], options: ExecOptions): Promise<ExecResult> {
    const request = { argv: [BOX_HELPER_PATH, ...argv], env: {}, cwd: "/", user: null };
    return this.#runProgram(options, request);
  }

  async #runProgram(
    options: ExecOptions,
    request: ExecRequest,
    check = (open: Promise<BoxExec>): Promise<BoxExec> => open,
  ): Promise<ExecResult> {
    const { startedAtMs } = this.#started as StartedBox;
    let program: BoxExec | undefined;
    try {
      return await runExec({
        driver: this.driver,
        boxId: this.id,
        request,
        options,
        // A box whose lifetime is over is asked all the same: it says itself that it has ended.
        deadlineMs: Math.max(NOTICE_MS, startedAtMs + this.spec.lifetimeMs - Date.now()),
        open: async (execId, signal) => (program = await check(this.#openExec(["exec", execId], signal))),
        killByExec: (execId) => this.#killExec(execId),
        afterAbnormalEnd: () => this.#afterAbnormalEnd(program),
        streamsEndWithProgram: this.#backend.streamsEndWithProgram ?? false,
      });
    } catch (error) {
      if (isRuntimeError(error, "ERR_BOX_UNFIT") && this.#runs) this.#state = "unfit";
      throw error;
    }
  }

  async #openExec(helperArgv: readonly string[], signal: AbortSignal): Promise<BoxExec> {
    let opening: Promise<BoxExec> | undefined;
    const open = (clock: Deadline): Promise<BoxExec> => {
      const argv = [BOX_HELPER_PATH, ...helperArgv];
      const reader = this.#state === "stopped" ? this.#backend.openReader?.(argv, clock) : undefined;
      return (opening = reader ?? this.#backend.openExec(argv, clock));
    };
    try {
      return await this.#within("exec", "starting a program", { signal }, TIMEOUT_MS, open);
    } catch (error) {
      opening?.then(
        (late) => late.close(),
        () => undefined,
      );
      throw await this.#whyNot("exec", error);
    }
  }

  async #killExec(execId: string): Promise<void> {
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    const killer = await this.#openExec(["kill", execId], signal);
    try {
      for await (const { chunk } of killer.output) if (signal.aborted || chunk.length < 0) break;
    } finally {
      killer.close();
    }
  }

  async #afterAbnormalEnd(program: BoxExec | undefined): Promise<AbnormalEnd> {
    return this.#within("exec", "asking what became of a program", undefined, QUESTION_TIMEOUT_MS, async (clock) => {
      return untilNoticed(clock, async (isLast): Promise<AbnormalEnd | undefined> => {
        const [outcome] = await Promise.allSettled([program?.outcome?.(clock)]);
        const seen = await this.#backend.look(clock);
        if (seen === "ended" || seen === "gone") await this.#noteEnd(seen, clock);
        if (seen === "ended" || seen === "gone" || this.#stopping) return { kind: "lost" };
        if (outcome.status === "rejected") throw outcome.reason;
        const { exitCode = null, startFailure } = outcome.value ?? {};
        // A box that is being ended loses its programs first, and starts none.
        const mayBeEnding = exitCode === null || exitCode === KILLED || startFailure !== undefined;
        if (mayBeEnding && !isLast) return undefined;
        return { kind: "running", exitCode, startFailure };
      });
    });
  }

  // Files.

  async upload(
    files: readonly UploadEntry[] | AsyncIterable<Uint8Array>,
    directory: string,
    options?: UploadOptions,
  ): Promise<void> {
    const path = canonicalPath("upload", directory);
    this.#requireState("upload", "running");
    await uploadThroughHelper({
      context: { driver: this.driver, boxId: this.id, operation: "upload" },
      files,
      directory: path,
      options: { ...options, timeoutMs: options?.timeoutMs ?? TRANSFER_TIMEOUT_MS },
      runHelper: this.#inside("upload").runHelper,
    });
  }

  async *download(
    paths: readonly string[],
    limits: DownloadLimits,
    options?: OperationOptions,
  ): AsyncGenerator<Uint8Array, void, undefined> {
    const all = paths.map((path) => canonicalPath("download", path));
    this.#requireReadable("download");
    const context = { driver: this.driver, boxId: this.id, operation: "download" } as const;
    const doing = this.#doing("download", `downloading ${paths.join(", ")}`);
    using clock = deadline(options, TRANSFER_TIMEOUT_MS, doing);
    try {
      clock.throwIfOver();
      yield* joinArchives(this.#archives("download", all, limits, clock), limits, context);
    } catch (error) {
      throw this.#typed(doing, clock.translate(error));
    }
  }

  async readBounded(
    path: string,
    limits: { readonly maxBytes: number },
    options?: OperationOptions,
  ): Promise<Uint8Array | null> {
    const all = [canonicalPath("readBounded", path)];
    if (!Number.isSafeInteger(limits.maxBytes) || limits.maxBytes < 0) {
      throw new TypeError(`maxBytes: expected a whole number, got ${String(limits.maxBytes)}`);
    }
    this.#requireReadable("readBounded");
    const context = { driver: this.driver, boxId: this.id, operation: "readBounded" } as const;
    return this.#within("readBounded", `reading ${path}`, options, TIMEOUT_MS, async (clock) => {
      try {
        const one = { ...limits, maxEntries: 1 };
        for await (const archive of this.#archives("readBounded", all, one, clock))
          return await readSingleFile(archive, limits, context);
      } catch (error) {
        if (!isRuntimeError(error, "ERR_PATH_NOT_FOUND")) throw error;
      }
      return null;
    });
  }

  #requireReadable(operation: string): void {
    const destroys = this.#capabilities?.stop === "destroys";
    this.#requireState(operation, "running", "frozen", ...(destroys ? [] : (["stopped"] as const)));
  }

  async *#archives(
    operation: "download" | "readBounded",
    paths: readonly string[],
    limits: DownloadLimits,
    clock: Deadline,
  ): AsyncGenerator<OpenArchive, void, undefined> {
    for (const path of paths) {
      const archive = await this.#openArchive(operation, path, limits, clock);
      try {
        yield archive;
      } finally {
        await archive.close();
      }
    }
  }

  /** Read by the backend where it can; by our helper what is memory, and everything where the backend reads nothing. */
  async #openArchive(
    operation: "download" | "readBounded",
    path: string,
    limits: DownloadLimits,
    clock: Deadline,
  ): Promise<OpenArchive> {
    const onMemory = isOnMemory(path, this.#mounts);
    if (!onMemory && this.#backend.locate !== undefined) {
      try {
        return await this.#openLocated(operation, path, limits, clock);
      } catch (error) {
        throw await this.#whyNot(operation, this.#typed(this.#doing(operation, `reading ${path}`), error));
      }
    }
    const isReadable =
      this.#state === "running" ||
      (this.#state === "stopped" &&
        (this.#capabilities?.stop === "sealed" || (!onMemory && this.#backend.openReader !== undefined)));
    if (isReadable) return archiveThroughHelper(this.#inside(operation), path, limits, clock.signal);
    if (!onMemory) throw this.#wrongState(operation, "our helper reads files here, and it does not run now");
    throw this.#error(
      operation,
      "ERR_PATH_MEMORY",
      `${path} is on a memory file system, which is out of reach while the box is ${this.#state}; read it while the box runs`,
      { path },
    );
  }

  async #openLocated(
    operation: "download" | "readBounded",
    path: string,
    { maxBytes }: DownloadLimits,
    clock: Deadline,
  ): Promise<OpenArchive> {
    const located = await (this.#backend.locate as NonNullable<BackendBox["locate"]>)(path, clock);
    const refuse = (code: RuntimeErrorCode, message: string): RuntimeError =>
      this.#error(operation, code, message, { path });
    if (located.at === "missing") throw refuse("ERR_PATH_NOT_FOUND", `there is no ${located.path} in the box`);
    if (located.at === "link") throw refuse("ERR_PATH_LINK", `${located.path} is a link, and no link is followed`);
    const { kind, size } = located;
    if (operation === "readBounded") {
      if (kind === "link") throw refuse("ERR_PATH_LINK", `${path} is a link, and no link is followed`);
      if (kind !== "file") {
        const what = kind === "directory" ? "a directory" : "neither a file, a directory nor a link";
        throw refuse("ERR_PATH_KIND", `${path} is ${what}, not a regular file`);
      }
      if (size > maxBytes) throw refuse("ERR_LIMIT", `${path} has ${size} bytes, ${maxBytes} are allowed (maxBytes)`);
    }
    return located.open();
  }

  async inspectPath(path: string, options?: OperationOptions): Promise<readonly PathComponent[]> {
    const canonical = canonicalPath("inspectPath", path);
    return this.#ask("inspectPath", options, (inside, limits) => inspectPath(inside, canonical, limits));
  }

  async removePaths(paths: readonly string[], options?: OperationOptions): Promise<void> {
    const canonical = paths.map((path) => canonicalPath("removePaths", path));
    await this.#ask("removePaths", options, (inside, limits) => removePaths(inside, canonical, limits));
  }

  async killProcesses(options?: OperationOptions): Promise<KillReport> {
    return this.#ask("killProcesses", options, killProcesses);
  }

  async #ask<T>(
    operation: string,
    options: OperationOptions | undefined,
    question: (inside: HelperContext, limits: ExecOptions) => Promise<T>,
  ): Promise<T> {
    this.#requireState(operation, "running");
    return question(this.#inside(operation), { signal: options?.signal, timeoutMs: options?.timeoutMs ?? TIMEOUT_MS });
  }

  #inside(operation: string, timeoutMs: number = TIMEOUT_MS): HelperContext {
    const runHelper: HelperContext["runHelper"] = (argv, options) => this.#runHelper(argv, { timeoutMs, ...options });
    return { driver: this.driver, boxId: this.id, operation, runHelper };
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
    this.#requireNetworkChange();
    await this.#inTurn((before) => this.#changeNetwork(wanted, before, options));
  }

  async #changeNetwork(
    wanted: NetworkPolicy,
    before: Promise<unknown>,
    options: OperationOptions | undefined,
  ): Promise<void> {
    let step: "waiting" | "changing" | "proving" = "waiting";
    try {
      const what = `changing the network to ${wanted.mode}`;
      await this.#within("setNetwork", what, options, TIMEOUT_MS, async (clock) => {
        await clock.race(before);
        this.#requireNetworkChange();
        await this.#requireAlive("setNetwork", clock);
        step = "changing";
        await this.#backend.setNetwork?.(wanted, clock);
        if (this.#state === "running") {
          step = "proving";
          await this.#backend.proveNetwork?.(this.#inside("setNetwork", PROOF_TIMEOUT_MS), clock);
        }
        step = "changing";
        await this.#requireAlive("setNetwork", clock);
      });
      this.#network = wanted;
    } catch (error) {
      throw await this.#networkNotChanged(wanted, step, error);
    }
  }

  /** Nothing may go on under a policy that nobody knows. Gives the error to be thrown. */
  async #networkNotChanged(
    wanted: NetworkPolicy,
    step: "waiting" | "changing" | "proving",
    cause: unknown,
  ): Promise<unknown> {
    const isRefused =
      cause instanceof TypeError || isRuntimeError(cause, "ERR_BOX_LOST", "ERR_BOX_STATE", ...UNFIT_CODES);
    if (step === "waiting" && isRefused) return cause;
    if (isRuntimeError(cause, "ERR_BOX_LOST")) {
      const why = await this.#whyNot("setNetwork", cause);
      if (!this.#runs) return why;
    }
    // What runs in the box can end, stop and starve our helper. By that it must not be able to bring about a failure of the backend.
    const isPrevented = step === "proving" && isRuntimeError(cause, ...PREVENTED_CODES);
    const message = `it is not known that the network is ${wanted.mode} now; tear the box down`;
    const failure = this.#error("setNetwork", "ERR_NETWORK_CHANGE", message, { cause });
    if (this.#runs) {
      if (isPrevented) this.#state = "unfit";
      else this.#break(failure);
    }
    try {
      await this.stopConfirmed();
    } catch {
      return this.#break(
        this.#error("setNetwork", "ERR_NETWORK_CHANGE", message, { cause, leftovers: [this.#backend.handle] }),
      );
    }
    if (!isPrevented || this.#state !== "stopped") return failure;
    this.#end = { ...(this.#end ?? UNKNOWN_END), endedBy: "contents" };
    const ended = `what runs in the box kept our helper from showing that the network is ${wanted.mode} now, so the box was stopped; see report()`;
    return this.#error("setNetwork", "ERR_BOX_LOST", ended, { cause });
  }

  #requireNetworkChange(): void {
    this.#requireState("setNetwork", "running", "frozen");
    if (this.#state === "frozen" && this.#backend.changesNetworkWhileFrozen === false)
      throw this.#wrongState("setNetwork", "thaw it first");
  }

  /** Changes of the box as a whole are made one after another, in the order of the calls: a later one waits for `before`, whatever comes of it. */
  async #inTurn(change: (before: Promise<unknown>) => Promise<void>): Promise<void> {
    const before = this.#changed;
    const changing = change(before);
    this.#changed = Promise.allSettled([before, changing]);
    await changing;
  }

  // Freeze.

  async freeze(options?: OperationOptions): Promise<void> {
    await this.#inTurn((before) => this.#changeTo("frozen", "freeze", before, options));
  }

  async thaw(options?: OperationOptions): Promise<void> {
    await this.#inTurn((before) => this.#changeTo("running", "thaw", before, options));
  }

  get #freezes(): boolean {
    return this.#capabilities?.freeze !== "none";
  }

  /** What counts is what the backend says afterwards, not how it took the call. */
  async #changeTo(
    wanted: "running" | "frozen",
    operation: "freeze" | "thaw",
    before: Promise<unknown>,
    options: OperationOptions | undefined,
  ): Promise<void> {
    const from = wanted === "frozen" ? "running" : "frozen";
    if (!this.#freezes)
      throw this.#error(operation, "ERR_UNSUPPORTED", "boxes cannot be frozen here; use another backend");
    await this.#within(operation, `${operation} of the box`, options, TIMEOUT_MS, async (clock) => {
      await clock.race(before);
      this.#requireState(operation, from);
      for (;;) {
        let refusal: unknown;
        try {
          await this.#backend[operation]?.(clock);
        } catch (error) {
          clock.throwIfOver();
          refusal = error;
        }
        const seen = await this.#requireAlive(operation, clock);
        if (seen === wanted) return;
        // A box that forks without end can be too quick for a busy kernel. The call may be made again: it has no other effect.
        if (clock.remainingMs() <= LONGEST_PAUSE_MS) {
          const message = `the backend says that the box is still ${seen}; try again`;
          throw this.#error(operation, "ERR_BACKEND", message, { cause: refusal });
        }
        await clock.sleep(FIRST_PAUSE_MS);
      }
    });
    this.#state = wanted;
  }

  // Stop.

  async stop(options?: OperationOptions): Promise<void> {
    if (!["running", "frozen", "unfit"].includes(this.#state)) return;
    await this.stopConfirmed(options).catch(() => undefined);
  }

  async stopConfirmed(options?: OperationOptions): Promise<Proof> {
    this.#requireState("stopConfirmed", "running", "frozen", "unfit", "stopped");
    let proof: Proof;
    this.#stopping = true;
    try {
      const what = "stopping the box";
      proof = await this.#within("stopConfirmed", what, options, TIMEOUT_MS, (clock) => this.#stop(clock));
    } catch (error) {
      this.#stopping = false;
      if (error instanceof TypeError || isRuntimeError(error, "ERR_BOX_LOST", "ERR_ABORTED")) throw error;
      const message = "the box could not be shown to have stopped; tear it down";
      const leftovers = [this.#backend.handle];
      throw this.#error("stopConfirmed", "ERR_STOP_UNCONFIRMED", message, { cause: error, leftovers });
    }
    if (this.#broken === null) this.#state = "stopped";
    return proof;
  }

  async #stop(clock: Deadline): Promise<Proof> {
    const seen = await this.#backend.look(clock);
    // Of a box that was destroyed the backend may know nothing any more when we ask again.
    if (seen === "gone" && this.#state !== "stopped") throw await this.#lost("stopConfirmed", seen, clock);
    // What the box has used can only be asked while it runs.
    const used = seen === "ended" || seen === "gone" ? null : await this.#usageIfQuick();
    clock.throwIfOver();
    if (used !== null) this.#ending = true;
    const { proof, exitCode, endedBefore } = await this.#backend.stop(this.#inside("stopConfirmed"), clock);
    if (used !== null && !endedBefore) this.#end ??= { endedBy: "stopped", exitCode, ...used };
    else await this.#noteEnd("ended", clock);
    return proof;
  }

  // Teardown.

  async teardownConfirmed(options?: OperationOptions): Promise<Proof> {
    if (this.#state === "starting") throw this.#wrongState("teardownConfirmed", "wait for start to end, or abort it");
    const proof = this.#asked
      ? await this.#remove(options)
      : proofOf(this.id, "was anything created for this box", "no create call was made");
    this.#state = "gone";
    return proof;
  }

  async #remove(options: OperationOptions | undefined): Promise<Proof> {
    const { handle } = this.#backend;
    try {
      const what = "removing the box";
      return await this.#within("teardownConfirmed", what, options, TIMEOUT_MS, (clock) => this.#backend.remove(clock));
    } catch (error) {
      if (error instanceof TypeError || isRuntimeError(error, "ERR_TEARDOWN_UNCONFIRMED")) throw error;
      const message = `${handle} could not be shown to be gone; call again, or sweep later`;
      throw this.#error("teardownConfirmed", "ERR_TEARDOWN_UNCONFIRMED", message, {
        cause: error,
        leftovers: [handle],
      });
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#state === "gone") return;
    await this.teardownConfirmed().catch(() => undefined);
  }

  // Report.

  async report(options?: OperationOptions): Promise<BoxReport> {
    this.#requireState("report", "running", "frozen", "stopped", "unfit", "gone");
    const what = "asking what became of the box";
    return this.#within("report", what, options, QUESTION_TIMEOUT_MS, async (clock) => ({
      ...(await this.#endOrUsage(clock)),
      memoryMounts: memoryMounts(this.#mounts),
      egress: (await this.#orUnfit(this.#backend.egress?.(clock))) ?? null,
    }));
  }

  async #endOrUsage(clock: Deadline): Promise<BoxEnd> {
    if (this.#end === null && this.#state !== "gone") {
      const seen = await this.#backend.look(clock);
      if (seen === "running" || seen === "frozen")
        return { endedBy: null, exitCode: null, ...(await this.#usage(clock)) };
      await this.#noteEnd(seen, clock);
    }
    return this.#end ?? UNKNOWN_END;
  }

  /** What a box has used is not worth waiting for long when it is to be stopped. */
  async #usageIfQuick(): Promise<BoxUsage> {
    const what = "asking what the box has used";
    const asked = this.#within("stopConfirmed", what, undefined, USAGE_TIMEOUT_MS, (clock) => this.#usage(clock));
    return asked.catch(() => UNKNOWN_USAGE);
  }

  /** The counters of the box's control group; where nothing can be started in the box, what the backend knows. */
  async #usage(clock: Deadline): Promise<BoxUsage> {
    if (this.#state === "running") {
      try {
        const limits = { signal: clock.signal, timeoutMs: COUNTERS_TIMEOUT_MS };
        const used = await usage(this.#inside("report"), limits);
        if (used.oomKills !== null) return used;
      } catch (error) {
        clock.throwIfOver();
        if (!isRuntimeError(error)) throw error;
      }
    }
    return (await this.#backend.usage?.(clock)) ?? UNKNOWN_USAGE;
  }

  service(name: string): RuntimeService {
    const isKnown = this.spec.services.some((service) => service.name === name);
    if (!isKnown || this.#backend.service === undefined)
      throw new TypeError(`the spec has no service ${JSON.stringify(name)}`);
    return this.#backend.service(name);
  }

  // What several of the above need.

  /** A box of which we have not heard otherwise. */
  get #runs(): boolean {
    return this.#state === "running" || this.#state === "frozen";
  }

  /** What enforced the network policy may be gone: such a box is unfit. */
  async #orUnfit<T>(asked: Promise<T> | undefined): Promise<T | undefined> {
    try {
      return await asked;
    } catch (error) {
      if (isRuntimeError(error, "ERR_NETWORK_LOST") && (this.#runs || this.#state === "unfit")) this.#break(error);
      throw error;
    }
  }

  /** The box is unfit from now on, and stays so when it has been shown to have stopped. Gives the error back. */
  #break(error: RuntimeError): RuntimeError {
    this.#state = "unfit";
    this.#broken = error;
    return error;
  }

  async #requireAlive(operation: string, clock: Deadline): Promise<"running" | "frozen"> {
    const seen = await this.#backend.look(clock);
    if (seen === "ended" || seen === "gone") throw await this.#lost(operation, seen, clock);
    return seen;
  }

  /** The backend refused a call, perhaps because the box has ended: finds out. Gives the error to be thrown. */
  async #whyNot(operation: string, cause: unknown): Promise<unknown> {
    if (!isRuntimeError(cause, "ERR_BOX_LOST", "ERR_BOX_STATE", "ERR_BACKEND")) return cause;
    const ask = async (clock: Deadline): Promise<RuntimeError> =>
      untilNoticed(clock, async (isLast) => {
        const seen = await this.#backend.look(clock);
        if (seen === "ended" || seen === "gone") return this.#lost(operation, seen, clock, cause);
        if (seen === "frozen" && operation === "exec")
          return this.#error(operation, "ERR_BOX_STATE", "exec is not possible while the box is frozen", { cause });
        if (!isLast) return undefined;
        if (cause.code === "ERR_BACKEND") return cause;
        return this.#error(operation, "ERR_BACKEND", `the box is ${seen}, and ${operation} was refused`, { cause });
      });
    return this.#within(operation, "asking for the box", undefined, QUESTION_TIMEOUT_MS, ask).catch(() => cause);
  }

  async #lost(operation: string, seen: "ended" | "gone", clock: Deadline, cause?: unknown): Promise<RuntimeError> {
    await this.#noteEnd(seen, clock);
    const { endedBy, exitCode } = this.#end ?? UNKNOWN_END;
    if (this.#runs) this.#state = seen === "gone" || this.#capabilities?.stop === "destroys" ? "gone" : "stopped";
    const how = seen === "gone" ? "no longer exists" : `has ended with exit code ${exitCode} (${endedBy})`;
    return this.#error(operation, "ERR_BOX_LOST", `the box ${how}, and we did not end it; see report()`, { cause });
  }

  /** Records how the box ended, once. */
  async #noteEnd(seen: "ended" | "gone", clock: Deadline): Promise<void> {
    if (this.#end !== null) return;
    const end = seen === "gone" ? UNKNOWN_END : await this.#backend.howItEnded(clock);
    const isOurs = this.#ending && (end.endedBy === "outside" || end.endedBy === "unknown");
    this.#end ??= isOurs ? { ...end, endedBy: "stopped" } : end;
  }

  async #within<T>(
    operation: string,
    what: string,
    options: OperationOptions | undefined,
    timeoutMs: number,
    work: (clock: Deadline) => Promise<T>,
  ): Promise<T> {
    const doing = this.#doing(operation, what);
    try {
      return await withDeadline(options, timeoutMs, doing, work);
    } catch (error) {
      throw this.#typed(doing, error);
    }
  }

  #typed(doing: BoxOperation, error: unknown): unknown {
    if (isRuntimeError(error) || error instanceof TypeError) return error;
    if (this.#backend.toRuntimeError !== undefined) return this.#backend.toRuntimeError(error, doing);
    const reason = error instanceof Error ? error.message : String(error);
    return this.#error(doing.operation, "ERR_BACKEND", `${doing.what} failed: ${reason}; see the cause`, {
      cause: error,
    });
  }

  #doing(operation: string, what: string): BoxOperation {
    return { driver: this.driver, boxId: this.id, operation, what };
  }

  #error(
    operation: string,
    code: RuntimeErrorCode,
    message: string,
    more?: Partial<RuntimeErrorDetails>,
  ): RuntimeError {
    return new RuntimeError({ ...more, code, driver: this.driver, operation, boxId: this.id, message });
  }

  #wrongState(operation: string, advice: string): RuntimeError {
    const message = `${operation} is not possible while the box is ${this.#state}; ${advice}`;
    return this.#error(operation, "ERR_BOX_STATE", message);
  }

  #requireState(operation: string, ...states: readonly RuntimeState[]): void {
    if (states.includes(this.#state)) {
      if (this.#stopping && !states.includes("stopped")) throw this.#wrongState(operation, "it is being stopped");
      return;
    }
    if (this.#state === "unfit") {
      const hasLostNetwork = isRuntimeError(this.#broken, "ERR_NETWORK_LOST");
      const why = hasLostNetwork ? "the box has lost its network" : "a promise about the box could not be kept";
      const message = `${operation} is not possible: ${why}; tear it down`;
      throw this.#error(operation, hasLostNetwork ? "ERR_NETWORK_LOST" : "ERR_BOX_UNFIT", message, {
        cause: this.#broken ?? undefined,
      });
    }
    if (this.#end !== null && this.#end.endedBy !== "stopped")
      throw this.#error(operation, "ERR_BOX_LOST", `${operation} is not possible: the box has ended; see report()`);
    throw this.#wrongState(operation, `it has to be ${states.join(" or ")}`);
  }
}

/**
 * Asks until there is an answer, for as long as the backend may take to notice that a box has ended: a box that is being ended loses and refuses programs before the
 * backend says so, and questions about it may fail meanwhile. The last time has to have an answer.
 */
async function untilNoticed<T>(clock: Deadline, ask: (isLast: boolean) => Promise<T | undefined>): Promise<T> {
  const endsAt = performance.now() + NOTICE_MS;
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS)) {
    const isLast = performance.now() > endsAt;
    try {
      const answer = await ask(isLast);
      if (answer !== undefined) return answer;
    } catch (error) {
      clock.throwIfOver();
      if (isLast) throw error;
    }
    await clock.sleep(pauseMs);
  }
}

/** The path without empty components, `.` and slashes at the end. */
function canonicalPath(operation: string, path: string): string {
  if (!isAbsolutePath(path)) {
    throw new TypeError(`${operation}: ${JSON.stringify(path)} is not an absolute path without ".." and NUL`);
  }
  return `/${path
    .split("/")
    .filter((component) => component !== "" && component !== ".")
    .join("/")}`;
}
