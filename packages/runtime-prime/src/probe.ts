import type { DoctorLine, RuntimeCapabilities } from "@breakwater/runtime-api";
import type { Account, SandboxKind } from "./options.ts";

const MINUTES_PER_MONTH = 43_200;

const CONTAINER: RuntimeCapabilities = Object.freeze({
  networkModes: ["public"],
  networkChange: "none",
  allowlistEntries: [],
  allowlistPorts: [],
  stop: "destroys",
  firstProcess: "backend",
  freeze: "none",
  limits: ["cpus", "memory"],
  maxCpus: 16,
  maxMemoryMb: 64 * 1024,
  gpus: 0,
  users: "any",
  imagePin: "none",
  imageSources: ["reference"],
  services: "none",
  operatingSystems: ["linux"],
  maxLifetimeMs: MINUTES_PER_MONTH * 60_000,
} satisfies RuntimeCapabilities);

const VM: RuntimeCapabilities = Object.freeze({
  ...CONTAINER,
  networkModes: ["public", "no-network", "allowlist"],
  networkChange: "new-connections-only",
  allowlistEntries: ["name", "wildcard", "ipv4", "ipv4-cidr"],
  allowlistPorts: "all",
} satisfies RuntimeCapabilities);

/** The most that this driver can claim. */
export const CAPABILITIES: Readonly<Record<SandboxKind, RuntimeCapabilities>> = { vm: VM, container: CONTAINER };

/** The service for people. */
export function* describeService(account: Account, kind: SandboxKind, activeBoxes: number): Generator<DoctorLine> {
  const { host } = account.baseUrl;
  const team = account.teamId === null ? "no team" : `team ${account.teamId}`;
  yield {
    status: "ok",
    what: `Prime answers at ${host} and lets us in (${team}); ${activeBoxes} boxes of ours are active`,
  };
  if (kind === "container") {
    yield {
      status: "warning",
      what: 'container sandboxes have only the network policy "public"',
      advice: "use VM sandboxes for tasks with no-network or an allowlist",
    };
  } else {
    yield {
      status: "warning",
      what: "a change of the network policy leaves open connections alive, and an allowlist does not filter ports",
      advice: "tightening while programs may run is refused; use another driver for tasks that need it",
    };
  }
  yield {
    status: "warning",
    what: "stopping a sandbox destroys it: artifacts and rewards are read while the box lives",
    advice: "the result says so (collectedFrom: live)",
  };
  yield {
    status: "ok",
    what: "limits of cores and memory are enforced; of storage and processes not, and are reported so",
  };
}
