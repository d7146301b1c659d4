import type { ChildProcess } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { type FileHandle, open, readFile, readlink, stat } from "node:fs/promises";
import type { Readable } from "node:stream";
import {
  type BoxReport,
  type DownloadLimits,
  type EndedBy,
  type ExecOptions,
  type ExecResult,
  isAbsolutePath,
  isRuntimeError,
  type KillReport,
  type NetworkPolicy,
  type OperationOptions,
  parseNetworkPolicy,
  type PathComponent,
  type PreparedImage,
  type Proof,
  refusals,
  type Runtime,
  type RuntimeCapabilities,
  type RuntimeError,
  type RuntimeService,
  type RuntimeSpec,
  type RuntimeState,
  sameNetworkPolicy,
  type UploadEntry,
  type UploadOptions,
} from "@breakwater/runtime-api";
import {
  type AbnormalEnd,
  codeOfErrno,
  type Deadline,
  deadline,
  type ExecRequest,
  joinArchives,
  type PathArchive,
  readSingleFile,
  runExec,
  settlesWithin,
  uploadThroughHelper,
  withDeadline,
} from "@breakwater/driver-kit";
import { DRIVER, failure } from "./errors.ts";
import { type BoxProcess, spawnWithPipes } from "./exec.ts";
import type { Folders } from "./folders.ts";
import type { Images } from "./images.ts";
import { type Ids, spawnAsRoot } from "./namespace.ts";
import { boxCommand, type BoxFolders, HELPER, helperCommand, makeRoot, programEnvironment } from "./translate.ts";

const START_TIMEOUT_MS = 40 * 60 * 1000;
const TRANSFER_TIMEOUT_MS = 60 * 60 * 1000;
const TIMEOUT_MS = 60_000;
/** How long the end of a box may come after that of its programs. */
const NOTICE_MS = 3000;
const PAUSE_MS = 10;
/** The exit code of our hold when the box's lifetime is over. */
const LIFETIME_EXIT_CODE = 73;

/** What a box needs of its driver. */
export interface BoxContext {
  readonly folders: Folders;
  readonly images: Images;
  readonly probe: (options?: OperationOptions) => Promise<RuntimeCapabilities>;
  readonly host: () => Promise<Host>;
}

/** What can be had on this host. */
export interface Host {
  readonly ids: Ids;
  /** Whether the kernel lets us mount overlays; else every box gets a copy of its image. */
  readonly overlay: boolean;
}

/** Handles of a box's namespaces: nobody else can get their numbers. `mnt` is the one of `bwrap` itself, which has the box's root mounted. */
type Namespaces = Readonly<Record<"pid" | "user" | "net" | "ipc" | "uts" | "mnt", FileHandle>>;

interface Made {
  readonly image: PreparedImage;
  readonly folders: BoxFolders;
  /** Our `bwrap`. It ends when the first process of the box has ended, and with that process the kernel ends all others of its pid namespace. */
  readonly monitor: ChildProcess;
  pid?: number;
  namespaces?: Namespaces;
}

/** One box. The order of the methods is the order of its life. */
export class BubblewrapBox implements Runtime {
  readonly id: string = `breakwater-${randomBytes(10).toString("hex")}`;
  readonly driver: string = DRIVER;
  readonly spec: RuntimeSpec;
  readonly #context: BoxContext;
  #state: RuntimeState = "new";
  #made: Made | null = null;
  #startedAtMs = 0;
  #folderMade = false;
  #stopping = false;
  #end: Pick<BoxReport, "endedBy" | "exitCode"> | null = null;
  #removal: Promise<Proof> | null = null;

  constructor(spec: RuntimeSpec, context: BoxContext) {
    this.spec = spec;
    this.#context = context;
  }

  get state(): RuntimeState {
    return this.#state;
  }

  // Start.

