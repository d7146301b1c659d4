#!/usr/bin/env node
import { isTasksetError } from "@breakwater/harbor-taskset";
import { CommanderError } from "commander";

import { EXIT_NO_REWARD, EXIT_OK, EXIT_USAGE, UsageError } from "./exit-codes.ts";
import { makeProgram } from "./program.ts";

process.exitCode = await main(process.argv);

async function main(argv: readonly string[]): Promise<number> {
  let exitCode = EXIT_OK;
  const program = makeProgram((code) => {
    exitCode = code;
  });
  try {
    await program.parseAsync(argv);
    return exitCode;
  } catch (error) {
    // Commander has printed its own message; help and version end with 0.
    if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT_OK : EXIT_USAGE;
    if (error instanceof UsageError || isTasksetError(error)) {
      process.stderr.write(`breakwater: ${error.message}\n`);
      return EXIT_USAGE;
    }
    process.stderr.write(`breakwater: ${describe(error)}\n`);
    return EXIT_NO_REWARD;
  }
}

/** An error that has a code was thrown on purpose: its message is enough. */
function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return "code" in error && typeof error.code === "string"
    ? `${error.message} (${error.code})`
    : (error.stack ?? error.message);
}
