import type { PreparedImage, Runtime } from "@breakwater/runtime-api";

import type { Agent } from "./agents.ts";
import { endOfBox, isInfrastructure } from "./box-end.ts";
import { workdirOf } from "./boxes.ts";
import { OutputLog } from "./output-log.ts";
import { workInBox, type PhaseEnd } from "./phase-box.ts";
import { underPolicy } from "./phase-network.ts";
import type { AgentOutcome } from "./result.ts";
import { messageOf } from "./trial-error.ts";
import { abortedFailure, enter, type Step } from "./trial.ts";

/**
 * Step 3, the agent at work: under its timeout and its network policy, which is undone afterwards. However the agent ends, it is graded; only what
 * it cannot have brought about ends the trial.
 */
export async function runAgentPhase(step: Step, box: Runtime, image: PreparedImage, agent: Agent): Promise<void> {
  const { outcome, signal } = step;
  enter(step, "agent");
  const network = { of: "agent", policy: step.step.agent.network, goesOn: true, signal } as const;
  const end = await underPolicy(step, box, network, () => runAgent(step, box, image, agent));
  if (end.status === "aborted" || outcome.agent === null) throw abortedFailure(step);

  const endedBy = await endOfBox(step, box, "agent");
  if (endedBy !== null) outcome.agent = { ...outcome.agent, status: "box-ended" };
  else if (end.status === "threw" && isInfrastructure(end.error)) throw end.error;
}

async function runAgent(step: Step, box: Runtime, image: PreparedImage, agent: Agent): Promise<PhaseEnd<void>> {
  const { events, outcome } = step;
  const { deadlineMs, user } = step.step.agent;
  events.emit("agent.started", { box: box.id, details: { timeoutMs: deadlineMs, user } });
  const startedAt = performance.now();
  const end = await work(step, box, image, agent);
  const durationMs = Math.round(performance.now() - startedAt);
  if (end.status === "aborted") return end;

  outcome.agent = {
    status: STATUS[end.status],
    exitCode: end.status === "threw" ? exitCodeOf(end.error) : null,
    message: describeEnd(end, deadlineMs),
    durationMs,
    boxEndedBy: null,
  };
  events.emit("agent.ended", { box: box.id, details: { ...outcome.agent } });
  return end;
}

async function work(step: Step, box: Runtime, image: PreparedImage, agent: Agent): Promise<PhaseEnd<void>> {
  const { plan, folder, redactor, signal } = step;
  const { instruction, user, env, deadlineMs, skillsDirectory, mcpServers } = step.step.agent;
  using log = new OutputLog(await folder.path("agent/agent.log"), redactor);
  return await workInBox(box, { user, env, timeoutMs: deadlineMs, signal }, (view, phaseSignal) =>
    agent({
      instruction,
      box: view,
      env,
      user,
      workdir: workdirOf(box, image),
      signal: phaseSignal,
      timeoutMs: deadlineMs,
      skillsDirectory,
      mcpServers,
      task: { name: plan.task.name },
      step: step.step.name,
      solution: agent.needsSolution === true ? step.step.oracle : null,
      log: log.write,
    }),
  );
}

const STATUS = {
  returned: "completed",
  threw: "failed",
  "timed-out": "timed-out",
} as const satisfies Record<Exclude<PhaseEnd<void>["status"], "aborted">, AgentOutcome["status"]>;

function describeEnd(end: PhaseEnd<void>, deadlineMs: number): string | null {
  switch (end.status) {
    case "threw":
      return messageOf(end.error);
    case "timed-out":
      return `the agent was ended after ${deadlineMs} ms`;
    case "returned":
    case "aborted":
      return null;
  }
}

function exitCodeOf(error: unknown): number | null {
  const code = typeof error === "object" && error !== null && "exitCode" in error ? error.exitCode : null;
  return typeof code === "number" ? code : null;
}
