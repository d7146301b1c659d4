import { mkdir, readdir, rm } from "node:fs/promises";
import { join, resolve } from "node:path";
import type { RuntimeDriver } from "@breakwater/runtime-api";

import { nameOf } from "./agents.ts";
import { imageSource } from "./boxes.ts";
import { readJson } from "./durable.ts";
import { prepareImageOnce } from "./image-preparation.ts";
import { JobError } from "./job-error.ts";
import { JobFiles, readJob, type JobAbout, type StoredJob, type StoredTrial } from "./job-files.ts";
import { JobLock } from "./job-lock.ts";
import type { PlannedImage, TrialPlan } from "./plan.ts";
import { planTrial } from "./plan-trial.ts";
import type { Retried, TrialResult } from "./result.ts";
import { goOnWith, retryOf, type RetryPolicy } from "./retry-policy.ts";
import { conduct, mayGradeAgain, type Conduct, type RunTrialOptions } from "./run-trial.ts";
import { loadWork } from "./saved-work.ts";
import { digestOf, digestTask } from "./task-digest.ts";
import type { Task } from "./task.ts";
import { makeTrialName, TrialFolder } from "./trial-folder.ts";

/** What a caller decides about a job, besides what holds for each of its trials. */
export interface RunJobOptions extends Omit<RunTrialOptions, "agentRuntime" | "trialName" | "outputDir">, RetryPolicy {
  /** The job's folder. */
  readonly outputDir: string;
  /** Trials of each task. Default is 1. */
  readonly attempts?: number | undefined;
  /** At the same time. Default is 4. */
  readonly concurrentTrials?: number | undefined;
  /**
   * Go on with the job that is in the folder, with the same tasks and options (`concurrentTrials` and what is retried may differ). What has a result stays; what an
   * agent had handed in is graded; all else begins anew. Default is `false`: the folder must not have a job.
   */
  readonly resume?: boolean | undefined;
  /** Called once, when nothing can be refused any more. */
  readonly onBegin?: (() => void) | undefined;
}

/** Images that are prepared ahead of need at the same time. */
const IMAGES_AHEAD = 2;
const FIRST_RETRY_MS = 1000;
const MAX_RETRY_MS = 60_000;

/**
 * Runs trials of all tasks and gives the result of each as it comes, exactly one for each trial; with `resume`, first those that there are. Everything is
 * planned before anything is started. Who stops iterating ends the job: its trials are aborted, and their boxes are gone when that has been done.
 *
 * Throws before anything was started: `TasksetError` (`ERR_PLAN_REFUSED`) for the first task that cannot be run, `JobError`, a `TypeError` for options that make
 * no sense, or a `RuntimeError` if the backend does not answer. Later only what keeps trials from being written down.
 */
export async function* runJob(
  tasks: readonly Task[],
  options: RunJobOptions,
): AsyncGenerator<TrialResult, void, undefined> {
  checkOptions(options);
  const directory = resolve(options.outputDir);
  const plans = await planAll(tasks, options);
  if (options.resume === true && (await readJob(directory)) === null) throw notFound(directory);
  await mkdir(directory, { recursive: true });
  await using _lock = await JobLock.take(directory);
  const { stored, isNew } = await findJob(directory, tasks, options);
  const about = aboutJob(directory, tasks, options);
  const files = isNew ? await JobFiles.create(about, stored) : await JobFiles.open(about, stored);
  const job = new Job(tasks, stored, files, options);
  options.onBegin?.();
  try {
    if (!isNew) yield* job.takeUp();
    job.prepareImages(plans);
    yield* job.run();
  } finally {
    await job.stop();
    await files.write();
  }
}

function checkOptions({ attempts = 1, concurrentTrials = 4, maxRetries = 0 }: RunJobOptions): void {
  for (const [name, value, minimum] of [
    ["attempts", attempts, 1],
    ["concurrentTrials", concurrentTrials, 1],
    ["maxRetries", maxRetries, 0],
  ] as const) {
    if (!Number.isSafeInteger(value) || value < minimum) {
      throw new TypeError(`${name}: ${value} is not a whole number of at least ${minimum}`);
    }
  }
}

/** Throws the first refusal that there is: the command line shows all of them, as it plans by itself. */
async function planAll(tasks: readonly Task[], options: RunJobOptions): Promise<readonly TrialPlan[]> {
  const { driver, signal, agent, verify } = options;
  const capabilities = await driver.probe({ signal });
  const oracle = agent.needsSolution === true;
  return tasks.map((task) =>
    planTrial(task, capabilities, { ...options, oracle, customVerifier: verify !== undefined }),
  );
}

