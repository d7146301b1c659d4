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
  /** Only files whose path has one of these in it. */
  readonly files?: readonly string[];
  /** Only tests whose name matches this expression. The others do not count as skipped. */
  readonly testName?: string;
  readonly args?: readonly string[];
  /** A program that runs vitest, given as its arguments. */
  readonly through?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly timeoutMs: number;
}

/** Runs one vitest project with its usual output, and counts. */
export async function runTests(options: TestRunOptions): Promise<TestRun> {
  const folder = await mkdtemp(join(tmpdir(), "breakwater-test-"));
  try {
    const report = join(folder, "report.json");
    const reporters = [`--reporter=${options.reporter}`, "--reporter=json", `--outputFile.json=${report}`];
    const selected = options.testName === undefined ? [] : ["--testNamePattern", options.testName];
    const none = options.project === "long" ? ["--passWithNoTests"] : [];
    const [program, ...before] = [...(options.through ?? []), "vitest"];
    const result = await command(
      [
        program ?? "vitest",
        ...before,
        "run",
        "--project",
        options.project,
        ...reporters,
        ...none,
        ...selected,
        ...(options.files ?? []),
        ...(options.args ?? []),
      ],
      {
        output: "show",
        timeoutMs: options.timeoutMs,
        ...(options.env !== undefined && { env: options.env }),
      },
    );
    const counts = await readCounts(report, options.testName !== undefined || (options.args ?? []).length > 0);
    // A file that cannot be loaded, an unhandled rejection or a dead runner is a failure that no test stands for.
    const unnamed = result.exitCode !== 0 && counts.failed === 0 ? 1 : 0;
    return { ...counts, failed: counts.failed + unnamed, exitCode: result.exitCode, durationMs: result.durationMs };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** What we read of vitest's JSON report. */
interface Report {
  readonly testResults: readonly { readonly assertionResults: readonly ReportedTest[] }[];
}

interface ReportedTest {
  readonly status: "passed" | "failed" | "skipped" | "pending" | "todo" | "disabled";
  readonly meta?: { readonly conformance?: { readonly outcome: string } };
}

async function readCounts(report: string, isSelection: boolean): Promise<TestCounts> {
  let text: string;
  try {
    text = await readFile(report, "utf8");
  } catch {
    return { passed: 0, failed: 0, skipped: 0 };
  }
  return countTests(JSON.parse(text) as Report, isSelection);
}

export function countTests(report: Report, isSelection: boolean): TestCounts {
  const tests = report.testResults.flatMap((file) => file.assertionResults);
  const passed = tests.filter(({ status }) => status === "passed").length;
  const failed = tests.filter(({ status }) => status === "failed").length;
  // In a selection, vitest calls everything else skipped too; a case of the conformance suite says which it was.
  const wasSkipped = ({ meta }: ReportedTest): boolean =>
    !isSelection || (meta?.conformance !== undefined && meta.conformance.outcome !== "pending");
  const skipped = tests.filter(
    (test) => test.status !== "passed" && test.status !== "failed" && wasSkipped(test),
  ).length;
  return { passed, failed, skipped };
}
