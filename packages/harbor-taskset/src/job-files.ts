import { randomUUID } from "node:crypto";
import { open, readFile, truncate } from "node:fs/promises";
import { basename, dirname, join } from "node:path";

import { isMissing, readJson, syncToDisk, writeJsonDurably } from "./durable.ts";
import { JobError } from "./job-error.ts";
import type { Retried } from "./result.ts";
import { combineRewards, type Rewards } from "./reward.ts";

/*
 * A job's folder as Harbor has it (`models/job/result.py`, `models/job/lock.py`), put together from what its trials have written down; and beside that, what is
 * needed to go on with it: `job.json`, the list of its trials and what they are run with, and `retries.jsonl`.
 */

const JOB_FILE = "job.json";
const RETRIES_FILE = "retries.jsonl";
/** How often `result.json` is written while trials end. */
const WRITE_EVERY_MS = 5000;

export interface JobAbout {
  /** Absolute. */
  readonly directory: string;
  readonly agentName: string;
  readonly attempts: number;
  readonly concurrentTrials: number;
  readonly maxRetries: number;
  readonly taskDirectories: readonly string[];
  /** Absolute: the recorded job, or trial, that this one grades again. */
  readonly regradedFrom?: string | undefined;
}

/** What a job is, as far as going on with it must not change it. */
export interface StoredJob {
  readonly schemaVersion: 1;
  readonly startedAt: string;
  /** JSON values, without secrets. */
  readonly settings: Readonly<Record<string, unknown>>;
  readonly trials: readonly StoredTrial[];
}

export interface StoredTrial {
  readonly name: string;
  /** The task's folder, absolute. */
  readonly task: string;
  /** Of the task's files; `null` = not known. */
  readonly digest: string | null;
}

type Json = Readonly<Record<string, unknown>>;

/** What is read back of a trial's `result.json`. */
interface Outcome {
  readonly agent_info: { readonly name: string };
  readonly source: string | null;
  readonly verifier_result: { readonly rewards: Readonly<Record<string, number>> | null } | null;
  readonly exception_info: Exception | null;
  readonly step_results: readonly { readonly exception_info: Exception | null }[] | null;
}

interface Exception {
  readonly exception_type: string;
}

/** What is kept of each trial that has ended: little, as there may be thousands. */
interface Ended {
  readonly name: string;
  readonly evaluation: string;
  readonly rewards: Rewards | null;
  readonly exceptions: readonly string[];
  /** `lock.json` as it is; `null` = none. */
  readonly lock: unknown;
}

export class JobFiles {
  readonly #about: JobAbout;
  readonly #job: StoredJob;
  readonly #id: string = randomUUID();
  readonly #ended = new Map<string, Ended>();
  readonly #retries: Map<string, Retried[]>;
  #writtenAt = -Infinity;

  private constructor(about: JobAbout, job: StoredJob, retries: Map<string, Retried[]>) {
    this.#about = about;
    this.#job = job;
    this.#retries = retries;
  }

  /** Of a new job: everything is on disk before its first trial begins. */
  static async create(about: JobAbout, job: StoredJob): Promise<JobFiles> {
    const { directory } = about;
    await writeJsonDurably(join(directory, "config.json"), {
      job_name: basename(directory),
      jobs_dir: dirname(directory),
      n_attempts: about.attempts,
      n_concurrent_trials: about.concurrentTrials,
      retry: { max_retries: about.maxRetries },
      agents: [{ name: about.agentName }],
      tasks: about.taskDirectories.map((path) => ({ path })),
      ...(about.regradedFrom === undefined
        ? {}
        : { source_job: { action: "regrade", type: "local", path: about.regradedFrom } }),
    });
    await writeJsonDurably(join(directory, JOB_FILE), job);
    await syncToDisk(dirname(directory));
    const files = new JobFiles(about, job, new Map());
    await files.write();
    return files;
  }

  /** Of a job that is there. Nothing is written. */
  static async open(about: JobAbout, job: StoredJob): Promise<JobFiles> {
    return new JobFiles(about, job, await readRetries(about.directory));
  }

  /** What was tried again of a trial so far, oldest first. */
  retriesOf(trial: string): readonly Retried[] {
    return this.#retries.get(trial) ?? [];
  }

