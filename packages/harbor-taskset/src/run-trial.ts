import { isRuntimeError, type Runtime, type RuntimeCapabilities, type RuntimeDriver } from "@breakwater/runtime-api";

import { runAgentPhase } from "./agent-phase.ts";
import type { Agent } from "./agents.ts";
import { resolveArtifacts } from "./artifacts-declaration.ts";
import { Boxes, prepareImages, type PreparedImages } from "./boxes.ts";
import { endOfBox, isInfrastructure } from "./box-end.ts";
import { isInside, resolveAllInBox } from "./box-paths.ts";
import {
  collectArtifacts,
  quietenAgentBox,
  readAgentLogs,
  runCollectHooks,
  type CollectedArtifact,
} from "./collect.ts";
import { describePlan } from "./describe-plan.ts";
import { EventLog, type TrialEvent } from "./events.ts";
import { grade, type Verify } from "./grade.ts";
import type { TrialOptions } from "./options.ts";
import type { ArtifactPlan, TrialPlan, VerifierBoxPlan } from "./plan.ts";
import { planTrial } from "./plan-trial.ts";
import { createRedactor, secretValues } from "./redact.ts";
import { makeAgentLogs, prepareSharedGround, prepareVerifierBox } from "./restore.ts";
import { writeResult, type TrialResult } from "./result.ts";
import { headlineReward } from "./reward.ts";
import type { Task } from "./task.ts";
import { describeFailure, messageOf, TrialFailure, type TrialError } from "./trial-error.ts";
import { checkTrialName, makeTrialName, TrialFolder } from "./trial-folder.ts";
import { enter, newRecord, type Trial } from "./trial.ts";
import { VerifierDeadline } from "./verifier-deadline.ts";

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
    events.emit("trial.planned", { details: { mode: decided.plan.mode, decisions: describePlan(decided.plan) } });
    await followPlan(
      { name, driver, capabilities, plan: decided.plan, events, folder, redactor, signal, record },
      options,
    );
  } catch (failure) {
    const { phase, artifactsAreSafe } = record;
    error = describeFailure(failure, { phase, artifactsAreSafe, aborted: signal.aborted });
  }

  const finishedAt = new Date();
  const { rewards } = record;
  events.emit("trial.ended", { details: { rewards, error } });
  const warnings = [...(plan?.warnings ?? task.warnings), ...record.warnings];
  if (events.writeError !== null) warnings.push(notWritten("events.jsonl", events.writeError));
  const result: TrialResult = redactor.value({
    trial: name,
    task: task.name,
    driver: driver.name,
    mode: plan?.mode ?? null,
    rewards,
    reward: rewards === null ? null : headlineReward(rewards, plan?.sumRewards ?? false),
    error,
    startedAt: startedAt.toISOString(),
    finishedAt: finishedAt.toISOString(),
    durationMs: finishedAt.getTime() - startedAt.getTime(),
    dir: folder.directory,
    eventsFile: file,
    agent: record.agent === null ? null : { ...record.agent, boxEndedBy: record.agentBoxEndedBy },
    collectHooks: record.collectHooks,
    artifacts: record.artifacts,
    artifactsRefused: record.artifactsRefused,
    collectedFrom: record.collectedFrom,
    notEnforced: plan?.notEnforced ?? [],
    verifier: record.verifier,
    deniedConnections: record.deniedConnections,
    warnings,
    leftovers: record.leftovers,
  });
  if (folder.directory === null) return result;
  try {
    await writeResult(folder.directory, result);
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

/** The trial itself. However it ends, no box of it is left that could be removed. */
async function followPlan(trial: Trial, options: RunTrialOptions): Promise<void> {
  const boxes = new Boxes(trial);
  try {
    const { box: verifierBox } = trial.plan.verifier;
    if (options.agentRuntime !== undefined) await runInBorrowedBox(trial, options.agentRuntime, options);
    else if (verifierBox === null) await runShared(trial, boxes, options);
    else await runSeparate(trial, boxes, verifierBox, options);
  } finally {
    await boxes.tearDownAll();
  }
}

/** Graded in a box that did not exist while the agent was alive. */
async function runSeparate(
  trial: Trial,
  boxes: Boxes,
  verifierBox: VerifierBoxPlan,
  options: RunTrialOptions,
): Promise<void> {
  const { plan, record, signal } = trial;

  // 2. Images
  const images = await prepareImages(trial);
  const artifacts = placeArtifacts(plan, images);

  // 3. The agent's box, and the agent
  enter(trial, "agent-box");
  const agentBox = await boxes.start("agent", plan.agentBox, images.agent, { signal });
  await makeAgentLogs(agentBox, { signal });
  await refuseArtifactsInMemory(trial, agentBox, artifacts);
  await runAgentPhase(trial, agentBox, images.agent, options.agent);

  // 4. Hooks and logs
  await runCollectHooks(trial, agentBox);
  await readAgentLogs(trial, agentBox);

  // 5. to 7. Nothing of it runs; what may cross over is taken; it is gone
  const from = await quietenAgentBox(trial, agentBox);
  const collected = await collectArtifacts(trial, agentBox, artifacts, from);
  record.artifactsAreSafe = true;
  enter(trial, "teardown");
  await boxes.tearDown(agentBox);
  refuseIncompleteArtifacts(trial);

  // 8. to 12. The verifier's box, made after that
  await gradeInOwnBox(trial, boxes, verifierBox, images, collected, options);
}

async function gradeInOwnBox(
  trial: Trial,
  boxes: Boxes,
  planned: VerifierBoxPlan,
  images: PreparedImages,
  collected: readonly CollectedArtifact[],
  options: RunTrialOptions,
): Promise<void> {
  const { verify } = options;
  const image = images.verifier ?? images.agent;
  enter(trial, "provision");
  using deadline = new VerifierDeadline(trial);
  try {
    const limits = { signal: deadline.signal, timeoutMs: deadline.remainingMs };
    const box = await boxes.start("verifier", planned, image, limits);
    const content = { artifacts: collected, needsScript: verify === undefined };
    await prepareVerifierBox(trial, box, image, content, { signal: deadline.signal });
    refuseIncompleteArtifacts(trial);
    await grade(trial, box, image, { verify, deadline, mayStop: true, of: "verifier" });
  } catch (error) {
    throw deadline.translate(error);
  }
}

/** Graded where the agent worked. */
async function runShared(trial: Trial, boxes: Boxes, options: RunTrialOptions): Promise<void> {
  const { plan, signal } = trial;
  const { agent: image } = await prepareImages(trial);
  enter(trial, "agent-box");
  const box = await boxes.start("agent", plan.agentBox, image, { signal });
  await makeAgentLogs(box, { signal });
  await runAgentPhase(trial, box, image, options.agent);
  await runCollectHooks(trial, box);
  await readAgentLogs(trial, box);
  await gradeShared(trial, box, image, options, true);
}

/** The caller's own box: only what a trial needs of it is changed, and it runs on. */
async function runInBorrowedBox(trial: Trial, box: Runtime, options: RunTrialOptions): Promise<void> {
  const { agent: image } = await prepareImages(trial);
  enter(trial, "agent-box");
  await makeAgentLogs(box, { signal: trial.signal });
  await runAgentPhase(trial, box, image, options.agent);
  await runCollectHooks(trial, box);
  await readAgentLogs(trial, box);
  await gradeShared(trial, box, image, options, false);
}

async function gradeShared(
  trial: Trial,
  box: Runtime,
  image: PreparedImages["agent"],
  { verify }: RunTrialOptions,
  mayStop: boolean,
): Promise<void> {
  enter(trial, "run");
  if (trial.record.agentBoxEndedBy !== null) throw endedBeforeGrading(trial);
  using deadline = new VerifierDeadline(trial);
  try {
    await prepareSharedGround(trial, box, image, { signal: deadline.signal }).catch(async (error: unknown) => {
      throw await whySharedGroundFailed(trial, box, error);
    });
    await grade(trial, box, image, { verify, deadline, mayStop, of: "agent" });
  } catch (error) {
    throw deadline.translate(error);
  }
}

/** What the agent has made of its box may be what keeps the tests out of it: that is no reason to try again. */
async function whySharedGroundFailed(trial: Trial, box: Runtime, error: unknown): Promise<unknown> {
  if (!isRuntimeError(error) || isRuntimeError(error, "ERR_ABORTED", "ERR_TIMEOUT")) return error;
  if (isRuntimeError(error, "ERR_BOX_LOST") && (await endOfBox(trial, box, "agent")) !== null) {
    return endedBeforeGrading(trial);
  }
  if (isInfrastructure(error)) return error;
  return new TrialFailure(
    "crashed",
    "ERR_VERIFIER_START",
    `the tests could not be put into the agent's box as it was left: ${messageOf(error)}`,
    error,
  );
}

function endedBeforeGrading({ record }: Trial): TrialFailure {
  return new TrialFailure(
    "crashed",
    "ERR_BOX_ENDED",
    `the agent's box was ended by its contents (${record.agentBoxEndedBy}) before it could be graded in`,
  );
}

/** Relative sources are below the agent's working directory, which only the image may know. */
function placeArtifacts(plan: TrialPlan, images: PreparedImages): readonly ArtifactPlan[] {
  const workdir = plan.agentBox.spec.workdir ?? images.agent.workdir ?? "/";
  const { artifacts, problems } = resolveArtifacts(plan.artifacts, workdir);
  if (problems.length > 0) {
    const reasons = problems.map(({ key, message, advice }) => `${key}: ${message} (${advice})`).join("; ");
    throw new TrialFailure("refused", "ERR_ARTIFACT_ROOT", reasons);
  }
  return artifacts;
}

/** What is on a memory file system is lost when the box stops: better refused than collected empty. */
async function refuseArtifactsInMemory(trial: Trial, box: Runtime, artifacts: readonly ArtifactPlan[]): Promise<void> {
  const { capabilities, signal } = trial;
  if (capabilities.stop === "destroys") return;
  const { memoryMounts } = await box.report({ signal });
  if (memoryMounts.length === 0) return;
  const sources = artifacts.map(({ source }) => source);
  for (const [index, { path }] of (await resolveAllInBox(box, sources, { signal })).entries()) {
    const mount = memoryMounts.find((one) => isInside(path, one));
    if (mount === undefined) continue;
    throw new TrialFailure(
      "refused",
      "ERR_ARTIFACT_ROOT",
      `${sources[index]} is on a memory file system of the agent's box (${mount}): its content would be lost when the box stops; collect from another place`,
    );
  }
}

function refuseIncompleteArtifacts({ plan, record }: Trial): void {
  if (!plan.strictArtifacts || record.artifactsRefused.length === 0) return;
  record.phase = "collect";
  const sources = record.artifactsRefused.map(({ source, reason, memberCount }) =>
    reason === null ? `${source} (${memberCount} members)` : `${source} (${reason})`,
  );
  throw new TrialFailure(
    "artifacts",
    "ERR_ARTIFACTS_LEFT_OUT",
    `strictArtifacts is set, and something had to be left out: ${sources.join(", ")}`,
  );
}

function notWritten(file: string, error: unknown): TrialResult["warnings"][number] {
  return {
    file,
    key: null,
    message: `could not be written: ${messageOf(error)}`,
    advice: "see whether the disk is full",
  };
}
