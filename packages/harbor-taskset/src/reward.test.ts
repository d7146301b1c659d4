import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";

import {
  checkRewards,
  combineRewards,
  headlineReward,
  isEnough,
  MAX_REWARD_BYTES,
  parseReward,
  type RewardFile,
  type Rewards,
} from "./reward.ts";
import type { MinReward } from "./task.ts";

interface Shape {
  readonly file: RewardFile;
  readonly content: string;
  readonly outcome: string;
}

const shapes: readonly Shape[] = readShapes();

describe("parseReward", () => {
  it("has a documented table to be held to", () => {
    expect(shapes.length).toBeGreaterThan(50);
    expect(new Set(shapes.map(({ file }) => file))).toEqual(new Set(["reward.json", "reward.txt"]));
  });

  it.each(shapes)("$file $content is $outcome", ({ file, content, outcome }) => {
    const parsed = parseReward(file, Buffer.from(content));
    expect(parsed.rewards === null ? parsed.reason : JSON.stringify(parsed.rewards)).toBe(outcome);
  });

  it("reads only UTF-8", () => {
    const utf16 = Buffer.from("\ufeff1.0", "utf16le");
    expect(parseReward("reward.txt", utf16)).toMatchObject({ rewards: null, reason: "invalid" });
    expect(parseReward("reward.json", utf16)).toMatchObject({ rewards: null, reason: "invalid" });
  });

  it("survives what is large or deep", () => {
    const deep = "[".repeat(20_000) + "]".repeat(20_000);
    expect(parseReward("reward.json", Buffer.from(deep))).toMatchObject({ rewards: null, reason: "invalid" });
    expect(parseReward("reward.txt", Buffer.from("9".repeat(MAX_REWARD_BYTES)))).toMatchObject({ reason: "invalid" });
    expect(parseReward("reward.txt", Buffer.alloc(MAX_REWARD_BYTES + 1, "1"))).toMatchObject({ reason: "invalid" });
  });

  it("says what it saw", () => {
    expect(parseReward("reward.txt", Buffer.from("1.0 passed"))).toMatchObject({
      message: 'reward.txt is not one number: "1.0 passed"',
    });
  });

  it("keeps every key as the verifier's own", () => {
    const parsed = parseReward("reward.json", Buffer.from('{"__proto__": 1, "constructor": 2}'));
    expect(Object.entries(parsed.rewards ?? {})).toEqual([
      ["__proto__", 1],
      ["constructor", 2],
    ]);
  });
});

describe("checkRewards", () => {
  it("takes a number or an object of numbers", () => {
    expect(checkRewards(0.5)).toEqual({ rewards: { reward: 0.5 } });
    expect(checkRewards({ a: 1, b: 2 })).toEqual({ rewards: { a: 1, b: 2 } });
  });

  it.each([[true], ["1"], [null], [[1]], [{}], [Number.NaN], [{ reward: "1" }], [{ a: Infinity }], [undefined]])(
    "refuses %j",
    (value) => {
      expect(checkRewards(value)).toMatchObject({ rewards: null, reason: "invalid" });
    },
  );
});

describe("headlineReward", () => {
  it.each([
    [{ reward: 1, style: 0.5 }, false, 1],
    [{ style: 0.5 }, false, 0.5],
    [{ speed: 0.5, style: 2 }, false, null],
    [{ speed: 0.5, style: 2 }, true, 2.5],
    [{ reward: 1, style: 2 }, true, 1],
  ])("of %j (sumRewards %j) is %j", (rewards, sumRewards, expected) => {
    expect(headlineReward(rewards, sumRewards)).toBe(expected);
  });
});

describe("combineRewards", () => {
  const steps = [{ reward: 1 }, { reward: 0, style: 0.5 }, { reward: 0.5 }];

  it("is the mean of each key over all steps, or the last one's", () => {
    expect(combineRewards("mean", steps)).toEqual({ reward: 0.5, style: 0.5 / 3 });
    expect(combineRewards("final", steps)).toEqual({ reward: 0.5 });
    expect(combineRewards("mean", [{ reward: 0.1 }])).toEqual({ reward: 0.1 });
    expect(Object.entries(combineRewards("mean", [JSON.parse('{"__proto__": 1}') as Rewards]) ?? {})).toEqual([
      ["__proto__", 1],
    ]);
  });

  it("takes a step without a verdict for one without keys", () => {
    expect(combineRewards("mean", [{ reward: 0, style: 1 }, null])).toEqual({ reward: 0, style: 0.5 });
    expect(combineRewards("mean", [{ reward: 1 }, null])).toEqual({ reward: 0.5 });
    expect(combineRewards("final", [{ reward: 1 }, null])).toBeNull();
  });

  it("is nothing where there are none", () => {
    expect(combineRewards("mean", [])).toBeNull();
    expect(combineRewards("mean", [null])).toBeNull();
    expect(combineRewards("final", [])).toBeNull();
  });
});

describe("isEnough", () => {
  it.each<[Rewards, MinReward | null, boolean]>([
    [{}, null, true],
    [{ reward: 1 }, 1, true],
    [{ reward: 0.8 }, 0.5, true],
    [{ reward: 0.4 }, 0.5, false],
    [{ style: 1 }, 0.5, false],
    [{}, 0, false],
    [{ reward: -1 }, -1, true],
    [{ a: 1, b: 1 }, { a: 1, b: 0.5 }, true],
    [{ a: 1, b: 0.4 }, { a: 1, b: 0.5 }, false],
    [{ a: 1 }, { a: 1, b: 0 }, false],
    [{ a: 1, z: 0 }, { a: 1 }, true],
    [{ a: 1 }, {}, true],
  ])("%j for %j: %j", (rewards, least, expected) => {
    expect(isEnough(rewards, least)).toBe(expected);
  });
});

function readShapes(): readonly Shape[] {
  const page = readFileSync(new URL("../../../docs/grading.md", import.meta.url), "utf8");
  const table = page.slice(page.indexOf("reward shapes: begin"), page.indexOf("reward shapes: end"));
  return [...table.matchAll(/^\| (reward\.(?:json|txt)) \| `(.*)` \| (.*) \|$/gm)].map(
    ([, file, content, outcome]) => ({
      file: file as RewardFile,
      content: JSON.parse(content ?? "") as string,
      outcome: (outcome ?? "").replaceAll("`", ""),
    }),
  );
}
