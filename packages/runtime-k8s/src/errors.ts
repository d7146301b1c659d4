import { ApiException } from "@kubernetes/client-node";
import { failure, NOT_SENT } from "@breakwater/driver-kit";
import { isRuntimeError } from "@breakwater/runtime-api";

export const DRIVER = "k8s";

/** The API server's answer to a call, when it is not a success: `metav1.Status`. */
export class ClusterError extends Error {
  override readonly name = "ClusterError";
  readonly status: number;
  /** The server's own word for the kind of failure, for instance `AlreadyExists`; empty where it has none. */
  readonly reason: string;
  /** What the server says about it; for people, never for decisions. */
  readonly detail: string;
  readonly retryAfterMs: number | null;

  constructor(call: string, answer: Pick<ClusterError, "status" | "reason" | "detail" | "retryAfterMs">) {
    super(`${call} answered ${answer.status}: ${answer.detail}`);
    this.status = answer.status;
    this.reason = answer.reason;
    this.detail = answer.detail;
    this.retryAfterMs = answer.retryAfterMs;
  }
}

/** There was no answer. `code` is the system's name of the error. */
export class ConnectionError extends Error {
  override readonly name = "ConnectionError";
  readonly code: string;

  constructor(message: string, code: string, cause?: unknown) {
    super(message, { cause });
    this.code = code;
  }
}

/** True for an answer of the API server with one of the statuses. */
export function isStatus(error: unknown, ...statuses: readonly number[]): error is ClusterError {
  return error instanceof ClusterError && statuses.includes(error.status);
}

/** The part of `metav1.Status` that counts. */
interface StatusBody {
  readonly reason?: string;
  readonly message?: string;
}

/** What a client library throws, as one of the two above; anything else as it is. */
export function clusterError(call: string, error: unknown): unknown {
  if (error instanceof ApiException) {
    const { code: status, body, headers } = error as ApiException<unknown>;
    return statusError(call, status, body, headers["retry-after"]);
  }
  // `fetch` fails with a TypeError whose cause tells why.
  const cause = (error as { readonly cause?: unknown } | null)?.cause;
  const code = (cause as { readonly code?: unknown } | null | undefined)?.code ?? (error as { code?: unknown }).code;
  if (typeof code === "string") return new ConnectionError(`${call}: ${messageOf(cause ?? error)}`, code, error);
  if (error instanceof TypeError && cause !== undefined)
    return new ConnectionError(`${call}: ${messageOf(cause)}`, "", error);
  return error;
}

/** An answer that is not a success, from its status and its body: text or an object. */
export function statusError(call: string, status: number, body: unknown, retryAfter?: string): ClusterError {
  const { reason, message } = parseStatus(body);
  const seconds = Number(retryAfter);
  return new ClusterError(call, {
    status,
    reason: reason ?? "",
    detail: (message ?? (typeof body === "string" ? body : "no reason given")).slice(0, 2000),
    retryAfterMs: retryAfter !== undefined && seconds >= 0 ? seconds * 1000 : null,
  });
}

function parseStatus(body: unknown): StatusBody {
  try {
    const value: unknown = typeof body === "string" ? JSON.parse(body) : body;
    return typeof value === "object" && value !== null ? value : {};
  } catch {
    return {};
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** What was going on, for the error that comes out of it. */
export interface Doing {
  readonly operation: string;
  /** A clause for messages: "creating the box". */
  readonly what: string;
  readonly boxId?: string | undefined;
}

/** Classifies by status, the server's reason and the system's error code, never by text. What is already typed, or a mistake, stays as it is. */
export function toRuntimeError(doing: Doing, cause: unknown): unknown {
  if (isRuntimeError(cause) || cause instanceof TypeError) return cause;
  const fail = failure({ driver: DRIVER, ...doing }, cause);
  if (cause instanceof ClusterError) {
    const reason = `the cluster answered ${cause.status} (${cause.detail})`;
    switch (cause.status) {
      case 401:
        return fail("ERR_BACKEND_AUTH", reason, "check the credentials in the kubeconfig");
      case 403:
        return fail("ERR_BACKEND_AUTH", reason, "grant the rights of deploy/breakwater.yaml, see doctor");
      case 404:
        return fail("ERR_BOX_LOST", reason, "the pod, or its namespace, was removed by something else");
      case 400:
      case 409:
        return fail("ERR_BOX_STATE", reason, "the box is not in a state for this");
      case 429:
        return fail("ERR_BACKEND_QUOTA", reason, "wait and try again", true);
      case 503:
        return fail("ERR_BACKEND_UNAVAILABLE", reason, "wait and try again", true);
      default:
        return fail("ERR_BACKEND", reason, "see the cluster's events");
    }
  }
  if (cause instanceof ConnectionError) {
    const notSent = NOT_SENT.has(cause.code);
    const advice = notSent
      ? "see whether the kubeconfig names a cluster that runs"
      : "see whether the API server was restarted";
    return fail("ERR_BACKEND_UNAVAILABLE", cause.message, advice, notSent);
  }
  return fail("ERR_BACKEND", messageOf(cause), "see the cause");
}
