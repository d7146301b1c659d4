/**
 * What went wrong, as API: codes never change between major versions, messages may.
 *
 * - `ERR_UNSUPPORTED`: the driver or this backend cannot honour the request; `refusals` has every reason. Nothing was created.
 * - `ERR_BACKEND_UNAVAILABLE`: the backend does not answer. `ERR_BACKEND_AUTH`: it answers and does not let us in.
 * - `ERR_BACKEND_QUOTA`: it has no room now (quota, rate limit, address pool); waiting may help.
 * - `ERR_BACKEND`: it answered something that its own contract does not allow.
 * - `ERR_IMAGE_NOT_FOUND`, `ERR_IMAGE_PULL`, `ERR_IMAGE_BUILD`: the image cannot be had. `ERR_IMAGE_UNFIT`: it cannot run here
 *   (operating system, architecture). `ERR_IMAGE_CHANGED`: it is not the image that was pinned.
 * - `ERR_BOX_START`: the box ended or never became usable during `start`; nothing is left.
 * - `ERR_BOX_STATE`: the operation does not fit the box's state (not started, frozen, stopped).
 * - `ERR_BOX_LOST`: the box no longer exists or runs, and we did not end it.
 * - `ERR_BOX_UNFIT`: a promise about the box could not be kept (a kill or a network change was not confirmed); it must be torn down.
 * - `ERR_EXEC_START`: the program could not be started; `step` and `errno` say why. `ERR_EXEC_UNKNOWN`: it was started and its
 *   outcome is not known. Neither is ever an exit code.
 * - `ERR_TIMEOUT`: the operation's own deadline. `ERR_ABORTED`: the caller's signal.
 * - `ERR_LIMIT`: more bytes or entries than the caller allows.
 * - `ERR_PATH_NOT_FOUND`, `ERR_PATH_KIND` (not a regular file where one is needed), `ERR_PATH_LINK` (a link where none is
 *   followed), `ERR_PATH_DENIED` (read-only or forbidden), `ERR_PATH_MEMORY` (on a memory file system that the backend cannot reach).
 * - `ERR_DISK_FULL`: the box's disk. `ERR_TRANSFER`: what arrived is not what was sent.
 * - `ERR_NETWORK_CHANGE`: the new policy is not in force; the box is unfit.
 * - `ERR_NETWORK_LOST`: what enforced the box's allowlist has ended, or one of its services was ended from outside: the box does not reach any more what it is to
 *   reach; it is unfit.
 * - `ERR_STOP_UNCONFIRMED`, `ERR_TEARDOWN_UNCONFIRMED`: no proof; `leftovers` has the ids to look at.
 */
export type RuntimeErrorCode =
  | "ERR_UNSUPPORTED"
  | "ERR_BACKEND_UNAVAILABLE"
  | "ERR_BACKEND_AUTH"
  | "ERR_BACKEND_QUOTA"
  | "ERR_BACKEND"
  | "ERR_IMAGE_NOT_FOUND"
  | "ERR_IMAGE_PULL"
  | "ERR_IMAGE_BUILD"
  | "ERR_IMAGE_UNFIT"
  | "ERR_IMAGE_CHANGED"
  | "ERR_BOX_START"
  | "ERR_BOX_STATE"
  | "ERR_BOX_LOST"
  | "ERR_BOX_UNFIT"
  | "ERR_EXEC_START"
  | "ERR_EXEC_UNKNOWN"
  | "ERR_TIMEOUT"
  | "ERR_ABORTED"
  | "ERR_LIMIT"
  | "ERR_PATH_NOT_FOUND"
  | "ERR_PATH_KIND"
  | "ERR_PATH_LINK"
  | "ERR_PATH_DENIED"
  | "ERR_PATH_MEMORY"
  | "ERR_DISK_FULL"
  | "ERR_TRANSFER"
  | "ERR_NETWORK_CHANGE"
  | "ERR_NETWORK_LOST"
  | "ERR_STOP_UNCONFIRMED"
  | "ERR_TEARDOWN_UNCONFIRMED";