  async start(options?: OperationOptions): Promise<void> {
    if (this.#state !== "new") throw this.#wrongState("start");
    this.#state = "starting";
    let work: Promise<void> | undefined;
    try {
      await this.#within("start", options, START_TIMEOUT_MS, (clock) => (work = this.#start(clock)));
      this.#state = "running";
    } catch (error) {
      // Nothing may be under way any more when what is left is removed.
      if (work !== undefined) await settlesWithin(work, TIMEOUT_MS);
      this.#state = "unfit";
      await this.teardownConfirmed().catch((cause: unknown) => {
        throw this.#error("start", "ERR_BOX_START", `start failed, and ${this.id} could not be removed; sweep later`, {
          cause,
          leftovers: [this.id],
        });
      });
      throw error;
    }
  }

  async #start(clock: Deadline): Promise<void> {
    const { folders, images, probe, host: askHost } = this.#context;
    const refused = refusals(this.spec, await probe({ signal: clock.signal }));
    if (refused.length > 0) {
      const reasons = refused.map(({ key, message, advice }) => `${key}: ${message}; ${advice}`).join(". ");
      throw this.#error("start", "ERR_UNSUPPORTED", reasons, { refusals: refused });
    }
    const host = await askHost();
    const { image, folder } = await images.prepare(this.spec.image, host.ids, clock);
    clock.throwIfOver();
    this.#folderMade = true;
    const labels = { role: "box", trial: this.spec.trial, expiresAtMs: Date.now() + this.spec.lifetimeMs };
    const box = await folders.make(this.id, ["root", "upper", "work", "shm"], host.ids, labels);
    const paths = { box, image: folder, helper: folders.helper };
    clock.throwIfOver();
    this.#startedAtMs = Date.now();
    const command = makeRoot(paths, host.overlay, boxCommand(paths, this.spec, image, 4));
    const monitor = await spawnAsRoot(host.ids, command, ["ignore", "ignore", "pipe", "pipe"]);
    const made: Made = { image, folders: paths, monitor };
    this.#made = made;
    monitor.once("exit", (code) => this.#noteEnd(code));
    let said = "";
    monitor.stderr?.setEncoding("utf8").on("data", (text: string) => (said = (said + text).slice(-2000)));
    try {
      made.pid = await firstProcess(monitor, clock);
      made.namespaces = await openNamespaces(made.pid, monitor.pid as number);
      while (!(await readFile(`/proc/${made.pid}/cmdline`, "latin1")).startsWith(HELPER)) await clock.sleep(PAUSE_MS);
      await this.#ask("start", ["mounts"], { signal: clock.signal });
    } catch (cause) {
      clock.throwIfOver();
      throw this.#error("start", "ERR_BOX_START", `the box did not start: ${said.trim() || (cause as Error).message}`, {
        cause,
      });
    }
    // A box does not keep its owner's process alive.
    monitor.unref();
    for (const stream of [monitor.stderr, monitor.stdio[4]])
      (stream as unknown as { unref?: () => void } | null)?.unref?.();
  }

  #noteEnd(code: number | null): void {
    // From inside, the kernel lets no signal end a first process that has no handler for it: 137 is somebody's outside.
    const unasked: EndedBy = code === null || code > 128 ? "outside" : "contents";
    const endedBy = code === LIFETIME_EXIT_CODE ? "lifetime" : this.#stopping ? "stopped" : unasked;
    this.#end ??= { endedBy, exitCode: code ?? 137 };
  }

  // Programs.

  async exec(argv: readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    const { image } = this.#running("exec");
    const user = options.user ?? this.spec.user ?? image.user;
    const cwd = options.cwd ?? this.spec.workdir ?? image.workdir ?? "/";
    return this.#run(options, { argv, env: programEnvironment(this.spec, image, options.env), cwd, user });
  }

  async #run(options: ExecOptions, request: ExecRequest): Promise<ExecResult> {
    let program: BoxProcess | undefined;
    try {
      return await runExec({
        driver: DRIVER,
        boxId: this.id,
        request,
        options,
        deadlineMs: Math.max(NOTICE_MS, this.#startedAtMs + this.spec.lifetimeMs - Date.now()),
        open: async (execId) => (program = await this.#spawnHelper(["exec", execId])),
        killByExec: async (execId) => {
          const killer = await this.#spawnHelper(["kill", execId]);
          killer.streams.stdout.resume();
          await once(killer.child, "exit");
          killer.close();
        },
        afterAbnormalEnd: () => this.#afterAbnormalEnd(program),
      });
    } catch (error) {
      if (isRuntimeError(error, "ERR_BOX_UNFIT") && this.#end === null) this.#state = "unfit";
      throw error;
    }
  }

  /** A box that is being ended loses its programs first. */
  async #afterAbnormalEnd(program: BoxProcess | undefined): Promise<AbnormalEnd> {
    const code = program === undefined ? null : await exitCodeOf(program.child, NOTICE_MS);
    const end = performance.now() + NOTICE_MS;
    while (this.#end === null && code !== 0 && performance.now() < end)
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    return this.#end === null ? { kind: "running", exitCode: code } : { kind: "lost" };
  }

  /** Our helper among the programs of the box, or over its files once it has stopped. */
  async #spawnHelper(argv: readonly string[]): Promise<BoxProcess> {
    const { folders, namespaces } = this.#made as Made;
    if (namespaces === undefined) throw this.#wrongState("exec");
    const running = this.#end === null;
    const enter = (running ? (["user", "mnt", "net", "ipc", "uts"] as const) : (["user", "mnt"] as const)).map(
      (name) => `--${name === "mnt" ? "mount" : name}=/proc/${process.pid}/fd/${namespaces[name].fd}`,
    );
    const command = [
      "nsenter",
      ...enter,
      "--setuid=0",
      "--setgid=0",
      "--",
      ...helperCommand(folders, this.spec, running, argv),
    ];
    return spawnWithPipes(command, `${folders.box}.${randomBytes(6).toString("hex")}`, namespaces.pid.fd);
  }

  // Files.

  async upload(
    files: readonly UploadEntry[] | AsyncIterable<Uint8Array>,
    directory: string,
    options?: UploadOptions,
  ): Promise<void> {
    const [path = "/"] = canonical("upload", [directory]);
    this.#running("upload");
    await uploadThroughHelper({
      context: { driver: DRIVER, boxId: this.id, operation: "upload" },
      files,
      directory: path,
      options: { ...options, timeoutMs: options?.timeoutMs ?? TRANSFER_TIMEOUT_MS },
      runHelper: (argv, execOptions) => this.#runHelper(argv, execOptions),
    });
  }

  async *download(
    paths: readonly string[],
    limits: DownloadLimits,
    options?: OperationOptions,
  ): AsyncGenerator<Uint8Array, void, undefined> {
    const all = canonical("download", paths);
    this.#readable("download");
    const context = { driver: DRIVER, boxId: this.id, operation: "download" } as const;
    using clock = deadline(options, TRANSFER_TIMEOUT_MS, { ...context, what: `downloading ${paths.join(", ")}` });
    try {
      clock.throwIfOver();
      const argv = ["--max-bytes", String(limits.maxBytes), "--max-entries", String(limits.maxEntries)];
      yield* joinArchives(this.#archives("download", all, argv, clock), limits, context);
    } catch (error) {
      throw clock.translate(error);
    }
  }

  async readBounded(
    path: string,
    limits: { readonly maxBytes: number },
    options?: OperationOptions,
  ): Promise<Uint8Array | null> {
    const all = canonical("readBounded", [path]);
    this.#readable("readBounded");
    const context = { driver: DRIVER, boxId: this.id, operation: "readBounded" } as const;
    return this.#within("readBounded", options, TIMEOUT_MS, async (clock) => {
      try {
        for await (const archive of this.#archives("readBounded", all, [], clock))
          return await readSingleFile(archive, limits, context);
      } catch (error) {
        if (!isRuntimeError(error, "ERR_PATH_NOT_FOUND")) throw error;
      }
      return null;
    });
  }

  async *#archives(
    operation: string,
    paths: readonly string[],
    argv: readonly string[],
    clock: Deadline,
  ): AsyncGenerator<PathArchive, void, undefined> {
    for (const path of paths) {
      const reader = await this.#spawnHelper(["tar-out", ...argv, path]);
      const onAbort = (): void => reader.close();
      clock.signal.addEventListener("abort", onAbort, { once: true });
      try {
        yield { path, name: path.slice(1), stream: this.#archive(operation, path, reader, clock) };
      } finally {
        clock.signal.removeEventListener("abort", onAbort);
        reader.child.kill("SIGKILL");
        reader.close();
      }
    }
  }

  async *#archive(
    operation: string,
    path: string,
    { streams, child }: BoxProcess,
    clock: Deadline,
  ): AsyncGenerator<Uint8Array, void, undefined> {
    let said = "";
    streams.stderr.setEncoding("utf8").on("data", (text: string) => (said = (said + text).slice(0, 65_536)));
    yield* streams.stdout as AsyncIterable<Uint8Array>;
    clock.throwIfOver();
    const exitCode = await clock.race(exitCodeOf(child, NOTICE_MS));
    await settlesWithin(streams.stderr.readableEnded ? Promise.resolve() : once(streams.stderr, "end"), NOTICE_MS);
    const answers = parseLines(said);
    this.#check(operation, exitCode ?? -1, answers, said, path);
    if (answers.some(({ skipped }) => skipped === path)) {
      throw this.#error(operation, "ERR_PATH_KIND", `${path} is neither a file, a directory nor a link`, { path });
    }
  }

  async inspectPath(path: string, options?: OperationOptions): Promise<readonly PathComponent[]> {
    const all = canonical("inspectPath", [path]);
    const [answer] = await this.#ask("inspectPath", ["stat", ...all], options);
    const components = answer?.["components"] as readonly (PathComponent & { readonly type: PathComponent["kind"] })[];
    return components.map(({ path: at, type, mode, uid, gid, linkTarget }) => ({
      path: at,
      kind: type,
      mode,
      uid,
      gid,
      linkTarget,
    }));
  }

  async removePaths(paths: readonly string[], options?: OperationOptions): Promise<void> {
    const all = canonical("removePaths", paths);
    // A component on the way that is no folder: then there is nothing at the path.
    await this.#ask("removePaths", ["remove", ...all], options).catch((error: unknown) => {
      if (!isRuntimeError(error, "ERR_PATH_KIND")) throw error;
    });
  }

  async killProcesses(options?: OperationOptions): Promise<KillReport> {
    const [report] = await this.#ask("killProcesses", ["kill-all"], options);
    return report as unknown as KillReport;
  }

  /** Our helper's answer, one object a line. */
  async #ask(operation: string, argv: readonly string[], options: OperationOptions = {}): Promise<readonly Answer[]> {
    if (this.#state !== "starting") this.#running(operation);
    const result = await this.#runHelper(argv, { signal: options.signal, timeoutMs: options.timeoutMs ?? TIMEOUT_MS });
    if (result.timedOut) throw this.#error(operation, "ERR_TIMEOUT", `our helper's ${argv[0]} did not end in time`);
    const answers = parseLines(Buffer.from(result.stdout).toString("utf8"));
    this.#check(operation, result.exitCode, answers, Buffer.from(result.stderr).toString("utf8"));
    return answers;
  }

  #runHelper(argv: readonly string[], options: ExecOptions): Promise<ExecResult> {
    return this.#run(options, { argv: [HELPER, ...argv], env: {}, cwd: "/", user: null });
  }

  /** Throws the error that our helper reports, by the system's name of it. */
  #check(operation: string, exitCode: number, answers: readonly Answer[], said: string, asked?: string): void {
    const problem = answers.find(({ error }) => error !== undefined)?.error;
    if (problem !== undefined) {
      const { code: errno, path, message } = problem;
      const code = errno === "ERR_LIMIT" ? "ERR_LIMIT" : codeOfErrno(errno);
      const about = code === "ERR_PATH_NOT_FOUND" ? (asked ?? path) : path;
      throw this.#error(operation, code, `${path}: ${message} (${errno})`, { errno, path: about });
    }
    if (exitCode !== 0)
      throw this.#error(operation, "ERR_BACKEND", `our helper ended with ${exitCode}: ${said.slice(0, 500)}`);
  }

  // What this driver does not have.

  async setNetwork(policy: NetworkPolicy): Promise<void> {
    const wanted = parseNetworkPolicy(policy);
    if (!sameNetworkPolicy(wanted, this.spec.network.initial))
      throw new TypeError("setNetwork: the spec did not announce this policy");
    this.#running("setNetwork");
  }

  async freeze(): Promise<void> {
    throw this.#error("freeze", "ERR_UNSUPPORTED", "bubblewrap cannot freeze boxes; use another driver");
  }

  async thaw(): Promise<void> {
    throw this.#error("thaw", "ERR_UNSUPPORTED", "bubblewrap cannot freeze boxes; use another driver");
  }

  service(name: string): RuntimeService {
    throw new TypeError(`the spec has no service ${JSON.stringify(name)}`);
  }

  // Stop and teardown.

  async stop(options?: OperationOptions): Promise<void> {
    if (["running", "unfit", "stopped"].includes(this.#state)) await this.stopConfirmed(options).catch(() => undefined);
  }

  async stopConfirmed(options?: OperationOptions): Promise<Proof> {
    if (!["running", "unfit", "stopped"].includes(this.#state)) throw this.#wrongState("stopConfirmed");
    const { pid = 0, monitor, namespaces } = this.#made as Made;
    return this.#within("stopConfirmed", options, TIMEOUT_MS, async (clock) => {
      await this.#kill(clock);
      const namespace = await readlink(`/proc/${process.pid}/fd/${namespaces?.pid.fd}`).catch(() => "pid:[gone]");
      if (this.#state !== "gone") this.#state = "stopped";
      return {
        id: this.id,
        question: `bwrap (process ${monitor.pid}) waited for ${pid}, the first process of ${namespace}: has it ended? The kernel ends all others before it`,
        answer: `ended with ${this.#end?.exitCode}`,
        at: new Date().toISOString(),
      };
    }).catch((cause: unknown) => {
      if (isRuntimeError(cause, "ERR_ABORTED") || cause instanceof TypeError) throw cause;
      throw this.#error("stopConfirmed", "ERR_STOP_UNCONFIRMED", "the box was not seen to end; tear it down", {
        cause,
        leftovers: [String(pid)],
      });
    });
  }

  async #kill(clock: Deadline): Promise<void> {
    if (this.#made === null || this.#end !== null) return;
    const { monitor, pid } = this.#made;
    const exit = once(monitor, "exit");
    monitor.ref();
    if (monitor.exitCode === null && monitor.signalCode === null) {
      this.#stopping = true;
      if (pid === undefined) monitor.kill("SIGKILL");
      else killIfThere(pid);
    }
    if (this.#end === null) await clock.race(exit);
  }

  async teardownConfirmed(options?: OperationOptions): Promise<Proof> {
    if (this.#state === "starting") throw this.#wrongState("teardownConfirmed");
    this.#removal ??= this.#remove(options).catch((error: unknown) => {
      this.#removal = null;
      throw error;
    });
    return this.#removal;
  }

  async #remove(options?: OperationOptions): Promise<Proof> {
    const { folders, host } = this.#context;
    const path = folders.path(this.id);
    return this.#within("teardownConfirmed", options, TIMEOUT_MS, async (clock) => {
      await this.#kill(clock);
      for (const handle of Object.values(this.#made?.namespaces ?? {})) await handle.close();
      if (this.#folderMade) await folders.remove(this.id, (await host()).ids, clock);
      if (await exists(path)) throw new Error(`${path} is still there`);
      this.#state = "gone";
      const end = this.#end === null ? "was never started" : `ended with ${this.#end.exitCode}`;
      return {
        id: this.id,
        question: `the first process (${this.#made?.pid}) and ${path}`,
        answer: `${end}; ENOENT`,
        at: new Date().toISOString(),
      };
    }).catch((cause: unknown) => {
      if (cause instanceof TypeError) throw cause;
      throw this.#error("teardownConfirmed", "ERR_TEARDOWN_UNCONFIRMED", `${path} could not be removed; call again`, {
        cause,
        leftovers: [this.id],
      });
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#state !== "gone") await this.teardownConfirmed().catch(() => undefined);
  }

  // Report.

  async report(): Promise<BoxReport> {
    if (this.#state === "new" || this.#state === "starting") throw this.#wrongState("report");
    const { endedBy, exitCode } = this.#end ?? { endedBy: null, exitCode: null };
    // The kernel keeps no records of a pid namespace. `/dev` is memory but for `/dev/shm`.
    return { endedBy, exitCode, oomKills: null, memoryPeakBytes: null, cpuMs: null, memoryMounts: ["/dev"] };
  }

  // What several of the above need.

  async #within<T>(
    operation: string,
    options: OperationOptions | undefined,
    timeoutMs: number,
    work: (clock: Deadline) => Promise<T>,
  ): Promise<T> {
    return withDeadline(
      options,
      timeoutMs,
      { driver: DRIVER, operation, boxId: this.id, what: `${operation} of the box` },
      work,
    );
  }

  #running(operation: string): Made {
    this.#readable(operation);
    if (this.#state === "stopped") throw this.#wrongState(operation);
    if (this.#end !== null)
      throw this.#error(operation, "ERR_BOX_LOST", `the box has ended (${this.#end.endedBy}), and we did not end it`);
    return this.#made as Made;
  }

  #readable(operation: string): void {
    if (this.#state === "unfit")
      throw this.#error(operation, "ERR_BOX_UNFIT", "a promise about the box could not be kept; tear it down");
    if (this.#state !== "running" && this.#state !== "stopped") throw this.#wrongState(operation);
  }

  #wrongState(operation: string): RuntimeError {
    return this.#error(operation, "ERR_BOX_STATE", `${operation} is not possible while the box is ${this.#state}`);
  }

  #error(operation: string, ...rest: Rest): RuntimeError {
    return failure({ operation, boxId: this.id }, ...rest);
  }
}

