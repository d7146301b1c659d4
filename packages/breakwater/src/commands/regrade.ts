import { join, resolve } from "node:path";
import { isRegradeError, loadTasks, regradeJob, type RegradeOutcome } from "@breakwater/harbor-taskset";
import { Command } from "commander";

import { EXIT_NO_REWARD, EXIT_OK, UsageError } from "../exit-codes.ts";
import { Interrupts } from "../interrupts.ts";
import { loadDriver } from "../load-driver.ts";
import { newFolder } from "./run.ts";
import type { Exit } from "../program.ts";
import {
  allowlistEntry,
  assignment,
  collect,
  positiveNumber,
  runtimeOption,
  wholeNumber,
  workingDirectory,
} from "../shared-options.ts";

interface RegradeFlags {
  readonly path: string;
  readonly runtime: string;
  readonly nConcurrent: number;
  readonly jobsDir: string;
  readonly jobName?: string;
  readonly unchanged: boolean;
  readonly verifierTimeoutMultiplier?: number;
  readonly ve?: readonly (readonly [string, string])[];
  readonly allowVerifierHost?: readonly string[];
  readonly ignoreDockerfile?: boolean;
  readonly json: boolean;
}

export function regradeCommand(exit: Exit): Command {
  return new Command("regrade")
    .argument("<trial or job>", "the folder of a finished trial or of a job, ours or Harbor's; it is only read")
    .description(
      "Grade stored trials again, without their agents: the artifacts that were collected, with the tests as they are now. Exit code 0: every trial has rewards; 1: some has none or was refused; 2: nothing was started.",
    )
    .requiredOption(
      "-p, --path <folder>",
      "the task, or a folder of tasks; each trial is graded with the task of its name",
    )
    .addOption(runtimeOption())
    .option("-n, --n-concurrent <number>", "trials at the same time", wholeNumber(1), 4)
    .option("-o, --jobs-dir <folder>", "where the new job's folder is made", "jobs")
    .option("--job-name <name>", "the new job's folder (default: the time of its start)")
    .option("--unchanged", "of a job, grade also the trials whose task has not changed since", false)
    .option("--verifier-timeout-multiplier <number>", "multiplies the verifier's timeout", positiveNumber)
    .option("--ve <name=value>", "environment of the verifier; may be repeated", collect(assignment))
    .option(
      "--allow-verifier-host <host>",
      "a host that the verifier may reach; may be repeated",
      collect(allowlistEntry),
    )
    .option("--ignore-dockerfile", "grade in a fresh copy of the agent's image instead of building tests/")
    .option("--json", "print one JSON line per trial", false)
    .addHelpText("after", "\nExample:\n  breakwater regrade jobs/2026-11-30__09-15-00 -p ./tasks\n")
    .action(async (source: string, flags: RegradeFlags) => {
      exit(await regrade(source, flags));
    });
}

async function regrade(source: string, flags: RegradeFlags): Promise<number> {
  const here = workingDirectory();
  using interrupts = new Interrupts((line) => process.stderr.write(`${line}\n`));
  const { tasks, invalid } = await loadTasks(resolve(here, flags.path));
  if (tasks.length === 0)
    throw new UsageError(`nothing was started\n${invalid.map(({ message }) => message).join("\n")}`);
  for (const { message } of invalid) process.stderr.write(`left out: ${message}\n`);
  await using driver = await loadDriver(flags.runtime, here);

  const jobsDirectory = resolve(here, flags.jobsDir);
  const print = flags.json ? printJson : printText;
  try {
    const outcomes = await regradeJob(resolve(here, source), tasks, {
      driver,
      outputDir: flags.jobName === undefined ? await newFolder(jobsDirectory) : join(jobsDirectory, flags.jobName),
      concurrentTrials: flags.nConcurrent,
      unchanged: flags.unchanged,
      verifierTimeoutMultiplier: flags.verifierTimeoutMultiplier,
      verifierEnv: flags.ve === undefined ? undefined : Object.fromEntries(flags.ve),
      allowVerifierHosts: flags.allowVerifierHost,
      ignoreDockerfile: flags.ignoreDockerfile,
      signal: interrupts.signal,
      onOutcome: print,
    });
    if (!flags.json) process.stdout.write(`${countsOf(outcomes)}\n`);
    return interrupts.exitCode ?? (outcomes.every(isGood) ? EXIT_OK : EXIT_NO_REWARD);
  } catch (error) {
    if (isRegradeError(error) || error instanceof TypeError) throw new UsageError(error.message, { cause: error });
    throw error;
  }
}

function isGood(one: RegradeOutcome): boolean {
  if (one.outcome === "regraded") return one.result.rewards !== null && one.result.leftovers.length === 0;
  return one.outcome === "reused";
}

function printJson(one: RegradeOutcome): void {
  const { trial, task, outcome, before } = one;
  const more =
    one.outcome === "regraded"
      ? { rewards: one.result.rewards, error: one.result.error?.code ?? null, dir: one.result.dir }
      : one.outcome === "reused"
        ? { rewards: before, dir: one.dir }
        : { rewards: null, error: one.code, reason: one.reason };
  process.stdout.write(`${JSON.stringify({ trial, task, outcome, before, ...more })}\n`);
}

function printText(one: RegradeOutcome): void {
  const before = show(one.before);
  const what =
    one.outcome === "regraded"
      ? `regraded  ${before} -> ${one.result.error === null ? show(one.result.rewards) : one.result.error.message}`
      : one.outcome === "reused"
        ? `reused    ${before} (its task has not changed)`
        : `refused   ${one.reason} (${one.code})`;
  process.stdout.write(`${one.trial}  ${what}\n`);
}

function show(rewards: Readonly<Record<string, number>> | null): string {
  return rewards === null ? "no rewards" : JSON.stringify(rewards);
}

function countsOf(outcomes: readonly RegradeOutcome[]): string {
  const count = (outcome: RegradeOutcome["outcome"]): number =>
    outcomes.filter((one) => one.outcome === outcome).length;
  return `${count("regraded")} regraded, ${count("reused")} reused, ${count("refused")} refused`;
}
