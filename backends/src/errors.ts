/**
 * Why a backend could not be had. Codes:
 * `NEEDS_ROOT` (this machine needs a root user or a running engine), `MISSING_TOOL` (something must be installed by hand),
 * `COMMAND_FAILED`, `TIMEOUT`, `ENGINE_UNREACHABLE`, `ENGINE_REFUSED` (the engine answered with an error), `ENGINE_DIED`,
 * `NOT_RUNNING`, `WAY_OUT` (the network namespace is not sealed), `USAGE`.
 */
export type BackendErrorCode =
  | "NEEDS_ROOT"
  | "MISSING_TOOL"
  | "COMMAND_FAILED"
  | "TIMEOUT"
  | "ENGINE_UNREACHABLE"
  | "ENGINE_REFUSED"
  | "ENGINE_DIED"
  | "NOT_RUNNING"
  | "WAY_OUT"
  | "USAGE";

export class BackendError extends Error {
  readonly code: BackendErrorCode;
  /** What the person at the keyboard can do about it. */
  readonly advice: string | undefined;

  constructor(
    code: BackendErrorCode,
    message: string,
    options?: { readonly advice?: string; readonly cause?: unknown },
  ) {
    super(message, options?.cause === undefined ? undefined : { cause: options.cause });
    this.name = "BackendError";
    this.code = code;
    this.advice = options?.advice;
  }
}
