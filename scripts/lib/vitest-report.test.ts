import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { command, root } from "./command.ts";
import { countTests, describeFailures, parseReport, type ReportLine } from "./vitest-report.ts";
import { readRun } from "./vitest.ts";

const lines: readonly ReportLine[] = [
  { state: "passed" },
  { state: "failed" },
  { name: "a.test.ts > sum", error: "AssertionError: 1 is not 2" },
  { state: "skipped" },
  { state: "skipped", outcome: "not-claimed" },
  { state: "skipped", outcome: "pending" },
];
const text = lines.map((line) => `${JSON.stringify(line)}\n`).join("");
const ended = { exitCode: 0, timedOut: false, isSelection: false };

test("every test is counted, and what failed outside of tests", () => {
  expect(countTests(lines, false)).toEqual({ passed: 1, failed: 1, skipped: 3 });
  expect(countTests([...lines, { name: "b.test.ts", error: "no such module" }], false).failed).toBe(2);
});

test("what a selection left out is not skipped; a case that could not run is", () => {
  expect(countTests(lines, true)).toEqual({ passed: 1, failed: 1, skipped: 1 });
});

test("a report that was cut short is read as far as it goes", () => {
  expect(parseReport(`${text}{"state":"pas`)).toEqual(lines);
});

test("a run that ended badly without a word is a failure", () => {
  expect(readRun(text, { ...ended, exitCode: 1 }).failures).toHaveLength(1);
  expect(readRun("", { ...ended, exitCode: 137 })).toEqual({
    passed: 0,
    failed: 1,
    skipped: 0,
    failures: [{ name: "the whole run", error: "vitest ended with 137" }],
  });
  expect(readRun(text, { ...ended, exitCode: 143, timedOut: true }).failures).toHaveLength(2);
});

test("failures are told with their part, within bounds", () => {
  const failure = { name: "a.test.ts > sum", error: "AssertionError: 1 is not 2\nmore" };
  expect(describeFailures([{ name: "docker", failures: [failure] }])).toBe(
    "FAILED docker: a.test.ts > sum\n    AssertionError: 1 is not 2\n    more",
  );
  expect(describeFailures([{ name: "docker", failures: [] }])).toBe("");

  const endless = { name: "b", error: "line\n".repeat(1000) };
  const wide = { name: "c", error: "x".repeat(100_000) };
  for (const it of [endless, wide]) {
    const told = describeFailures([{ name: "docker", failures: [it] }]);
    expect(told.length).toBeLessThan(1_600);
    expect(told.split("\n").length).toBeLessThanOrEqual(14);
    expect(told).toMatch(/\[\.\.\.\]$/);
  }
  const many = describeFailures([{ name: "docker", failures: Array.from({ length: 33 }, () => failure) }]);
  expect(many.match(/^FAILED/gm)).toHaveLength(30);
  expect(many).toMatch(/and 3 more failures$/);
});

test("vitest's own run is reported: failed tests, hooks, files that do not load, errors outside of tests", async () => {
  const folder = await mkdtemp(join(tmpdir(), "breakwater-report-"));
  try {
    const report = join(folder, "report.jsonl");
    const files = {
      "vitest.config.mjs": "export default { test: { globals: true, include: ['*.test.mjs'] } };",
      "tests.test.mjs": `
        test("good", () => {});
        test.skip("skipped", () => {});
        describe("sums", () => test("bad", () => expect({ sum: 1 }).toEqual({ sum: 2 })));
        test("caused", () => { throw new Error("it went wrong", { cause: new Error("the reason") }); });
        describe("with a hook", () => { afterAll(() => { throw new Error("of the hook"); }); test("inside", () => {}); });
      `,
      "load.test.mjs": `throw new Error("cannot be loaded");`,
      "outside.test.mjs": `
        test("leaves a promise", async () => {
          void Promise.reject(new Error("nobody waits for me"));
          await new Promise((resolve) => setTimeout(resolve, 50));
        });
      `,
    };
    for (const [name, content] of Object.entries(files)) await writeFile(join(folder, name), content);
    const { exitCode } = await command(
      ["node_modules/.bin/vitest", "run", "--root", folder, "--reporter", join(root, "scripts/lib/vitest-reporter.ts")],
      { output: "capture", timeoutMs: 60_000, env: { BREAKWATER_TEST_REPORT: report } },
    );
    const { failures, ...counts } = readRun(await readFile(report, "utf8"), { ...ended, exitCode });
    expect(counts).toEqual({ passed: 3, failed: 5, skipped: 1 });
    const byName = new Map(failures.map(({ name, error }) => [name, error]));
    expect([...byName.keys()].toSorted()).toEqual([
      "load.test.mjs",
      "outside of any test",
      "tests.test.mjs > caused",
      "tests.test.mjs > sums > bad",
      "tests.test.mjs > with a hook",
    ]);
    expect(byName.get("tests.test.mjs > sums > bad")).toMatch(/^AssertionError: .*\n(?:.*\n)*.*sum.*2/);
    expect(byName.get("tests.test.mjs > caused")).toBe("Error: it went wrong\n  cause: the reason");
    expect(byName.get("tests.test.mjs > with a hook")).toMatch(/^Error: of the hook/);
    expect(byName.get("load.test.mjs")).toMatch(/^Error: cannot be loaded/);
    expect(byName.get("outside of any test")).toMatch(/^Error: nobody waits for me/);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}, 60_000);
