import { RuntimeError, type OperationOptions } from "@breakwater/runtime-api";
import { MAX_TIMER_MS, sleep } from "./timers.ts";

/** What an operation is about, for its errors. */
export interface OperationDescription {
  readonly driver: string;
  readonly operation: string;
  readonly boxId?: string | undefined;
  /** What goes into the message before "did not end within …", for instance `creating the box`. */
  readonly what: string;
}

/** The one clock of an operation. Dispose it, or its timer keeps the process alive. */
export interface Deadline extends Disposable {
  /** Fires when the time is over or the caller's signal fires; its reason is the typed error. */
  readonly signal: AbortSignal;
  /** How long the operation may take in all. */
  readonly timeoutMs: number;
  /** What is left of it, 0 or more. */
  remainingMs(): number;
  /** Throws `ERR_TIMEOUT` or `ERR_ABORTED` once the deadline is over. */
  throwIfOver(): void;
  /** The promise's value, unless the deadline is over first. The promise itself goes on: give it `signal` as well. */
  race<T>(promise: Promise<T>): Promise<T>;
  /** A pause that the deadline ends. */
  sleep(delayMs: number): Promise<void>;
  /** `error`, or the deadline's own error if that is what ended the work. For `catch` blocks around calls that got `signal`. */
  translate(error: unknown): unknown;
}

/**
 * Starts the clock: `options.timeoutMs`, else `defaultMs`, at most 24.8 days. Throws a `TypeError` for a time that is not a number of
 * 0 or more; `Infinity` is the longest.
 */
export function deadline(
  options: OperationOptions | undefined,
  defaultMs: number,
  describe: OperationDescription,
): Deadline {
  const timeoutMs = checkTimeoutMs(options?.timeoutMs) ?? defaultMs;
  const startedAt = performance.now();
  const controller = new AbortController();
  const { driver, operation, boxId, what } = describe;

  const timer = setTimeout(
    () => {
      controller.abort(
        new RuntimeError({
          code: "ERR_TIMEOUT",
          driver,
          operation,
          boxId,
          message: `${what} did not end within ${timeoutMs} ms; allow more with timeoutMs, or see whether the backend is overloaded`,
        }),
      );
    },
    Math.min(timeoutMs, MAX_TIMER_MS),
  );
  const onAbort = (): void => {
    controller.abort(
      new RuntimeError({
        code: "ERR_ABORTED",
        driver,
        operation,
        boxId,
        message: `${what} was aborted by the caller`,
        cause: options?.signal?.reason,
      }),
    );
  };
  if (options?.signal?.aborted === true) onAbort();
  else options?.signal?.addEventListener("abort", onAbort, { once: true });

  const { signal } = controller;
  return {
    signal,
    timeoutMs,
    remainingMs: () => Math.max(0, timeoutMs - (performance.now() - startedAt)),
    throwIfOver: () => signal.throwIfAborted(),
    race: (promise) => raceWithSignal(promise, signal),
    sleep: (delayMs) => sleep(delayMs, signal),
    translate: (error) => (signal.aborted ? signal.reason : error),
    [Symbol.dispose]: () => {
      clearTimeout(timer);
      options?.signal?.removeEventListener("abort", onAbort);
    },
  };
}

/** Runs `work` under a deadline: its errors become the deadline's once that is over, and the clock is stopped at the end. */
export async function withDeadline<T>(
  options: OperationOptions | undefined,
  defaultMs: number,
  describe: OperationDescription,
  work: (deadline: Deadline) => Promise<T>,
): Promise<T> {
  const clock = deadline(options, defaultMs, describe);
  try {
    clock.throwIfOver();
    return await clock.race(work(clock));
  } catch (error) {
    throw clock.translate(error);
  } finally {
    clock[Symbol.dispose]();
  }
}

/** The value itself if it is a time that an operation can have. */
export function checkTimeoutMs(timeoutMs: number | undefined): number | undefined {
  if (timeoutMs !== undefined && (typeof timeoutMs !== "number" || !(timeoutMs >= 0))) {
    throw new TypeError(`timeoutMs: expected a number of milliseconds, got ${String(timeoutMs)}`);
  }
  return timeoutMs;
}

async function raceWithSignal<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  let onAbort: (() => void) | undefined;
  const over = new Promise<never>((_resolve, reject) => {
    onAbort = (): void => reject(signal.reason as Error);
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
  });
  try {
    return await Promise.race([promise, over]);
  } finally {
    if (onAbort !== undefined) signal.removeEventListener("abort", onAbort);
    over.catch(() => undefined);
    promise.catch(() => undefined);
  }
}
