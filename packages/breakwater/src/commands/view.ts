import { stat } from "node:fs/promises";
import { relative, resolve } from "node:path";
import { Command } from "commander";

import { EXIT_OK, UsageError } from "../exit-codes.ts";
import type { Exit } from "../program.ts";
import { openFile } from "../report/open-file.ts";
import { serveReport } from "../report/serve-report.ts";
import { writeReport, type WrittenReport } from "../report/write-report.ts";
import { wholeNumber, workingDirectory } from "../shared-options.ts";

interface ViewFlags {
  readonly serve?: number | true;
  readonly open: boolean;
  readonly json: boolean;
}

/** Writes down what came of a job, for people and for continuous integration, and shows it. */
export function viewCommand(exit: Exit): Command {
  return new Command("view")
    .description(
      "Write report.html (one file, no network needed), summary.md and junit.xml into a job's folder, and open the report.",
    )
    .argument("<job>", "the job's folder")
    .option("--serve [port]", "serve the report on 127.0.0.1, written anew at each visit, until Ctrl-C", wholeNumber(1))
    .option("--no-open", "only write the files")
    .option("--json", "print their paths and the totals as JSON; opens nothing", false)
    .addHelpText(
      "after",
      `
Examples:
  breakwater view jobs/2026-11-30__09-15-00
  breakwater view jobs/nightly --serve 8080
`,
    )
    .action(async (folder: string, flags: ViewFlags) => {
      const directory = resolve(workingDirectory(), folder);
      const report = await write(directory, folder);
      if (flags.json) {
        process.stdout.write(`${JSON.stringify(report)}\n`);
      } else {
        const { totals } = report;
        const shown = [report.html, report.summary, report.junit].map((file) => relative(workingDirectory(), file));
        process.stdout.write(
          `${totals.trials} trials, ${totals.outcomes.passed} passed, ${totals.outcomes["no-reward"]} without a reward\n${shown.join("\n")}\n`,
        );
      }
      if (flags.serve !== undefined) await serveReport(directory, flags.serve === true ? 0 : flags.serve);
      else if (flags.open && !flags.json) await openFile(report.html);
      exit(EXIT_OK);
    });
}

async function write(directory: string, folder: string): Promise<WrittenReport> {
  const found = await stat(directory).catch(() => null);
  if (found?.isDirectory() !== true) throw new UsageError(`${folder}: there is no such folder; name that of a job`);
  try {
    return await writeReport(directory);
  } catch (error) {
    if (error instanceof RangeError) throw new UsageError(`${folder}: no trial is in it; name the folder of a job`);
    throw error;
  }
}
