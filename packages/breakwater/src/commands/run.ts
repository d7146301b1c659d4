import { mkdir } from "node:fs/promises";
import { join, resolve } from "node:path";
import {
  formatProblem,
  isTasksetError,
  planTrial,
  runTrial,
  type Agent,
  type Task,
  type TasksetError,
} from "@breakwater/harbor-taskset";
import type { RuntimeDriver } from "@breakwater/runtime-api";
import { Command } from "commander";

import { EXIT_NO_REWARD, EXIT_OK, UsageError } from "../exit-codes.ts";
import { Interrupts } from "../interrupts.ts";
import { writeJobConfig, writeJobResult, type JobAbout } from "../job-files.ts";
import { loadAgent } from "../load-agent.ts";
import { loadDriver } from "../load-driver.ts";
import { JsonReporter, TextReporter, type Reporter } from "../reporters.ts";
import type { Exit } from "../program.ts";
import { runtimeOption, wholeNumber, workingDirectory } from "../shared-options.ts";
import { addTrialFlags, loadTasksOf, trialOptions, type TrialFlags } from "../trial-flags.ts";

interface RunFlags extends TrialFlags {
  readonly nConcurrent: number;
  readonly nAttempts: number;
  readonly jobsDir: string;
  readonly jobName?: string;
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
    .option("-o, --jobs-dir <folder>", "where the job's folder is made", "jobs")
    .option("--job-name <name>", "the job's folder (default: the time of its start)")
    .option("-q, --quiet", "no progress, only the summary", false)
    .option("--json", "print one JSON line per trial", false)
    .addHelpText(
      "after",
      `
Examples:
  breakwater run -p ./tasks -a oracle -n 4 -k 1 -o jobs
  breakwater run -p ./tasks/hello --agent-command 'my-agent "$BREAKWATER_INSTRUCTION"' --ae API_KEY=...
`,
    )
    .action(async (flags: RunFlags) => {
      exit(await run(flags));
    });
}

async function run(flags: RunFlags): Promise<number> {
  const here = workingDirectory();
  const reporter: Reporter = flags.json ? new JsonReporter() : new TextReporter({ quiet: flags.quiet });
  using interrupts = new Interrupts((line) => reporter.note(line));

  // 1. Everything that can be refused is refused before anything is paid for.
  const agent = await loadAgent(flags.agent, flags.agentCommand, here);
  const { tasks, invalid } = await loadTasksOf(flags, here);
  await using driver = await loadDriver(flags.runtime, here);
  const problems = [...invalid, ...(await refusedTasks(tasks, driver, agent, flags))];
  if (problems.length > 0)
    throw new UsageError(`nothing was started\n${problems.map((error) => error.message).join("\n")}`);

  // 2. The trials
  const outputDir = join(resolve(here, flags.jobsDir), flags.jobName ?? timestamp(new Date()));
  await mkdir(outputDir, { recursive: true });
  const job: JobAbout = {
    directory: outputDir,
    startedAt: new Date(),
    agentName: agent.name === "" ? "agent" : agent.name,
    attempts: flags.nAttempts,
    concurrentTrials: flags.nConcurrent,
    taskDirectories: tasks.map(({ directory }) => directory),
  };
  await writeJobConfig(job);
  const trials = tasks.flatMap((task) => Array.from({ length: flags.nAttempts }, () => task));
  reporter.begin(trials.length, outputDir);
  let finished = 0;
  let good = 0;
  let next = 0;
  const runSome = async (): Promise<void> => {
    for (let task = trials[next++]; task !== undefined && !interrupts.signal.aborted; task = trials[next++]) {
      const result = await runTrial(task, {
        ...trialOptions(flags),
        driver,
        agent,
        outputDir,
        signal: interrupts.signal,
        onEvent: (event) => reporter.event(event),
      });
      finished++;
      if (result.rewards !== null && result.leftovers.length === 0) good++;
      reporter.result(result);
    }
  };
  const workers = await Promise.allSettled(Array.from({ length: Math.min(flags.nConcurrent, trials.length) }, runSome));
  await writeJobResult(job, trials.length - finished);
  reporter.end();

  const broken = workers.find((worker) => worker.status === "rejected");
  if (broken !== undefined) throw broken.reason;
  return interrupts.exitCode ?? (good === trials.length ? EXIT_OK : EXIT_NO_REWARD);
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

/** In local time, as Harbor names its jobs: `2026-11-30__09-15-00`. */
function timestamp(date: Date): string {
  const two = (value: number): string => String(value).padStart(2, "0");
  const day = [date.getFullYear(), two(date.getMonth() + 1), two(date.getDate())].join("-");
  return `${day}__${[date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join("-")}`;
}
