import {
  isRuntimeError,
  type ImageSource,
  type PreparedImage,
  type PrepareImageOptions,
  type RuntimeDriver,
} from "@breakwater/runtime-api";
import { setTimeout as pause } from "node:timers/promises";

const FIRST_WAIT_MS = 1000;
const MAX_WAIT_MS = 60_000;
const DEFAULT_TIMEOUT_MS = 60 * 60 * 1000;

/** An image on its way, for all who wait for it. */
interface Preparation {
  readonly image: Promise<PreparedImage>;
  readonly listeners: Set<(line: string) => void>;
  readonly controller: AbortController;
  waiting: number;
}

const underWay = new WeakMap<RuntimeDriver, Map<string, Preparation>>();

/**
 * `driver.prepareImage`, once for all trials of this process that need the image at the same time. A backend or a registry that has no room now is asked again, as
 * long as there is time. It is given up when nobody waits for it any more.
 */
export async function prepareImageOnce(
  driver: RuntimeDriver,
  source: ImageSource,
  options: PrepareImageOptions,
): Promise<PreparedImage> {
  const { signal, onProgress } = options;
  signal?.throwIfAborted();
  let all = underWay.get(driver);
  if (all === undefined) underWay.set(driver, (all = new Map()));
  const key = JSON.stringify(source);
  const preparation = all.get(key) ?? begin(driver, source, options);
  all.set(key, preparation);
  preparation.waiting += 1;
  if (onProgress !== undefined) preparation.listeners.add(onProgress);
  try {
    return await (signal === undefined ? preparation.image : untilAborted(preparation.image, signal));
  } finally {
    preparation.waiting -= 1;
    if (onProgress !== undefined) preparation.listeners.delete(onProgress);
    if (preparation.waiting === 0) {
      if (all.get(key) === preparation) all.delete(key);
      preparation.controller.abort(signal?.reason);
    }
  }
}

function begin(driver: RuntimeDriver, source: ImageSource, { timeoutMs }: PrepareImageOptions): Preparation {
  const controller = new AbortController();
  const listeners: Preparation["listeners"] = new Set();
  const onProgress = (line: string): void => {
    for (const listen of listeners) listen(line);
  };
  const image = whenThereIsRoom(driver, source, { signal: controller.signal, timeoutMs, onProgress });
  // Who waits hears of it.
  image.catch(() => undefined);
  return { image, listeners, controller, waiting: 0 };
}

async function whenThereIsRoom(
  driver: RuntimeDriver,
  source: ImageSource,
  options: PrepareImageOptions & { readonly signal: AbortSignal },
): Promise<PreparedImage> {
  const endsAt = performance.now() + (options.timeoutMs ?? DEFAULT_TIMEOUT_MS);
  for (let waitMs = FIRST_WAIT_MS; ; waitMs = Math.min(MAX_WAIT_MS, waitMs * 2)) {
    try {
      const timeoutMs = Math.max(1, Math.ceil(endsAt - performance.now()));
      return await driver.prepareImage(source, { ...options, timeoutMs });
    } catch (error) {
      const isFull = isRuntimeError(error, "ERR_BACKEND_QUOTA") && error.retryable;
      if (!isFull || performance.now() + waitMs >= endsAt) throw error;
      options.onProgress?.(`no room yet: ${error.message}`);
      await pause(waitMs, undefined, { signal: options.signal });
    }
  }
}

async function untilAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  let onAbort: (() => void) | undefined;
  const aborted = new Promise<never>((_, reject) => {
    onAbort = () => reject(signal.reason as Error);
    signal.addEventListener("abort", onAbort, { once: true });
  });
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    if (onAbort !== undefined) signal.removeEventListener("abort", onAbort);
  }
}
