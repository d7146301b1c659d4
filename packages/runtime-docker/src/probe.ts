import type { DoctorLine, LimitKind, RuntimeCapabilities } from "@breakwater/runtime-api";
import type { Deadline } from "@breakwater/driver-kit";
import type { Engine } from "./engine.ts";

/** The most that this driver can claim. */
export const CAPABILITIES: RuntimeCapabilities = Object.freeze({
  networkModes: ["public", "no-network", "allowlist"],
  networkChange: "cuts",
  allowlistEntries: ["name", "wildcard", "ipv4", "ipv6", "ipv4-cidr", "ipv6-cidr"],
  allowlistPorts: [80, 443],
  stop: "halted",
  firstProcess: "ours",
  freeze: "freezes",
  limits: ["cpus", "memory", "pids"],
  maxCpus: null,
  maxMemoryMb: null,
  gpus: 0,
  users: "any",
  imagePin: "id",
  imageSources: ["reference", "build"],
  services: "full",
  operatingSystems: ["linux"],
  maxLifetimeMs: null,
} satisfies RuntimeCapabilities);

/** Allowlists are tried on engines that run as root only. */
const WITHOUT_ALLOWLISTS: Pick<RuntimeCapabilities, "networkModes" | "allowlistEntries" | "allowlistPorts"> = {
  networkModes: ["public", "no-network"],
  allowlistEntries: [],
  allowlistPorts: [],
};

/** The engine's descriptions of itself, the parts that count. */
export interface EngineVersion {
  readonly Version?: string;
  readonly ApiVersion?: string;
  readonly Arch?: string;
  readonly Components?: readonly { readonly Name?: string; readonly Version?: string }[] | null;
}

export interface EngineInfo {
  readonly OSType?: string;
  readonly NCPU?: number;
  readonly MemTotal?: number;
  readonly MemoryLimit?: boolean;
  readonly SwapLimit?: boolean;
  readonly PidsLimit?: boolean;
  readonly CpuCfsQuota?: boolean;
  readonly CgroupDriver?: string;
  readonly CgroupVersion?: string;
  readonly Driver?: string;
  readonly DriverStatus?: readonly (readonly string[])[] | null;
  readonly SecurityOptions?: readonly string[] | null;
  readonly KernelVersion?: string;
  readonly OperatingSystem?: string;
  readonly Images?: number;
}

export interface EngineFacts {
  readonly kind: "docker" | "podman";
  readonly version: EngineVersion;
  readonly info: EngineInfo;
  /** Podman's control group controllers. Without root and with control groups version 1 it has none, and ignores limits that `info` claims. */
  readonly controllers?: readonly string[] | undefined;
  /** The engine runs as a user without privileges. */
  readonly isRootless?: boolean | undefined;
}

interface PodmanInfo {
  readonly host?: {
    readonly cgroupControllers?: readonly string[] | null;
    readonly security?: { readonly rootless?: boolean };
  };
}

export async function askEngine(engine: Engine, clock: Deadline): Promise<EngineFacts> {
  const version = await engine.json<EngineVersion>(clock, { method: "GET", path: "/version" });
  const info = await engine.json<EngineInfo>(clock, { method: "GET", path: "/info" });
  const isPodman = (version.Components ?? []).some(({ Name }) => Name === "Podman Engine");
  if (!isPodman) {
    const isRootless = (info.SecurityOptions ?? []).some((option) => option.split(",").includes("name=rootless"));
    return { kind: "docker", version, info, isRootless };
  }
  const { host } = await engine.json<PodmanInfo>(clock, { method: "GET", path: "/v4.0.0/libpod/info" });
  const controllers = host?.cgroupControllers ?? [];
  return { kind: "podman", version, info, controllers, isRootless: host?.security?.rootless ?? false };
}

