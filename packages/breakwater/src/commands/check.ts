import {
  describePlan,
  formatProblem,
  isTasksetError,
  planTrial,
  type Task,
  type TasksetProblem,
} from "@breakwater/harbor-taskset";
import type { RuntimeCapabilities } from "@breakwater/runtime-api";
import { Command } from "commander";

import { EXIT_OK, EXIT_USAGE } from "../exit-codes.ts";
import { loadDriver } from "../load-driver.ts";
import type { Exit } from "../program.ts";
import { runtimeOption, workingDirectory } from "../shared-options.ts";
import { addTrialFlags, isOracle, loadTasksOf, trialOptions, type TrialFlags } from "../trial-flags.ts";

interface Answer {
  readonly task: string;
  readonly ok: boolean;
  readonly problems: readonly TasksetProblem[];
  readonly warnings: readonly TasksetProblem[];
  readonly decisions: readonly string[];
}

export function checkCommand(exit: Exit): Command {
  return addTrialFlags(new Command("check"))
    .description("Load and plan tasks without starting anything: print every decision, or every problem.")
    .addOption(runtimeOption())
    .option("--json", "print one JSON line per task", false)
    .addHelpText("after", "\nExample:\n  breakwater check -p ./tasks/hello --runtime docker\n")
    .action(async (flags: TrialFlags & { readonly json: boolean }) => {
      const { tasks, invalid } = await loadTasksOf(flags, workingDirectory());
      const print = flags.json ? printJson : printText;
      for (const { directory, problems } of invalid) {
        print({ task: directory, ok: false, problems, warnings: [], decisions: [] });
      }
      let sound = invalid.length === 0;
      if (tasks.length > 0) {
        await using driver = await loadDriver(flags.runtime, workingDirectory());
        const capabilities = await driver.probe();
        for (const task of tasks) {
          const answer = plan(task, capabilities, flags);
          sound &&= answer.ok;
          print(answer);
        }
      }
      exit(sound ? EXIT_OK : EXIT_USAGE);
    });
}

function plan(task: Task, capabilities: RuntimeCapabilities, flags: TrialFlags): Answer {
  try {
    const trial = planTrial(task, capabilities, { ...trialOptions(flags), oracle: isOracle(flags) });
    return { task: task.name, ok: true, problems: [], warnings: trial.warnings, decisions: describePlan(trial) };
  } catch (error) {
    if (!isTasksetError(error)) throw error;
    return { task: task.name, ok: false, problems: error.problems, warnings: task.warnings, decisions: [] };
  }
}

function printJson(answer: Answer): void {
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}

function printText({ task, ok, problems, warnings, decisions }: Answer): void {
  const lines = [
    `${task}: ${ok ? "ok" : "cannot be run"}`,
    ...problems.map((problem) => `  problem  ${formatProblem(problem)}`),
    ...warnings.map((warning) => `  warning  ${formatProblem(warning)}`),
    ...decisions.map((sentence) => `  ${sentence}`),
  ];
  process.stdout.write(`${lines.join("\n")}\n`);
}
