import { isRuntimeError, type PreparedImage, type Runtime } from "@breakwater/runtime-api";

import { runAgentPhase } from "./agent-phase.ts";
import type { Agent } from "./agents.ts";
import { resolveArtifacts } from "./artifacts-declaration.ts";
import { Boxes, prepareImages } from "./boxes.ts";
import { isInfrastructure, wasEndedByContents } from "./box-end.ts";
import { isInside, resolveAllInBox } from "./box-paths.ts";
import {
  collectArtifacts,
  freezeAgentBox,
  quietenAgentBox,
  readAgentLogs,
  thawAgentBox,
  type CollectedArtifact,
} from "./collect.ts";
import { runCollectHooks, runServiceHooks } from "./collect-hooks.ts";
import { grade, type GradeOptions, type Verify } from "./grade.ts";
import type { ArtifactPlan, StepPlan, VerifierBoxPlan } from "./plan.ts";
import { makeAgentLogs, prepareSharedGround, prepareVerifierBox } from "./restore.ts";
import { combineRewards, isEnough } from "./reward.ts";
import { confirmAgentBoxGone, restoreCollected, saveWork, type SavedWork } from "./saved-work.ts";
import { setUpStep } from "./step-setup.ts";
import { messageOf, TrialFailure } from "./trial-error.ts";
import { enter, newStepRecord, warn, type Step, type StepRecord, type Trial } from "./trial.ts";
import { VerifierDeadline } from "./verifier-deadline.ts";

/** Who works and who grades. */
export interface Workers {
  readonly agent: Agent;
  /** In place of `/tests/test.sh`. */
  readonly verify: Verify | undefined;
  /** The agent's box, if it is the caller's: only what a trial needs of it is changed, and it runs on. */
  readonly agentRuntime: Runtime | undefined;
}

/** The trial itself. However it ends, no box of it is left that could be removed. */
export async function followPlan(trial: Trial, workers: Workers): Promise<void> {
  await using boxes = new Boxes(trial);

  // 2. Images
  const images = await prepareImages(trial);
  const artifacts = trial.plan.steps.map((step) => placeArtifacts(trial, step, images.agent));

  // 3. The agent's box
  enter(trial, "agent-box");
  const { agentRuntime, agent } = workers;
  const { signal } = trial;
  const agentBox = agentRuntime ?? (await boxes.start("agent", trial.plan.agentBox, images.agent, { signal }));
  await makeAgentLogs(agentBox, { signal });
  await refuseArtifactsInMemory(trial, agentBox, artifacts);

  // 3. to 12. The steps, one after the other in the same agent's box
  for (const [index, plan] of trial.plan.steps.entries()) {
    const step = beginStep(trial, plan, index);
    if (await setUpStep(step, agentBox, images.agent)) await runAgentPhase(step, agentBox, images.agent, agent);
    await runCollectHooks(step, agentBox);
    await readAgentLogs(step, agentBox);
    const sources = artifacts[index] ?? [];
    if (plan.verifier.box === null) await gradeShared(step, agentBox, images.agent, sources, workers);
    else
      await gradeSeparate(
        step,
        boxes,
        agentBox,
        plan.verifier.box,
        images.verifiers[index] ?? images.agent,
        sources,
        workers,
      );
    if (!(await endStep(step))) break;
  }
  combine(trial);
}

