import type { RuntimeCapabilities } from "./capabilities.ts";
import type { Refusal, RefusalCode } from "./errors.ts";
import { parseAllowlistEntry, widensNothing } from "./network.ts";
import type { RuntimeSpec } from "./spec.ts";

/**
 * Every reason why a backend with these (probed) capabilities will not run this spec; empty = it will. Pure, so that a plan
 * can be refused before anything is paid for. `storageMb` is never a reason: where it is not enforced, that is recorded.
 */
export function refusals(spec: RuntimeSpec, capabilities: RuntimeCapabilities): readonly Refusal[] {
  const found: Refusal[] = [];
  const refuse = (key: string, code: RefusalCode, message: string, advice: string): void => {
    found.push({ key, code, message, advice });
  };

  if (!capabilities.operatingSystems.includes(spec.operatingSystem)) {
    refuse(
      "operatingSystem",
      "REFUSED_OPERATING_SYSTEM",
      `${spec.operatingSystem} boxes cannot be had here`,
      "use a driver that has them",
    );
  }

  const policies = [
    ["network.initial", spec.network.initial] as const,
    ...spec.network.later.map((policy, index) => [`network.later[${index}]`, policy] as const),
  ];
  for (const [key, policy] of policies) {
    if (!capabilities.networkModes.includes(policy.mode)) {
      refuse(
        key,
        "REFUSED_NETWORK_MODE",
        `network mode "${policy.mode}" cannot be enforced here (enforced: ${capabilities.networkModes.join(", ") || "none"})`,
        "use a driver or backend that enforces it; a policy is never weakened",
      );
    } else if (policy.mode === "allowlist") {
      for (const host of policy.hosts) {
        const { kind } = parseAllowlistEntry(host);
        if (!capabilities.allowlistEntries.includes(kind)) {
          refuse(
            key,
            "REFUSED_ALLOWLIST_ENTRY",
            `allowlist entry "${host}" is of the kind ${kind}, which cannot be enforced here`,
            `use entries of the kinds ${capabilities.allowlistEntries.join(", ")}`,
          );
        }
      }
    }
  }
  if (spec.network.later.length > 0) {
    if (capabilities.networkChange === "none") {
      refuse(
        "network.later",
        "REFUSED_NETWORK_CHANGE",
        "the network policy of a running box cannot be changed here",
        "use one policy for the whole life of the box, or a driver that can change it",
      );
    } else if (capabilities.networkChange === "new-connections-only") {
      const all = policies.map(([, policy]) => policy);
      if (all.some((from) => all.some((to) => !widensNothing(to, from)))) {
        refuse(
          "network.later",
          "REFUSED_NETWORK_CHANGE",
          "a change between these policies would leave open connections alive that the new policy forbids",
          "use one policy for the whole life of the box, or a driver that cuts open connections",
        );
      }
    }
  }

  if (spec.cpus !== null) {
    if (!capabilities.limits.includes("cpus")) {
      refuse(
        "cpus",
        "REFUSED_CPUS",
        "a limit on cores is not enforced here",
        "leave the limit out or use a driver that enforces it",
      );
    } else if (capabilities.maxCpus !== null && spec.cpus > capabilities.maxCpus) {
      refuse(
        "cpus",
        "REFUSED_CPUS",
        `${spec.cpus} cores were asked for, the backend has ${capabilities.maxCpus}`,
        "override the number of cores (--override-cpus)",
      );
    }
  }
  if (spec.memoryMb !== null) {
    if (!capabilities.limits.includes("memory")) {
      refuse(
        "memoryMb",
        "REFUSED_MEMORY",
        "a limit on memory is not enforced here",
        "leave the limit out or use a driver that enforces it",
      );
    } else if (capabilities.maxMemoryMb !== null && spec.memoryMb > capabilities.maxMemoryMb) {
      refuse(
        "memoryMb",
        "REFUSED_MEMORY",
        `${spec.memoryMb} MiB were asked for, the backend has ${capabilities.maxMemoryMb}`,
        "override the memory (--override-memory-mb)",
      );
    }
  }
  if (spec.gpus > capabilities.gpus) {
    refuse(
      "gpus",
      "REFUSED_GPUS",
      `${spec.gpus} GPUs were asked for, the backend gives ${capabilities.gpus}`,
      "use a backend that has them",
    );
  }
  if (spec.services.length + spec.volumes.length > 0 && capabilities.services === "none") {
    refuse(
      "services",
      "REFUSED_SERVICES",
      "services beside the main box cannot be had here",
      "use a driver with services",
    );
  }
  if (spec.user !== null && capabilities.users === "image") {
    refuse(
      "user",
      "REFUSED_USER",
      `programs cannot be run as "${spec.user}" here, only as the image's user`,
      "set the user in the image",
    );
  }
  if (capabilities.maxLifetimeMs !== null && spec.lifetimeMs > capabilities.maxLifetimeMs) {
    refuse(
      "lifetimeMs",
      "REFUSED_LIFETIME",
      `a lifetime of ${spec.lifetimeMs} ms was asked for, the backend gives at most ${capabilities.maxLifetimeMs}`,
      "ask for a shorter one",
    );
  }
  return found;
}
