import type { AllowlistEntryKind, LimitKind, NetworkMode, RuntimeCapabilities } from "@breakwater/runtime-api";

/** A capability that a promise depends on. Decided by what the backend declares, never by what is observed. */
export interface CapabilityNeed {
  /** As it is shown for a case that is not run. */
  readonly name: string;
  /** The case that runs where the capability is not claimed; `null` where there is nothing that could be asked for and refused. */
  readonly refusedTwin: string | null;
  claimed(capabilities: RuntimeCapabilities): boolean;
}

export function networkMode(mode: NetworkMode): CapabilityNeed {
  return {
    name: `network mode ${mode}`,
    refusedTwin: `refusal.network-${mode}`,
    claimed: (it) => it.networkModes.includes(mode),
  };
}

export function allowlistEntry(kind: AllowlistEntryKind): CapabilityNeed {
  return {
    name: `allowlist entries of the kind ${kind}`,
    refusedTwin: null,
    claimed: (it) => it.allowlistEntries.includes(kind),
  };
}

export const allowlistsByPort: CapabilityNeed = {
  name: "allowlists for ports 80 and 443 alone",
  refusedTwin: null,
  claimed: (it) => it.allowlistPorts !== "all" && it.allowlistPorts.every((port) => port === 80 || port === 443),
};

export function limit(kind: LimitKind): CapabilityNeed {
  const refusable = kind === "cpus" || kind === "memory";
  return {
    name: `limit ${kind}`,
    refusedTwin: refusable ? `refusal.limit-${kind}` : null,
    claimed: (it) => it.limits.includes(kind),
  };
}

export const changesNetwork: CapabilityNeed = {
  name: "network change",
  refusedTwin: "refusal.network-change",
  claimed: (it) => it.networkChange !== "none",
};

export const cutsConnections: CapabilityNeed = {
  name: "network change that cuts open connections",
  refusedTwin: "refusal.network-tightening",
  claimed: (it) => it.networkChange === "cuts",
};

export const freezes: CapabilityNeed = {
  name: "freeze",
  refusedTwin: "refusal.freeze",
  claimed: (it) => it.freeze === "freezes",
};

export const readsAfterStop: CapabilityNeed = {
  name: "stop that leaves the files readable",
  refusedTwin: "refusal.read-after-stop",
  claimed: (it) => it.stop !== "destroys",
};

export const ownFirstProcess: CapabilityNeed = {
  name: "first process of ours",
  refusedTwin: null,
  claimed: (it) => it.firstProcess === "ours",
};

export const anyUser: CapabilityNeed = {
  name: "any user",
  refusedTwin: "refusal.user",
  claimed: (it) => it.users === "any",
};

export const builds: CapabilityNeed = {
  name: "building images",
  refusedTwin: "refusal.build",
  claimed: (it) => it.imageSources.includes("build"),
};

export const pinsById: CapabilityNeed = {
  name: "images pinned by id",
  refusedTwin: null,
  claimed: (it) => it.imagePin === "id",
};

export const services: CapabilityNeed = {
  name: "services",
  refusedTwin: "refusal.services",
  claimed: (it) => it.services === "full",
};

/** More is never had; the twin asks for one more than there are. */
export const unboundedLifetime: CapabilityNeed = {
  name: "a lifetime without a bound",
  refusedTwin: "refusal.lifetime",
  claimed: (it) => it.maxLifetimeMs === null,
};

export const windows: CapabilityNeed = {
  name: "windows boxes",
  refusedTwin: "refusal.operating-system",
  claimed: (it) => it.operatingSystems.includes("windows"),
};

/** What has a refusal twin. A unit test holds this list and the cases together. */
export const refusable: readonly CapabilityNeed[] = [
  networkMode("public"),
  networkMode("no-network"),
  networkMode("allowlist"),
  changesNetwork,
  cutsConnections,
  freezes,
  readsAfterStop,
  limit("cpus"),
  limit("memory"),
  anyUser,
  builds,
  services,
  unboundedLifetime,
  windows,
];
