import { areaOf, type ConformanceCase } from "./case.ts";
import { casesByReport, REPORTS_OF_THE_TASKSET } from "./field-reports.ts";

const INTRODUCTION = `# The contract, case by case

Generated from the cases by \`packages/conformance/scripts/generate-docs.ts\`; a test compares. How to run them is in
[the package's README](../packages/conformance/README.md).

Ids are stable. *Needs* is a capability (a driver that does not claim it is not asked, and the refusal twin runs in its place) or something
that the caller of the suite has to give: an image, a server, a way to break things. *Field reports* are numbers in the collection of
reports from which the cases were drawn.
`;

/** The table of all cases, for people. */
export function casesAsMarkdown(cases: readonly ConformanceCase[]): string {
  const must = cases.filter((it) => it.level === "MUST").length;
  const parts = [INTRODUCTION, `${cases.length} cases: ${must} MUST, ${cases.length - must} SHOULD.\n`];
  for (const area of new Set(cases.map((it) => areaOf(it.id)))) {
    parts.push(`## ${area}\n`);
    parts.push(
      "| id | the driver | sentence of the contract | needs | field reports |\n| --- | --- | --- | --- | --- |",
    );
    for (const it of cases.filter((each) => areaOf(each.id) === area)) {
      const row = [`\`${it.id}\``, `${it.level} ${it.title}`, it.promise, needsOf(it), (it.covers ?? []).join(" ")];
      parts.push(`| ${row.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`);
    }
    parts.push("");
  }
  parts.push("## Field reports\n", "| report | covered by |\n| --- | --- |");
  for (const [report, ids] of casesByReport(cases)) {
    const test = REPORTS_OF_THE_TASKSET[report];
    const covering = [
      ...ids.map((id) => `\`${id}\``),
      ...(test === undefined ? [] : [`no driver's business: ${test}`]),
    ];
    parts.push(`| ${report} | ${covering.join(" ")} |`);
  }
  return `${parts.join("\n").trimEnd()}\n`;
}

function needsOf({ needs = [], unless, prerequisites = [] }: ConformanceCase): string {
  return [
    ...needs.map((need) => (need.refusedTwin === null ? need.name : `${need.name} (else \`${need.refusedTwin}\`)`)),
    ...(unless === undefined ? [] : [`twin: ${unless.name} not claimed`]),
    ...prerequisites.map((it) => `\`${it}\``),
  ].join(", ");
}
