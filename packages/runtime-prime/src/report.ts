import { type BoxEnd, HOLD_LIFETIME_EXIT_CODE, UNKNOWN_USAGE } from "@breakwater/driver-kit";
import type { EndedBy } from "@breakwater/runtime-api";
import type { Sandbox } from "./schemas.ts";

/** How a sandbox ended that we did not end, from the service's own record. What the record does not say is not guessed. */
export function howItEnded(sandbox: Sandbox): BoxEnd {
  const { status, errorType, exitCode } = sandbox;
  const endedBy = ((): EndedBy => {
    if (errorType === "OOM_KILLED") return "memory";
    if (errorType === "TIMEOUT" || status === "TIMEOUT") return "lifetime";
    if (exitCode === HOLD_LIFETIME_EXIT_CODE) return "lifetime";
    return "unknown";
  })();
  return { endedBy, exitCode, ...UNKNOWN_USAGE, oomKills: endedBy === "memory" ? 1 : null };
}
