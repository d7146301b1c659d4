import { isRuntimeError, type Runtime } from "@breakwater/runtime-api";

import { wasEndedByContents } from "./box-end.ts";
import { hasEnded } from "./collect-services.ts";
import type { CollectHookPlan } from "./plan.ts";
import type { CollectHookOutcome } from "./result.ts";
import { messageOf } from "./trial-error.ts";
import { enter, type Step } from "./trial.ts";

const HOOK_OUTPUT_BYTES = 2000;

/** Step 4: the hooks, in the agent's box while it still runs. None of them stops a trial. */
export async function runCollectHooks(step: Step, box: Runtime): Promise<void> {
  await runHooks(step, box, ({ service }) => service === undefined);
}

/** The hooks of services, when the agent's box can run nothing any more. None of them stops a trial. */
export async function runServiceHooks(step: Step, box: Runtime): Promise<void> {
  await runHooks(step, box, ({ service }) => service !== undefined);
}

async function runHooks(step: Step, box: Runtime, isMeant: (hook: CollectHookPlan) => boolean): Promise<void> {
  enter(step, "collect");
  for (const hook of step.step.collect.filter(isMeant)) {
    const outcome = await runHook(step, box, hook);
    step.outcome.collectHooks.push(outcome);
    step.events.emit("collect-hook.ended", { box: box.id, details: { ...outcome } });
  }
}

async function runHook(step: Step, box: Runtime, hook: CollectHookPlan): Promise<CollectHookOutcome> {
  const { command, user, timeoutMs } = hook;
  const service = hook.service === undefined ? null : box.service(hook.service);
  const of = service === null ? { command } : { command, service: service.name };
  const notRun = (what: string): CollectHookOutcome => ({ ...of, status: "not-run", exitCode: null, message: what });
  if (service === null && step.record.agentBoxEndedBy !== null) return notRun("the box had ended");
  try {
    const result = await (service ?? box).exec(["sh", "-c", command], {
      timeoutMs,
      signal: step.signal,
      maxOutputBytes: HOOK_OUTPUT_BYTES,
      ...(user === null ? {} : { user }),
    });
    const output = Buffer.concat([result.stdout, result.stderr]).toString("utf8").trim();
    const status = result.timedOut ? "timed-out" : result.exitCode === 0 ? "completed" : "failed";
    return { ...of, status, exitCode: result.exitCode, message: output === "" ? null : output };
  } catch (error) {
    if (service !== null && (await hasEnded(service, error))) return notRun("the service had ended");
    if (service === null && (await wasEndedByContents(step, box, "agent", error))) return notRun("the box had ended");
    // What the agent left of its box may be what keeps the hook from running.
    if (!isRuntimeError(error, "ERR_EXEC_START", "ERR_BOX_UNFIT", "ERR_TIMEOUT")) throw error;
    return { ...of, status: "failed", exitCode: null, message: messageOf(error) };
  }
}
