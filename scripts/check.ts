// npm run check: everything that can be said about the repository without running its tests. Two parts at a time.

import { inspect } from "node:util";
import { buildPackages, lintPublishedPackages } from "./lib/published-packages.ts";
import { compareBoxHelper } from "./lib/box-helper.ts";
import { checkChangesets } from "./lib/changesets.ts";
import { command, seconds } from "./lib/command.ts";
import { checkDocumentedCode } from "./lib/documented-code.ts";
import type { CheckResult } from "./lib/check-result.ts";

const LANES = 2;
const PART_TIMEOUT_MS = 5 * 60_000;

interface Part {
  readonly name: string;
  run(): Promise<CheckResult>;
}

/** Set by the first part, awaited by a later one. */
let built: Promise<CheckResult> | undefined;

const parts: readonly Part[] = [
  { name: "build", run: () => (built = buildPackages()) },
  { name: "types", run: tool("tsc", "--noEmit") },
  { name: "types of the report's page", run: tool("tsc", "-p", "packages/breakwater/page") },
  { name: "types of its tests in a browser", run: tool("tsc", "-p", "packages/breakwater/test") },
  // The declarations of the AI SDK are not made for the options that the project has.
  { name: "types of example agents", run: tool("tsc", "-p", "examples/agents") },
  { name: "lint", run: tool("oxlint") },
  { name: "format", run: tool("oxfmt", "--check") },
  { name: "unused code (knip)", run: tool("knip", "--no-progress", "--no-config-hints") },
  { name: "packages", run: tool(process.execPath, "scripts/check-packages.ts") },
  { name: "documented code", run: checkDocumentedCode },
  { name: "changesets", run: checkChangesets },
  { name: "box-helper binaries", run: compareBoxHelper },
  { name: "publint", run: async () => await lintPublishedPackages(built) },
];

const started = performance.now();
const results = new Map<Part, CheckResult & { readonly durationMs: number }>();
const waiting = [...parts];
await Promise.all(Array.from({ length: LANES }, runLane));

for (const [part, result] of results) {
  if (result.outcome === "failed") process.stdout.write(`\n--- ${part.name}\n${result.output.trim()}\n`);
}
const width = Math.max(...parts.map((part) => part.name.length));
const lines = parts.map((part) => {
  const result = results.get(part);
  if (result === undefined) throw new Error(`${part.name} has no result`);
  const outcome = result.outcome === "not run" ? `not run: ${result.reason}` : result.outcome;
  return `${part.name.padEnd(width)}  ${seconds(result.durationMs).padStart(7)}  ${outcome}`;
});
const failed = [...results.values()].filter((result) => result.outcome === "failed").length;
process.stdout.write(`\n${lines.join("\n")}\n\n`);
process.stdout.write(
  `check: ${failed === 0 ? "passed" : `${failed} of ${parts.length} parts failed`} in ${seconds(performance.now() - started)}\n`,
);
process.exitCode = failed === 0 ? 0 : 1;

async function runLane(): Promise<void> {
  for (let part = waiting.shift(); part !== undefined; part = waiting.shift()) {
    const partStarted = performance.now();
    const result = await part
      .run()
      .catch((error: unknown): CheckResult => ({ outcome: "failed", output: inspect(error) }));
    results.set(part, { ...result, durationMs: performance.now() - partStarted });
  }
}

function tool(...argv: [string, ...string[]]): () => Promise<CheckResult> {
  return async () => {
    const result = await command(argv, { output: "capture", timeoutMs: PART_TIMEOUT_MS });
    const output = `${result.stdout}\n${result.stderr}`;
    if (result.timedOut)
      return { outcome: "failed", output: `${output}\nnot finished within ${seconds(PART_TIMEOUT_MS)}` };
    return result.exitCode === 0 ? { outcome: "passed" } : { outcome: "failed", output };
  };
}
