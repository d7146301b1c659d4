import {
  parseNetworkPolicy,
  parseRuntimeSpec,
  refusals,
  sameNetworkPolicy,
  type NetworkPolicy,
  type RefusalCode,
  type RuntimeCapabilities,
} from "@breakwater/runtime-api";

import { lineOfKey } from "./key-lines.ts";
import type { PlanOptions } from "./options.ts";
import type { ComposedBox } from "./plan-compose.ts";
import type { PlannedSpec } from "./plan.ts";
import type { TasksetProblem } from "./problems.ts";
import type { Task } from "./task.ts";

const TASK_FILE = "task.toml";
/** Stands for the caller in problems. */
export const OPTIONS = "options";

/** Problems and warnings of a plan, each once, with their places. */
export class Notes {
  readonly problems: TasksetProblem[] = [];
  readonly warnings: TasksetProblem[] = [];
  readonly #lines: Readonly<Record<string, number>>;

  constructor(task: Task) {
    this.#lines = task.lines;
  }

  refuse(problem: TasksetProblem): void {
    addOnce(this.problems, problem);
  }

  refuseKey(key: string, message: string, advice: string): void {
    this.refuse({ ...this.#placeOfKey(key), message, advice });
  }

  warn(problem: TasksetProblem): void {
    addOnce(this.warnings, problem);
  }

  warnKey(key: string, message: string, advice: string): void {
    this.warn({ ...this.#placeOfKey(key), message, advice });
  }

  /** Hosts that are added to nothing but public networks. */
  warnOfNoEffect({ option, hosts = [] }: AllowedHosts, policies: readonly NetworkPolicy[]): void {
    if (hosts.length === 0 || policies.some(({ mode }) => mode !== "public")) return;
    this.warn({
      file: OPTIONS,
      key: option,
      message: "has no effect: the network is public",
      advice: "leave it out",
    });
  }

  /** Everything that a backend will not do for this box, at the keys that asked for it. */
  refuseBox(asked: AskedBox, capabilities: RuntimeCapabilities, options: PlanOptions): void {
    const services = asked.composed.services.map((service) => ({ ...service.spec, image: "planned" }));
    const spec = parseRuntimeSpec({ ...asked.spec, services, image: "planned" });
    for (const { key, code, message, advice } of refusals(spec, capabilities)) {
      const place = this.#placeOf(asked, key, code, options);
      this.refuse({ ...place, message: `the ${asked.of}'s box: ${message}`, advice });
    }
  }

  #placeOf(
    { spec, composed, table, lifetimeKey, policies }: AskedBox,
    key: string,
    code: RefusalCode,
    options: PlanOptions,
  ): Place {
    const written = (...names: readonly string[]): Place => {
      const keys = names.map((name) => `${table}.${name}`);
      return this.#placeOfKey(keys.find((one) => Object.hasOwn(this.#lines, one)) ?? keys[0] ?? table);
    };
    switch (code) {
      case "REFUSED_CPUS":
        return options.overrideCpus === undefined ? written("cpus") : { file: OPTIONS, key: "overrideCpus" };
      case "REFUSED_MEMORY":
        return options.overrideMemoryMb === undefined
          ? written("memory_mb", "memory")
          : { file: OPTIONS, key: "overrideMemoryMb" };
      case "REFUSED_GPUS":
        return written("gpus");
      case "REFUSED_OPERATING_SYSTEM":
        return written("os");
      case "REFUSED_LIFETIME":
        return this.#placeOfKey(lifetimeKey);
      case "REFUSED_NETWORK_MODE":
      case "REFUSED_NETWORK_CHANGE":
      case "REFUSED_ALLOWLIST_ENTRY": {
        const [initial, ...phases] = policies;
        const index = /^network\.later\[(\d+)\]$/.exec(key)?.[1];
        const later = index === undefined ? undefined : spec.network?.later?.[Number(index)];
        const placed =
          key === "network.initial"
            ? initial
            : phases.find(({ policy }) => policy !== null && (later === undefined || sameNetworkPolicy(policy, later)));
        if (placed?.option !== undefined) return { file: OPTIONS, key: placed.option };
        return placed === undefined || placed === initial
          ? written("network_mode", "allow_internet")
          : this.#placeOfKey(placed.key);
      }
      case "REFUSED_SERVICES":
        return { file: composed.file ?? TASK_FILE, key: null };
      case "REFUSED_USER":
        return this.#placeOfKey(table);
    }
  }

  #placeOfKey(key: string): Place {
    const line = lineOfKey(this.#lines, key);
    return { file: TASK_FILE, key, ...(line === undefined ? {} : { line }) };
  }
}

type Place = Pick<TasksetProblem, "file" | "key" | "line">;

/** A box and the keys that asked for it. */
export interface AskedBox {
  readonly of: "agent" | "verifier";
  readonly spec: PlannedSpec;
  readonly composed: ComposedBox;
  /** The table of its environment. */
  readonly table: string;
  /** What makes its lifetime as long as it is. */
  readonly lifetimeKey: string;
  /** Its baseline, then those of its phases. */
  readonly policies: readonly PlacedPolicy[];
}

function addOnce(list: TasksetProblem[], problem: TasksetProblem): void {
  const text = JSON.stringify(problem);
  if (!list.some((one) => JSON.stringify(one) === text)) list.push(problem);
}

/** Hosts of the caller. */
export interface AllowedHosts {
  readonly option: "allowAgentHosts" | "allowEnvironmentHosts" | "allowVerifierHosts";
  readonly hosts: readonly string[] | undefined;
}

/** A policy with the caller's hosts: public stays public, everything else becomes an allowlist. */
export function allowHosts(policy: NetworkPolicy, { hosts = [] }: AllowedHosts): NetworkPolicy {
  if (hosts.length === 0 || policy.mode === "public") return policy;
  return parseNetworkPolicy({
    mode: "allowlist",
    hosts: [...(policy.mode === "allowlist" ? policy.hosts : []), ...hosts],
  });
}

/** A policy and what asked for it. */
export interface PlacedPolicy {
  /** `null` = none of its own. */
  readonly policy: NetworkPolicy | null;
  readonly key: string;
  /** Set if the caller's hosts are what made it. */
  readonly option: AllowedHosts["option"] | undefined;
}

export function placePolicy(
  policy: NetworkPolicy | null,
  written: NetworkPolicy | null,
  key: string,
  { option, hosts = [] }: AllowedHosts,
): PlacedPolicy {
  const asWritten = policy === null || (written !== null && sameNetworkPolicy(policy, written));
  return { policy, key, option: asWritten || hosts.length === 0 ? undefined : option };
}
