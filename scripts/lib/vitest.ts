import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { command, root } from "./command.ts";
import {
  countTests,
  type Failure,
  failuresOf,
  parseReport,
  REPORT_VARIABLE,
  type TestCounts,
} from "./vitest-report.ts";

export interface TestRun extends TestCounts {
  readonly exitCode: number;
  readonly durationMs: number;
  readonly failures: readonly Failure[];
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
    const report = join(folder, "report.jsonl");
    const reporters = [`--reporter=${options.reporter}`, `--reporter=${join(root, "scripts/lib/vitest-reporter.ts")}`];
    const selected = options.testName === undefined ? [] : ["--testNamePattern", options.testName];
    const none = options.project === "long" ? ["--passWithNoTests"] : [];
    const [program, ...before] = [...(options.through ?? []), "vitest"];
    const { exitCode, timedOut, durationMs } = await command(
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
      { output: "show", timeoutMs: options.timeoutMs, env: { ...options.env, [REPORT_VARIABLE]: report } },
    );
    const text = await readFile(report, "utf8").catch(() => "");
    const isSelection = options.testName !== undefined || (options.args ?? []).length > 0;
    return { ...readRun(text, { exitCode, timedOut, isSelection }), exitCode, durationMs };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

interface EndOfRun {
  readonly exitCode: number;
  readonly timedOut: boolean;
  readonly isSelection: boolean;
}

/** A run that ended badly has a failure, whatever its report says. */
export function readRun(
  report: string,
  { exitCode, timedOut, isSelection }: EndOfRun,
): TestCounts & { readonly failures: readonly Failure[] } {
  const lines = [...parseReport(report)];
  const why = timedOut ? "the run took too long and was ended" : `vitest ended with ${exitCode}`;
  if (timedOut || (exitCode !== 0 && failuresOf(lines).length === 0)) lines.push({ name: "the whole run", error: why });
  return { ...countTests(lines, isSelection), failures: failuresOf(lines) };
}
