import type { Totals } from "./totals.ts";
import { byGroup, type TrialRow } from "./trial-row.ts";

/**
 * JUnit XML: a suite for each agent and data set, a case for each trial. A reward below 1 is a failure; a trial without a reward, or without a result, is an
 * error; one with several rewards and none that stands for all is skipped.
 */
export function junitXml(jobName: string, totals: Totals, rows: readonly TrialRow[]): string {
  const suites = [...byGroup(rows)].map(([name, trials]) =>
    element(
      "testsuite",
      {
        name: name === "" ? "unfinished" : name,
        tests: trials.length,
        failures: count(trials, "failed"),
        errors: count(trials, "no-reward") + count(trials, "unfinished"),
        skipped: count(trials, "graded"),
        time: seconds(trials.reduce((sum, { durationMs }) => sum + (durationMs ?? 0), 0)),
        timestamp: trials[0]?.startedAt?.replace(/\.\d+Z$/, "") ?? "",
      },
      trials.map(testCase).join(""),
    ),
  );
  const { outcomes } = totals;
  const all = {
    name: jobName,
    tests: totals.trials,
    failures: outcomes.failed,
    errors: outcomes["no-reward"] + outcomes.unfinished,
    skipped: outcomes.graded,
  };
  return `<?xml version="1.0" encoding="UTF-8"?>\n${element("testsuites", all, suites.join(""))}`;
}

function testCase(row: TrialRow): string {
  const { name, task, durationMs, rewards, outputEnd } = row;
  const properties = Object.entries(rewards ?? {}).map(([key, value]) =>
    element("property", { name: `reward.${key}`, value }),
  );
  const content = [
    properties.length === 0 ? "" : element("properties", {}, properties.join("")),
    verdict(row),
    outputEnd === "" ? "" : element("system-out", {}, escape(outputEnd)),
  ];
  return element("testcase", { classname: task, name, time: seconds(durationMs ?? 0) }, content.join(""));
}

function verdict({ outcome, reward, error, kind }: TrialRow): string {
  switch (outcome) {
    case "passed":
      return "";
    case "failed":
      return element("failure", { type: "reward", message: `reward ${reward ?? "none"}` });
    case "graded":
      return element("skipped", { message: "several rewards, and none that stands for all" });
    case "no-reward":
      return element("error", { type: error?.code ?? "", message: error?.message ?? "" });
    case "unfinished":
      return element("error", { type: "unfinished", message: kind });
  }
}

function count(trials: readonly TrialRow[], outcome: TrialRow["outcome"]): number {
  return trials.filter((trial) => trial.outcome === outcome).length;
}

function seconds(durationMs: number): string {
  return (durationMs / 1000).toFixed(3);
}

/** `content` is XML already. */
function element(name: string, attributes: Readonly<Record<string, string | number>>, content = ""): string {
  const pairs = Object.entries(attributes).map(([key, value]) => ` ${key}="${escape(String(value))}"`);
  return `<${name}${pairs.join("")}${content === "" ? "/>" : `>${content}</${name}>`}\n`;
}

/** All texts of rows are readable: control characters, which XML does not have at all, are signs of their own there. */
function escape(text: string): string {
  return text
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;")
    .replaceAll("\n", "&#10;")
    .replaceAll("\t", "&#9;")
    .replaceAll(/[\ufffe\uffff]/g, "\ufffd");
}
