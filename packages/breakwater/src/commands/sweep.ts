import { Command } from "commander";

import { EXIT_NO_REWARD, EXIT_OK } from "../exit-codes.ts";
import { loadDriver } from "../load-driver.ts";
import { runtimeOption, workingDirectory } from "../shared-options.ts";
import type { Exit } from "../program.ts";

/** Removes what dead or expired runs left; a live run's boxes and foreign objects are never touched. */
export function sweepCommand(exit: Exit): Command {
  return new Command("sweep")
    .description(
      "Remove what runs that were killed left behind. Boxes of live runs and foreign objects are not touched.",
    )
    .addOption(runtimeOption())
    .option("--dry-run", "only say what would be removed", false)
    .option("--json", "print the report as JSON", false)
    .addHelpText("after", "\nExample:\n  breakwater sweep --runtime docker --dry-run\n")
    .action(async (options: { runtime: string; dryRun: boolean; json: boolean }) => {
      await using driver = await loadDriver(options.runtime, workingDirectory());
      const report = await driver.sweep({ dryRun: options.dryRun });
      if (options.json) {
        process.stdout.write(`${JSON.stringify(report)}\n`);
      } else {
        const verb = options.dryRun ? "would remove" : "removed";
        for (const object of report.removed)
          process.stdout.write(`${verb} ${object.kind} ${object.id} (trial ${object.trial ?? "unknown"})\n`);
        for (const object of report.failed)
          process.stdout.write(`FAILED to remove ${object.kind} ${object.id}: ${object.reason}\n`);
        process.stdout.write(
          `${verb} ${report.removed.length}, left alone ${report.kept.length} of live runs, failed ${report.failed.length}\n`,
        );
      }
      exit(report.failed.length === 0 ? EXIT_OK : EXIT_NO_REWARD);
    });
}
