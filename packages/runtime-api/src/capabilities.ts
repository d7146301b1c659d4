import type { AllowlistEntryKind, NetworkMode } from "./network.ts";

export type LimitKind = "cpus" | "memory" | "storage" | "pids";

/**
 * What a driver enforces: facts, never intentions. `RuntimeDriver.capabilities` is the most that the driver can claim;
 * `RuntimeDriver.probe()` says what this backend enforces here.
 */
export interface RuntimeCapabilities {
  readonly networkModes: readonly NetworkMode[];
  /**
   * What `setNetwork` does to open connections. `cuts`: none that the new policy forbids survives. `new-connections-only`:
   * open ones live on, so tightening while programs may run is refused. `none`: the first policy is the only one.
   */
  readonly networkChange: "cuts" | "new-connections-only" | "none";
  readonly allowlistEntries: readonly AllowlistEntryKind[];
  /** Ports that an allowlist opens on its hosts; `all` where the backend cannot filter by port. */
  readonly allowlistPorts: readonly number[] | "all";
  /**
   * What `stopConfirmed` leaves. `halted`: nothing runs, files are read through the backend. `sealed`: only our own programs run and
   * read. `destroys`: stop means gone; nothing can be read afterwards.
   */
  readonly stop: "halted" | "sealed" | "destroys";
  /** `ours`: the first process is our hold and root in the box cannot end it. */
  readonly firstProcess: "ours" | "backend";
  readonly freeze: "freezes" | "none";
  /** Limits that are enforced, not merely requested. */
  readonly limits: readonly LimitKind[];
  /** The most that one box can have; `null` where the backend does not say. */
  readonly maxCpus: number | null;
  readonly maxMemoryMb: number | null;
  readonly gpus: number;
  /** `any`: a program can be run as any user. `image`: only as the image's own. */
  readonly users: "any" | "image";
  /** How an image is pinned between the agent's and the verifier's box. */
  readonly imagePin: "id" | "observed" | "none";
  readonly imageSources: readonly ("reference" | "build")[];
  readonly services: "full" | "none";
  readonly operatingSystems: readonly ("linux" | "windows")[];
  /** The longest lifetime that the backend enforces without us; `null` = no bound of its own. */
  readonly maxLifetimeMs: number | null;
}
