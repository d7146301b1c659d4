import { describe, expect, it } from "vitest";
import type { RuntimeCapabilities } from "./capabilities.ts";
import { refusals } from "./refusals.ts";
import { parseRuntimeSpec, type RuntimeSpecInput } from "./spec.ts";

/** A backend that can do everything. */
const CAPABLE: RuntimeCapabilities = {
  networkModes: ["public", "no-network", "allowlist"],
  networkChange: "cuts",
  allowlistEntries: ["name", "wildcard", "ipv4", "ipv6", "ipv4-cidr", "ipv6-cidr"],
  allowlistPorts: [80, 443],
  stop: "halted",
  firstProcess: "ours",
  freeze: "freezes",
  limits: ["cpus", "memory", "storage", "pids"],
  maxCpus: 4,
  maxMemoryMb: 8192,
  gpus: 1,
  users: "any",
  imagePin: "id",
  imageSources: ["reference", "build"],
  services: "full",
  operatingSystems: ["linux", "windows"],
  maxLifetimeMs: 1000 * 60 * 60 * 24,
};

const DEMANDING: Omit<RuntimeSpecInput, "image"> = {
  user: "u",
  cpus: 4,
  memoryMb: 8192,
  storageMb: 1024,
  gpus: 1,
  lifetimeMs: 1000 * 60 * 60 * 24,
  operatingSystem: "windows",
  services: [{ name: "db", image: "x" }],
  network: {
    initial: { mode: "allowlist", hosts: ["a.com", "*.b.com", "192.0.2.1", "::1", "192.0.2.0/24", "2001:db8::/32"] },
    later: [{ mode: "public" }, { mode: "no-network" }],
  },
};

function found(spec: Omit<RuntimeSpecInput, "image">, capabilities: Partial<RuntimeCapabilities>): readonly string[] {
  const all = refusals(parseRuntimeSpec({ image: "x", ...spec }), { ...CAPABLE, ...capabilities });
  return all.map(({ key, code }) => `${key} ${code}`);
}

describe("what a backend can do it is not refused for", () => {
  it("everything", () => expect(found(DEMANDING, {})).toEqual([]));
  it("nothing special, on the least of all backends", () => {
    const least: RuntimeCapabilities = {
      ...CAPABLE,
      networkModes: ["public"],
      networkChange: "none",
      allowlistEntries: [],
      limits: [],
      maxCpus: 0,
      maxMemoryMb: 0,
      gpus: 0,
      users: "image",
      services: "none",
      operatingSystems: ["linux"],
    };
    expect(found({}, least)).toEqual([]);
  });
  it("a limit where the backend names no maximum", () => {
    expect(
      found(
        { cpus: 1000, memoryMb: 10 ** 9, lifetimeMs: 10 ** 12 },
        { maxCpus: null, maxMemoryMb: null, maxLifetimeMs: null },
      ),
    ).toEqual([]);
  });
  it("storage, which is recorded where it is not enforced", () => {
    expect(found({ storageMb: 1 }, { limits: [] })).toEqual([]);
  });
});

const TWO_MODES = { network: { initial: { mode: "public" }, later: [{ mode: "no-network" }] } } as const;
const NARROWING = { network: { initial: { mode: "no-network" }, later: [{ mode: "public" }] } } as const;

describe("what a backend cannot do it is refused for, by key and code", () => {
  it.each<[Omit<RuntimeSpecInput, "image">, Partial<RuntimeCapabilities>, string]>([
    [
      { network: { initial: { mode: "no-network" } } },
      { networkModes: ["public"] },
      "network.initial REFUSED_NETWORK_MODE",
    ],
    [TWO_MODES, { networkModes: ["public"] }, "network.later[0] REFUSED_NETWORK_MODE"],
    [{}, { networkModes: [] }, "network.initial REFUSED_NETWORK_MODE"],
    [
      { network: { initial: { mode: "allowlist", hosts: ["a.com", "192.0.2.0/24"] } } },
      { allowlistEntries: ["name"] },
      "network.initial REFUSED_ALLOWLIST_ENTRY",
    ],
    [TWO_MODES, { networkChange: "none" }, "network.later REFUSED_NETWORK_CHANGE"],
    [TWO_MODES, { networkChange: "new-connections-only" }, "network.later REFUSED_NETWORK_CHANGE"],
    [NARROWING, { networkChange: "new-connections-only" }, "network.later REFUSED_NETWORK_CHANGE"],
    [{ cpus: 1 }, { limits: ["memory"] }, "cpus REFUSED_CPUS"],
    [{ cpus: 4.5 }, {}, "cpus REFUSED_CPUS"],
    [{ memoryMb: 1 }, { limits: ["cpus"] }, "memoryMb REFUSED_MEMORY"],
    [{ memoryMb: 8193 }, {}, "memoryMb REFUSED_MEMORY"],
    [{ gpus: 2 }, {}, "gpus REFUSED_GPUS"],
    [{ services: [{ name: "db", image: "x" }] }, { services: "none" }, "services REFUSED_SERVICES"],
    [{ user: "root" }, { users: "image" }, "user REFUSED_USER"],
    [{ lifetimeMs: 1000 * 60 * 60 * 24 + 1 }, {}, "lifetimeMs REFUSED_LIFETIME"],
    [{ operatingSystem: "windows" }, { operatingSystems: ["linux"] }, "operatingSystem REFUSED_OPERATING_SYSTEM"],
  ])("%o on %o: %s", (spec, capabilities, refusal) => {
    expect(found(spec, capabilities)).toEqual([refusal]);
    expect(found(spec, { ...CAPABLE, maxCpus: null, maxMemoryMb: null, maxLifetimeMs: null, gpus: 9 })).toEqual([]);
  });

  it("all at once, with what was asked and what to do", () => {
    const all = refusals(parseRuntimeSpec({ image: "x", ...DEMANDING }), {
      ...CAPABLE,
      networkModes: [],
      limits: [],
      gpus: 0,
      users: "image",
      services: "none",
      operatingSystems: [],
      maxLifetimeMs: 1,
    });
    expect(all.length).toBeGreaterThanOrEqual(10);
    for (const { message, advice } of all) expect([message, advice]).not.toContain("");
    expect(new Set(all.map(({ code }) => code)).size).toBeGreaterThanOrEqual(8);
  });

  it("without changing what it was given", () => {
    const spec = parseRuntimeSpec({ image: "x", ...DEMANDING });
    const before = JSON.stringify([spec, CAPABLE]);
    refusals(spec, CAPABLE);
    expect(JSON.stringify([spec, CAPABLE])).toBe(before);
  });
});
