import { randomUUID } from "node:crypto";
import type { Runtime, RuntimeCapabilities, RuntimeDriver } from "@breakwater/runtime-api";

import { nameOf, type Agent } from "./agents.ts";
import { describePlan } from "./describe-plan.ts";
import { EventLog, type TrialEvent } from "./events.ts";
import { followPlan, gradeSavedWork } from "./follow-plan.ts";
import { gradeRecorded, type FoundRecord } from "./grade-recorded.ts";
import type { Verify } from "./grade.ts";
import type { HarborFacts } from "./harbor-files.ts";
import type { TrialOptions } from "./options.ts";
import type { TrialPlan } from "./plan.ts";
import { planTrial } from "./plan-trial.ts";
import type { TrialProgress } from "./progress.ts";
import { createRedactor, secretValues } from "./redact.ts";
import { writeResult } from "./result-files.ts";
import type { RegradedFrom, Retried, StepOutcome, StepResult, TrialResult } from "./result.ts";
import { combineRewards, headlineReward, type Rewards } from "./reward.ts";
import { loadWork, restoreRecord, type SavedWork } from "./saved-work.ts";
import { digestOf } from "./task-digest.ts";
import type { Task } from "./task.ts";
import { describeFailure, isWithoutVerdict, messageOf, TrialFailure, type TrialError } from "./trial-error.ts";
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
  /** Told of what takes long: steps of pulls and builds, bytes of transfers. */
  readonly onProgress?: ((progress: TrialProgress) => void) | undefined;
}

/**
 * One attempt at a task, from the plan to the reward. Resolves with a result for everything that can go wrong on the way, and leaves no box.
 * Rejects only before anything was started: with a `TasksetError` (`ERR_PLAN_REFUSED`), a `TypeError` for options that make no sense, or because the
 * trial's folder cannot be made.
 */
export async function runTrial(task: Task, options: RunTrialOptions): Promise<TrialResult> {
  return await conduct(task, options, { from: "beginning", savesWork: false, retries: [] });
}

/** What a job knows of a trial besides its options. */
export interface Conduct {
  /** `saved`: with the work that was collected earlier. The trial's folder has it, and there is no agent. */
  readonly from: "beginning" | "saved";
  /** Whether collected work is kept in the trial's folder until the trial is over, and beyond if grading it again may help. */
  readonly savesWork: boolean;
  readonly retries: readonly Retried[];
  /** Recorded work that is graded instead of an agent's. */
  readonly record?: FoundRecord | undefined;
}

