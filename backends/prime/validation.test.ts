import { describe, expect, it } from "vitest";
import { createSchema, egressPolicySchema, parseEgressEntry, unknownKeys } from "./validation.ts";

const least = { name: "a", docker_image: "debian:12", vm: false };

describe("create body", () => {
  it("takes the least and fills the server's defaults", () => {
    expect(createSchema.parse(least)).toMatchObject({
      memory_gb: 2,
      disk_size_gb: 10,
      timeout_minutes: 60,
      labels: [],
    });
  });

  it.each([
    { name: "" },
    { name: "x".repeat(101) },
    { docker_image: "" },
    { timeout_minutes: 0 },
    { memory_gb: 0.05 },
    { cpu_cores: 17 },
    { idle_timeout_minutes: 61 },
    { gpu_count: 1 },
    { network_allowlist: ["example.com"] },
    { vm: true, network_allowlist: [], network_denylist: [] },
    { vm: true, start_command: "sleep 1" },
    { vm: true, guaranteed: true },
    { idempotency_key: "" },
  ])("refuses %j", (wrong) => {
    expect(createSchema.safeParse({ ...least, ...wrong }).success).toBe(false);
  });

  it("lets a negative timeout be none, and the older clients' start command pass for a VM", () => {
    const body = { ...least, vm: true, timeout_minutes: -1, start_command: "tail -f /dev/null" };
    expect(createSchema.safeParse(body).success).toBe(true);
  });

  it("tells keys that the documents do not have", () => {
    expect(unknownKeys({ ...least, colour: "red" }, "create")).toEqual(["colour"]);
  });
});

describe("egress lists", () => {
  it.each([
    ["Example.COM", "example.com"],
    ["*.example.com", "*.example.com"],
    ["bücher.example", "xn--bcher-kva.example"],
    ["10.0.0.1", "10.0.0.1/32"],
    ["10.0.0.9/8", "10.0.0.9/8"],
  ])("takes %s", (entry, stored) => {
    expect(parseEgressEntry(entry)).toBe(stored);
  });

  it.each([
    "",
    "*",
    "a.*.com",
    "https://a.com",
    "a.com:443",
    "u@a.com",
    "::1",
    "10.0.0.0/33",
    "10.0.0",
    "a..com",
    "a.com/x",
  ])("refuses %j", (entry) => {
    expect(() => parseEgressEntry(entry)).toThrow(TypeError);
  });

  it("takes one of the two lists, with at most 256 entries", () => {
    const many = Array.from({ length: 257 }, (_, index) => `a${index}.example`);
    expect(egressPolicySchema.safeParse({ allowlist: many.slice(1), denylist: null }).success).toBe(true);
    expect(egressPolicySchema.safeParse({ allowlist: many, denylist: null }).success).toBe(false);
    expect(egressPolicySchema.safeParse({ allowlist: [], denylist: [] }).success).toBe(false);
  });
});