/** Steps 8. to 12. with what was collected by a process that has ended, or before a failure that may pass. The agent is not asked again. */
export async function gradeSavedWork(trial: Trial, work: SavedWork, verify: Verify | undefined): Promise<void> {
  const { events, folder, plan, record } = trial;
  await using boxes = new Boxes(trial);
  const images = await prepareImages(trial);
  const index = record.steps.length - 1;
  const outcome = record.steps[index];
  if (outcome === undefined) throw new Error("saved work has no step");
  const step = inStep(trial, outcome, index);
  const { box } = outcome.plan.verifier;
  if (box === null) throw new Error("saved work is of a step that is graded in the agent's box");
  const image = images.verifiers[index] ?? images.agent;
  if (image.id !== work.verifierImage)
    warn(trial, "the verifier's image", `is ${image.id}; when the agent worked it was ${work.verifierImage}`);
  events.enterStep(outcome.plan.name);

  // 7. The agent's box is gone
  enter(trial, "teardown");
  await confirmAgentBoxGone(trial, work);
  const collected = restoreCollected(folder, work, placeArtifacts(trial, outcome.plan, images.agent));
  refuseIncompleteArtifacts(step);

  // 8. to 12. The verifier's box. What an earlier one has left of its logs is none of this one's.
  await step.folder.removeTree("verifier");
  await gradeInOwnBox(step, boxes, box, image, collected, verify);
  await endStep(step);
  if (plan.steps.length !== record.steps.length) throw new Error("saved work is not of the last step");
  combine(trial);
}

export function combine({ events, plan, record }: Trial): void {
  events.enterStep(null);
  const rewards = record.steps.map((step) => step.rewards);
  record.rewards = combineRewards(plan.rewardStrategy, rewards);
}

export function beginStep(trial: Trial, plan: StepPlan, index: number): Step {
  const outcome = newStepRecord(plan);
  trial.record.steps.push(outcome);
  trial.events.enterStep(plan.name);
  if (plan.name !== null) trial.events.emit("step.started", { details: { mode: plan.mode, modeFrom: plan.modeFrom } });
  return inStep(trial, outcome, index);
}

function inStep(trial: Trial, outcome: StepRecord, index: number): Step {
  const { plan } = outcome;
  const { name } = plan;
  return {
    ...trial,
    step: plan,
    isFirst: index === 0,
    isLast: index === trial.plan.steps.length - 1,
    folder: name === null ? trial.folder : trial.folder.ofStep(name),
    outcome,
  };
}

/** Whether the next step is to be done, if there is one. */
export async function endStep({ step, outcome, events, folder, isLast }: Step): Promise<boolean> {
  // Those of the last one are all that a process that takes over has, until the result is on disk.
  if (!isLast) await folder.removeSpools();
  const isReached = isEnough(outcome.rewards ?? {}, step.minReward);
  if (step.name !== null)
    events.emit("step.ended", { details: { rewards: outcome.rewards, minReward: step.minReward, isReached } });
  return isReached;
}

/** Graded in a box that did not exist while the agent could do anything. */
async function gradeSeparate(
  step: Step,
  boxes: Boxes,
  agentBox: Runtime,
  verifierBox: VerifierBoxPlan,
  image: PreparedImage,
  artifacts: readonly ArtifactPlan[],
  { verify }: Workers,
): Promise<void> {
  const { record } = step;

  // 5. to 7. Nothing of the agent's runs; what may cross over is taken; its box is gone, or stays frozen for the next step
  const from = await quietenAgentBox(step, agentBox, step.isLast);
  await runServiceHooks(step, agentBox);
  const collected = await collectArtifacts(step, agentBox, artifacts, from);
  if (step.isLast && step.savesWork) await saveWork(step, agentBox, image, collected);
  if (step.isLast || record.agentBoxEndedBy !== null) {
    enter(step, "teardown");
    await boxes.tearDown(agentBox);
    // Only now may somebody grade again: no verifier's box is made before this one is proven gone.
    record.artifactsAreSafe = step.isLast;
  }
  refuseIncompleteArtifacts(step);

  // 8. to 12. The verifier's box, made after that
  const box = await gradeInOwnBox(step, boxes, verifierBox, image, collected, verify);
  // Before the agent's box goes on, nothing of this step's tests is left that it could meet.
  if (!step.isLast) await boxes.tearDown(box);
}

export async function gradeInOwnBox(
  step: Step,
  boxes: Boxes,
  planned: VerifierBoxPlan,
  image: PreparedImage,
  collected: readonly CollectedArtifact[],
  verify: Verify | undefined,
): Promise<Runtime> {
  enter(step, "provision");
  using deadline = new VerifierDeadline(step);
  try {
    const limits = { signal: deadline.signal, timeoutMs: deadline.remainingMs };
    const box = await boxes.start("verifier", planned, image, limits);
    const content = { artifacts: collected, needsScript: verify === undefined };
    await prepareVerifierBox(step, box, image, content, { signal: deadline.signal });
    refuseIncompleteArtifacts(step);
    await grade(step, box, image, { verify, deadline, afterwards: "stopped", of: "verifier" });
    return box;
  } catch (error) {
    throw deadline.translate(error);
  }
}

