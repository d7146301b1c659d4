import { isRuntimeError } from "@breakwater/runtime-api";

import { TrialFailure } from "./trial-error.ts";
import type { Step } from "./trial.ts";

/** Timers may fire a little early. */
const TIMER_SLACK_MS = 2;

/** The verifier's time: one clock from creating its box to reading the reward. Dispose it, or its timer keeps the process alive. */
export class VerifierDeadline implements Disposable {
  /** Fires when the time is over, or the caller gives up. */
  readonly signal: AbortSignal;
  readonly #step: Step;
  readonly #timeoutMs: number;
  readonly #endsAt: number;
  readonly #over = new AbortController();
  readonly #timer: NodeJS.Timeout;

  constructor(step: Step) {
    this.#step = step;
    this.#timeoutMs = step.step.verifier.timeoutMs;
    this.#endsAt = performance.now() + this.#timeoutMs;
    this.#timer = setTimeout(() => this.#over.abort(new Error("the verifier's time is over")), this.#timeoutMs);
    this.signal = AbortSignal.any([step.signal, this.#over.signal]);
  }

  get isOver(): boolean {
    return this.#over.signal.aborted || performance.now() >= this.#endsAt - TIMER_SLACK_MS;
  }

  /** At least 1. */
  get remainingMs(): number {
    return Math.max(1, Math.ceil(this.#endsAt - performance.now()));
  }

  /** The error as it is, or the timeout if that is what it came from. What failed by itself stays what it is, however late. */
  translate(error: unknown): unknown {
    if (!this.isOver || this.#step.signal.aborted || error instanceof TrialFailure) return error;
    return this.#isCauseOf(error) ? this.timeout(error) : error;
  }

  /** Whether an operation failed because it was given up, or had no time left. */
  #isCauseOf(error: unknown): boolean {
    if (error === this.#over.signal.reason || isRuntimeError(error, "ERR_ABORTED", "ERR_TIMEOUT")) return true;
    return error instanceof Error && error.cause !== undefined && this.#isCauseOf(error.cause);
  }

  /** The failure, in its phase: a box that could not be had, or tests that ran too long. */
  timeout(cause?: unknown): TrialFailure {
    const { record } = this.#step;
    if (record.phase !== "provision") record.phase = "run";
    const what =
      record.phase === "provision"
        ? "a box for grading could not be had"
        : "the tests did not end, or their reward was not read,";
    return new TrialFailure(
      "timeout",
      "ERR_VERIFIER_TIMEOUT",
      `${what} within the verifier's ${this.#timeoutMs} ms ([verifier].timeout_sec); allow more with verifierTimeoutMultiplier`,
      cause,
    );
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
  }
}
