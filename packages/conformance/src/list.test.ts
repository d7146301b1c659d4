import { access, readFile } from "node:fs/promises";
import { expect, test } from "vitest";
import { areaOf } from "./case.ts";
import { casesByReport, DRIVER_REPORTS, REPORTS_OF_THE_TASKSET } from "./field-reports.ts";
import { conformanceCases } from "./list.ts";
import { casesAsMarkdown } from "./markdown.ts";
import { refusable } from "./needs.ts";

const AREAS = ["lifecycle", "exec", "files", "read-bounded", "network", "isolation", "limits", "leaks", "refusal"];
/* After a change: node --conditions=@breakwater/source packages/conformance/scripts/generate-docs.ts && npx oxfmt docs/conformance.md */

/** The formatter pads tables. */
const unpadded = (markdown: string): string => markdown.replaceAll(/ +/g, " ").replaceAll(/-{3,}/g, "---");

test("ids are unique, in an area, and stable: none goes away or changes unnoticed", async () => {
  const ids = conformanceCases.map((it) => it.id);
  expect(new Set(ids).size).toBe(ids.length);
  for (const id of ids) expect(id).toMatch(/^[a-z]+(?:-[a-z]+)*\.[a-z0-9]+(?:-[a-z0-9]+)*$/);
  expect([...new Set(ids.map(areaOf))]).toEqual(AREAS);
  const committed = await readFile(new URL("../case-ids.txt", import.meta.url), "utf8");
  expect(ids.toSorted().join("\n")).toBe(committed.trimEnd());
});

test("there are at least 90 cases", () => {
  expect(conformanceCases.length).toBeGreaterThanOrEqual(90);
});

test("every capability that a caller can ask for has its refusal twin, and every twin its capability", () => {
  const twins = new Map(conformanceCases.flatMap((it) => (it.unless === undefined ? [] : [[it.id, it.unless.name]])));
  expect(new Map(refusable.map((need) => [need.refusedTwin, need.name]))).toEqual(twins);
  const named = conformanceCases.flatMap((it) => (it.needs ?? []).map((need) => need.refusedTwin));
  expect(named.filter((twin) => twin !== null && !twins.has(twin))).toEqual([]);
});

test("titles, promises and references are complete", () => {
  for (const { title, promise, covers = [] } of conformanceCases) {
    expect(title).toMatch(/^[a-z]/);
    expect(promise).toMatch(/\.$/);
    for (const report of covers) expect(report).toMatch(/^B\d+$/);
  }
});

test("every field report that can concern a driver is covered by a case, or by a test that exists", async () => {
  const covering = casesByReport(conformanceCases);
  const withoutCase = DRIVER_REPORTS.filter((report) => covering.get(report)?.length === 0);
  expect(withoutCase).toEqual(Object.keys(REPORTS_OF_THE_TASKSET));
  for (const test of Object.values(REPORTS_OF_THE_TASKSET)) await access(new URL(`../../../${test}`, import.meta.url));
});

test("the table in docs/conformance.md is that of the cases", async () => {
  const committed = await readFile(new URL("../../../docs/conformance.md", import.meta.url), "utf8");
  expect(unpadded(committed)).toBe(unpadded(casesAsMarkdown(conformanceCases)));
});
