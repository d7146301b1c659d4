import type { TrialError, TrialResult } from "@breakwater/harbor-taskset";
import { expect, it } from "vitest";

import { RunTotals } from "./run-totals.ts";

const result = (about: Partial<TrialResult>): TrialResult =>
  ({ rewards: { reward: 1 }, reward: 1, error: null, leftovers: [], ...about }) as TrialResult;

it("takes only a trial for good that has a reward, no error and nothing left", () => {
  const error = { code: "ERR_HOST_FILES" } as TrialError;
  for (const [about, good] of [
    [{}, 1],
    [{ rewards: null, reward: null, error }, 0],
    // A later step without a verdict, or a result that is not on disk.
    [{ error }, 0],
    [{ leftovers: ["box"] }, 0],
  ] as const) {
    const totals = new RunTotals();
    totals.add(result(about));
    expect([about, totals.good]).toEqual([about, good]);
  }
});
