import { describe, expect, it } from "vitest";

import { meanReward, passAtK, passRate, type Attempt } from "./statistics.ts";

function attempts(rewards: Readonly<Record<string, readonly number[]>>): readonly Attempt[] {
  return Object.entries(rewards).flatMap(([task, values]) => values.map((reward) => ({ task, reward })));
}

describe("intervals", () => {
  // Wilson's interval for 9 of 10 and 0 of 10, as in Newcombe (1998) and any statistics package.
  it.each([
    [9, 10, 0.5958, 0.9821],
    [0, 10, 0, 0.2775],
    [10, 10, 0.7225, 1],
    [81, 263, 0.2553, 0.3662],
  ])("%i of %i tasks passed", (passed, tasks, low, high) => {
    const found = passRate(
      attempts(Object.fromEntries(Array.from({ length: tasks }, (_, at) => [`t${at}`, [at < passed ? 1 : 0]]))),
    );
    expect(found?.value).toBeCloseTo(passed / tasks, 10);
    expect(found?.interval?.low).toBeCloseTo(low, 4);
    expect(found?.interval?.high).toBeCloseTo(high, 4);
  });

  it("counts tasks, not attempts: more of them at the same tasks make it no narrower", () => {
    const once = passRate(attempts({ a: [1], b: [0], c: [1] }));
    const often = passRate(attempts({ a: [1, 1, 1, 1], b: [0, 0, 0, 0], c: [1, 1, 1, 1] }));
    expect(often).toEqual(once);
    // Of one task the attempts are what there is.
    expect(passRate(attempts({ a: [1, 1, 1, 1, 0, 1, 1, 1, 1, 1] }))?.interval?.low).toBeCloseTo(0.5958, 4);
  });

  it("uses Student's t for rewards of any size, and says nothing of fewer than five samples", () => {
    const found = meanReward(attempts({ a: [10], b: [12], c: [14], d: [16], e: [18] }));
    // 14 and 2.776 * sqrt(10 / 5)
    expect(found?.value).toBe(14);
    expect(found?.interval?.high).toBeCloseTo(14 + 2.776 * Math.SQRT2, 1);
    expect(meanReward(attempts({ a: [10], b: [12], c: [14], d: [16] }))).toEqual({ value: 13, interval: null });
  });

  it("has nothing to say of no attempt", () => {
    expect([passRate([]), meanReward([]), passAtK([])]).toEqual([null, null, []]);
  });
});

describe("pass@k", () => {
  it("is the chance that one of k attempts passes, on average over the tasks", () => {
    const found = passAtK(attempts({ a: [1, 0, 0, 0], b: [0, 0, 0, 0], c: [1, 1, 1, 0.5] }));
    expect(found.map(({ k }) => k)).toEqual([1, 2, 4]);
    // 1 of 4: 1/4, then 1 - C(3,2)/C(4,2) = 1/2, then 1. 3 of 4: 3/4, then 1, 1.
    const expected = [(1 / 4 + 0 + 3 / 4) / 3, (1 / 2 + 0 + 1) / 3, 2 / 3];
    found.forEach(({ value }, at) => expect(value).toBeCloseTo(expected[at] ?? NaN, 10));
  });

  it("goes up to the attempts of the task that has fewest, by powers of two and multiples of five", () => {
    const many = Array.from({ length: 21 }, () => 1);
    expect(passAtK(attempts({ a: many })).map(({ k }) => k)).toEqual([1, 2, 4, 5, 8, 10, 15, 16, 20]);
    expect(passAtK(attempts({ a: many, b: [0] })).map(({ k }) => k)).toEqual([1]);
  });

  it("takes a task's name for a name", () => {
    expect(passAtK(attempts({ constructor: [1], __proto__x: [0] }))[0]?.value).toBe(0.5);
  });
});