/** `runTrial` for jobs. Going on with saved work needs `outputDir` and `trialName`, and rejects if there is none. */
export async function conduct(task: Task, options: RunTrialOptions, how: Conduct): Promise<TrialResult> {
  const { folder: opened, work } = how.from === "saved" ? await reopen(options) : { folder: null, work: null };
  const startedAt = work === null ? new Date() : new Date(work.startedAt);
  const name = options.trialName ?? makeTrialName(task.shortName);
  checkTrialName(name);

  // 1. Every decision, and every refusal
  const { driver, signal = new AbortController().signal } = options;
  const decided = await decide(task, options, how.record !== undefined, signal);
  await using folder = opened ?? (await TrialFolder.create(options.outputDir, name));
  // Until the result is on disk, nothing else has the work.
  folder.keepsSpools = how.savesWork;
  const plan = "plan" in decided ? decided.plan : null;
  const redactor = createRedactor(plan === null ? [] : secretValues(task, plan, options));
  const file = await folder.path("events.jsonl");
  using events = new EventLog({ trial: name, redactor, file, onEvent: options.onEvent, goesOn: work !== null });
  const record = newRecord();
  const about = { task: task.name, directory: task.directory, driver: driver.name };
  events.emit(work === null ? "trial.started" : "trial.resumed", { details: about });

  let error: TrialError | null = null;
  try {
    if ("failure" in decided) throw decided.failure;
    const { capabilities } = decided;
    const mode = task.steps.length === 0 ? decided.plan.steps[0].mode : null;
    const { agent, verify, agentRuntime, onProgress } = options;
    const savesWork = how.savesWork && folder.directory !== null;
    const trial = {
      name,
      driver,
      capabilities,
      plan: decided.plan,
      events,
      folder,
      redactor,
      savesWork,
      onProgress,
      signal,
      record,
    };
    if (work !== null) {
      restoreRecord(trial, work);
      await gradeSavedWork(trial, work, verify);
    } else {
      events.emit("trial.planned", { details: { mode, decisions: describePlan(decided.plan) } });
      if (how.record !== undefined) await gradeRecorded(trial, how.record, verify);
      else await followPlan(trial, { agent, verify, agentRuntime });
    }
  } catch (failure) {
    const { phase, artifactsAreSafe } = record;
    error = describeFailure(failure, { phase, artifactsAreSafe, aborted: signal.aborted });
    // An agent cannot take back what earlier steps were given by keeping a later one from a verdict.
    const rewardsOfSteps = plan?.steps.map((_, index) => record.steps[index]?.rewards ?? null) ?? [];
    if (plan !== null && isWithoutVerdict(error)) record.rewards = combineRewards(plan.rewardStrategy, rewardsOfSteps);
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
    retries: how.retries,
    ...(how.record === undefined ? {} : { regradedFrom: describeSource(how.record) }),
  });
  if (folder.directory === null) return result;
  try {
    const facts: HarborFacts = {
      id: randomUUID(),
      task,
      digest: await digestOf(task),
      options,
      agentName: nameOf(options.agent),
      outputDir: options.outputDir,
      at: (type, step) => events.lastAt(type, step),
      recorded: how.record?.recorded,
    };
    await writeResult(folder, result, facts, redactor);
    folder.keepsSpools = how.savesWork && mayGradeAgain(result) && (await loadWork(folder)) !== null;
    return result;
  } catch (failure) {
    // What is not on disk is not there for whoever comes later, whatever the reward.
    const notOnDisk = notWritten("result.json", failure);
    if (result.error !== null) return { ...result, warnings: [...warnings, notOnDisk] };
    const message = `result.json ${notOnDisk.message}; ${notOnDisk.advice}`;
    const unwritten = new TrialFailure("infrastructure", "ERR_HOST_FILES", message, failure);
    const described = describeFailure(unwritten, { phase: record.phase, artifactsAreSafe: false, aborted: false });
    return { ...result, error: { ...described, retry: "never" } };
  }
}

async function reopen({
  outputDir,
  trialName,
}: RunTrialOptions): Promise<{ readonly folder: TrialFolder; readonly work: SavedWork }> {
  if (outputDir === undefined || trialName === undefined)
    throw new TypeError("saved work is in a folder that has a name");
  const folder = await TrialFolder.reopen(outputDir, trialName);
  const work = await loadWork(folder);
  if (work === null) throw new Error(`${trialName} has no saved work`);
  return { folder, work };
}

/** An agent is never asked twice for what it has handed in: what failed since then is tried again without it. */
export function mayGradeAgain({ error }: TrialResult): boolean {
  return error !== null && error.retry !== "never";
}

/** Asks the backend what it can do, and plans. What the backend does not answer is a result; what cannot be done is thrown. */
async function decide(
  task: Task,
  options: RunTrialOptions,
  gradesOnly: boolean,
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
    gradesOnly,
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
  const boxEndedBy = step === steps.findLast((one) => one.agent !== null) ? agentBoxEndedBy : null;
  return {
    mode: plan.mode,
    agent: agent === null ? null : { ...agent, boxEndedBy: boxEndedBy ?? agent.boxEndedBy },
    collectHooks,
    artifacts,
    artifactsRefused,
    collectedFrom,
    verifier,
  };
}

function describeSource({ recorded }: FoundRecord): RegradedFrom {
  const { name, directory, id, round } = recorded;
  return { trial: name, dir: directory, id, rewards: round.verifier_result?.rewards ?? null };
}

function notWritten(file: string, error: unknown): TrialResult["warnings"][number] {
  return {
    file,
    key: null,
    message: `could not be written: ${messageOf(error)}`,
    advice: "see whether the disk is full",
  };
}
