import type { V1Pod, V1PodStatus } from "@kubernetes/client-node";
import { describe, expect, it } from "vitest";
import { classifyEnd } from "./report.ts";

function ended(exitCode: number, reason = "Error", status: Partial<V1PodStatus> = {}): V1Pod {
  const container = { name: "box", image: "", imageID: "", ready: false, restartCount: 0 };
  return { status: { ...status, containerStatuses: [{ ...container, state: { terminated: { exitCode, reason } } }] } };
}

describe("classifyEnd", () => {
  it.each([
    ["the lifetime that our hold counts", ended(73), "lifetime"],
    ["the deadline that the cluster counts", ended(137, "Error", { reason: "DeadlineExceeded" }), "lifetime"],
    ["the box's own memory limit", ended(137, "OOMKilled"), "memory"],
    ["somebody's kill", ended(137), "outside"],
    [
      "a deletion by somebody else",
      Object.assign(ended(143), { metadata: { deletionTimestamp: new Date() } }),
      "outside",
    ],
    ["a hold that ended by itself", ended(2), "contents"],
    ["too much written", ended(137, "Error", { reason: "Evicted" }), "contents"],
    [
      "a node that ran out of something",
      ended(137, "Error", { reason: "Evicted", conditions: [{ type: "DisruptionTarget", status: "True" }] }),
      "outside",
    ],
    ["nothing that is on record", {}, "unknown"],
  ])("%s", (_what, pod, endedBy) => {
    expect(classifyEnd(pod)).toMatchObject({ endedBy });
  });

  it("counts a kill by the memory limit, and claims nothing else", () => {
    expect(classifyEnd(ended(137, "OOMKilled"))).toMatchObject({ oomKills: 1, exitCode: 137, cpuMs: null });
    expect(classifyEnd(ended(73))).toMatchObject({ oomKills: null });
  });
});