  /** On disk when it resolves: a retry counts also if this process ends before it begins. */
  async addRetry(trial: string, retried: Retried): Promise<void> {
    const handle = await open(join(this.#about.directory, RETRIES_FILE), "a", 0o644);
    try {
      await handle.appendFile(`${JSON.stringify({ trial, ...retried })}\n`);
      await handle.sync();
    } finally {
      await handle.close();
    }
    remember(this.#retries, trial, retried);
  }

  /** Takes in what a trial has written. */
  async addTrial(name: string): Promise<void> {
    const folder = join(this.#about.directory, name);
    const result = (await readJson(join(folder, "result.json"))) as Outcome | null;
    if (result === null) return;
    const lock = await readJson(join(folder, "lock.json"));
    this.#ended.set(name, {
      name,
      evaluation: `${result.agent_info.name}__${result.source ?? "adhoc"}`,
      rewards: result.verifier_result?.rewards ?? null,
      exceptions: exceptionsOf(result),
      lock,
    });
    if (performance.now() - this.#writtenAt >= WRITE_EVERY_MS) await this.write();
  }

  /** `result.json` and `lock.json`, as of now. */
  async write(): Promise<void> {
    const { directory, concurrentTrials, maxRetries } = this.#about;
    const { startedAt, trials } = this.#job;
    const now = new Date().toISOString();
    const ended = [...this.#ended.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
    await writeJsonDurably(join(directory, "result.json"), {
      id: this.#id,
      started_at: startedAt,
      updated_at: now,
      finished_at: ended.length === trials.length ? now : null,
      n_total_trials: trials.length,
      stats: {
        n_completed_trials: ended.length,
        n_errored_trials: ended.filter(({ exceptions }) => exceptions.length > 0).length,
        n_running_trials: 0,
        n_pending_trials: trials.length - ended.length,
        n_cancelled_trials: ended.filter(({ exceptions }) => exceptions.includes("CancelledError")).length,
        n_retries: [...this.#retries.values()].reduce((sum, { length }) => sum + length, 0),
        evals: summarize(ended),
      },
    });
    await writeJsonDurably(join(directory, "lock.json"), {
      schema_version: 3,
      created_at: startedAt,
      n_concurrent_trials: concurrentTrials,
      retry: { max_retries: maxRetries },
      trials: ended.flatMap(({ lock }) => (lock === null ? [] : [lock])),
    });
    this.#writtenAt = performance.now();
  }
}

/** `null`: there is none in the folder. Throws `ERR_JOB_DIFFERENT` for one of another version. */
export async function readJob(directory: string): Promise<StoredJob | null> {
  const job = (await readJson(join(directory, JOB_FILE))) as StoredJob | null;
  if (job !== null && job.schemaVersion !== 1) {
    throw new JobError("ERR_JOB_DIFFERENT", directory, `${JOB_FILE} is of another version of this package`);
  }
  return job;
}

/** A last line that its process did not come to end counts for nothing, and is cut off. */
async function readRetries(directory: string): Promise<Map<string, Retried[]>> {
  const file = join(directory, RETRIES_FILE);
  const retries = new Map<string, Retried[]>();
  let content: Buffer;
  try {
    content = await readFile(file);
  } catch (error) {
    if (isMissing(error)) return retries;
    throw error;
  }
  const whole = content.subarray(0, content.lastIndexOf("\n") + 1);
  if (whole.length < content.length) await truncate(file, whole.length);
  for (const line of whole.toString("utf8").split("\n")) {
    if (line === "") continue;
    const { trial, ...retried } = JSON.parse(line) as Retried & { readonly trial: string };
    remember(retries, trial, retried);
  }
  return retries;
}

function remember(retries: Map<string, Retried[]>, trial: string, retried: Retried): void {
  const list = retries.get(trial);
  if (list === undefined) retries.set(trial, [retried]);
  else list.push(retried);
}

interface Eval {
  n_trials: number;
  n_errors: number;
  readonly metrics: Json[];
  readonly reward_stats: Record<string, Record<string, string[]>>;
  readonly exception_stats: Record<string, string[]>;
}

/** By agent and data set. Means are over the trials that have rewards; the others are counted, never taken for 0. */
function summarize(trials: readonly Ended[]): Readonly<Record<string, Eval>> {
  const evals: Record<string, Eval> = {};
  const all = new Map<Eval, Rewards[]>();
  for (const { name, evaluation, exceptions, rewards } of trials) {
    const one = (evals[evaluation] ??= {
      n_trials: 0,
      n_errors: 0,
      metrics: [],
      // Its keys are the tests' own words: "constructor" is one of them.
      reward_stats: Object.create(null) as Eval["reward_stats"],
      exception_stats: {},
    });
    if (exceptions.length > 0) one.n_errors += 1;
    for (const type of exceptions) (one.exception_stats[type] ??= []).push(name);
    if (rewards === null) continue;
    one.n_trials += 1;
    const list = all.get(one);
    if (list === undefined) all.set(one, [rewards]);
    else list.push(rewards);
    for (const [key, value] of Object.entries(rewards))
      ((one.reward_stats[key] ??= {})[String(value)] ??= []).push(name);
  }
  for (const [one, rewards] of all) one.metrics.push(means(rewards));
  return evals;
}

/** Harbor's `mean`: one number for a single key, else one for each; a key that a trial does not have counts as 0 there. */
function means(rewards: readonly Rewards[]): Json {
  const entries = Object.entries(combineRewards("mean", rewards) ?? {});
  return Object.fromEntries(entries.map(([key, mean]) => [entries.length === 1 ? "mean" : key, mean]));
}

/** Types, of the trial's and of its steps'. */
function exceptionsOf(result: Outcome): readonly string[] {
  return [result, ...(result.step_results ?? [])].flatMap(({ exception_info: info }) => info?.exception_type ?? []);
}
