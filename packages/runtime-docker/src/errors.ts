import type { IncomingHttpHeaders } from "node:http";
import { failure, NOT_SENT } from "@breakwater/driver-kit";
import { isRuntimeError } from "@breakwater/runtime-api";

export const DRIVER = "docker";

/** The engine's answer to a call, when it is not a success. */
export class EngineError extends Error {
  readonly status: number;
  readonly call: string;
  /** What the engine says about it; for people, never for decisions. */
  readonly detail: string;
  readonly headers: IncomingHttpHeaders;

  constructor(status: number, call: string, detail: string, headers: IncomingHttpHeaders = {}) {
    super(`${call} answered ${status}: ${detail}`);
    this.name = "EngineError";
    this.status = status;
    this.call = call;
    this.detail = detail;
    this.headers = headers;
  }
}

/** True for an answer of the engine with one of the statuses. */
export function isStatus(error: unknown, ...statuses: readonly number[]): error is EngineError {
  return error instanceof EngineError && statuses.includes(error.status);
}

/** What was going on, for the error that comes out of it. */
export interface Doing {
  readonly operation: string;
  /** A clause for messages: "creating the box". */
  readonly what: string;
  readonly boxId?: string | undefined;
  /** What a 404 is about. Default is the box. */
  readonly subject?: "box" | "image" | "network" | "other" | undefined;
  /** Whether the call has the same effect when it is made twice; only then is a lost connection `retryable`. Default is `false`. */
  readonly idempotent?: boolean | undefined;
}

/** Failures before anything reached the engine. */
const NOT_REACHED: ReadonlySet<unknown> = new Set([...NOT_SENT, "ENOENT", "ENOTSOCK"]);
/** Failures of a connection that had begun; the engine may have acted. */
const CUT: ReadonlySet<unknown> = new Set([
  "ECONNRESET",
  "EPIPE",
  "ETIMEDOUT",
  "ERR_STREAM_PREMATURE_CLOSE",
  "HPE_INVALID_CONSTANT",
]);
const REFUSED: ReadonlySet<unknown> = new Set(["EACCES", "EPERM"]);

/** Classifies by status and by the system's error code, never by text. What is already a `RuntimeError` or a mistake stays as it is. */
export function toRuntimeError(doing: Doing, cause: unknown): unknown {
  if (isRuntimeError(cause) || cause instanceof TypeError) return cause;
  const fail = failure({ driver: DRIVER, ...doing }, cause);

  if (cause instanceof EngineError) {
    const reason = `the engine answered ${cause.status} (${cause.detail})`;
    switch (cause.status) {
      case 401:
      case 403:
        return fail("ERR_BACKEND_AUTH", reason, "check the credentials for the engine and the registry");
      case 404:
        if (doing.subject === "image")
          return fail("ERR_IMAGE_NOT_FOUND", reason, "check the name, or pull or build the image first");
        if (doing.subject === undefined || doing.subject === "box") {
          return fail("ERR_BOX_LOST", reason, "the box was removed by something else");
        }
        return fail("ERR_BACKEND", reason, "see the engine's log");
      case 409:
        return fail("ERR_BOX_STATE", reason, "the box is not in a state for this");
      case 429:
        return fail("ERR_BACKEND_QUOTA", reason, "wait and try again", true);
      case 503:
        return fail("ERR_BACKEND_UNAVAILABLE", reason, "wait and try again", true);
      default:
        return fail("ERR_BACKEND", reason, "see the engine's log");
    }
  }

  const code = (cause as { code?: unknown } | null)?.code;
  const reason = cause instanceof Error && cause.message !== "" ? cause.message : String(code ?? cause);
  if (NOT_REACHED.has(code)) {
    return fail("ERR_BACKEND_UNAVAILABLE", reason, "start the engine, or name another one with DOCKER_HOST", true);
  }
  if (CUT.has(code)) {
    return fail(
      "ERR_BACKEND_UNAVAILABLE",
      `the connection to the engine was lost (${reason})`,
      "see whether the engine was restarted",
      doing.idempotent ?? false,
    );
  }
  if (REFUSED.has(code)) {
    return fail(
      "ERR_BACKEND_AUTH",
      reason,
      "this user may not open the engine's socket (join its group, or name another engine with DOCKER_HOST)",
    );
  }
  return fail("ERR_BACKEND", reason, "see the cause");
}
