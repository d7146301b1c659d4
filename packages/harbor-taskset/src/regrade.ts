import { join, resolve, sep } from "node:path";
import type { RuntimeDriver } from "@breakwater/runtime-api";

import { nopAgent } from "./agents.ts";
import type { TrialEvent } from "./events.ts";
import type { FoundRecord } from "./grade-recorded.ts";
import type { Verify } from "./grade.ts";
import type { TrialArtifact, TrialOptions } from "./options.ts";
import type { StepPlan } from "./plan.ts";
import { planTrial } from "./plan-trial.ts";
import { findRecorded, type FoundArtifact } from "./recorded-artifacts.ts";
import { readRecordedArtifacts, readRecordedTrial, type RecordedTrial } from "./recorded-trial.ts";
import { RegradeError } from "./regrade-error.ts";
import type { TrialResult } from "./result.ts";
import { conduct } from "./run-trial.ts";
import type { Task } from "./task.ts";
import { resolveVerifierMode } from "./verifier-choice.ts";

/** What a caller decides about grading a recorded trial again. What is for agents only has no effect. */
export interface RegradeOptions extends TrialOptions {
  readonly driver: RuntimeDriver;
  /** Grades in place of `/tests/test.sh`. */
  readonly verify?: Verify | undefined;
  /** The new trial's folder is made in it. Default is to keep nothing. */
  readonly outputDir?: string | undefined;
  /** Default is the task's name and seven random characters. */
  readonly trialName?: string | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onEvent?: ((event: TrialEvent) => void) | undefined;
}

/**
 * Grades the artifacts of a recorded trial again, with a task whose tests may have changed: no agent works, and the record is only read. `directory` is
 * the folder of a trial in Harbor's layout, whoever wrote it. Becomes a trial of its own, with `regradedFrom`.
 *
 * Rejects before anything is started: with a `RegradeError` where the record does not have what the task's verifiers are to see, with a `TasksetError`
 * (`ERR_PLAN_REFUSED`), with what the driver's `probe` says, or with a `TypeError` for options that make no sense. Everything later is in the result.
 */
export async function regradeTrial(directory: string, task: Task, options: RegradeOptions): Promise<TrialResult> {
  const recorded = await readRecordedTrial(directory);
  if (recorded === null)
    throw new RegradeError("ERR_REGRADE_RESULT", resolve(directory), "it has no result.json that could be read");
  refuseOtherTask(recorded, task);
  refuseOwnFolder(recorded, options.outputDir);

  const artifacts = [...(recorded.artifacts as readonly (string | TrialArtifact)[]), ...(options.artifacts ?? [])];
  const asked = { ...options, artifacts };
  const plan = planTrial(task, await options.driver.probe({ signal: options.signal }), {
    ...asked,
    gradesOnly: true,
    customVerifier: options.verify !== undefined,
  });
  const found = await findAll(recorded, plan.steps);
  return await conduct(
    task,
    { ...asked, agent: nopAgent() },
    { from: "beginning", savesWork: false, retries: [], record: { recorded, found } },
  );
}

// ---------------------------------------------------------------------------------------------------------------------------
// What must be true of task and record, in the order in which people would mend it.

function refuseOtherTask({ directory, task: name, steps }: RecordedTrial, task: Task): void {
  const level = ({ verifier }: Pick<Task, "verifier">): Parameters<typeof resolveVerifierMode>[0] => ({
    mode: verifier.mode,
    hasEnvironment: verifier.environment !== null,
  });
  const shared =
    task.steps.length === 0
      ? resolveVerifierMode(level(task)).mode === "shared"
        ? [task.name]
        : []
      : task.steps.flatMap((step) =>
          resolveVerifierMode(level(task), level(step)).mode === "shared" ? [`the step ${step.name}`] : [],
        );
  if (shared.length > 0) {
    throw new RegradeError(
      "ERR_REGRADE_SHARED",
      directory,
      `${shared.join(", ")} of ${task.directory} is graded in the agent's box, which is gone; set environment_mode = "separate" in [verifier] if the tests need artifacts only`,
    );
  }
  if (name !== task.name) {
    throw new RegradeError(
      "ERR_REGRADE_TASK",
      directory,
      `it is a trial of ${name}, and ${task.directory} is ${task.name}; choose the task of that name`,
    );
  }
  if (task.steps.length === 0 && steps === null) return;
  const refuse = (what: string): RegradeError => new RegradeError("ERR_REGRADE_STEPS", directory, what);
  if (task.steps.length === 0)
    throw refuse(`it has steps (${listNames(steps)}), and ${task.directory} has none; give the task the same steps`);
  if (steps === null)
    throw refuse(`it has no steps, and ${task.directory} has (${listNames(task.steps)}); use a task without`);
  if (JSON.stringify(steps.map(({ name: one }) => one)) === JSON.stringify(task.steps.map(({ name: one }) => one)))
    return;
  throw refuse(
    `the steps that were done (${listNames(steps)}) are not those of ${task.directory} (${listNames(task.steps)}), all of them and in this order`,
  );
}

function listNames(steps: readonly { readonly name: string }[] | null): string {
  return (steps ?? []).map(({ name }) => name).join(", ");
}

/** Nothing is written into what is recorded. */
function refuseOwnFolder({ directory }: RecordedTrial, outputDir: string | undefined): void {
  if (outputDir === undefined || !`${resolve(outputDir)}${sep}`.startsWith(`${directory}${sep}`)) return;
  throw new RegradeError(
    "ERR_REGRADE_FOLDER",
    directory,
    "the new trial would be written into it; choose another folder",
  );
}

async function findAll(recorded: RecordedTrial, steps: readonly StepPlan[]): Promise<FoundRecord["found"]> {
  const all: (readonly FoundArtifact[])[] = [];
  const problems: string[] = [];
  for (const { name, artifacts } of steps) {
    const manifest = await readRecordedArtifacts(recorded, name);
    const place = name === null ? "" : `steps/${name}/`;
    if (manifest === null) {
      throw new RegradeError(
        "ERR_REGRADE_MANIFEST",
        recorded.directory,
        `it has no ${place}artifacts/manifest.json that could be read, so that nobody knows what its artifacts are`,
      );
    }
    const { found, problems: here } = await findRecorded(join(recorded.directory, place), manifest, artifacts);
    all.push(found);
    problems.push(...here.map((problem) => `${place}${problem}`));
  }
  if (problems.length > 0) throw new RegradeError("ERR_REGRADE_ARTIFACTS", recorded.directory, ...problems);
  return all;
}
