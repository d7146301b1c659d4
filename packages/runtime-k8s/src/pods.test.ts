import type { V1ContainerState, V1Pod } from "@kubernetes/client-node";
import { describe, expect, it } from "vitest";
import { startProgress } from "./pods.ts";

const box = (state: V1ContainerState): V1Pod => ({
  status: {
    phase: "Pending",
    containerStatuses: [
      { name: "box", image: "an/image:1", imageID: "", ready: false, restartCount: 0, state } as NonNullable<
        NonNullable<V1Pod["status"]>["containerStatuses"]
      >[number],
    ],
  },
});
const waiting = (reason: string): V1Pod => box({ waiting: { reason, message: "the node's words" } });

describe("startProgress", () => {
  it("waits for a pod that nobody has looked at", () => {
    expect(startProgress({})).toMatchObject({ kind: "waiting", for: "work" });
  });

  it("tells room that is missing from work that goes on", () => {
    const message = "0/1 nodes are available: 1 Insufficient cpu.";
    const conditions = [{ type: "PodScheduled", status: "False", reason: "Unschedulable", message }];
    expect(startProgress({ status: { phase: "Pending", conditions } })).toEqual({
      kind: "waiting",
      for: "schedule",
      why: `Unschedulable: ${message}`,
    });
    expect(startProgress(waiting("ContainerCreating"))).toMatchObject({ kind: "waiting", for: "work" });
  });

  it("runs when the box's container does", () => {
    expect(startProgress(box({ running: {} }))).toEqual({ kind: "running" });
  });

  it.each([
    ["InvalidImageName", "ERR_IMAGE_NOT_FOUND"],
    ["ErrImageNeverPull", "ERR_IMAGE_NOT_FOUND"],
    ["CreateContainerConfigError", "ERR_BOX_START"],
    ["RunContainerError", "ERR_BOX_START"],
  ])("gives up at %s", (reason, code) => {
    expect(startProgress(waiting(reason))).toEqual({ kind: "failed", code, why: `${reason}: the node's words` });
  });

  it.each(["ErrImagePull", "ImagePullBackOff"])("may wait at %s: registries are busy at times", (reason) => {
    expect(startProgress(waiting(reason))).toMatchObject({ kind: "waiting", for: "image" });
  });

  it("gives up on a box that has ended, was evicted or is deleted", () => {
    const terminated = { exitCode: 128, reason: "StartError", message: "no such file" };
    expect(startProgress(box({ terminated }))).toMatchObject({ kind: "failed", code: "ERR_BOX_START" });
    const evicted = { phase: "Failed", reason: "Evicted", message: "low on memory" };
    expect(startProgress({ status: evicted })).toMatchObject({ kind: "failed", why: "Evicted: low on memory" });
    expect(startProgress({ metadata: { deletionTimestamp: new Date() } })).toMatchObject({ code: "ERR_BOX_LOST" });
  });
});
