import { basename } from "node:path";
import type { PreparedImage, Runtime } from "@breakwater/runtime-api";
import type { Spool } from "@breakwater/tar";

import type { CollectedArtifact } from "./collect.ts";
import { readJson, syncToDisk, writeJsonDurably } from "./durable.ts";
import type { ArtifactPlan } from "./plan.ts";
import { messageOf, TrialFailure } from "./trial-error.ts";
import type { StepRecord, Step, Trial, TrialRecord } from "./trial.ts";
import type { TrialFolder } from "./trial-folder.ts";

const FILE = "work.json";
const SWEEP_TIMEOUT_MS = 10 * 60 * 1000;

/**
 * An agent's work, collected and on disk: from here on it can be graded without the agent, by another process, too. It lies among the spools and goes with
 * them, when the trial has its result.
 */
export interface SavedWork {
  readonly schemaVersion: 1;
  readonly trial: string;
  /** Of the trial. */
  readonly startedAt: string;
  /** The box that the agent worked in. */
  readonly agentBox: string;
  /** What it was to be graded in. */
  readonly verifierImage: string;
  readonly record: Pick<TrialRecord, "agentBoxEndedBy" | "deniedConnections" | "warnings"> & {
    /** Of each step up to the one that is to be graded. */
    readonly steps: readonly Omit<StepRecord, "plan">[];
  };
  readonly artifacts: readonly {
    readonly source: string;
    /** `file` is a name among the spools. */
    readonly spool: Omit<Spool, "root"> | null;
  }[];
}

/** The spools first, then the list of them: it is there only if they are whole. */
export async function saveWork(
  step: Step,
  agentBox: Runtime,
  image: PreparedImage,
  collected: readonly CollectedArtifact[],
): Promise<void> {
  const { name, events, folder, record, redactor } = step;
  for (const { spool } of collected) if (spool !== null) await syncToDisk(spool.file);
  const work: SavedWork = {
    schemaVersion: 1,
    trial: name,
    startedAt: events.lastAt("trial.started", null) ?? new Date().toISOString(),
    agentBox: agentBox.id,
    verifierImage: image.id,
    record: redactor.value({
      agentBoxEndedBy: record.agentBoxEndedBy,
      deniedConnections: record.deniedConnections,
      warnings: record.warnings,
      steps: record.steps.map(({ plan: _plan, ...outcome }) => outcome),
    }),
    artifacts: collected.map(({ plan, spool }) => ({
      source: plan.source,
      spool: spool === null ? null : { ...spool, file: basename(spool.file) },
    })),
  };
  await writeJsonDurably(folder.spoolFile(FILE), work);
  events.emit("work.saved", { details: { artifacts: collected.length } });
}

/** `null`: there is none, or none of this version. */
export async function loadWork(folder: TrialFolder): Promise<SavedWork | null> {
  const work = (await readJson(folder.spoolFile(FILE))) as SavedWork | null;
  return work?.schemaVersion === 1 ? work : null;
}

/** The record as it was when the work was saved; the steps of the plan belong to it. */
export function restoreRecord({ plan, record }: Trial, { record: saved }: SavedWork): void {
  record.artifactsAreSafe = true;
  record.agentBoxEndedBy = saved.agentBoxEndedBy;
  Object.assign(record.deniedConnections, saved.deniedConnections);
  record.warnings.push(...saved.warnings);
  for (const [index, outcome] of saved.steps.entries()) {
    const stepPlan = plan.steps[index];
    if (stepPlan === undefined) throw differentTask(`it has no step ${index + 1} any more`);
    record.steps.push({ plan: stepPlan, ...outcome });
  }
}

/** The artifacts as they were collected, for what the plan says of them now. */
export function restoreCollected(
  folder: TrialFolder,
  work: SavedWork,
  plans: readonly ArtifactPlan[],
): readonly CollectedArtifact[] {
  return plans.map((plan, index) => {
    const saved = work.artifacts[index];
    if (saved?.source !== plan.source) throw differentTask(`${plan.source} was not collected`);
    const { spool } = saved;
    return { plan, spool: spool === null ? null : { ...spool, root: plan.source, file: folder.spoolFile(spool.file) } };
  });
}

function differentTask(what: string): TrialFailure {
  return new TrialFailure("refused", "ERR_ARTIFACT_ROOT", `the task was changed since its agent worked: ${what}`);
}

/**
 * The process that made the agent's box has ended. No verifier's box is made before the backend has been asked: what is left of the trial is removed, and
 * then nothing of it may be listed.
 */
export async function confirmAgentBoxGone(trial: Trial, { agentBox }: SavedWork): Promise<void> {
  const { driver, events, name, record, signal } = trial;
  if (events.lastAt("agent-box.gone", trial.plan.steps.at(-1)?.name ?? null) !== null) return;
  const limits = { signal, timeoutMs: SWEEP_TIMEOUT_MS };
  let left: readonly string[];
  try {
    await driver.sweep(limits);
    const { removed, kept, failed } = await driver.sweep({ ...limits, dryRun: true });
    left = [...removed, ...kept, ...failed].flatMap((object) => (object.trial === name ? [object.id] : []));
  } catch (error) {
    throw new TrialFailure(
      "infrastructure",
      "ERR_TEARDOWN_UNCONFIRMED",
      `whether the agent's box ${agentBox} is gone could not be asked: ${messageOf(error)}`,
      error,
    );
  }
  if (left.length > 0) {
    record.leftovers.push(...left);
    throw new TrialFailure(
      "infrastructure",
      "ERR_TEARDOWN_UNCONFIRMED",
      `the agent's box is not shown to be gone: ${left.join(", ")} is left; remove it, and resume`,
    );
  }
  const question = `sweep: what is there of the trial ${name}`;
  const proof = { id: agentBox, question, answer: "nothing is listed", at: new Date().toISOString() };
  events.emit("agent-box.gone", { box: agentBox, proof });
}
