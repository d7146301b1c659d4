import { readFileSync } from "node:fs";
import { Command } from "commander";

import { checkCommand } from "./commands/check.ts";
import { doctorCommand } from "./commands/doctor.ts";
import { initCommand } from "./commands/init.ts";
import { regradeCommand } from "./commands/regrade.ts";
import { runCommand } from "./commands/run.ts";
import { sweepCommand } from "./commands/sweep.ts";
import { viewCommand } from "./commands/view.ts";

/** Commands hand their exit code to `exit`; they throw `UsageError` for a caller's mistake. */
export type Exit = (code: number) => void;

export function makeProgram(exit: Exit): Command {
  const { version } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")) as {
    version: string;
  };
  const program = new Command("breakwater")
    .description("Runs agent tasks in Harbor's format and grades them in a box of their own.")
    .version(version)
    .showHelpAfterError("(breakwater --help lists the options)")
    .exitOverride()
    .addHelpText("after", "\nExample:\n  breakwater run -p ./tasks -a oracle --runtime docker\n");
  for (const make of [runCommand, regradeCommand, viewCommand, checkCommand, initCommand, sweepCommand, doctorCommand])
    program.addCommand(make(exit).copyInheritedSettings(program));
  return program;
}
