import { type Deadline, failure, NOT_SENT, withDeadline } from "@breakwater/driver-kit";
import { isRuntimeError, type OperationOptions } from "@breakwater/runtime-api";

export const DRIVER = "prime";

/** An answer of the service that is not a success. */
export class ServiceError extends Error {
  readonly status: number;
  readonly call: string;
  /** The name that the gateway gives to some failures, for instance `sandbox_not_found`. */
  readonly reason: string | null;
  /** What the service says about it; for people, never for decisions. */
  readonly detail: string;
  /** From `Retry-After`. */
  readonly retryAfterMs: number | null;

  constructor(
    call: string,
    status: number,
    {
      reason = null,
      detail,
      retryAfterMs = null,
    }: { reason?: string | null; detail: string; retryAfterMs?: number | null },
  ) {
    super(`${call} answered ${status}: ${detail}`);
    this.name = "ServiceError";
    this.call = call;
    this.status = status;
    this.reason = reason;
    this.detail = detail;
    this.retryAfterMs = retryAfterMs;
  }

  /** The gateway says that there is no such sandbox any more, or (right after its start) not yet. */
  get isUnknownSandbox(): boolean {
    return this.status === 410 || (this.status === 502 && this.reason === "sandbox_not_found");
  }
}

/** An answer that the service's own documents do not allow. */
export class AnswerError extends Error {
  override readonly name = "AnswerError";
}

export function isStatus(error: unknown, ...statuses: readonly number[]): error is ServiceError {
  return error instanceof ServiceError && statuses.includes(error.status);
}

/** Failures of a connection that had begun; the service may have acted. */
const CUT: ReadonlySet<unknown> = new Set([
  "ECONNRESET",
  "EPIPE",
  "ETIMEDOUT",
  "UND_ERR_SOCKET",
  "UND_ERR_HEADERS_TIMEOUT",
  "UND_ERR_BODY_TIMEOUT",
  "UND_ERR_RESPONSE_CONTENT_LENGTH_MISMATCH",
]);
/** What passes by itself; 500 is among it because the service is known for bursts of it. */
const PASSING: ReadonlySet<number> = new Set([408, 429, 500, 502, 503, 504, 520, 522, 524]);

/** Whether the same call may do better a little later. Only for calls that can be made twice. */
export function isPassing(error: unknown): boolean {
  if (error instanceof ServiceError) return PASSING.has(error.status) && !error.isUnknownSandbox;
  const { code } = error as { code?: unknown };
  return NOT_SENT.has(code) || CUT.has(code);
}

/** What was going on, for the error that comes out of it. */
export interface Doing {
  readonly operation: string;
  /** A clause for messages: "creating the box". */
  readonly what: string;
  readonly boxId?: string | undefined;
}

/** Work of an operation that begins here: within its deadline, with its failures as the contract wants them. */
export async function operate<T>(
  options: OperationOptions | undefined,
  doing: Doing,
  work: (clock: Deadline) => Promise<T>,
  timeoutMs: number,
): Promise<T> {
  try {
    return await withDeadline(options, timeoutMs, { driver: DRIVER, ...doing }, work);
  } catch (error) {
    throw toRuntimeError(doing, error);
  }
}

/** Classifies by status and by the system's error code, never by text. What is already a `RuntimeError` or a mistake stays as it is. */
export function toRuntimeError(doing: Doing, cause: unknown): unknown {
  if (isRuntimeError(cause) || cause instanceof TypeError) return cause;
  const fail = failure({ driver: DRIVER, ...doing }, cause);
  if (cause instanceof ServiceError) {
    const reason = `Prime answered ${cause.status} (${cause.detail})`;
    if (cause.isUnknownSandbox) return fail("ERR_BOX_LOST", reason, "the sandbox is gone");
    switch (cause.status) {
      case 401:
      case 403:
        return fail("ERR_BACKEND_AUTH", reason, "check the API key and its scope (sandbox)");
      case 402:
        return fail("ERR_BACKEND_QUOTA", reason, "add credit to the account");
      case 404:
        return fail("ERR_BOX_LOST", reason, "the sandbox was removed by something else");
      case 409:
        return fail("ERR_BOX_STATE", reason, "the sandbox is not in a state for this");
      case 429:
        return fail("ERR_BACKEND_QUOTA", reason, "wait and try again", true);
      case 500:
      case 502:
      case 503:
      case 504:
      case 520:
      case 522:
      case 524:
        return fail("ERR_BACKEND_UNAVAILABLE", reason, "wait and try again");
      default:
        return fail("ERR_BACKEND", reason, "see the cause");
    }
  }
  const code = (cause as { code?: unknown } | null)?.code;
  const reason = cause instanceof Error && cause.message !== "" ? cause.message : String(code ?? cause);
  if (NOT_SENT.has(code)) {
    return fail("ERR_BACKEND_UNAVAILABLE", reason, "see whether the address of the API is right and reachable", true);
  }
  if (CUT.has(code)) {
    return fail("ERR_BACKEND_UNAVAILABLE", `the connection to Prime was lost (${reason})`, "try again");
  }
  return fail("ERR_BACKEND", reason, "see the cause");
}
