import { describe, expect, it } from "vitest";
import { classifyEnd, type EngineEvent, usageOf } from "./report.ts";
import type { ContainerInspection } from "./teardown.ts";

function ended(exitCode: number, more: Partial<ContainerInspection["State"]> = {}): ContainerInspection["State"] {
  return {
    Status: "exited",
    Running: false,
    Paused: false,
    OOMKilled: false,
    Dead: false,
    Pid: 0,
    ExitCode: exitCode,
    StartedAt: "",
    FinishedAt: "",
    ...more,
  };
}

const oom: EngineEvent = { Action: "oom" };
const kill: EngineEvent = { Action: "kill" };

describe("why a box ended", () => {
  it.each([
    ["its lifetime", ended(73), [], false, "lifetime"],
    ["its memory, by the engine's flag", ended(137, { OOMKilled: true }), [], true, "memory"],
    ["its memory, by an event", ended(137), [oom], true, "memory"],
    ["the host's memory: it had no limit", ended(137, { OOMKilled: true }), [], false, "outside"],
    ["a kill on the host", ended(137), [], true, "outside"],
    ["a kill through the engine", ended(137), [kill], true, "outside"],
    ["a kill through the engine after a program ran out of memory", ended(137), [oom, kill], true, "outside"],
    ["a TERM on the host", ended(143), [], false, "outside"],
    ["an engine that lost track", ended(255), [], false, "unknown"],
    ["our hold's own exit", ended(2), [], true, "contents"],
    ["our hold's own exit with 0", ended(0), [], false, "contents"],
  ] as const)("%s", (_why, state, events, hasMemoryLimit, endedBy) => {
    expect(classifyEnd(state, events, hasMemoryLimit)).toMatchObject({ endedBy, exitCode: state.ExitCode });
  });

  it("counts what the memory limit killed", () => {
    expect(classifyEnd(ended(73), [oom, oom], true).oomKills).toBe(2);
    expect(classifyEnd(ended(137, { OOMKilled: true }), [], true).oomKills).toBe(1);
    expect(classifyEnd(ended(137), [], true).oomKills).toBe(0);
  });
});

it("reads the engine's figures, as far as they are there", () => {
  const stats = { cpu_stats: { cpu_usage: { total_usage: 2_500_000 } }, memory_stats: { max_usage: 7 } };
  expect(usageOf(stats)).toEqual({ oomKills: null, memoryPeakBytes: 7, cpuMs: 3 });
  for (const none of [{}, null]) expect(usageOf(none)).toEqual({ oomKills: null, memoryPeakBytes: null, cpuMs: null });
});