/** What this engine enforces, never more than `CAPABILITIES`. */
export function enforced({ kind, info, controllers, isRootless = false }: EngineFacts): RuntimeCapabilities {
  const has = (controller: string): boolean => controllers?.includes(controller) ?? true;
  const limits: LimitKind[] = [];
  if (info.CpuCfsQuota === true && has("cpu")) limits.push("cpus");
  if (info.MemoryLimit === true && has("memory")) limits.push("memory");
  if (info.PidsLimit === true && has("pids")) limits.push("pids");
  const canFreeze = info.CgroupDriver !== "none" && (info.CgroupVersion !== "1" || has("freezer"));
  return Object.freeze({
    ...CAPABILITIES,
    ...(isRootless ? WITHOUT_ALLOWLISTS : {}),
    services: kind === "podman" ? "none" : CAPABILITIES.services,
    limits,
    freeze: canFreeze ? CAPABILITIES.freeze : "none",
    maxCpus: info.NCPU ?? null,
    maxMemoryMb: info.MemTotal === undefined ? null : Math.floor(info.MemTotal / (1024 * 1024)),
    operatingSystems: info.OSType === "windows" ? [] : CAPABILITIES.operatingSystems,
  });
}

/** From this version on an archive upload never runs a program of the box (CVE-2026-41567). */
const UPLOAD_FIXED_IN = [29, 5, 1] as const;
/** The oldest engine that this driver is tested with. */
const OLDEST = [20, 10, 0] as const;

/** The engine for people. */
export function* describeEngine(label: string, facts: EngineFacts): Generator<DoctorLine> {
  const { kind, version, info } = facts;
  yield {
    status: "ok",
    what: `${kind === "podman" ? "Podman" : "Docker Engine"} ${version.Version ?? "?"} (API ${version.ApiVersion ?? "?"}) answers at ${label}`,
  };
  if (kind === "docker" && isOlder(version.Version, OLDEST)) {
    yield {
      status: "warning",
      what: `Docker Engine ${version.Version} is older than what this driver is tested with (20.10)`,
      advice: "use a newer engine",
    };
  }
  if (info.OSType === "windows") {
    yield { status: "failed", what: "the engine runs Windows containers", advice: "switch it to Linux containers" };
  }
  const missing = CAPABILITIES.limits.filter((limit) => !enforced(facts).limits.includes(limit));
  const cgroups = `control groups v${info.CgroupVersion ?? "?"} (${info.CgroupDriver ?? "?"})`;
  if (missing.length === 0)
    yield { status: "ok", what: `${cgroups}; limits of cores, memory and processes are enforced` };
  else {
    yield {
      status: "warning",
      what: `${cgroups}; not enforced: limits of ${missing.join(", ")}`,
      advice: "boxes that ask for these limits are refused; delegate the controllers to the engine, or run it as root",
    };
  }
  if (info.MemoryLimit === true && info.SwapLimit === false) {
    yield {
      status: "warning",
      what: "swap is not counted to a box's memory",
      advice: "boot with swapaccount=1, or turn swap off",
    };
  }
  yield {
    status: "ok",
    what: `storage: ${info.Driver ?? "?"}${backingFileSystem(info)}; limits of storage are not enforced and are reported so`,
  };
  yield {
    status: "warning",
    what: "boxes with the network policy \"public\" can reach services bound to this host's own addresses, and a cloud's metadata address",
    advice:
      'bind what is not for boxes to 127.0.0.1, and block the metadata address for the bridge in the host\'s firewall; or use publicVia: "gateway"',
  };
  yield { status: "ok", what: "IPv6: the bridges have IPv4 only, so boxes have no IPv6 beyond loopback" };
  if (kind === "docker" && isOlder(version.Version, UPLOAD_FIXED_IN)) {
    yield {
      status: "warning",
      what: "this engine unpacks compressed uploads with the box's own programs as root on the host (CVE-2026-41567); this driver sends plain archives only",
      advice: "do not copy compressed archives into boxes by other means, or use an engine from 29.5.1 on",
    };
  }
}

function backingFileSystem(info: EngineInfo): string {
  const found = (info.DriverStatus ?? []).find(([name]) => name === "Backing Filesystem");
  return found?.[1] === undefined ? "" : ` on ${found[1]}`;
}

function isOlder(version: string | undefined, than: readonly [number, number, number]): boolean {
  const parts = /^(\d+)\.(\d+)(?:\.(\d+))?/.exec(version ?? "");
  if (parts === null) return false;
  for (const [index, bound] of than.entries()) {
    const part = Number(parts[index + 1] ?? 0);
    if (part !== bound) return part < bound;
  }
  return false;
}