/** One reason why a driver will not run a spec, found before anything is paid for. */
export interface Refusal {
  /** The key of the spec that cannot be honoured, for instance `network.initial` or `memoryMb`. */
  readonly key: string;
  readonly code: RefusalCode;
  /** What was asked and what the backend can do. */
  readonly message: string;
  /** What the caller can do about it. */
  readonly advice: string;
}

export type RefusalCode =
  | "REFUSED_NETWORK_MODE"
  | "REFUSED_NETWORK_CHANGE"
  | "REFUSED_ALLOWLIST_ENTRY"
  | "REFUSED_CPUS"
  | "REFUSED_MEMORY"
  | "REFUSED_GPUS"
  | "REFUSED_SERVICES"
  | "REFUSED_USER"
  | "REFUSED_LIFETIME"
  | "REFUSED_OPERATING_SYSTEM";

export interface RuntimeErrorDetails {
  readonly code: RuntimeErrorCode;
  /** The driver's name. */
  readonly driver: string;
  /** The method that failed, for instance `exec`. */
  readonly operation: string;
  /** What happened to what, why, and what to do. */
  readonly message: string;
  readonly boxId?: string | undefined;
  /** True only if the same call may succeed later and is known to have had no effect. Default is `false`. */
  readonly retryable?: boolean | undefined;
  readonly cause?: unknown;
  /** `ERR_UNSUPPORTED`: every reason. */
  readonly refusals?: readonly Refusal[] | undefined;
  /** `ERR_EXEC_START`: the step that failed. */
  readonly step?: "user" | "cwd" | "exec" | "helper" | undefined;
  /** `ERR_EXEC_START` and file errors: the system's name of the error, for instance `ENOENT`. */
  readonly errno?: string | undefined;
  /** The path inside the box that the error is about. */
  readonly path?: string | undefined;
  /** `ERR_STOP_UNCONFIRMED`, `ERR_TEARDOWN_UNCONFIRMED`, `ERR_BOX_START`: ids of what may be left. */
  readonly leftovers?: readonly string[] | undefined;
}

const BRAND = Symbol.for("breakwater.RuntimeError");

/** Everything that a driver throws on purpose. Programming mistakes are bare `TypeError`s. */
export class RuntimeError extends Error {
  static {
    Object.defineProperty(this.prototype, BRAND, { value: true });
    Object.defineProperty(this.prototype, "name", { value: "RuntimeError", configurable: true, writable: true });
  }

  readonly code: RuntimeErrorCode;
  readonly driver: string;
  readonly operation: string;
  readonly boxId: string | undefined;
  readonly retryable: boolean;
  readonly refusals: readonly Refusal[];
  readonly step: RuntimeErrorDetails["step"];
  readonly errno: string | undefined;
  readonly path: string | undefined;
  readonly leftovers: readonly string[];

  constructor(details: RuntimeErrorDetails) {
    super(`${details.driver}: ${details.message}`, details.cause === undefined ? undefined : { cause: details.cause });
    this.code = details.code;
    this.driver = details.driver;
    this.operation = details.operation;
    this.boxId = details.boxId;
    this.retryable = details.retryable ?? false;
    this.refusals = details.refusals ?? [];
    this.step = details.step;
    this.errno = details.errno;
    this.path = details.path;
    this.leftovers = details.leftovers ?? [];
  }
}

/** True for a `RuntimeError` of any copy of this package; with `code`, only for that code. */
export function isRuntimeError(value: unknown, ...codes: readonly RuntimeErrorCode[]): value is RuntimeError {
  return (
    typeof value === "object" &&
    value !== null &&
    BRAND in value &&
    (codes.length === 0 || codes.includes((value as unknown as RuntimeError).code))
  );
}
