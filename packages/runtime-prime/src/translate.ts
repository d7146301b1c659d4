import { BOX_HELPER_PATH } from "@breakwater/box-helper";
import { labelsFor, LABELS } from "@breakwater/driver-kit";
import type { NetworkPolicy, RuntimeSpec } from "@breakwater/runtime-api";
import type { PrimeDriverOptions, SandboxKind } from "./options.ts";

/** The label with our id of a box. */
export const BOX_LABEL = "breakwater.box";
/** What the service gives at least. */
export const LEAST_CPUS = 0.1;
export const LEAST_MEMORY_MB = 103;

const MEBIBYTES_PER_GB = 1024;
const MS_PER_MINUTE = 60_000;
/** How much later the service itself ends a container than our hold does. */
const LIFETIME_GRACE_MINUTES = 1;

/** Prime's labels are bare texts: ours are `name=value`. */
export function toServiceLabels(labels: Readonly<Record<string, string>>): readonly string[] {
  return Object.entries(labels).map(([name, value]) => `${name}=${value}`);
}

export function fromServiceLabels(labels: readonly string[]): Readonly<Record<string, string>> {
  return Object.fromEntries(
    labels.map((label) => {
      const at = label.indexOf("=");
      return at < 0 ? [label, ""] : [label.slice(0, at), label.slice(at + 1)];
    }),
  );
}

export function kindOf({ kind }: PrimeDriverOptions): SandboxKind {
  return kind ?? "vm";
}

export interface EgressLists {
  readonly allowlist: readonly string[] | null;
  readonly denylist: readonly string[] | null;
}

/** A policy in the service's words: an empty allowlist lets nothing out, an empty denylist everything. */
export function egressLists(policy: NetworkPolicy): EgressLists {
  switch (policy.mode) {
    case "public":
      return { allowlist: null, denylist: [] };
    case "no-network":
      return { allowlist: [], denylist: null };
    case "allowlist":
      return { allowlist: policy.hosts, denylist: null };
  }
}

/** The first policy holds from the start. */
function egressAtStart(policy: NetworkPolicy): Readonly<Record<string, unknown>> {
  const { allowlist, denylist } = egressLists(policy);
  return allowlist === null ? { network_denylist: denylist } : { network_allowlist: allowlist };
}

/** By this every box of this driver is found, whoever owns it. */
export const ROLE_LABEL: string = `${LABELS.role}=box`;

/** The body of the create call. The box's id is its name and its idempotency key: made again, the call means the same sandbox. */
export function createBody(
  id: string,
  spec: RuntimeSpec,
  options: PrimeDriverOptions,
): Readonly<Record<string, unknown>> {
  const isVm = kindOf(options) === "vm";
  const gb = (mebibytes: number): number => mebibytes / MEBIBYTES_PER_GB;
  const expiresAtMs = Date.now() + spec.lifetimeMs;
  const labels = { ...labelsFor({ role: "box", trial: spec.trial, expiresAtMs }), [BOX_LABEL]: id };
  return {
    name: id,
    docker_image: spec.image,
    ...(isVm ? egressAtStart(spec.network.initial) : { start_command: firstProcess(spec.lifetimeMs) }),
    cpu_cores: spec.cpus ?? options.defaultCpus ?? 1,
    memory_gb: gb(spec.memoryMb ?? options.defaultMemoryMb ?? 2048),
    disk_size_gb: gb(spec.storageMb ?? options.defaultStorageMb ?? 10_240),
    gpu_count: 0,
    vm: isVm,
    timeout_minutes: Math.ceil(spec.lifetimeMs / MS_PER_MINUTE) + (isVm ? 0 : LIFETIME_GRACE_MINUTES),
    environment_vars: spec.env,
    labels: toServiceLabels(labels),
    guaranteed: false,
    idempotency_key: id,
    ...(options.region === undefined ? {} : { region: options.region }),
  };
}

/** How often the first process looks for our helper before it gives up, about 10 minutes. */
const LOOKS_FOR_HELPER = 3000;

/**
 * The first process: waits until our helper is there and becomes our hold, which reaps, which nothing in the box can end, and which ends with the
 * box's lifetime (the service counts in minutes only). It takes a POSIX shell with `sleep`.
 */
export function firstProcess(lifetimeMs: number): string {
  const wait = `looks=0; until [ -x ${BOX_HELPER_PATH} ]; do looks=$((looks + 1)); [ "$looks" -lt ${LOOKS_FOR_HELPER} ] || exit 1; sleep 0.2 || sleep 1; done`;
  return `${wait}; exec ${BOX_HELPER_PATH} hold --lifetime-ms ${lifetimeMs}`;
}
