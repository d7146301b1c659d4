import { isRuntimeError } from "@breakwater/runtime-api";
import type { Deadline } from "./deadline.ts";

export interface RetryOptions {
  /** Attempts in all. Default is 3. */
  readonly attempts?: number | undefined;
  /** Before the second attempt, doubled for each further one, with jitter. Default is 200 ms. */
  readonly firstDelayMs?: number | undefined;
  /** Which failures are known to have had no effect. Default: a `RuntimeError` that says `retryable`. */
  readonly isRetryable?: ((error: unknown) => boolean) | undefined;
}

/**
 * Repeats a call that failed before it had any effect, within the deadline. Never for a call that may have started something: what is
 * not known to be without effect is thrown at once.
 */
export async function retry<T>(
  clock: Deadline,
  call: (attempt: number) => Promise<T>,
  options?: RetryOptions,
): Promise<T> {
  const attempts = options?.attempts ?? 3;
  const isRetryable = options?.isRetryable ?? ((error: unknown) => isRuntimeError(error) && error.retryable);
  for (let attempt = 1; ; attempt++) {
    clock.throwIfOver();
    try {
      return await call(attempt);
    } catch (error) {
      clock.throwIfOver();
      const delayMs = (options?.firstDelayMs ?? 200) * 2 ** (attempt - 1) * (0.5 + Math.random() / 2);
      if (attempt >= attempts || !isRetryable(error) || clock.remainingMs() <= delayMs) throw error;
      await clock.sleep(delayMs);
    }
  }
}
