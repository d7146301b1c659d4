import type { TrialEvent, TrialResult } from "@breakwater/harbor-taskset";
import { describe, expect, it } from "vitest";

import { LiveView } from "./live-view.ts";

const SIZE = { columns: 100, rows: 24 };
let sequence = 0;

function event(trial: string, type: TrialEvent["type"], box?: string): TrialEvent {
  return { sequence: (sequence += 1), at: "2026-01-01T00:00:00Z", trial, type, box };
}

function result(reward: number | null, code?: string): TrialResult {
  const rewards = reward === null ? null : { reward };
  return { rewards, reward, error: code === undefined ? null : { code }, leftovers: [] } as unknown as TrialResult;
}

describe("the live view", () => {
  it("has a line for each trial under way: its time, its step, its box; and what takes long", () => {
    const view = new LiveView();
    view.totals.trials = 3;
    view.event(event("one", "agent-box.started", "box-1"), 0);
    view.event(event("one", "agent.started", "box-1"), 1000);
    view.event(event("second", "trial.started"), 60_000);
    view.progress({ trial: "second", what: "image", line: "Downloading 7 MB\u001b[2J" });
    const lines = view.render(72_000, SIZE).split("\n");
    expect(lines[0]).toMatch(/^one {5} {3}1:12 {2}agent works {2}box-1$/);
    expect(lines[1]).toMatch(/^second {5}12 s {2}begins {2}Downloading 7 MB \[2J$/);
    view.event(event("one", "agent-box.gone", "box-1"), 72_000);
    view.event(event("second", "trial.ended"), 72_000);
    expect(view.render(72_000, SIZE)).not.toMatch(/box-1|second/);
  });

  it("has the totals: rewards so far, failures by code, the time left only once a trial has ended", () => {
    const view = new LiveView();
    view.totals.trials = 10;
    // Two that were there before this run began.
    view.result(result(1));
    view.result(result(null, "ERR_BOX_LOST"));
    view.event(event("one", "trial.started"), 0);
    expect(view.render(0, SIZE)).toContain("2 of 10 ended, 1 with rewards, mean reward 1");
    expect(view.render(0, SIZE)).not.toContain("left");
    view.result(result(0.5));
    expect(view.render(0, SIZE)).toMatch(/3 of 10 ended, 2 with rewards, mean reward 0\.75, .*about .* left/);
    expect(view.render(0, SIZE)).toContain("no reward: 1 ERR_BOX_LOST");
  });

  it("is never longer or wider than the terminal", () => {
    const view = new LiveView();
    view.totals.trials = 200;
    for (let number = 0; number < 64; number++)
      view.event(event(`trial-${number}-with-a-long-name`, "agent.started", "a-box-with-a-long-name"), 0);
    view.result(result(null, "ERR_BOX_LOST"));
    const lines = view.render(0, { columns: 40, rows: 12 }).split("\n");
    expect(lines.length).toBeLessThanOrEqual(12);
    expect(Math.max(...lines.map(({ length }) => length))).toBeLessThan(40);
    expect(lines.join("\n")).toContain("and 57 more");
  });
});
