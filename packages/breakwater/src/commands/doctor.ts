import { Command } from "commander";

import { EXIT_NO_REWARD, EXIT_OK } from "../exit-codes.ts";
import { loadDriver } from "../load-driver.ts";
import { runtimeOption, workingDirectory } from "../shared-options.ts";
import type { Exit } from "../program.ts";

/** Says line by line what the backend can do here and what to do about what it cannot. */
export function doctorCommand(exit: Exit): Command {
  return new Command("doctor")
    .description("Check that a backend can keep the contract here, and say what to do where it cannot.")
    .addOption(runtimeOption())
    .option("--json", "print one JSON line per check", false)
    .addHelpText("after", "\nExample:\n  breakwater doctor --runtime docker\n")
    .action(async (options: { runtime: string; json: boolean }) => {
      await using driver = await loadDriver(options.runtime, workingDirectory());
      let failed = false;
      for await (const line of driver.doctor()) {
        failed ||= line.status === "failed";
        if (options.json) process.stdout.write(`${JSON.stringify(line)}\n`);
        else
          process.stdout.write(
            `${line.status.padEnd(7)}  ${line.what}${line.advice === undefined ? "" : `\n         -> ${line.advice}`}\n`,
          );
      }
      exit(failed ? EXIT_NO_REWARD : EXIT_OK);
    });
}
