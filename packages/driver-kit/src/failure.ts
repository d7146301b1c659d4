import { RuntimeError, type RuntimeErrorCode } from "@breakwater/runtime-api";
import type { OperationDescription } from "./deadline.ts";

/** Codes of connections that failed before anything reached the other side, in every client that we use. */
export const NOT_SENT: ReadonlySet<unknown> = new Set([
  "ECONNREFUSED",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "UND_ERR_CONNECT_TIMEOUT",
]);

/** Makes the error of a failed operation: why it failed, and what to do. `retryable` is `false` unless said otherwise. */
export type Fail = (code: RuntimeErrorCode, reason: string, advice: string, retryable?: boolean) => RuntimeError;

/** For a driver's `toRuntimeError`, which only has to tell what kind of failure it was. */
export function failure({ driver, operation, boxId, what }: OperationDescription, cause: unknown): Fail {
  return (code, reason, advice, retryable = false) =>
    new RuntimeError({
      code,
      driver,
      operation,
      boxId,
      retryable,
      cause,
      message: `${what} failed: ${reason}; ${advice}`,
    });
}
