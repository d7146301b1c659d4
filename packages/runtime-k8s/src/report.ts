import type { V1Pod } from "@kubernetes/client-node";
import { type BoxEnd, HOLD_LIFETIME_EXIT_CODE, UNKNOWN_USAGE } from "@breakwater/driver-kit";
import type { EndedBy } from "@breakwater/runtime-api";
import { boxStatus } from "./pods.ts";

const KILLED = 137;
/** Of a hold that was told from outside to end. */
const TERMINATED = 143;

/** Why a box ended that we did not end, from its pod. */
export function classifyEnd(pod: V1Pod): BoxEnd {
  const terminated = boxStatus(pod)?.state?.terminated;
  const exitCode = terminated?.exitCode ?? null;
  const isOutOfMemory = terminated?.reason === "OOMKilled";
  return {
    ...UNKNOWN_USAGE,
    endedBy: endedBy(pod, exitCode, isOutOfMemory),
    exitCode,
    oomKills: isOutOfMemory ? 1 : null,
  };
}

function endedBy(pod: V1Pod, exitCode: number | null, isOutOfMemory: boolean): EndedBy {
  if (isOutOfMemory) return "memory";
  const { reason, conditions = [] } = pod.status ?? {};
  if (reason === "DeadlineExceeded") return "lifetime";
  if (reason === "Evicted") {
    // The kubelet marks what it evicts for its node's sake; a box that is over its own limit of storage has no mark.
    const isForNode = conditions.some(({ type, status }) => type === "DisruptionTarget" && status === "True");
    return isForNode ? "outside" : "contents";
  }
  if (pod.metadata?.deletionTimestamp !== undefined) return "outside";
  switch (exitCode) {
    case null:
      return "unknown";
    case HOLD_LIFETIME_EXIT_CODE:
      return "lifetime";
    case KILLED:
    case TERMINATED:
      return "outside";
    default:
      return "contents";
  }
}
