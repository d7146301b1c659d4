import { parseRuntimeSpec } from "@breakwater/runtime-api";
import { describe, expect, it } from "vitest";
import { createBody, egressLists, fromServiceLabels, toServiceLabels } from "./translate.ts";

describe("createBody", () => {
  const spec = parseRuntimeSpec({ image: "debian:12", memoryMb: 512, cpus: 0.5, lifetimeMs: 90_000, trial: "a=b" });

  it("names a container by its id, which is the key of the call too, and gives it our first process", () => {
    const body = createBody("box-1", spec, { kind: "container" });
    expect(body).toMatchObject({ name: "box-1", idempotency_key: "box-1", vm: false, memory_gb: 0.5, cpu_cores: 0.5 });
    expect(body["timeout_minutes"]).toBe(3);
    expect(body["start_command"]).toContain("hold --lifetime-ms 90000");
    expect(body["labels"]).toContain("breakwater.box=box-1");
    expect(body["labels"]).toContain("breakwater.trial=a=b");
  });

  it("gives a VM its first policy and the whole minutes that its lifetime needs", () => {
    const sealed = parseRuntimeSpec({
      image: "debian:12",
      lifetimeMs: 90_000,
      network: { initial: { mode: "no-network" } },
    });
    const body = createBody("box-1", sealed, {});
    expect(body).toMatchObject({ vm: true, timeout_minutes: 2, network_allowlist: [] });
    expect(body).not.toHaveProperty("start_command");
    expect(createBody("box-1", spec, {})).toMatchObject({ network_denylist: [] });
  });
});

describe("egressLists", () => {
  it("lets an empty allowlist be nothing and an empty denylist everything", () => {
    expect(egressLists({ mode: "no-network" })).toEqual({ allowlist: [], denylist: null });
    expect(egressLists({ mode: "public" })).toEqual({ allowlist: null, denylist: [] });
    expect(egressLists({ mode: "allowlist", hosts: ["a.example"] })).toEqual({
      allowlist: ["a.example"],
      denylist: null,
    });
  });
});

describe("labels", () => {
  it("come back as they were", () => {
    const labels = { a: "1", "b.c": '{"x":"y=z"}', empty: "" };
    expect(fromServiceLabels(toServiceLabels(labels))).toEqual(labels);
    expect(fromServiceLabels(["bare"])).toEqual({ bare: "" });
  });
});