type Rest = Parameters<typeof failure> extends [unknown, ...infer R] ? R : never;

/** A line of our helper. */
interface Answer extends Readonly<Record<string, unknown>> {
  readonly error?: { readonly code: string; readonly path?: string; readonly message: string };
}

function parseLines(text: string): readonly Answer[] {
  return text.split("\n").flatMap((line) => {
    try {
      return [JSON.parse(line) as Answer];
    } catch {
      return [];
    }
  });
}

/** What `bwrap` writes to its information descriptor: the process id of its child. */
async function firstProcess(monitor: ChildProcess, clock: Deadline): Promise<number> {
  let text = "";
  const info = monitor.stdio[4] as Readable;
  info.setEncoding("utf8").on("data", (more: string) => (text += more));
  await clock.race(once(info, "end"));
  return (JSON.parse(text) as { readonly "child-pid": number })["child-pid"];
}

async function openNamespaces(pid: number, monitorPid: number): Promise<Namespaces> {
  const of = async (process: number, name: string): Promise<FileHandle> => open(`/proc/${process}/ns/${name}`);
  const [pidNamespace, user, net, ipc, uts] = await Promise.all(
    ["pid", "user", "net", "ipc", "uts"].map((name) => of(pid, name)),
  );
  const handles = { pid: pidNamespace, user, net, ipc, uts, mnt: await of(monitorPid, "mnt") };
  return handles as Namespaces;
}

/** A process may have ended before we hear of it. */
function killIfThere(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

async function exitCodeOf(child: ChildProcess, timeoutMs: number): Promise<number | null> {
  if (child.exitCode === null && child.signalCode === null) await settlesWithin(once(child, "exit"), timeoutMs);
  return child.exitCode;
}

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}

function canonical(operation: string, paths: readonly string[]): readonly string[] {
  return paths.map((path) => {
    if (!isAbsolutePath(path))
      throw new TypeError(`${operation}: ${JSON.stringify(path)} is not an absolute path without ".." and NUL`);
    return `/${path
      .split("/")
      .filter((part) => part !== "" && part !== ".")
      .join("/")}`;
  });
}
