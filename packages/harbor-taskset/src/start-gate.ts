import type { RuntimeDriver } from "@breakwater/runtime-api";

import type { BoxKind } from "./boxes.ts";

/** Below the lowest published limit of the backends that have one (Prime: 500 in 60 s). */
const STARTS_PER_SECOND = 8;
/** As many at once after a quiet time. */
const BURST = 16;
const FIRST_WAIT_MS = 1000;
const MAX_WAIT_MS = 60_000;

interface Waiting {
  readonly of: BoxKind;
  readonly go: () => void;
}

const gates = new WeakMap<RuntimeDriver, StartGate>();

/** The gate of a driver, for all trials of this process. */
export function startGate(driver: RuntimeDriver): StartGate {
  let gate = gates.get(driver);
  if (gate === undefined) gates.set(driver, (gate = new StartGate()));
  return gate;
}

/**
 * Where starts of boxes wait: at most 8 a second, 16 at once after a quiet time. When the backend has no room, nobody starts for a while, longer each time; then
 * one tries for all. Boxes that grade come first: their time runs, and their agents are paid for.
 */
export class StartGate {
  readonly #waiting: Waiting[] = [];
  #tokens = BURST;
  #filledAt = performance.now();
  #closedUntil = 0;
  #waitMs = 0;
  /** Whether somebody tries for all just now. */
  #trying = false;
  #timer: NodeJS.Timeout | null = null;

  /** Resolves when a box may be started; rejects with the signal's reason. */
  async pass(of: BoxKind, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    await new Promise<void>((resolve, reject) => {
      const waiting: Waiting = {
        of,
        go: () => {
          signal.removeEventListener("abort", onAbort);
          resolve();
        },
      };
      const onAbort = (): void => {
        const at = this.#waiting.indexOf(waiting);
        if (at >= 0) this.#waiting.splice(at, 1);
        reject(signal.reason as Error);
      };
      signal.addEventListener("abort", onAbort, { once: true });
      this.#waiting.push(waiting);
      this.#letThrough();
    });
  }

  /** There is room. */
  started(): void {
    this.#waitMs = 0;
    this.#closedUntil = 0;
    this.failed();
  }

  /** For another reason than room: that says nothing to the others. Who has passed says one of the three. */
  failed(): void {
    this.#trying = false;
    this.#letThrough();
  }

  /** The backend had no room. Gives for how long nobody starts now. */
  refused(): number {
    this.#trying = false;
    // Several that were under way at once say it once.
    const left = this.#closedUntil - performance.now();
    if (left > 0) return left;
    this.#waitMs = this.#waitMs === 0 ? FIRST_WAIT_MS : Math.min(MAX_WAIT_MS, this.#waitMs * 2);
    const waitMs = Math.round(this.#waitMs * (0.75 + Math.random() / 4));
    this.#closedUntil = performance.now() + waitMs;
    this.#letThrough();
    return waitMs;
  }

  #letThrough(): void {
    const now = performance.now();
    this.#tokens = Math.min(BURST, this.#tokens + ((now - this.#filledAt) / 1000) * STARTS_PER_SECOND);
    this.#filledAt = now;
    while (this.#waiting.length > 0 && now >= this.#closedUntil && this.#tokens >= 1 && !this.#trying) {
      const next = this.#waiting.findIndex(({ of }) => of === "verifier");
      const [waiting] = this.#waiting.splice(Math.max(0, next), 1);
      this.#tokens -= 1;
      this.#trying = this.#waitMs > 0;
      waiting?.go();
    }
    if (this.#waiting.length === 0 || this.#timer !== null || this.#trying) return;
    const forToken = ((1 - this.#tokens) / STARTS_PER_SECOND) * 1000;
    this.#timer = setTimeout(
      () => {
        this.#timer = null;
        this.#letThrough();
      },
      Math.max(1, Math.ceil(forToken), Math.ceil(this.#closedUntil - now)),
    );
  }
}
