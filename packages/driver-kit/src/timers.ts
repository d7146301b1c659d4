import { setTimeout as timer } from "node:timers/promises";

/** Node fires a timer with a longer delay at once; every delay of ours is clamped to it (24.8 days). */
export const MAX_TIMER_MS: number = 2 ** 31 - 1;

/** A pause. Rejects with the signal's reason when it fires. */
export async function sleep(delayMs: number, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted();
  try {
    await timer(Math.min(Math.max(delayMs, 0), MAX_TIMER_MS), undefined, signal === undefined ? {} : { signal });
  } catch (error) {
    signal?.throwIfAborted();
    throw error;
  }
}

/** True if the promise settles, well or badly, within the time. Never rejects and leaves no timer behind. */
export async function settlesWithin(promise: Promise<unknown>, limitMs: number): Promise<boolean> {
  const cancel = new AbortController();
  const settled = promise.then(
    () => true,
    () => true,
  );
  const late = sleep(limitMs, cancel.signal).then(
    () => false,
    () => false,
  );
  try {
    return await Promise.race([settled, late]);
  } finally {
    cancel.abort();
  }
}

/** A promise that somebody else resolves. */
export function later<T>(): { readonly promise: Promise<T>; readonly resolve: (value: T) => void } {
  let resolve: ((value: T) => void) | undefined;
  const promise = new Promise<T>((done) => {
    resolve = done;
  });
  return { promise, resolve: (value) => resolve?.(value) };
}

/** Waits for one promise after the other until it is opened. Unlike a race with a long-lived promise it keeps nothing of them. */
export class Gate {
  #open = false;
  #release: (() => void) | undefined;

  get isOpen(): boolean {
    return this.#open;
  }

  /** The promise's value, or `undefined` if the gate is opened first. */
  async wait<T>(promise: Promise<T>): Promise<T | undefined> {
    if (this.#open) {
      promise.catch(() => undefined);
      return undefined;
    }
    return await new Promise<T | undefined>((resolve, reject) => {
      this.#release = (): void => resolve(undefined);
      promise.then(resolve, reject);
    });
  }

  open(): void {
    this.#open = true;
    this.#release?.();
  }
}
