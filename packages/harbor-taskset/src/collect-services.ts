import { isRuntimeError, type Runtime, type RuntimeService } from "@breakwater/runtime-api";

import type { ArtifactPlan } from "./plan.ts";

const REPORT_TIMEOUT_MS = 60_000;

/** Whether an operation failed because the service's program had come to its end. Any other end is nobody's work, and a failure of the backend. */
export async function hasEnded(service: RuntimeService, error: unknown): Promise<boolean> {
  if (!isRuntimeError(error, "ERR_BOX_LOST")) return false;
  const { endedBy } = await service.report({ timeoutMs: REPORT_TIMEOUT_MS });
  return endedBy === "contents" || endedBy === "memory" || endedBy === "lifetime";
}

/** Where an artifact is read: the agent's box, or a service beside it. */
export function whereFrom(box: Runtime, { service }: ArtifactPlan): Runtime | RuntimeService {
  return service === undefined ? box : box.service(service);
}
