import { type BoxEnd, type BoxUsage, HOLD_LIFETIME_EXIT_CODE } from "@breakwater/driver-kit";
import type { EndedBy } from "@breakwater/runtime-api";
import type { ContainerInspection } from "./teardown.ts";

/** An event of the engine, the part that counts. */
export interface EngineEvent {
  readonly Action: string;
  readonly Actor?: { readonly Attributes?: Readonly<Record<string, string>> };
}

const KILLED = 137;
const TERMINATED = 143;
/** What an engine that lost track of a box writes down. */
const LOST_TRACK = 255;

/**
 * Why a box ended that we did not end, from its state and the engine's events. Nothing in a box can signal our hold, so 137 comes from the box's
 * memory limit or from outside; a kill through the engine leaves an event.
 */
export function classifyEnd(
  state: ContainerInspection["State"],
  events: readonly EngineEvent[],
  hasMemoryLimit: boolean,
): BoxEnd {
  const oomEvents = events.filter(({ Action }) => Action === "oom").length;
  const killedThroughEngine = events.some(({ Action }) => Action === "kill");
  const endedBy = ((): EndedBy => {
    if (killedThroughEngine) return "outside";
    switch (state.ExitCode) {
      case HOLD_LIFETIME_EXIT_CODE:
        return "lifetime";
      case KILLED:
        return hasMemoryLimit && (state.OOMKilled || oomEvents > 0) ? "memory" : "outside";
      case TERMINATED:
        return "outside";
      case LOST_TRACK:
        return "unknown";
      default:
        return "contents";
    }
  })();
  const oomKills = Math.max(oomEvents, state.OOMKilled ? 1 : 0);
  return { endedBy, exitCode: state.ExitCode, oomKills, memoryPeakBytes: null, cpuMs: null };
}

/** The engine's figures of a running container, the part that counts. */
export interface StatsAnswer {
  readonly cpu_stats?: { readonly cpu_usage?: { readonly total_usage?: number } };
  readonly memory_stats?: { readonly max_usage?: number };
}

/** `null`: Podman without control groups of its own keeps no figures. */
export function usageOf(stats: StatsAnswer | null): BoxUsage {
  const nanoseconds = stats?.cpu_stats?.cpu_usage?.total_usage;
  return {
    oomKills: null,
    memoryPeakBytes: stats?.memory_stats?.max_usage ?? null,
    cpuMs: nanoseconds === undefined ? null : Math.round(nanoseconds / 1e6),
  };
}
