import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { loadTasks, type LoadedTasks, type TrialOptions } from "@breakwater/harbor-taskset";
import { Option, type Command } from "commander";

import { UsageError } from "./exit-codes.ts";
import { allowlistEntry, assignment, collect, positiveNumber, wholeNumber } from "./shared-options.ts";

/** The flags that `run` and `check` share; Harbor's names where it has one. */
export interface TrialFlags {
  readonly path: string;
  readonly extraInstructionPath?: readonly string[];
  readonly extraInstruction?: readonly string[];
  readonly agent?: string;
  readonly agentCommand?: string;
  readonly runtime: string;
  readonly timeoutMultiplier?: number;
  readonly agentTimeoutMultiplier?: number;
  readonly verifierTimeoutMultiplier?: number;
  readonly artifact?: readonly string[];
  readonly ae?: readonly (readonly [string, string])[];
  readonly ve?: readonly (readonly [string, string])[];
  readonly allowAgentHost?: readonly string[];
  readonly allowEnvironmentHost?: readonly string[];
  readonly allowVerifierHost?: readonly string[];
  readonly overrideCpus?: number;
  readonly overrideMemoryMb?: number;
  readonly overrideStorageMb?: number;
  readonly ignoreSeparateVerifier?: boolean;
  readonly ignoreDockerfile?: boolean;
  readonly ignoreTimeouts?: boolean;
  readonly strictArtifacts?: boolean;
  readonly allowLiveAgentBox?: boolean;
}

export function addTrialFlags(command: Command): Command {
  return command
    .requiredOption("-p, --path <folder>", "a task, or a folder of tasks")
    .option(
      "-a, --agent <agent>",
      'oracle (the task\'s own solution), nop, or the path of a module with a default export (default: "oracle")',
    )
    .option(
      "--agent-command <command>",
      "a shell command in the box as the agent; BREAKWATER_INSTRUCTION has the instruction",
    )
    .option(
      "--extra-instruction-path <file>",
      "a text for the agent, after the instruction; may be repeated",
      collect(String),
    )
    .option(
      "--extra-instruction <text>",
      "the same, given here; after those of files; may be repeated",
      collect(String),
    )
    .option("--timeout-multiplier <number>", "multiplies the agent's and the verifier's timeout", positiveNumber)
    .option("--agent-timeout-multiplier <number>", "instead of --timeout-multiplier, for the agent", positiveNumber)
    .option(
      "--verifier-timeout-multiplier <number>",
      "instead of --timeout-multiplier, for the verifier",
      positiveNumber,
    )
    .option("--artifact <path>", "a further artifact; may be repeated", collect(String))
    .option("--ae <name=value>", "environment of the agent; may be repeated", collect(assignment))
    .option("--ve <name=value>", "environment of the verifier; may be repeated", collect(assignment))
    .option(
      "--allow-agent-host <host>",
      "a host that the agent may reach where its network is restricted, for instance its model's; may be repeated",
      collect(allowlistEntry),
    )
    .option(
      "--allow-environment-host <host>",
      "the same for every box that [environment] describes; may be repeated",
      collect(allowlistEntry),
    )
    .option("--allow-verifier-host <host>", "the same for the verifier; may be repeated", collect(allowlistEntry))
    .option("--override-cpus <number>", "cores of every box, instead of the task's", positiveNumber)
    .option("--override-memory-mb <number>", "memory of every box in MiB, instead of the task's", wholeNumber(1))
    .option("--override-storage-mb <number>", "disk of every box in MiB, instead of the task's", wholeNumber(1))
    .addOption(
      new Option("--ignore-separate-verifier", "grade in the agent's box although the task asks for one of its own"),
    )
    .addOption(
      new Option("--ignore-dockerfile", "grade in a fresh copy of the agent's image instead of building tests/"),
    )
    .addOption(new Option("--ignore-timeouts", "leave out the timeouts of the agent and the verifier"))
    .addOption(new Option("--strict-artifacts", "no rewards where an artifact had to be left out"))
    .addOption(
      new Option(
        "--allow-live-agent-box",
        "where boxes cannot be frozen: let the agent's run while a step that is not the last is graded in a box of its own",
      ),
    );
}

/** The tasks of `--path`, with the caller's texts after their instructions. */
export async function loadTasksOf(flags: TrialFlags, workingDirectory: string): Promise<LoadedTasks> {
  const fromFiles: string[] = [];
  for (const path of flags.extraInstructionPath ?? []) {
    const file = resolve(workingDirectory, path);
    try {
      fromFiles.push(await readFile(file, "utf8"));
    } catch (cause) {
      throw new UsageError(`--extra-instruction-path ${path}: ${file} cannot be read`, { cause });
    }
  }
  const extraInstructions = [...fromFiles, ...(flags.extraInstruction ?? [])];
  return await loadTasks(resolve(workingDirectory, flags.path), { extraInstructions });
}

export function trialOptions(flags: TrialFlags): TrialOptions {
  return {
    timeoutMultiplier: flags.timeoutMultiplier,
    agentTimeoutMultiplier: flags.agentTimeoutMultiplier,
    verifierTimeoutMultiplier: flags.verifierTimeoutMultiplier,
    artifacts: flags.artifact,
    agentEnv: flags.ae === undefined ? undefined : Object.fromEntries(flags.ae),
    verifierEnv: flags.ve === undefined ? undefined : Object.fromEntries(flags.ve),
    allowAgentHosts: flags.allowAgentHost,
    allowEnvironmentHosts: flags.allowEnvironmentHost,
    allowVerifierHosts: flags.allowVerifierHost,
    overrideCpus: flags.overrideCpus,
    overrideMemoryMb: flags.overrideMemoryMb,
    overrideStorageMb: flags.overrideStorageMb,
    ignoreSeparateVerifier: flags.ignoreSeparateVerifier,
    ignoreDockerfile: flags.ignoreDockerfile,
    ignoreTimeouts: flags.ignoreTimeouts,
    strictArtifacts: flags.strictArtifacts,
    allowLiveAgentBox: flags.allowLiveAgentBox,
  };
}

/** Whether the agent is the task's own solution, so that a task without one is refused before anything starts. */
export function isOracle(flags: TrialFlags): boolean {
  return flags.agentCommand === undefined && (flags.agent ?? "oracle") === "oracle";
}