async function findJob(
  directory: string,
  tasks: readonly Task[],
  options: RunJobOptions,
): Promise<{ readonly stored: StoredJob; readonly isNew: boolean }> {
  const there = await readJob(directory);
  const settings = settingsOf(options);
  if (options.resume !== true) {
    const others = (await readdir(directory)).filter((name) => name !== ".lock");
    if (there !== null || others.length > 0) {
      const what = there === null ? `has ${others[0]} in it, and is not a job's` : "has a job already; resume it";
      throw new JobError("ERR_JOB_EXISTS", directory, `the folder ${what}, or choose another folder`);
    }
    const startedAt = new Date().toISOString();
    return { stored: { schemaVersion: 1, startedAt, settings, trials: await listTrials(tasks, options) }, isNew: true };
  }
  if (there === null) throw notFound(directory);
  const differences = await differencesTo(there, settings, tasks);
  if (differences.length > 0) {
    throw new JobError("ERR_JOB_DIFFERENT", directory, `the job was begun otherwise: ${differences.join("; ")}`);
  }
  return { stored: there, isNew: false };
}

function notFound(directory: string): JobError {
  return new JobError("ERR_JOB_NOT_FOUND", directory, "there is no job to be resumed");
}

async function listTrials(tasks: readonly Task[], { attempts = 1 }: RunJobOptions): Promise<readonly StoredTrial[]> {
  const trials: StoredTrial[] = [];
  const names = new Set<string>();
  for (const task of tasks) {
    const digest = await digestOf(task);
    for (let attempt = 1; attempt <= attempts; attempt++) {
      let name = makeTrialName(task.shortName);
      while (names.has(name)) name = makeTrialName(task.shortName);
      names.add(name);
      trials.push({ name, task: task.directory, digest });
    }
  }
  return trials;
}

/** What decides over results. Of environments only the names: values may be secrets. */
function settingsOf(options: RunJobOptions): Readonly<Record<string, unknown>> {
  const {
    driver,
    agent,
    verify,
    agentEnv,
    verifierEnv,
    outputDir: _outputDir,
    concurrentTrials: _concurrentTrials,
    maxRetries: _maxRetries,
    retryInclude: _retryInclude,
    retryExclude: _retryExclude,
    resume: _resume,
    signal: _signal,
    onBegin: _onBegin,
    onEvent: _onEvent,
    onProgress: _onProgress,
    hostEnv: _hostEnv,
    attempts = 1,
    ...trialOptions
  } = options;
  const settings = {
    driver: driver.name,
    agent: nameOf(agent),
    verify: verify === undefined ? null : nameOf(verify),
    attempts,
    agentEnv: Object.keys(agentEnv ?? {}).sort(),
    verifierEnv: Object.keys(verifierEnv ?? {}).sort(),
    ...trialOptions,
  };
  return JSON.parse(JSON.stringify(settings)) as Record<string, unknown>;
}

async function differencesTo(
  { settings: before, trials }: StoredJob,
  now: Readonly<Record<string, unknown>>,
  tasks: readonly Task[],
): Promise<readonly string[]> {
  const differences: string[] = [];
  for (const key of new Set([...Object.keys(before), ...Object.keys(now)])) {
    const [was, is] = [before[key], now[key]].map((value) => JSON.stringify(value) ?? "not set");
    if (was !== is) differences.push(`${key} was ${was} and is ${is}`);
  }
  const wanted = new Map(trials.map(({ task, digest }) => [task, digest]));
  for (const { directory } of tasks) {
    if (!wanted.has(directory)) differences.push(`the task ${directory} was not in it`);
    else if (wanted.get(directory) !== (await digestTask(directory)))
      differences.push(`the files of ${directory} were changed`);
    wanted.delete(directory);
  }
  for (const task of wanted.keys()) differences.push(`the task ${task} was in it`);
  return differences;
}

function aboutJob(directory: string, tasks: readonly Task[], options: RunJobOptions): JobAbout {
  return {
    directory,
    agentName: nameOf(options.agent),
    attempts: options.attempts ?? 1,
    concurrentTrials: options.concurrentTrials ?? 4,
    maxRetries: options.maxRetries ?? 0,
    taskDirectories: tasks.map((task) => task.directory),
  };
}

