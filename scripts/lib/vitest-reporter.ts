import { appendFileSync } from "node:fs";
import { stripVTControlCharacters } from "node:util";
import type { TestError } from "vitest";
import type { Reporter, TestCase, TestModule, TestSuite } from "vitest/node";
import { root } from "./command.ts";
import { type Failure, REPORT_VARIABLE, type ReportedTest } from "./vitest-report.ts";

/**
 * Writes what became of every test into the file that `REPORT_VARIABLE` names, one JSON value a line, at once: a run that is cut
 * short still tells what it saw. Vitest's own JSON report knows neither errors outside of tests nor failed hooks.
 */
export default class LineReporter implements Reporter {
  onTestCaseResult(test: TestCase): void {
    const { state, errors = [] } = test.result();
    if (state === "pending") return;
    const outcome = test.meta().conformance?.outcome;
    write({ state, ...(outcome !== undefined && { outcome }) });
    if (state === "failed") write(failure(test.module, ` > ${test.fullName}`, errors));
  }

  onTestSuiteResult(suite: TestSuite): void {
    if (suite.errors().length > 0) write(failure(suite.module, ` > ${suite.fullName}`, suite.errors()));
  }

  onTestModuleEnd(module: TestModule): void {
    if (module.errors().length > 0) write(failure(module, "", module.errors()));
  }

  onTestRunEnd(modules: readonly TestModule[], unhandled: readonly unknown[]): void {
    for (const error of unhandled as readonly TestError[])
      write({ name: "outside of any test", error: describe(error) });
    // A file whose worker died, or that had no time to begin.
    for (const module of modules) {
      if (module.state() === "pending" || module.state() === "queued")
        write({ name: module.relativeModuleId, error: "the file was not run to its end" });
    }
  }
}

function failure(module: TestModule, name: string, errors: readonly TestError[]): Failure {
  return { name: `${module.relativeModuleId}${name}`, error: errors.map(describe).join("\n") };
}

function write(line: ReportedTest | Failure): void {
  const file = process.env[REPORT_VARIABLE];
  if (file === undefined) throw new TypeError(`${REPORT_VARIABLE} is not set`);
  appendFileSync(file, `${JSON.stringify(line)}\n`);
}

/** What was said first, where in this repository, why, and the rest. */
function describe(error: TestError): string {
  const [first = "", ...rest] = stripVTControlCharacters(error.message ?? "").split("\n");
  const frame = error.stack?.split("\n").find((line) => line.includes(root) && !line.includes("node_modules"));
  const lines = [
    `${error.name ?? "error"}: ${first}`,
    ...(frame === undefined ? [] : [`  ${frame.trim().replace(root, "").replace("file://", "")}`]),
    ...(error.cause === undefined ? [] : [`  cause: ${error.cause.message}`]),
    ...rest,
    ...(error.diff === undefined ? [] : stripVTControlCharacters(error.diff).split("\n")),
  ];
  return lines.filter((line) => line.trim() !== "").join("\n");
}
