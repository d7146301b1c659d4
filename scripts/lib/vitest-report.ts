/** What the reporter writes and `runTests` reads: lines of JSON, each one of these. */
export type ReportLine = ReportedTest | Failure;

/** Names the file that the reporter writes. */
export const REPORT_VARIABLE = "BREAKWATER_TEST_REPORT";

export interface ReportedTest {
  readonly state: "passed" | "failed" | "skipped";
  /** Of a case of the conformance suite. */
  readonly outcome?: string;
}

/** A test that failed, or whatever else made a run fail: a file that cannot be loaded, a hook, an error outside of any test. */
export interface Failure {
  /** The file, and the titles that lead to the test. */
  readonly name: string;
  readonly error: string;
}

export interface TestCounts {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

const MAX_FAILURES = 30;
const MAX_LINES = 12;
const MAX_CHARACTERS = 1_500;

/** The lines of a report. The last one may be half of one: its writer may have been killed. */
export function parseReport(text: string): readonly ReportLine[] {
  return text
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line) as ReportLine);
}

/** How many tests did what. Whatever else failed counts like a test. */
export function countTests(lines: readonly ReportLine[], isSelection: boolean): TestCounts {
  const tests = lines.filter((line) => "state" in line);
  // In a selection, vitest calls everything else skipped too; a case of the conformance suite says which it was.
  const wasSkipped = ({ outcome }: ReportedTest): boolean =>
    !isSelection || (outcome !== undefined && outcome !== "pending");
  return {
    passed: tests.filter(({ state }) => state === "passed").length,
    failed: failuresOf(lines).length,
    skipped: tests.filter((test) => test.state === "skipped" && wasSkipped(test)).length,
  };
}

/** Every failed test has one, and so has what failed outside of tests. */
export function failuresOf(lines: readonly ReportLine[]): readonly Failure[] {
  return lines.filter((line) => "error" in line);
}

/** The end of a log is what people see of it: each failure once more, short. */
export function describeFailures(
  parts: readonly { readonly name: string; readonly failures: readonly Failure[] }[],
): string {
  const all = parts.flatMap(({ name, failures }) => failures.map((failure) => ({ part: name, ...failure })));
  const blocks = all.slice(0, MAX_FAILURES).map(({ part, name, error }) => {
    const lines = error.slice(0, MAX_CHARACTERS).split("\n");
    const cut = lines.length > MAX_LINES || error.length > MAX_CHARACTERS;
    return [`FAILED ${part}: ${name}`, ...lines.slice(0, MAX_LINES), ...(cut ? ["[...]"] : [])].join("\n    ");
  });
  if (all.length > MAX_FAILURES) blocks.push(`and ${all.length - MAX_FAILURES} more failures`);
  return blocks.join("\n\n");
}
