import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  loadTask,
  type RunTrialOptions,
  runTrial,
  shellAgent,
  type Task,
  type TrialEvent,
  type TrialResult,
} from "@breakwater/harbor-taskset";
import type { RuntimeCapabilities, RuntimeDriver } from "@breakwater/runtime-api";
import { dedicatedImageFiles, HONEST_AGENT, WRONG_AGENT } from "./look-around.ts";
import type { BackendRecord, BoxRecord, DescribeGradingOptions } from "./options.ts";
import { Slots } from "./slots.ts";
import { type StandardTask, standardTask } from "./standard-tasks.ts";
import { type TaskFileContent, writeTask } from "./write-task.ts";

/** More only queue for the machine. */
const TRIALS_AT_ONCE = 2;

/** A trial with what it wrote down. */
export interface FinishedTrial {
  readonly result: TrialResult;
  /** From its `events.jsonl`. */
  readonly events: readonly TrialEvent[];
}

/** What a case decides about a trial; the rest is the suite's. */
export interface TrialRun extends Partial<Omit<RunTrialOptions, "outputDir" | "onEvent">> {
  readonly files: Readonly<Record<string, TaskFileContent>>;
}

/** Runs the trials that cases ask for. A standard trial is run once for all cases that look at it. */
export class Trials implements AsyncDisposable {
  readonly driver: RuntimeDriver;
  readonly #options: DescribeGradingOptions;
  readonly #capabilities: RuntimeCapabilities;
  readonly #folder: Promise<string> = mkdtemp(join(tmpdir(), "breakwater-grading-"));
  readonly #slots: Slots = new Slots(TRIALS_AT_ONCE);
  readonly #standard = new Map<string, Promise<FinishedTrial>>();
  #record: Promise<BackendRecord> | undefined;
  #dedicatedImage: Promise<string> | undefined;
  #tasks = 0;

  constructor(driver: RuntimeDriver, capabilities: RuntimeCapabilities, options: DescribeGradingOptions) {
    this.driver = driver;
    this.#capabilities = capabilities;
    this.#options = options;
  }

  /** The honest agent (or one with a wrong answer) in a standard task. */
  async standard(task: StandardTask, agent: "honest" | "wrong" = "honest"): Promise<FinishedTrial> {
    const key = `${task} ${agent}`;
    let trial = this.#standard.get(key);
    if (trial === undefined) {
      trial = this.#runStandard(task, agent === "honest" ? HONEST_AGENT : WRONG_AGENT);
      this.#standard.set(key, trial);
    }
    return trial;
  }

  async #runStandard(task: StandardTask, agent: string): Promise<FinishedTrial> {
    const dedicatedImage = task === "declared" ? await this.dedicatedImage() : null;
    const files = standardTask(task, this.#options, this.#capabilities, dedicatedImage);
    return this.run({ files, agent: shellAgent(agent) });
  }

  async run({ files, ...options }: TrialRun): Promise<FinishedTrial> {
    const task = await this.load(files);
    const outputDir = join(await this.#folder, "trials");
    if (this.#options.backendRecord !== undefined) await (this.#record ??= this.#options.backendRecord());
    return this.#slots.run(async () => {
      const result = await runTrial(task, { driver: this.driver, agent: shellAgent("true"), ...options, outputDir });
      const lines = (await readFile(join(outputDir, result.trial, "events.jsonl"), "utf8")).trimEnd().split("\n");
      return { result, events: lines.map((line) => JSON.parse(line) as TrialEvent) };
    });
  }

  /** A task's folder, written and loaded. */
  async load(files: Readonly<Record<string, TaskFileContent>>): Promise<Task> {
    const name = `grading-${(this.#tasks += 1)}`;
    return loadTask(await writeTask(join(await this.#folder, "tasks", name), files));
  }

  /** What the backend itself says about a trial's boxes; `null` where nobody asks it. */
  async boxes(trial: string): Promise<readonly BoxRecord[] | null> {
    return (await (await this.#record)?.boxes(trial)) ?? null;
  }

  /** An image with tests of its own: the caller's, or built here. */
  async dedicatedImage(): Promise<string> {
    const { dedicatedImage, otherImage } = this.#options;
    if (dedicatedImage !== undefined) return dedicatedImage;
    this.#dedicatedImage ??= (async () => {
      const context = await writeTask(join(await this.#folder, "dedicated-image"), dedicatedImageFiles(otherImage));
      return (await this.driver.prepareImage({ context, name: "grading-dedicated" })).reference;
    })();
    return this.#dedicatedImage;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.allSettled(this.#standard.values());
    await (await this.#record?.catch(() => undefined))?.[Symbol.asyncDispose]();
    await rm(await this.#folder, { recursive: true, force: true });
    await this.driver[Symbol.asyncDispose]();
  }
}
