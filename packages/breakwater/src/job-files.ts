import { randomUUID } from "node:crypto";
import { readdir, readFile, rename, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { combineRewards, type Rewards } from "@breakwater/harbor-taskset";

/*
 * A job's folder as Harbor has it (`models/job/result.py`, `models/job/lock.py`), put together from what its trials have written down. Of a folder that is used
 * again all trials count.
 */

export interface JobAbout {
  /** Absolute. */
  readonly directory: string;
  readonly startedAt: Date;
  readonly agentName: string;
  readonly attempts: number;
  readonly concurrentTrials: number;
  readonly taskDirectories: readonly string[];
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

/** `config.json`: before the first trial. */
export async function writeJobConfig(job: JobAbout): Promise<void> {
  await writeWhole(join(job.directory, "config.json"), {
    job_name: basename(job.directory),
    jobs_dir: dirname(job.directory),
    n_attempts: job.attempts,
    n_concurrent_trials: job.concurrentTrials,
    agents: [{ name: job.agentName }],
    tasks: job.taskDirectories.map((path) => ({ path })),
  });
}

/** `result.json` and `lock.json`: after the last. `notRun`: trials that were to be run now and have no result. The folder may hold others from before. */
export async function writeJobResult(job: JobAbout, notRun: number): Promise<void> {
  const trials = await readTrials(job.directory);
  const errored = trials.filter(({ result }) => exceptionsOf(result).length > 0);
  await writeWhole(join(job.directory, "result.json"), {
    id: randomUUID(),
    started_at: job.startedAt.toISOString(),
    updated_at: new Date().toISOString(),
    finished_at: new Date().toISOString(),
    n_total_trials: trials.length + notRun,
    stats: {
      n_completed_trials: trials.length,
      n_errored_trials: errored.length,
      n_running_trials: 0,
      n_pending_trials: notRun,
      n_cancelled_trials: 0,
      n_retries: 0,
      evals: summarize(trials),
    },
  });
  await writeWhole(join(job.directory, "lock.json"), {
    schema_version: 3,
    created_at: job.startedAt.toISOString(),
    n_concurrent_trials: job.concurrentTrials,
    retry: { max_retries: 0 },
    trials: trials.flatMap(({ lock }) => (lock === null ? [] : [lock])),
  });
}

interface Trial {
  readonly name: string;
  readonly result: Outcome;
  /** As it is; `null` = none. */
  readonly lock: unknown;
}

async function readTrials(directory: string): Promise<readonly Trial[]> {
  const trials: Trial[] = [];
  for (const name of (await readdir(directory)).sort()) {
    const result = (await readJson(join(directory, name, "result.json"))) as Outcome | null;
    if (result !== null) trials.push({ name, result, lock: await readJson(join(directory, name, "lock.json")) });
  }
  return trials;
}

interface Eval {
  n_trials: number;
  n_errors: number;
  readonly metrics: Json[];
  readonly reward_stats: Record<string, Record<string, string[]>>;
  readonly exception_stats: Record<string, string[]>;
}

/** By agent and data set. Means are over the trials that have rewards; the others are counted, never taken for 0. */
function summarize(trials: readonly Trial[]): Readonly<Record<string, Eval>> {
  const evals: Record<string, Eval> = {};
  const rewards = new Map<Eval, Rewards[]>();
  for (const { name, result } of trials) {
    const one = (evals[`${result.agent_info.name}__${result.source ?? "adhoc"}`] ??= {
      n_trials: 0,
      n_errors: 0,
      metrics: [],
      // Its keys are the tests' own words: "constructor" is one of them.
      reward_stats: Object.create(null) as Eval["reward_stats"],
      exception_stats: {},
    });
    const exceptions = exceptionsOf(result);
    if (exceptions.length > 0) one.n_errors += 1;
    for (const type of exceptions) (one.exception_stats[type] ??= []).push(name);
    const found = result.verifier_result?.rewards ?? null;
    if (found === null) continue;
    one.n_trials += 1;
    const list = rewards.get(one);
    if (list === undefined) rewards.set(one, [found]);
    else list.push(found);
    for (const [key, value] of Object.entries(found)) ((one.reward_stats[key] ??= {})[String(value)] ??= []).push(name);
  }
  for (const [one, found] of rewards) one.metrics.push(means(found));
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

async function readJson(file: string): Promise<unknown> {
  try {
    return JSON.parse(await readFile(file, "utf8")) as unknown;
  } catch {
    return null;
  }
}

/** Two runs that began in the same second share a folder: neither may take the other's unfinished file away. */
async function writeWhole(file: string, value: unknown): Promise<void> {
  const unfinished = `${file}.${randomUUID()}.tmp`;
  await writeFile(unfinished, `${JSON.stringify(value, undefined, 2)}\n`);
  await rename(unfinished, file);
}
