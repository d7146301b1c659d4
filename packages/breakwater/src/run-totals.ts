import type { TrialResult } from "@breakwater/harbor-taskset";

/** What is kept of the results of a run: as much for thousands as for one. */
export class RunTotals {
  trials = 0;
  ended = 0;
  graded = 0;
  /** Have rewards, of all steps and on disk, and left nothing. */
  good = 0;
  /** How many had each code. */
  readonly failures: Map<string, number> = new Map();
  readonly #startedAtMs = performance.now();
  #rewardSum = 0;
  #rewardCount = 0;

  add({ rewards, reward, error, leftovers }: TrialResult): void {
    this.ended += 1;
    if (rewards !== null) this.graded += 1;
    if (rewards !== null && error === null && leftovers.length === 0) this.good += 1;
    if (error !== null) this.failures.set(error.code, (this.failures.get(error.code) ?? 0) + 1);
    if (reward === null) return;
    this.#rewardSum += reward;
    this.#rewardCount += 1;
  }

  get elapsedMs(): number {
    return performance.now() - this.#startedAtMs;
  }

  /** Of those that have one number; `null` = none has. */
  get meanReward(): { readonly mean: number; readonly over: number } | null {
    return this.#rewardCount === 0 ? null : { mean: this.#rewardSum / this.#rewardCount, over: this.#rewardCount };
  }
}
