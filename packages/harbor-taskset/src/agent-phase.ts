import type { PreparedImage, Runtime } from "@breakwater/runtime-api";

import type { Agent } from "./agents.ts";
import { endOfBox, isInfrastructure } from "./box-end.ts";
import { OutputLog } from "./output-log.ts";
import { workInBox, type PhaseEnd } from "./phase-box.ts";
import { underPolicy } from "./phase-network.ts";
import type { AgentOutcome } from "./result.ts";
import { messageOf } from "./trial-error.ts";
import { abortedFailure, enter, type Trial } from "./trial.ts";

/**
 * Step 3, the agent at work: under its timeout and its network policy, which is undone afterwards. However the agent ends, it is graded; only what
 * it cannot have brought about ends the trial.
 */
export async function runAgentPhase(trial: Trial, box: Runtime, image: PreparedImage, agent: Agent): Promise<void> {
  const { plan, record, signal } = trial;
  enter(trial, "agent");
  const network = { of: "agent", policy: plan.agent.network, goesOn: true, signal } as const;
  const end = await underPolicy(trial, box, network, () => runAgent(trial, box, image, agent));
  if (end.status === "aborted" || record.agent === null) throw abortedFailure(trial);

  const endedBy = await endOfBox(trial, box, "agent");
  if (endedBy !== null) record.agent = { ...record.agent, status: "box-ended", boxEndedBy: endedBy };
  else if (end.status === "threw" && isInfrastructure(end.error)) throw end.error;
}

async function runAgent(trial: Trial, box: Runtime, image: PreparedImage, agent: Agent): Promise<PhaseEnd<void>> {
  const { plan, events, record } = trial;
  events.emit("agent.started", { box: box.id, details: { timeoutMs: plan.agent.deadlineMs, user: plan.agent.user } });
  const startedAt = performance.now();
  const end = await work(trial, box, image, agent);
  const durationMs = Math.round(performance.now() - startedAt);
  if (end.status === "aborted") return end;

  record.agent = {
    status: STATUS[end.status],
    exitCode: end.status === "threw" ? exitCodeOf(end.error) : null,
    message: describeEnd(trial, end),
    durationMs,
    boxEndedBy: null,
  };
  events.emit("agent.ended", { box: box.id, details: { ...record.agent } });
  return end;
}

async function work(trial: Trial, box: Runtime, image: PreparedImage, agent: Agent): Promise<PhaseEnd<void>> {
  const { plan, folder, redactor, signal } = trial;
  const { user, env, deadlineMs } = plan.agent;
  using log = new OutputLog(await folder.path("agent/agent.log"), redactor);
  return await workInBox(box, { user, env, timeoutMs: deadlineMs, signal }, (view, phaseSignal) =>
    agent({
      instruction: plan.agent.instruction,
      box: view,
      env,
      user,
      workdir: box.spec.workdir ?? image.workdir ?? "/",
      signal: phaseSignal,
      timeoutMs: deadlineMs,
      skillsDirectory: plan.agent.skillsDirectory,
      task: { name: plan.task.name },
      solution: agent.needsSolution === true ? plan.oracle : null,
      log: log.write,
    }),
  );
}

const STATUS = {
  returned: "completed",
  threw: "failed",
  "timed-out": "timed-out",
} as const satisfies Record<Exclude<PhaseEnd<void>["status"], "aborted">, AgentOutcome["status"]>;

function describeEnd(trial: Trial, end: PhaseEnd<void>): string | null {
  switch (end.status) {
    case "threw":
      return messageOf(end.error);
    case "timed-out":
      return `the agent was ended after ${trial.plan.agent.deadlineMs} ms`;
    case "returned":
    case "aborted":
      return null;
  }
}

function exitCodeOf(error: unknown): number | null {
  const code = typeof error === "object" && error !== null && "exitCode" in error ? error.exitCode : null;
  return typeof code === "number" ? code : null;
}
