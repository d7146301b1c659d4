import { randomUUID } from "node:crypto";
import type { Runtime, RuntimeCapabilities, RuntimeDriver } from "@breakwater/runtime-api";

import type { Agent } from "./agents.ts";
import { describePlan } from "./describe-plan.ts";
import { EventLog, type TrialEvent } from "./events.ts";
import { followPlan } from "./follow-plan.ts";
import type { Verify } from "./grade.ts";
import type { HarborFacts } from "./harbor-files.ts";
import type { TrialOptions } from "./options.ts";
import type { TrialPlan } from "./plan.ts";
import { planTrial } from "./plan-trial.ts";
import { createRedactor, secretValues } from "./redact.ts";
import { writeResult } from "./result-files.ts";
import type { StepOutcome, StepResult, TrialResult } from "./result.ts";
import { headlineReward, type Rewards } from "./reward.ts";
import { digestTask } from "./task-digest.ts";
import type { Task } from "./task.ts";
import { describeFailure, messageOf, type TrialError } from "./trial-error.ts";
import { checkTrialName, makeTrialName, TrialFolder } from "./trial-folder.ts";
import { newRecord, type StepRecord, type TrialRecord } from "./trial.ts";

/** What a caller decides about one trial, besides `TrialOptions`. */
export interface RunTrialOptions extends TrialOptions {
  readonly driver: RuntimeDriver;
  readonly agent: Agent;
  /** Grades in place of `/tests/test.sh`. */
  readonly verify?: Verify | undefined;
  /**
   * A running box of the caller's that the agent works in; it is neither stopped nor removed. As it cannot be proven gone, separate mode is refused
   * before anything starts.
   */
  readonly agentRuntime?: Runtime | undefined;
  /** The trial's folder is made in it. Default is to keep nothing. */
  readonly outputDir?: string | undefined;
  /** Default is the task's name and seven random characters. */
  readonly trialName?: string | undefined;
  /** Ends the trial: boxes are torn down, and the result says `aborted`. */
  readonly signal?: AbortSignal | undefined;
  /** Told of every step as it happens. */
  readonly onEvent?: ((event: TrialEvent) => void) | undefined;
}

/**
 * One attempt at a task, from the plan to the reward. Resolves with a result for everything that can go wrong on the way, and leaves no box.
 * Rejects only before anything was started: with a `TasksetError` (`ERR_PLAN_REFUSED`), a `TypeError` for options that make no sense, or because the
 * trial's folder cannot be made.
 */
