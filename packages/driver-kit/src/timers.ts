/** Node fires a timer with a longer delay at once; every delay of ours is clamped to it (24.8 days). */
export const MAX_TIMER_MS: number = 2 ** 31 - 1;

/** A pause. Rejects with the signal's reason when it fires. */
export async function sleep(delayMs: number, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted();
  let onAbort: (() => void) | undefined;
  let timer: NodeJS.Timeout | undefined;
  try {
    await new Promise<void>((resolve, reject) => {
      timer = setTimeout(resolve, clampDelay(delayMs));
      onAbort = (): void => reject(signal?.reason as Error);
      signal?.addEventListener("abort", onAbort, { once: true });
    });
  } finally {
    clearTimeout(timer);
    if (onAbort !== undefined) signal?.removeEventListener("abort", onAbort);
  }
}

/** True if the promise settles, well or badly, within the time. Never rejects and leaves no timer behind. */
export async function settlesWithin(promise: Promise<unknown>, limitMs: number): Promise<boolean> {
  return await new Promise<boolean>((resolve) => {
    const timer = setTimeout(() => resolve(false), clampDelay(limitMs));
    const onSettled = (): void => {
      clearTimeout(timer);
      resolve(true);
    };
    promise.then(onSettled, onSettled);
  });
}

function clampDelay(delayMs: number): number {
  return Math.min(Math.max(delayMs, 0), MAX_TIMER_MS);
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
