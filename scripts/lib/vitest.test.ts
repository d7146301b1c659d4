import { expect, test } from "vitest";
import { countTests } from "./vitest.ts";

const tests = [
  { status: "passed" },
  { status: "failed" },
  { status: "skipped" },
  { status: "todo" },
  { status: "skipped", meta: { conformance: { outcome: "not-claimed" } } },
  { status: "skipped", meta: { conformance: { outcome: "pending" } } },
] as const;
const report = { testResults: [{ assertionResults: tests }, { assertionResults: [{ status: "passed" }] }] } as const;

test("tests of all files are counted", () => {
  expect(countTests(report, false)).toEqual({ passed: 2, failed: 1, skipped: 4 });
});

test("what a selection left out is not skipped; a case that could not run is", () => {
  expect(countTests(report, true)).toEqual({ passed: 2, failed: 1, skipped: 1 });
});
