import type { NetworkPolicy } from "./network.ts";
import type { RuntimeSpec } from "./spec.ts";

/** Taken by every operation. Each ends by itself: without `timeoutMs` the driver's own deadline for that operation holds. */
export interface OperationOptions {
  readonly signal?: AbortSignal | undefined;
  readonly timeoutMs?: number | undefined;
}

/**
 * `new` → `starting` → `running` ⇄ `frozen` → `stopped` → `gone`. `unfit`: a promise could not be kept (a program that cannot be ended, a
 * network policy that is not known to hold); it can be stopped and torn down, and is `stopped` by the former if only the end of a program was in doubt.
 * A box that ended without us is found out by the next operation; until then its state is what we last knew.
 */
export type RuntimeState = "new" | "starting" | "running" | "frozen" | "stopped" | "unfit" | "gone";

/** Evidence for `events.jsonl`: what was asked of the backend about which object, what it answered, and when. */
export interface Proof {
  readonly id: string;
  readonly question: string;
  readonly answer: string;
  /** ISO 8601, UTC. */
  readonly at: string;
}

export type OutputStream = "stdout" | "stderr";

export interface ExecOptions extends OperationOptions {
  /** Absolute. Default is the spec's, else the image's working directory. */
  readonly cwd?: string | undefined;
  /** On top of the image's and the spec's environment; byte for byte. */
  readonly env?: Readonly<Record<string, string>> | undefined;
  /** A name, an id, or `user:group`. Default is the spec's, else the image's. */
  readonly user?: string | undefined;
  /** Default is an empty input. */
  readonly stdin?: Uint8Array | string | AsyncIterable<Uint8Array> | undefined;
  /** Gets every byte in order; a returned promise holds the stream back. */
  readonly onOutput?: ((stream: OutputStream, chunk: Uint8Array) => void | Promise<void>) | undefined;
  /** How much of each stream is kept: its beginning. Default is 10 MiB. */
  readonly maxOutputBytes?: number | undefined;
}

export interface ExecResult {
  /** 0-255; 128 + signal if the program was ended by one. A number other than 0 is a result, never an error. */
  readonly exitCode: number;
  /** The beginning of each stream, at most `maxOutputBytes`. */
  readonly stdout: Uint8Array;
  readonly stderr: Uint8Array;
  /** Bytes that the streams really had. */
  readonly stdoutBytes: number;
  readonly stderrBytes: number;
  /** True if a stream had more than what was kept. */
  readonly truncated: boolean;
  /** True if the deadline ended the program; everything that it had started is gone. */
  readonly timedOut: boolean;
  /** False if something that the program left behind still holds its output open. */
  readonly streamsClosed: boolean;
  readonly durationMs: number;
}

/**
 * One thing to be put into a box. Paths are relative with `/`, without `..`; parents are made when missing. `\` counts as `/`, because
 * people build paths on Windows: only the members of a tar stream can have it in their names.
 */
export type UploadEntry =
  | { readonly path: string; readonly content: Uint8Array | string; readonly mode?: number | undefined }
  | { readonly path: string; readonly directory: true; readonly mode?: number | undefined }
  | { readonly path: string; readonly linkTarget: string };

export interface UploadOptions extends OperationOptions {
  /** Owner of everything that arrives. Default is root, never the host's ids. */
  readonly owner?: { readonly uid: number; readonly gid: number } | undefined;
}

export interface DownloadLimits {
  /** Content bytes of all members together. */
  readonly maxBytes: number;
  readonly maxEntries: number;
}

/**
 * Why a box no longer runs, from the backend's own records.
 *
 * - `memory`: its own memory limit; `lifetime`: its own lifetime; `contents`: our hold ended by itself, or what ran in the box kept us from showing that its network
 *   policy is in force. These count as ended by its contents.
 * - `stopped`: we stopped it. `outside`: something else ended it. `unknown`: there is no record.
 */
export type EndedBy = "memory" | "lifetime" | "contents" | "stopped" | "outside" | "unknown";

export interface BoxReport {
  /** `null` while the box runs. */
  readonly endedBy: EndedBy | null;
  /** Processes ended by the box's memory limit; `null` where the backend does not count. */
  readonly oomKills: number | null;
  readonly exitCode: number | null;
  readonly memoryPeakBytes: number | null;
  readonly cpuMs: number | null;
  /** Mount points in the box whose files are lost when it stops, for instance `/dev/shm`. */
  readonly memoryMounts: readonly string[];
  /** Of all allowlists that the box has had; `null` or absent where there was none, or where the driver does not count. */
  readonly egress?: EgressReport | null | undefined;
}

/** What allowlists kept a box from reaching. */
export interface EgressReport {
  /** Everything that was refused: more than `denials` has, where it was much. */
  readonly deniedCount: number;
  /** The first of them, at most 1000, oldest first. */
  readonly denials: readonly EgressDenial[];
}

export interface EgressDenial {
  /** ISO 8601, UTC. */
  readonly at: string;
  /** As the box named it; `null` where it named none. */
  readonly host: string | null;
  readonly port: number;
  /** What refused it, for instance `not-listed` or `port`. */
  readonly rule: string;
}

