import { cp, lstat, realpath } from "node:fs/promises";
import { join, sep } from "node:path";
import type { PreparedImage } from "@breakwater/runtime-api";
import { spoolArtifact } from "@breakwater/tar";

import { Boxes, prepareImage } from "./boxes.ts";
import type { CollectedArtifact } from "./collect.ts";
import { beginStep, combine, endStep, gradeInOwnBox, placeArtifacts } from "./follow-plan.ts";
import type { Verify } from "./grade.ts";
import { packRecorded, type FoundArtifact } from "./recorded-artifacts.ts";
import type { RecordedTrial } from "./recorded-trial.ts";
import type { ArtifactOutcome, StepOutcome } from "./result.ts";
import { enter, type Step, type Trial } from "./trial.ts";

/** A record, and what each step's verifier is to get of it. */
export interface FoundRecord {
  readonly recorded: RecordedTrial;
  /** Of each step, in order. */
  readonly found: readonly (readonly FoundArtifact[])[];
}

/** Steps 8. to 12. of a trial for each of its steps, with the recorded artifacts. */
export async function gradeRecorded(
  trial: Trial,
  { recorded, found }: FoundRecord,
  verify: Verify | undefined,
): Promise<void> {
  const { plan, record } = trial;
  await using boxes = new Boxes(trial);
  const images = await prepareVerifierImages(trial, found);
  for (const [index, stepPlan] of plan.steps.entries()) {
    const { box: planned } = stepPlan.verifier;
    const image = images.verifiers[index];
    if (planned === null || image === undefined) throw new Error("a recorded step is graded in a box of its own");
    const step = beginStep(trial, stepPlan, index);
    const collected = await takeRecorded(step, recorded, found[index] ?? [], images.agent);
    record.artifactsAreSafe = true;
    const box = await gradeInOwnBox(step, boxes, planned, image, collected, verify);
    await boxes.tearDown(box);
    // However much a step's rewards come to now: its agent went on then.
    await endStep(step);
  }
  combine(trial);
}

/** The agent's image is needed only where a fresh copy of it grades, or where it alone knows what a path is relative to. */
async function prepareVerifierImages(
  trial: Trial,
  found: FoundRecord["found"],
): Promise<{ readonly agent: PreparedImage | null; readonly verifiers: readonly PreparedImage[] }> {
  enter(trial, "images");
  const { agentBox, steps } = trial.plan;
  const isRelative = found.flat().some(({ plan }) => !plan.source.startsWith("/"));
  const needsAgents = isRelative || steps.some(({ verifier }) => verifier.box?.image.kind === "agent-image");
  const agent = needsAgents ? await prepareImage(trial, "agent", agentBox.image, agentBox.imageTimeoutMs) : null;
  const verifiers: PreparedImage[] = [];
  for (const { verifier } of steps) {
    if (verifier.box === null) throw new Error("a recorded step is graded in a box of its own");
    const { image, imageTimeoutMs } = verifier.box;
    if (image.kind !== "agent-image") verifiers.push(await prepareImage(trial, "verifier", image, imageTimeoutMs));
    else if (agent !== null) verifiers.push(agent);
  }
  return { agent, verifiers };
}

/** The recorded artifacts as a live trial would have collected them, and a copy of what is recorded in the new trial's folder. */
async function takeRecorded(
  step: Step,
  recorded: RecordedTrial,
  found: readonly FoundArtifact[],
  agentImage: PreparedImage | null,
): Promise<readonly CollectedArtifact[]> {
  enter(step, "collect");
  const { name } = step.step;
  const source = name === null ? recorded.directory : join(recorded.directory, "steps", name);
  for (const part of ["agent", "artifacts"]) await copyRecorded(step, source, part);
  Object.assign(step.outcome, agentsOutcome(recorded, name));

  const plans = found.map(({ plan }) => plan);
  const placed = agentImage === null ? plans : placeArtifacts(step, { ...step.step, artifacts: plans }, agentImage);
  const collected: CollectedArtifact[] = [];
  for (const [index, artifact] of found.entries()) {
    const plan = placed[index] ?? artifact.plan;
    const file = step.folder.newSpoolFile();
    const spool =
      artifact.path === null
        ? null
        : await spoolArtifact(packRecorded({ ...artifact, plan }), { file, root: plan.source, ...plan.limits });
    const outcome: ArtifactOutcome = {
      source: plan.source,
      destination: plan.destination,
      status: spool === null ? "missing" : "collected",
      type: spool?.kind ?? null,
      entries: spool?.entries ?? 0,
      bytes: spool?.bytes ?? 0,
      sha256: spool?.sha256 ?? null,
      overlaps: plan.overlaps,
    };
    step.outcome.artifacts.push(outcome);
    step.events.emit("artifact.collected", { details: { ...outcome, from: "record", leftOut: 0 } });
    collected.push({ plan, spool });
  }
  return collected;
}

async function copyRecorded({ folder }: Step, source: string, part: string): Promise<void> {
  const from = join(source, part);
  const to = await folder.path(part);
  if (to === null || !(await lstat(from).catch(() => null))?.isDirectory()) return;
  const root = await realpath(from);
  await cp(from, to, {
    recursive: true,
    verbatimSymlinks: true,
    filter: async (path) => {
      const status = await lstat(path);
      if (!status.isSymbolicLink()) return status.isFile() || status.isDirectory();
      const target = await realpath(path).catch(() => null);
      return target === null || `${target}${sep}`.startsWith(`${root}${sep}`);
    },
  });
}

/** What our own record says of the round besides its grading; of one that Harbor wrote, nothing is known. */
function agentsOutcome({ result }: RecordedTrial, step: string | null): Partial<StepOutcome> {
  const steps = Array.isArray(result["steps"])
    ? (result["steps"] as readonly (StepOutcome & { name?: unknown })[])
    : [];
  const ours = (step === null ? result : steps.find((one) => one.name === step)) as Partial<StepOutcome> | undefined;
  if (ours?.agent === undefined || ours.collectedFrom === undefined) return {};
  const { agent, collectHooks = [], artifactsRefused = [], collectedFrom } = ours;
  return { agent, collectHooks: [...collectHooks], artifactsRefused: [...artifactsRefused], collectedFrom };
}
