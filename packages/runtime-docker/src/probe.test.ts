import { expect, it } from "vitest";
import { type EngineInfo, enforced } from "./probe.ts";

const info: EngineInfo = {
  MemoryLimit: true,
  PidsLimit: true,
  CpuCfsQuota: true,
  CgroupDriver: "cgroupfs",
  CgroupVersion: "1",
};

it("claims what an engine with root enforces", () => {
  const controllers = ["cpu", "memory", "freezer", "pids"];
  for (const facts of [{ kind: "docker" as const }, { kind: "podman" as const, controllers }]) {
    const { limits, freeze } = enforced({ ...facts, version: {}, info });
    expect([limits, freeze]).toEqual([["cpus", "memory", "pids"], "freezes"]);
  }
});

it("claims no limit for which Podman has no controller, whatever its Docker API says", () => {
  const of = (controllers: readonly string[], CgroupVersion: string): unknown => {
    const { limits, freeze } = enforced({ kind: "podman", version: {}, info: { ...info, CgroupVersion }, controllers });
    return [limits, freeze];
  };
  expect(of([], "1")).toEqual([[], "none"]);
  expect(of(["memory", "pids"], "2")).toEqual([["memory", "pids"], "freezes"]);
});