/** One component of a path in a box, as it is: a link is not followed. */
export interface PathComponent {
  /** Absolute. */
  readonly path: string;
  readonly kind: "file" | "directory" | "link" | "other";
  /** Permission bits with setuid, setgid and sticky, 07777 at most. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly linkTarget: string | null;
}

/** What `killProcesses` did. */
export interface KillReport {
  readonly killed: number;
  /** What still runs, our own programs left out. */
  readonly remaining: readonly { readonly pid: number; readonly argv: readonly string[] }[];
}

/**
 * One box. Constructing it does no I/O; several operations may run at the same time.
 * Errors are `RuntimeError`s; see `RuntimeErrorCode`.
 */
export interface Runtime extends AsyncDisposable {
  /** Ours, known before `start`; the backend's own id is in proofs. */
  readonly id: string;
  readonly driver: string;
  readonly spec: RuntimeSpec;
  readonly state: RuntimeState;

  /**
   * When it returns, the box runs, a trivial program has run in it, and the network policy is in force. When it rejects, nothing is
   * left. A second call rejects with `ERR_BOX_STATE`.
   */
  start(options?: OperationOptions): Promise<void>;

  /**
   * Runs one program. `argv` is data and never seen by a shell; no login shell. The result is decided by the program's exit. On `timeoutMs` or an abort
   * everything that it started is killed before the call returns; an abort then rejects with `ERR_ABORTED`.
   * Default deadline: what is left of the box's lifetime. Never runs a program twice.
   */
  exec(argv: readonly string[], options?: ExecOptions): Promise<ExecResult>;

  /**
   * The entries, or the members of a plain tar stream, become contents of `directory` (absolute, made when missing). Nothing is
   * written through a link, neither on the way to `directory` (`ERR_PATH_LINK`) nor below it (the link is replaced). A directory that
   * exists is kept and gets the mode and the owner of its entry. Verified.
   */
  upload(
    files: readonly UploadEntry[] | AsyncIterable<Uint8Array>,
    directory: string,
    options?: UploadOptions,
  ): Promise<void>;

  /**
   * A plain tar stream of the paths (absolute) with all below them; member names are the paths without the leading `/`. Links are not
   * followed: a link as the last component travels as one, before that it is `ERR_PATH_LINK`. A missing path is
   * `ERR_PATH_NOT_FOUND`, too much is `ERR_LIMIT`. The stream is hostile input: validate every member.
   */
  download(paths: readonly string[], limits: DownloadLimits, options?: OperationOptions): AsyncIterable<Uint8Array>;

  /** A regular file of at most `maxBytes`; `null` if there is none. Longer is `ERR_LIMIT`; a directory, FIFO, device or link is `ERR_PATH_KIND` or `ERR_PATH_LINK`. */
  readBounded(
    path: string,
    limits: { readonly maxBytes: number },
    options?: OperationOptions,
  ): Promise<Uint8Array | null>;

  /**
   * The components of an absolute path as they are, from the first below `/` on; it ends with the last that exists, or with the first that
   * is no directory. Links are not followed. Only while the box runs.
   */
  inspectPath(path: string, options?: OperationOptions): Promise<readonly PathComponent[]>;

  /**
   * Removes the paths (absolute) with all below them, as root. No link is followed: one on the way is `ERR_PATH_LINK`, one as the last
   * component is removed itself. A missing path is fine; a mount point is emptied. Verified by looking; what is left is
   * `ERR_PATH_DENIED`. Only while the box runs.
   */
  removePaths(paths: readonly string[], options?: OperationOptions): Promise<void>;

  /** Kills every process but our own programs, as far as the box's root can, and lists what remains. Only while the box runs. */
  killProcesses(options?: OperationOptions): Promise<KillReport>;

  /**
   * To a policy that the spec announced; another one is a `TypeError`. When it returns the policy holds; when it rejects nothing runs in the box any more: `ERR_NETWORK_CHANGE` and
   * the box is `unfit`, or `ERR_BOX_LOST` where its contents were to blame. Calls that overlap are made one after another, in their order; so are those of `freeze` and `thaw`.
   */
  setNetwork(policy: NetworkPolicy, options?: OperationOptions): Promise<void>;

  /** No process of the box runs until `thaw`; `exec` rejects with `ERR_BOX_STATE`, `download` and `readBounded` work. */
  freeze(options?: OperationOptions): Promise<void>;
  thaw(options?: OperationOptions): Promise<void>;

  /** Best-effort halt. Never rejects. */
  stop(options?: OperationOptions): Promise<void>;
  /** Proven: nothing that came from the image or a caller runs any more, and no program can be started. Else `ERR_STOP_UNCONFIRMED`. */
  stopConfirmed(options?: OperationOptions): Promise<Proof>;
  /** Proven by id: the box and its services no longer exist. Else `ERR_TEARDOWN_UNCONFIRMED` with what is left. May be called again. */
  teardownConfirmed(options?: OperationOptions): Promise<Proof>;

  /** Rejects with `ERR_NETWORK_LOST` while the box runs and what enforced its allowlist has ended. */
  report(options?: OperationOptions): Promise<BoxReport>;
  /** A service of the spec. Throws `TypeError` for a name that the spec does not have. */
  service(name: string): RuntimeService;
}

/** A service beside the main box. */
export interface RuntimeService {
  readonly name: string;
  exec(argv: readonly string[], options?: ExecOptions): Promise<ExecResult>;
  download(paths: readonly string[], limits: DownloadLimits, options?: OperationOptions): AsyncIterable<Uint8Array>;
  readBounded(
    path: string,
    limits: { readonly maxBytes: number },
    options?: OperationOptions,
  ): Promise<Uint8Array | null>;
  stopConfirmed(options?: OperationOptions): Promise<Proof>;
  /** How it ended, if it has: by its program (`contents`), or otherwise. */
  report(options?: OperationOptions): Promise<BoxReport>;
}
