import { cp, lstat, mkdir, readdir, stat } from "node:fs/promises";
import { basename, join, resolve, sep } from "node:path";

import { isMissing } from "./durable.ts";
import { JobFiles } from "./job-files.ts";
import { isTasksetError } from "./problems.ts";
import { readRecordedTrial, type RecordedTrial } from "./recorded-trial.ts";
import { isRegradeError, RegradeError } from "./regrade-error.ts";
import { regradeTrial, type RegradeOptions } from "./regrade.ts";
import type { TrialResult } from "./result.ts";
import type { Rewards } from "./reward.ts";
import { digestOf } from "./task-digest.ts";
import type { Task } from "./task.ts";
import { messageOf } from "./trial-error.ts";
import { makeTrialName } from "./trial-folder.ts";

export interface RegradeJobOptions extends Omit<RegradeOptions, "outputDir" | "trialName"> {
  /** The new job's folder; made if it is not there. */
  readonly outputDir: string;
  /** Default is 4. */
  readonly concurrentTrials?: number | undefined;
  /** Grade trials again whose task has not changed since they got their rewards. Default is `false`; a trial that is named by itself always is. */
  readonly unchanged?: boolean | undefined;
  /** Told of each recorded trial as it is done. */
  readonly onOutcome?: ((outcome: RegradeOutcome) => void) | undefined;
}

/** What became of one recorded trial. */
export type RegradeOutcome = {
  /** Its name. */
  readonly trial: string;
  /** `null` = not known. */
  readonly task: string | null;
  /** What it had come to. */
  readonly before: Rewards | null;
} & (
  | { readonly outcome: "regraded"; readonly result: TrialResult }
  /** Its task has not changed: the trial was copied as it is. */
  | { readonly outcome: "reused"; readonly dir: string }
  /** With a `RegradeErrorCode`, or the code of what refused the plan. */
  | { readonly outcome: "refused"; readonly code: string; readonly reason: string }
);

/**
 * Grades a recorded trial, or all of a recorded job, again, as a new job; see `regradeTrial`. Each trial is graded with the task of its name, reused or
 * refused, each for itself. The record is only read.
 *
 * Rejects before anything is started with a `RegradeError` (`ERR_REGRADE_RESULT`, `ERR_REGRADE_FOLDER`), or a `TypeError` where two tasks have one name.
 */
export async function regradeJob(
  directory: string,
  tasks: readonly Task[],
  options: RegradeJobOptions,
): Promise<readonly RegradeOutcome[]> {
  const source = resolve(directory);
  const byName = new Map<string, Task>();
  for (const task of tasks) {
    const twin = byName.get(task.name);
    if (twin !== undefined) throw new TypeError(`${twin.directory} and ${task.directory} are both called ${task.name}`);
    byName.set(task.name, task);
  }
  const single = await readRecordedTrial(source);
  const folders = single === null ? await trialFolders(source) : [source];
  if (folders.length === 0)
    throw new RegradeError(
      "ERR_REGRADE_RESULT",
      source,
      "it is neither a trial with a result.json nor a job that has trials",
    );
  const outputDir = resolve(options.outputDir);
  if (`${outputDir}${sep}`.startsWith(`${source}${sep}`))
    throw new RegradeError("ERR_REGRADE_FOLDER", source, "the new job would be written into it; choose another folder");

  await mkdir(outputDir, { recursive: true });
  const planned = folders.map((folder) => ({ folder, name: makeTrialName(basename(folder).replace(/__[^_]*$/, "")) }));
  const { concurrentTrials = 4 } = options;
  const files = await JobFiles.create(
    {
      directory: outputDir,
      agentName: "recorded",
      attempts: 1,
      concurrentTrials,
      maxRetries: 0,
      taskDirectories: tasks.map((task) => task.directory),
      regradedFrom: source,
    },
    {
      schemaVersion: 1,
      startedAt: new Date().toISOString(),
      settings: { regradedFrom: source },
      trials: planned.map(({ name }) => ({ name, task: source, digest: null })),
    },
  );

  const outcomes: RegradeOutcome[] = [];
  let next = 0;
  const gradeSome = async (): Promise<void> => {
    for (let one = planned[next++]; one !== undefined && options.signal?.aborted !== true; one = planned[next++]) {
      const outcome = await regradeOne(one.folder, one.name);
      if (outcome.outcome !== "refused")
        await files.addTrial(outcome.outcome === "reused" ? basename(outcome.dir) : one.name);
      outcomes.push(outcome);
      options.onOutcome?.(outcome);
    }
  };
  const regradeOne = async (folder: string, trialName: string): Promise<RegradeOutcome> => {
    const recorded = await readRecordedTrial(folder);
    const known = {
      trial: basename(folder),
      task: recorded?.task ?? null,
      before: recorded?.round.verifier_result?.rewards ?? null,
    };
    try {
      if (recorded === null)
        throw new RegradeError("ERR_REGRADE_RESULT", folder, "it has no result.json that could be read");
      // A folder with one task is meant for it, whatever its name is: then the names are compared, and the difference is said.
      const task = byName.get(recorded.task) ?? (tasks.length === 1 ? tasks[0] : undefined);
      if (task === undefined)
        throw new RegradeError("ERR_REGRADE_TASK", folder, `none of the tasks is called ${recorded.task}`);
      if (single === null && options.unchanged !== true && isUnchanged(recorded, await digestOf(task))) {
        const dir = join(outputDir, basename(folder));
        await cp(folder, dir, { recursive: true, verbatimSymlinks: true, filter: isPlain });
        return { ...known, outcome: "reused", dir };
      }
      return {
        ...known,
        outcome: "regraded",
        result: await regradeTrial(folder, task, { ...options, outputDir, trialName }),
      };
    } catch (error) {
      if (isRegradeError(error))
        return { ...known, outcome: "refused", code: error.code, reason: error.problems.join("; ") };
      if (isTasksetError(error)) return { ...known, outcome: "refused", code: error.code, reason: error.message };
      // The backend does not answer: the next trial asks it again.
      const { code = "ERR_INTERNAL" } = error as { readonly code?: string };
      return { ...known, outcome: "refused", code, reason: messageOf(error) };
    }
  };
  await Promise.all(Array.from({ length: concurrentTrials }, gradeSome));
  await files.write();
  return outcomes;
}

/** It has rewards, and these very tests gave them. */
function isUnchanged({ lockedTask, round }: RecordedTrial, digest: string | null): boolean {
  const hasRewards = Object.keys(round.verifier_result?.rewards ?? {}).length > 0;
  return hasRewards && digest !== null && lockedTask?.["digest"] === `sha256:${digest}`;
}

/** Folders of a job that are trials, finished or not. */
async function trialFolders(job: string): Promise<readonly string[]> {
  const entries = await readdir(job, { withFileTypes: true }).catch((error: unknown) => {
    if (isMissing(error)) return [];
    throw error;
  });
  const folders: string[] = [];
  for (const { name } of entries.filter((entry) => entry.isDirectory()).sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const files = await Promise.all(
      ["result.json", "config.json"].map((file) => stat(join(job, name, file)).catch(() => null)),
    );
    if (files.some((file) => file?.isFile() === true)) folders.push(join(job, name));
  }
  return folders;
}

async function isPlain(path: string): Promise<boolean> {
  const status = await lstat(path);
  return basename(path) !== ".spools" && (status.isFile() || status.isDirectory() || status.isSymbolicLink());
}
