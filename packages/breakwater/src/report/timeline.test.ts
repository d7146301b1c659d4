import type { TrialEvent, TrialEventType } from "@breakwater/harbor-taskset";
import { expect, it } from "vitest";

import { timelineOf } from "./timeline.ts";

type Step = readonly [atMs: number, type: TrialEventType, step?: string];

function events(...steps: readonly Step[]): readonly TrialEvent[] {
  return steps.map(([atMs, type, step], index) => ({
    sequence: index + 1,
    at: new Date(Date.UTC(2026, 0, 1) + atMs).toISOString(),
    trial: "t",
    type,
    ...(step === undefined ? {} : { step }),
  }));
}

it("shows the agent's box, its end, and the verifier's", () => {
  const found = timelineOf(
    events(
      [0, "trial.started"],
      [1, "trial.planned"],
      [5, "image.prepared"],
      [9, "image.prepared"],
      [10, "agent-box.create"],
      [20, "agent.started"],
      [50, "agent.ended"],
      [60, "agent-box.gone"],
      [61, "verifier-box.create"],
      [70, "verifier.started"],
      [80, "verifier.ended"],
      [90, "verifier-box.gone"],
      [91, "trial.ended"],
    ),
  );
  expect(found).toEqual({
    durationMs: 91,
    spans: [
      { kind: "images", fromMs: 1, toMs: 9, step: null },
      { kind: "agent-box", fromMs: 10, toMs: 60, step: null },
      { kind: "agent", fromMs: 20, toMs: 50, step: null },
      { kind: "verifier-box", fromMs: 61, toMs: 90, step: null },
      { kind: "tests", fromMs: 70, toMs: 80, step: null },
    ],
    gone: [
      { box: "agent", atMs: 60 },
      { box: "verifier", atMs: 90 },
    ],
    resumedMs: [],
  });
});

it("has a stretch for each step, and lets what has not ended last until now", () => {
  const found = timelineOf(
    events(
      [0, "trial.started"],
      [10, "agent-box.create"],
      [20, "agent.started", "one"],
      [30, "agent.ended", "one"],
      [31, "agent.frozen", "one"],
      [40, "agent.thawed", "two"],
      [41, "agent.started", "two"],
      [50, "network.changed", "two"],
    ),
  );
  expect(found?.spans).toEqual([
    { kind: "agent-box", fromMs: 10, toMs: 50, step: null },
    { kind: "agent", fromMs: 20, toMs: 30, step: "one" },
    { kind: "agent", fromMs: 41, toMs: 50, step: "two" },
    { kind: "frozen", fromMs: 31, toMs: 40, step: "one" },
  ]);
  expect(found?.gone).toEqual([]);
});

it("leaves out the time between a process that died and the one that went on", () => {
  const found = timelineOf(
    events(
      [0, "trial.started"],
      [1, "trial.planned"],
      [4, "image.prepared"],
      [5, "agent-box.create"],
      [10, "agent.ended"],
      [3_600_000, "trial.resumed"],
      [3_600_001, "verifier-box.create"],
      [3_600_005, "verifier-box.gone"],
    ),
  );
  expect(found).toEqual({
    durationMs: 15,
    spans: [
      { kind: "images", fromMs: 1, toMs: 4, step: null },
      { kind: "agent-box", fromMs: 5, toMs: 10, step: null },
      { kind: "verifier-box", fromMs: 11, toMs: 15, step: null },
    ],
    gone: [{ box: "verifier", atMs: 15 }],
    resumedMs: [10],
  });
});

it("is nothing without events, or with times that are none", () => {
  expect(timelineOf([])).toBeNull();
  expect(timelineOf([{ ...events([0, "trial.started"])[0], at: "soon" } as TrialEvent])).toBeNull();
});
