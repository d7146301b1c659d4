import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { command } from "./command.ts";

export interface TestCounts {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

export interface TestRun extends TestCounts {
  readonly exitCode: number;
  readonly durationMs: number;
}

export interface TestRunOptions {
  readonly project: "unit" | "live" | "long";
  /** `verbose` has a line per test: what a driver was seen to do is read from it. */
  readonly reporter: "default" | "verbose";
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly timeoutMs: number;
}

/** Runs one vitest project with its usual output, and counts. */
export async function runTests(options: TestRunOptions): Promise<TestRun> {
  const folder = await mkdtemp(join(tmpdir(), "breakwater-test-"));
  try {
    const report = join(folder, "report.json");
    const reporters = [`--reporter=${options.reporter}`, "--reporter=json", `--outputFile.json=${report}`];
    const none = options.project === "long" ? ["--passWithNoTests"] : [];
    const result = await command(
      ["vitest", "run", "--project", options.project, ...reporters, ...none, ...(options.args ?? [])],
      {
        output: "show",
        timeoutMs: options.timeoutMs,
        ...(options.env !== undefined && { env: options.env }),
      },
    );
    const counts = await readCounts(report);
    // A file that cannot be loaded, an unhandled rejection or a dead runner is a failure that no test stands for.
    const unnamed = result.exitCode !== 0 && counts.failed === 0 ? 1 : 0;
    return { ...counts, failed: counts.failed + unnamed, exitCode: result.exitCode, durationMs: result.durationMs };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function readCounts(report: string): Promise<TestCounts> {
  let text: string;
  try {
    text = await readFile(report, "utf8");
  } catch {
    return { passed: 0, failed: 0, skipped: 0 };
  }
  const json = JSON.parse(text) as Readonly<Record<string, unknown>>;
  const count = (key: string): number => (typeof json[key] === "number" ? json[key] : 0);
  return {
    passed: count("numPassedTests"),
    failed: count("numFailedTests"),
    skipped: count("numPendingTests") + count("numTodoTests"),
  };
}
