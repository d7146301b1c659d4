import { mkdir } from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import {
  formatProblem,
  isJobError,
  isTasksetError,
  planTrial,
  runJob,
  type Agent,
  type Task,
  type TasksetError,
} from "@breakwater/harbor-taskset";
import type { RuntimeDriver } from "@breakwater/runtime-api";
import { Command } from "commander";

import { chooseTasks, isChosen, type TaskChoice } from "../choose-tasks.ts";
import { EXIT_NO_REWARD, EXIT_OK, UsageError } from "../exit-codes.ts";
import { Interrupts } from "../interrupts.ts";
import { loadAgent } from "../load-agent.ts";
import { loadDriver } from "../load-driver.ts";
import { makeReporter } from "../reporters.ts";
import type { Exit } from "../program.ts";
import { collect, errorCode, runtimeOption, wholeNumber, workingDirectory } from "../shared-options.ts";
import { addTrialFlags, loadTasksOf, trialOptions, type TrialFlags } from "../trial-flags.ts";

interface RunFlags extends TrialFlags, TaskChoice {
  readonly nConcurrent: number;
  readonly nAttempts: number;
  readonly maxRetries: number;
  readonly retryInclude?: readonly string[];
  readonly retryExclude?: readonly string[];
  readonly jobsDir: string;
  readonly jobName?: string;
  readonly resume: boolean;
  readonly json: boolean;
  readonly quiet: boolean;
}

export function runCommand(exit: Exit): Command {
  return addTrialFlags(new Command("run"))
    .description(
      "Run trials of a task or a folder of tasks. Exit code 0: every trial has rewards; 1: some has none; 2: nothing was started.",
    )
    .addOption(runtimeOption())
    .option("-n, --n-concurrent <number>", "trials at the same time", wholeNumber(1), 4)
    .option("-k, --n-attempts <number>", "trials of each task", wholeNumber(1), 1)
    .option(
      "-i, --include-task-name <glob>",
      "only tasks whose name, or its last part, matches; may be repeated",
      collect(String),
    )
    .option("-x, --exclude-task-name <glob>", "not those; may be repeated", collect(String))
    .option("-l, --n-tasks <number>", "at most so many tasks: the first ones, or with --seed a sample", wholeNumber(1))
    .option("--seed <text>", "of the sample: the same seed gives the same tasks")
    .option("-r, --max-retries <number>", "how often a trial whose failure may pass is tried again", wholeNumber(0), 0)
    .option(
      "--retry-include <code>",
      "only errors with this code (ERR_…) are tried again; may be repeated",
      collect(errorCode),
    )
    .option("--retry-exclude <code>", "errors with this code are not; may be repeated", collect(errorCode))
    .option("-o, --jobs-dir <folder>", "where the job's folder is made", "jobs")
    .option("--job-name <name>", "the job's folder (default: the time of its start)")
    .option("--resume", "go on with the job of --job-name, begun with the same tasks and options", false)
    .option("-q, --quiet", "no progress, only results and the summary", false)
    .option("--json", "print one JSON line per trial", false)
    .addHelpText(
      "after",
      `
Examples:
  breakwater run -p ./tasks -a oracle -n 4 -k 1 -o jobs
  breakwater run -p ./tasks -a ./agent.ts --job-name nightly --max-retries 2
  breakwater run -p ./tasks -a ./agent.ts --job-name nightly --max-retries 2 --resume
  breakwater run -p ./tasks/hello --agent-command 'my-agent "$BREAKWATER_INSTRUCTION"' --ae API_KEY=...
`,
    )
    .action(async (flags: RunFlags) => {
      exit(await run(flags));
    });
}

async function run(flags: RunFlags): Promise<number> {
  const here = workingDirectory();
  if (flags.resume && flags.jobName === undefined) throw new UsageError("--resume: say which job with --job-name");
  const reporter = makeReporter(flags);
  using interrupts = new Interrupts((line) => reporter.note(line));

  // 1. Everything that can be refused is refused before anything is paid for.
  const agent = await loadAgent(flags.agent, flags.agentCommand, here);
  const loaded = await loadTasksOf(flags, here);
  const tasks = chooseTasks(loaded.tasks, flags);
  await using driver = await loadDriver(flags.runtime, here);
  const invalid = loaded.invalid.filter(({ directory }) => {
    const name = basename(directory);
    return isChosen({ name, shortName: name }, flags);
  });
  const problems = [...invalid, ...(await refusedTasks(tasks, driver, agent, flags))];
  if (problems.length > 0)
    throw new UsageError(`nothing was started\n${problems.map((error) => error.message).join("\n")}`);

  // 2. The trials
  const { totals } = reporter;
  const trials = tasks.length * flags.nAttempts;
  const jobsDirectory = resolve(here, flags.jobsDir);
  const outputDir = flags.jobName === undefined ? await newFolder(jobsDirectory) : join(jobsDirectory, flags.jobName);
  const results = runJob(tasks, {
    ...trialOptions(flags),
    driver,
    agent,
    outputDir,
    attempts: flags.nAttempts,
    concurrentTrials: flags.nConcurrent,
    maxRetries: flags.maxRetries,
    retryInclude: flags.retryInclude,
    retryExclude: flags.retryExclude,
    resume: flags.resume,
    signal: interrupts.signal,
    onBegin: () => reporter.begin(trials, outputDir),
    onEvent: (event) => reporter.event(event),
    onProgress: (progress) => reporter.progress(progress),
  });
  try {
    for await (const result of results) reporter.result(result);
  } catch (error) {
    if (isJobError(error))
      throw new UsageError(`nothing was started\n${error.message} (${error.code})`, { cause: error });
    throw error;
  } finally {
    reporter.end();
  }
  return interrupts.exitCode ?? (totals.good === trials ? EXIT_OK : EXIT_NO_REWARD);
}

/** Named by the time of its start, as Harbor names its jobs; another job that began in the same second has a folder of its own. */
export async function newFolder(jobsDirectory: string): Promise<string> {
  await mkdir(jobsDirectory, { recursive: true });
  const name = timestamp(new Date());
  for (let number = 1; ; number++) {
    const folder = join(jobsDirectory, number === 1 ? name : `${name}-${number}`);
    try {
      await mkdir(folder);
      return folder;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    }
  }
}

async function refusedTasks(
  tasks: readonly Task[],
  driver: RuntimeDriver,
  agent: Agent,
  flags: TrialFlags,
): Promise<readonly TasksetError[]> {
  if (tasks.length === 0) return [];
  const capabilities = await driver.probe();
  const refused: TasksetError[] = [];
  for (const task of tasks) {
    try {
      const plan = planTrial(task, capabilities, { ...trialOptions(flags), oracle: agent.needsSolution === true });
      for (const warning of plan.warnings) process.stderr.write(`warning: ${task.name}: ${formatProblem(warning)}\n`);
    } catch (error) {
      if (!isTasksetError(error)) throw error;
      refused.push(error);
    }
  }
  return refused;
}

/** In local time: `2026-11-30__09-15-00`. */
function timestamp(date: Date): string {
  const two = (value: number): string => String(value).padStart(2, "0");
  const day = [date.getFullYear(), two(date.getMonth() + 1), two(date.getDate())].join("-");
  return `${day}__${[date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join("-")}`;
}