/** Graded where the agent worked. Between steps its artifacts are collected all the same, so that each step's are its own. */
async function gradeShared(
  step: Step,
  box: Runtime,
  image: PreparedImage,
  artifacts: readonly ArtifactPlan[],
  { verify, agentRuntime }: Workers,
): Promise<void> {
  const isBorrowed = agentRuntime !== undefined;
  if (step.plan.steps.length > 1) {
    const from = !isBorrowed && (await freezeAgentBox(step, box)) ? "frozen" : "live";
    await runServiceHooks(step, box);
    await collectArtifacts(step, box, artifacts, from);
    await thawAgentBox(step, box);
    refuseIncompleteArtifacts(step);
  } else await runServiceHooks(step, box);

  enter(step, "run");
  if (step.record.agentBoxEndedBy !== null) throw endedBeforeGrading(step);
  const afterwards: GradeOptions["afterwards"] = isBorrowed ? "untouched" : step.isLast ? "stopped" : "goes-on";
  using deadline = new VerifierDeadline(step);
  try {
    await prepareSharedGround(step, box, image, { signal: deadline.signal }).catch(async (error: unknown) => {
      throw await whySharedGroundFailed(step, box, error);
    });
    await grade(step, box, image, { verify, deadline, afterwards, of: "agent" });
  } catch (error) {
    throw deadline.translate(error);
  }
}

/** What the agent has made of its box may be what keeps the tests out of it: that is no reason to try again. */
async function whySharedGroundFailed(trial: Trial, box: Runtime, error: unknown): Promise<unknown> {
  if (!isRuntimeError(error) || isRuntimeError(error, "ERR_ABORTED", "ERR_TIMEOUT")) return error;
  if (await wasEndedByContents(trial, box, "agent", error)) return endedBeforeGrading(trial);
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
export function placeArtifacts(trial: Trial, step: StepPlan, image: PreparedImage): readonly ArtifactPlan[] {
  const workdir = trial.plan.agentBox.spec.workdir ?? image.workdir ?? "/";
  const { artifacts, problems } = resolveArtifacts(step.artifacts, workdir);
  if (problems.length > 0) {
    const reasons = problems.map(({ key, message, advice }) => `${key}: ${message} (${advice})`).join("; ");
    throw new TrialFailure("refused", "ERR_ARTIFACT_ROOT", reasons);
  }
  return artifacts;
}

/** What is on a memory file system is lost when the box stops: better refused than collected empty. */
async function refuseArtifactsInMemory(
  trial: Trial,
  box: Runtime,
  artifacts: readonly (readonly ArtifactPlan[])[],
): Promise<void> {
  const { capabilities, plan, signal } = trial;
  if (capabilities.stop === "destroys") return;
  const collecting = artifacts.filter((_, index) => plan.steps.length > 1 || plan.steps[index]?.mode === "separate");
  const sources = [...new Set(collecting.flat().map(({ source }) => source))];
  if (sources.length === 0) return;
  const { memoryMounts } = await box.report({ signal });
  if (memoryMounts.length === 0) return;
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

function refuseIncompleteArtifacts({ plan, record, outcome }: Step): void {
  if (!plan.strictArtifacts || outcome.artifactsRefused.length === 0) return;
  record.phase = "collect";
  const sources = outcome.artifactsRefused.map(({ source, reason, memberCount }) =>
    reason === null ? `${source} (${memberCount} members)` : `${source} (${reason})`,
  );
  throw new TrialFailure(
    "artifacts",
    "ERR_ARTIFACTS_LEFT_OUT",
    `strictArtifacts is set, and something had to be left out: ${sources.join(", ")}`,
  );
}