/** A trial that has something to be done. */
interface Turn {
  readonly name: string;
  readonly task: Task;
  readonly from: Conduct["from"];
  readonly retries: readonly Retried[];
  /** On the clock of `performance`. */
  readonly readyAtMs: number;
}

class Job {
  readonly #options: RunJobOptions;
  readonly #driver: RuntimeDriver;
  readonly #directory: string;
  readonly #files: JobFiles;
  readonly #over = new AbortController();
  readonly #signal: AbortSignal;
  /** What was interrupted in the middle comes first. */
  #turns: Turn[];
  readonly #running = new Set<Promise<void>>();
  /** Results that nobody has taken yet: never more than run at the same time, as nothing begins meanwhile. */
  readonly #ended: TrialResult[] = [];
  #failure: { readonly error: unknown } | null = null;
  #wake: () => void = () => undefined;
  #imagesAhead: Promise<unknown> = Promise.resolve();

  constructor(tasks: readonly Task[], { trials }: StoredJob, files: JobFiles, options: RunJobOptions) {
    this.#options = options;
    this.#driver = options.driver;
    this.#directory = resolve(options.outputDir);
    this.#files = files;
    this.#signal =
      options.signal === undefined ? this.#over.signal : AbortSignal.any([this.#over.signal, options.signal]);
    const byDirectory = new Map(tasks.map((task) => [task.directory, task]));
    this.#turns = trials.flatMap(({ name, task: folder }) => {
      const task = byDirectory.get(folder);
      return task === undefined ? [] : [{ name, task, from: "beginning", retries: [], readyAtMs: 0 } as const];
    });
  }

  /** Finds out how far each trial of an interrupted job has come, and gives the results that stay. */
  async *takeUp(): AsyncGenerator<TrialResult, void, undefined> {
    const begun = new Set(await readdir(this.#directory));
    const toGrade: Turn[] = [];
    const toBegin: Turn[] = [];
    let mayHaveBoxes = false;
    for (const turn of this.#turns) {
      const { name } = turn;
      if (!begun.has(name)) {
        toBegin.push({ ...turn, retries: [...this.#files.retriesOf(name)] });
        continue;
      }
      const result = (await readJson(join(this.#directory, name, "result.json"))) as TrialResult | null;
      const hasWork = await this.#hasWork(name);
      const next = result === null ? (hasWork ? "grading" : "trial") : await this.#nextOf(result, hasWork);
      if (result !== null && next === null) {
        if (!mayGradeAgain(result)) await this.#removeWork(name);
        await this.#files.addTrial(name);
        yield result;
        continue;
      }
      mayHaveBoxes = true;
      const retries = [...this.#files.retriesOf(name)];
      if (next === "grading") toGrade.push({ ...turn, from: "saved", retries });
      else toBegin.push({ ...turn, retries });
    }
    this.#turns = [...toGrade, ...toBegin];
    // The process that ran them has ended, as we have its lock: what it left is nobody's.
    if (mayHaveBoxes) await this.#driver.sweep({ signal: this.#signal });
  }

  /** Of a trial with a result, when the job goes on: an abort is no end. */
  async #nextOf(result: TrialResult, hasWork: boolean): Promise<Retried["again"] | null> {
    const retries = this.#files.retriesOf(result.trial);
    if (result.error?.reason === "aborted") return goOnWith(result, hasWork);
    // Its retry was decided, and did not come to its own result.
    if (retries.some(({ finishedAt }) => finishedAt === result.finishedAt)) return goOnWith(result, hasWork);
    const again = retryOf(result, retries, hasWork, this.#options);
    if (again !== null) await this.#files.addRetry(result.trial, retried(result, again));
    return again;
  }

  /** Its process was ended after the result was on disk, and before what it had come from was removed. */
  async #removeWork(name: string): Promise<void> {
    const folder = await TrialFolder.reopen(this.#directory, name).catch(() => null);
    await folder?.[Symbol.asyncDispose]();
  }

  async #hasWork(name: string): Promise<boolean> {
    try {
      return (await loadWork(await TrialFolder.reopen(this.#directory, name))) !== null;
    } catch {
      // It has no spools, or not any more.
      return false;
    }
  }

  /** In the order of the trials, in the background. What fails is the trials' to say: they ask again. */
  prepareImages(plans: readonly TrialPlan[]): void {
    if (this.#turns.length === 0) return;
    const images = new Map<string, { readonly image: PlannedImage; readonly timeoutMs: number }>();
    for (const { agentBox, steps } of plans) {
      for (const { image, imageTimeoutMs } of [agentBox, ...steps.flatMap(({ verifier }) => verifier.box ?? [])]) {
        if (image.kind !== "agent-image") images.set(JSON.stringify(image), { image, timeoutMs: imageTimeoutMs });
      }
    }
    const queue = [...images.values()];
    const work = async (): Promise<void> => {
      for (let next = queue.shift(); next !== undefined && !this.#signal.aborted; next = queue.shift()) {
        await prepareImageOnce(this.#driver, imageSource(next.image), {
          signal: this.#signal,
          timeoutMs: next.timeoutMs,
          onProgress: (line) => this.#options.onProgress?.({ trial: null, what: "image", line }),
        }).catch(() => undefined);
      }
    };
    this.#imagesAhead = Promise.all(Array.from({ length: IMAGES_AHEAD }, work));
  }

  async *run(): AsyncGenerator<TrialResult, void, undefined> {
    const wakeOnAbort = (): void => this.#wake();
    this.#signal.addEventListener("abort", wakeOnAbort);
    try {
      for (;;) {
        const result = this.#ended.shift();
        if (result !== undefined) {
          yield result;
          continue;
        }
        if (this.#failure !== null) throw this.#failure.error;
        const waitMs = this.#beginWhatCan();
        if (this.#running.size === 0 && (this.#turns.length === 0 || this.#signal.aborted)) return;
        await this.#untilSomethingHappens(waitMs);
      }
    } finally {
      this.#signal.removeEventListener("abort", wakeOnAbort);
    }
  }

  /** Aborts what runs, and waits for it. */
  async stop(): Promise<void> {
    this.#over.abort(new Error("the job is over"));
    await Promise.allSettled([...this.#running, this.#imagesAhead]);
  }

  /** Gives in how many milliseconds a further trial can begin; `null`: only when another has ended. */
  #beginWhatCan(): number | null {
    const { concurrentTrials = 4 } = this.#options;
    while (this.#running.size < concurrentTrials && !this.#signal.aborted) {
      const now = performance.now();
      const index = this.#turns.findIndex(({ readyAtMs }) => readyAtMs <= now);
      if (index < 0) {
        const next = Math.min(...this.#turns.map(({ readyAtMs }) => readyAtMs));
        return Number.isFinite(next) ? Math.max(1, Math.ceil(next - now)) : null;
      }
      const [turn] = this.#turns.splice(index, 1);
      if (turn !== undefined) this.#begin(turn);
    }
    return null;
  }

  #begin(turn: Turn): void {
    const running = this.#take(turn)
      .catch((error: unknown) => {
        this.#failure ??= { error };
      })
      .finally(() => {
        this.#running.delete(running);
        this.#wake();
      });
    this.#running.add(running);
  }

  async #take({ name, task, from, retries }: Turn): Promise<void> {
    // Of a trial that begins anew, nothing of what was before may be taken for its own.
    if (from === "beginning") await rm(join(this.#directory, name), { recursive: true, force: true });
    const how: Conduct = { from, savesWork: true, retries };
    const trialOptions = { ...this.#options, outputDir: this.#directory, trialName: name, signal: this.#signal };
    const result = await conduct(task, trialOptions, how);
    const hasWork = await this.#hasWork(name);
    const again = this.#signal.aborted ? null : retryOf(result, retries, hasWork, this.#options);
    if (again === null) {
      await this.#files.addTrial(name);
      this.#ended.push(result);
      return;
    }
    const entry = retried(result, again);
    await this.#files.addRetry(name, entry);
    const delayMs = Math.min(MAX_RETRY_MS, FIRST_RETRY_MS * 2 ** retries.length) * (0.5 + Math.random() / 2);
    this.#turns.push({
      name,
      task,
      from: again === "grading" ? "saved" : "beginning",
      retries: [...retries, entry],
      readyAtMs: performance.now() + delayMs,
    });
  }

  async #untilSomethingHappens(waitMs: number | null): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((happened) => {
      this.#wake = happened;
      if (waitMs !== null) timer = setTimeout(happened, waitMs);
    });
    clearTimeout(timer);
    this.#wake = () => undefined;
  }
}

function retried({ startedAt, finishedAt, error }: TrialResult, again: Retried["again"]): Retried {
  if (error === null) throw new Error("what has no error is not tried again");
  return { again, startedAt, finishedAt, error };
}