export async function runTrial(task: Task, options: RunTrialOptions): Promise<TrialResult> {
  const startedAt = new Date();
  const name = options.trialName ?? makeTrialName(task.shortName);
  checkTrialName(name);

  // 1. Every decision, and every refusal
  const { driver, signal = new AbortController().signal } = options;
  const decided = await decide(task, options, signal);
  await using folder = await TrialFolder.create(options.outputDir, name);
  const plan = "plan" in decided ? decided.plan : null;
  const redactor = createRedactor(plan === null ? [] : secretValues(task, plan, options));
  const file = await folder.path("events.jsonl");
  using events = new EventLog({ trial: name, redactor, file, onEvent: options.onEvent });
  const record = newRecord();
  events.emit("trial.started", { details: { task: task.name, directory: task.directory, driver: driver.name } });

  let error: TrialError | null = null;
  try {
    if ("failure" in decided) throw decided.failure;
    const { capabilities } = decided;
    const mode = task.steps.length === 0 ? decided.plan.steps[0].mode : null;
    events.emit("trial.planned", { details: { mode, decisions: describePlan(decided.plan) } });
    const { agent, verify, agentRuntime } = options;
    await followPlan(
      { name, driver, capabilities, plan: decided.plan, events, folder, redactor, signal, record },
      { agent, verify, agentRuntime },
    );
  } catch (failure) {
    const { phase, artifactsAreSafe } = record;
    error = describeFailure(failure, { phase, artifactsAreSafe, aborted: signal.aborted });
  }

  events.enterStep(null);

  const finishedAt = new Date();
  const { rewards } = record;
  events.emit("trial.ended", { details: { rewards, error } });
  const warnings = [...(plan?.warnings ?? task.warnings), ...record.warnings];
  if (events.writeError !== null) warnings.push(notWritten("events.jsonl", events.writeError));
  const headline = (of: Rewards | null): number | null =>
    of === null ? null : headlineReward(of, plan?.sumRewards ?? false);
  const outcomes = record.steps.map((step) => describeOutcome(step, record));
  const hasSteps = task.steps.length > 0;
  const result: TrialResult = redactor.value({
    trial: name,
    task: task.name,
    driver: driver.name,
    ...NO_OUTCOME,
    ...(hasSteps ? {} : { mode: plan?.steps[0].mode ?? null, ...outcomes[0] }),
    rewards,
    reward: headline(rewards),
    error,
    startedAt: startedAt.toISOString(),
    finishedAt: finishedAt.toISOString(),
    durationMs: finishedAt.getTime() - startedAt.getTime(),
    dir: folder.directory,
    eventsFile: file,
    steps: hasSteps
      ? record.steps.map((step, index): StepResult => ({
          name: step.plan.name ?? "",
          rewards: step.rewards,
          reward: headline(step.rewards),
          ...(outcomes[index] ?? NO_OUTCOME),
        }))
      : null,
    stepsNotRun: task.steps.slice(record.steps.length).map((step) => step.name),
    notEnforced: plan?.notEnforced ?? [],
    images: record.images,
    deniedConnections: record.deniedConnections,
    warnings,
    leftovers: record.leftovers,
  });
  if (folder.directory === null) return result;
  try {
    const facts: HarborFacts = {
      id: randomUUID(),
      task,
      digest: await digestTask(task.directory),
      options,
      agentName: options.agent.name === "" ? "agent" : options.agent.name,
      outputDir: options.outputDir,
      at: (type, step) => events.lastAt(type, step),
    };
    await writeResult(folder, result, facts, redactor);
    return result;
  } catch (failure) {
    return { ...result, warnings: [...warnings, notWritten("result.json", failure)] };
  }
}

/** Asks the backend what it can do, and plans. What the backend does not answer is a result; what cannot be done is thrown. */
async function decide(
  task: Task,
  options: RunTrialOptions,
  signal: AbortSignal,
): Promise<{ readonly plan: TrialPlan; readonly capabilities: RuntimeCapabilities } | { readonly failure: unknown }> {
  let capabilities: RuntimeCapabilities;
  try {
    capabilities = await options.driver.probe({ signal });
  } catch (failure) {
    return { failure };
  }
  const plan = planTrial(task, capabilities, {
    ...options,
    borrowedAgentRuntime: options.agentRuntime !== undefined,
    customVerifier: options.verify !== undefined,
    oracle: options.agent.needsSolution === true,
  });
  return { plan, capabilities };
}

const NO_OUTCOME: StepOutcome = {
  mode: null,
  agent: null,
  collectHooks: [],
  artifacts: [],
  artifactsRefused: [],
  collectedFrom: null,
  verifier: null,
};

function describeOutcome(step: StepRecord, { steps, agentBoxEndedBy }: TrialRecord): StepOutcome {
  const { plan, agent, collectHooks, artifacts, artifactsRefused, collectedFrom, verifier } = step;
  const boxEndedBy = step === steps.at(-1) ? agentBoxEndedBy : null;
  return {
    mode: plan.mode,
    agent: agent === null ? null : { ...agent, boxEndedBy },
    collectHooks,
    artifacts,
    artifactsRefused,
    collectedFrom,
    verifier,
  };
}

function notWritten(file: string, error: unknown): TrialResult["warnings"][number] {
  return {
    file,
    key: null,
    message: `could not be written: ${messageOf(error)}`,
    advice: "see whether the disk is full",
  };
}
