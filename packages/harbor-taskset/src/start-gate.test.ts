import { setImmediate as turn } from "node:timers/promises";
import { afterEach, beforeEach, expect, it, vi } from "vitest";

import type { BoxKind } from "./boxes.ts";
import { StartGate } from "./start-gate.ts";

beforeEach(() => vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] }));
afterEach(() => vi.useRealTimers());

const never = new AbortController().signal;

function passing(gate: StartGate, of: readonly BoxKind[]): BoxKind[] {
  const passed: BoxKind[] = [];
  for (const kind of of) void gate.pass(kind, never).then(() => passed.push(kind));
  return passed;
}

async function after(durationMs: number): Promise<void> {
  await vi.advanceTimersByTimeAsync(durationMs);
  await turn();
}

it("lets 16 through at once, then 8 a second", async () => {
  const passed = passing(
    new StartGate(),
    Array.from({ length: 40 }, () => "agent" as const),
  );
  await after(0);
  expect(passed).toHaveLength(16);
  await after(1000);
  expect(passed.length).toBeGreaterThanOrEqual(23);
  expect(passed.length).toBeLessThanOrEqual(24);
  await after(2000);
  expect(passed).toHaveLength(40);
});

it("lets boxes that grade through first", async () => {
  const gate = new StartGate();
  passing(
    gate,
    Array.from({ length: 16 }, () => "agent" as const),
  );
  const passed = passing(gate, ["agent", "agent", "verifier"]);
  await after(140);
  expect(passed).toEqual(["verifier"]);
});

it("keeps everybody back when there is no room, then lets one try for all, for longer each time", async () => {
  const gate = new StartGate();
  const first = gate.refused();
  expect(first).toBeGreaterThanOrEqual(750);
  expect(first).toBeLessThanOrEqual(1000);
  const passed = passing(gate, ["agent", "agent", "agent"]);
  await after(first - 10);
  expect(passed).toHaveLength(0);
  await after(20);
  expect(passed).toHaveLength(1);
  const second = gate.refused();
  expect(second).toBeGreaterThan(first);
  await after(second + 10);
  expect(passed).toHaveLength(2);
  // It did not come to an answer: the next one tries.
  gate.failed();
  await after(10);
  expect(passed).toHaveLength(3);
});

it("is open for all once a start has succeeded", async () => {
  const gate = new StartGate();
  const waitMs = gate.refused();
  const passed = passing(gate, ["agent", "agent", "agent"]);
  await after(waitMs + 10);
  expect(passed).toHaveLength(1);
  gate.started();
  await after(10);
  expect(passed).toHaveLength(3);
});

it("is left by who gives up waiting, and whoever comes after is not held up", async () => {
  const gate = new StartGate();
  const waitMs = gate.refused();
  const controller = new AbortController();
  const waiting = gate.pass("agent", controller.signal);
  const passed = passing(gate, ["agent"]);
  controller.abort(new Error("given up"));
  await expect(waiting).rejects.toThrow("given up");
  await after(waitMs + 10);
  expect(passed).toHaveLength(1);
});
