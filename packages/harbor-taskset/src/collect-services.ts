import { isRuntimeError, type Runtime, type RuntimeService } from "@breakwater/runtime-api";

import type { ArtifactPlan, CollectHookPlan } from "./plan.ts";
import type { CollectHookOutcome } from "./result.ts";
import { messageOf } from "./trial-error.ts";
import { enter, type Step } from "./trial.ts";

const HOOK_OUTPUT_BYTES = 2000;
const REPORT_TIMEOUT_MS = 60_000;

/** The hooks of services, when the agent's box can run nothing any more. None of them stops a trial. */
export async function runServiceHooks(step: Step, box: Runtime): Promise<void> {
  enter(step, "collect");
  for (const hook of step.step.collect) {
    if (hook.service === undefined) continue;
    const outcome = await runHook(step, box.service(hook.service), hook);
    step.outcome.collectHooks.push(outcome);
    step.events.emit("collect-hook.ended", { box: box.id, details: { ...outcome } });
  }
}

async function runHook(step: Step, service: RuntimeService, hook: CollectHookPlan): Promise<CollectHookOutcome> {
  const { command, user, timeoutMs } = hook;
  const of = { command, service: service.name, exitCode: null };
  try {
    const result = await service.exec(["sh", "-c", command], {
      timeoutMs,
      signal: step.signal,
      maxOutputBytes: HOOK_OUTPUT_BYTES,
      ...(user === null ? {} : { user }),
    });
    const output = Buffer.concat([result.stdout, result.stderr]).toString("utf8").trim();
    const status = result.timedOut ? "timed-out" : result.exitCode === 0 ? "completed" : "failed";
    return { ...of, status, exitCode: result.exitCode, message: output === "" ? null : output };
  } catch (error) {
    if (await hasEnded(service, error)) return { ...of, status: "not-run", message: "the service had ended" };
    if (!isRuntimeError(error, "ERR_EXEC_START", "ERR_BOX_UNFIT", "ERR_TIMEOUT")) throw error;
    return { ...of, status: "failed", message: messageOf(error) };
  }
}

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
