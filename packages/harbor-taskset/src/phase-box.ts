import { setTimeout as pause } from "node:timers/promises";
import type { ExecOptions, Runtime } from "@breakwater/runtime-api";

import type { AgentBox } from "./agents.ts";

/** How long a function that was told to end, and what it had under way, may take. */
const GRACE_MS = 30_000;

export type PhaseEnd<T> =
  | { readonly status: "returned"; readonly value: T }
  | { readonly status: "threw"; readonly error: unknown }
  | { readonly status: "timed-out" }
  | { readonly status: "aborted" };

/**
 * Lets a caller's function work in a box under a deadline. When this returns, the function can do nothing in the box any more, and no program of
 * it that it was waiting for runs.
 */
export async function workInBox<T>(
  box: Runtime,
  phase: {
    readonly user: string | null;
    readonly env: Readonly<Record<string, string>>;
    readonly timeoutMs: number;
    readonly signal: AbortSignal;
  },
  work: (view: AgentBox, signal: AbortSignal) => Promise<T>,
): Promise<PhaseEnd<T>> {
  const over = new AbortController();
  const phaseBox = new PhaseBox(box, phase, over.signal);
  const working = (async () => work(phaseBox.view, over.signal))();
  let stopWaiting: (() => void) | undefined;
  try {
    return await new Promise<PhaseEnd<T>>((resolve) => {
      const onAbort = (): void => resolve({ status: "aborted" });
      const timer = setTimeout(() => resolve({ status: "timed-out" }), phase.timeoutMs);
      stopWaiting = () => {
        clearTimeout(timer);
        phase.signal.removeEventListener("abort", onAbort);
      };
      phase.signal.addEventListener("abort", onAbort, { once: true });
      if (phase.signal.aborted) onAbort();
      working.then(
        (value) => resolve({ status: "returned", value }),
        (error: unknown) => resolve({ status: "threw", error }),
      );
    });
  } finally {
    stopWaiting?.();
    over.abort(new Error("the phase is over"));
    await settled([working, ...phaseBox.underWay], GRACE_MS);
  }
}

/** A box for as long as a phase lasts. */
class PhaseBox {
  readonly view: AgentBox;
  readonly underWay = new Set<Promise<unknown>>();
  readonly #over: AbortSignal;

  constructor(
    box: Runtime,
    phase: { readonly user: string | null; readonly env: Readonly<Record<string, string>> },
    over: AbortSignal,
  ) {
    this.#over = over;
    const execOptions = (options: ExecOptions | undefined): ExecOptions => ({
      ...(phase.user === null ? {} : { user: phase.user }),
      ...this.#until(options),
      env: { ...phase.env, ...options?.env },
    });
    this.view = {
      id: box.id,
      driver: box.driver,
      exec: (argv, options) => this.#track(() => box.exec(argv, execOptions(options))),
      upload: (files, directory, options) => this.#track(() => box.upload(files, directory, this.#until(options))),
      download: (paths, limits, options) => {
        this.#over.throwIfAborted();
        return box.download(paths, limits, this.#until(options));
      },
      readBounded: (path, limits, options) => this.#track(() => box.readBounded(path, limits, this.#until(options))),
      inspectPath: (path, options) => this.#track(() => box.inspectPath(path, this.#until(options))),
      removePaths: (paths, options) => this.#track(() => box.removePaths(paths, this.#until(options))),
    };
  }

  #until<T extends { readonly signal?: AbortSignal | undefined }>(options: T | undefined): T & { signal: AbortSignal } {
    const signal = options?.signal === undefined ? this.#over : AbortSignal.any([this.#over, options.signal]);
    return { ...(options as T), signal };
  }

  #track<T>(operation: () => Promise<T>): Promise<T> {
    const promise = this.#whileUnderWay(operation);
    // A caller that does not wait for it must not end the process when the phase's end does.
    promise.catch(() => undefined);
    return promise;
  }

  async #whileUnderWay<T>(operation: () => Promise<T>): Promise<T> {
    this.#over.throwIfAborted();
    const promise = operation();
    this.underWay.add(promise);
    try {
      return await promise;
    } finally {
      this.underWay.delete(promise);
    }
  }
}

async function settled(promises: readonly Promise<unknown>[], limitMs: number): Promise<void> {
  const limit = new AbortController();
  await Promise.race([
    Promise.allSettled(promises),
    pause(limitMs, undefined, { signal: limit.signal }).catch(() => undefined),
  ]);
  limit.abort();
}
