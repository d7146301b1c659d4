import { oneLine } from "./readable.ts";
import type { Estimate, Interval } from "./statistics.ts";
import type { Totals } from "./totals.ts";
import type { TrialRow } from "./trial-row.ts";

const MAX_LISTED = 50;
const MAX_CELL = 160;

/** Markdown for a pull request's comment, which may have 65,536 characters. Whatever a task or a box has written stands in code spans: it makes no links, no mentions and no markup. */
export function summaryMarkdown(jobName: string, totals: Totals, rows: readonly TrialRow[]): string {
  const { outcomes } = totals;
  const lines = [
    `## Breakwater: ${code(jobName)}`,
    "",
    `${totals.trials}${totals.expectedTrials === null || totals.expectedTrials === totals.trials ? "" : ` of ${totals.expectedTrials}`} trials of ${totals.tasks} tasks: ` +
      `**${outcomes.passed} passed**, ${outcomes.failed} did not, ${outcomes["no-reward"]} without a reward` +
      `${outcomes.graded === 0 ? "" : `, ${outcomes.graded} with several rewards`}${outcomes.unfinished === 0 ? "" : `, ${outcomes.unfinished} unfinished`}.`,
    "",
    ...table(
      ["agent and tasks", "graded", "pass rate", "mean reward", "pass@k"],
      totals.groups.map((group) => [
        code(group.name),
        `${group.graded} of ${group.trials}`,
        estimate(group.passRate, percent),
        estimate(group.meanReward, number),
        group.passAtK.map(({ k, value }) => `${k}: ${percent(value)}`).join(", ") || "-",
      ]),
    ),
    "Passed is a reward of 1 or more. Trials without a reward are in no mean. Brackets are intervals of 95 % confidence.",
    "",
  ];
  if (totals.errors.length > 0) {
    lines.push(
      "### Without a reward",
      "",
      ...table(
        ["code", "reason", "phase", "trials", "for instance"],
        totals.errors.map(({ code: kind, reason, phase, trials, example }) => [
          code(kind),
          code(reason),
          code(phase),
          String(trials),
          code(example),
        ]),
      ),
    );
  }
  const failed = rows.filter(({ outcome }) => outcome === "failed" || outcome === "no-reward");
  if (failed.length > 0) {
    lines.push(
      "### Not passed",
      "",
      ...table(
        ["trial", "task", "outcome", "time"],
        failed
          .slice(0, MAX_LISTED)
          .map(({ name, task, reward, error, durationMs }) => [
            code(name),
            code(task),
            error === null ? `reward ${number(reward ?? 0)}` : code(error.code),
            durationMs === null ? "-" : `${(durationMs / 1000).toFixed(1)} s`,
          ]),
      ),
    );
    if (failed.length > MAX_LISTED) lines.push(`and ${failed.length - MAX_LISTED} more.`, "");
  }
  if (totals.leftovers > 0)
    lines.push(`**${totals.leftovers} objects could not be shown to be gone**; \`breakwater sweep\` finds them.`, "");
  return lines.join("\n");
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): readonly string[] {
  const line = (cells: readonly string[]): string => `| ${cells.join(" | ")} |`;
  return [line(head), line(head.map(() => "---")), ...rows.map(line), ""];
}

/** A code span, also within a table. */
function code(text: string): string {
  const shown = oneLine(text, MAX_CELL).replaceAll("`", "'").replaceAll("|", "\\|");
  return shown === "" ? "-" : `\`${shown}\``;
}

function estimate(found: Estimate | null, show: (value: number) => string): string {
  return found === null ? "-" : `${show(found.value)}${range(found.interval, show)}`;
}

function range(interval: Interval | null, show: (value: number) => string): string {
  return interval === null ? "" : ` [${show(interval.low)}, ${show(interval.high)}]`;
}

function percent(value: number): string {
  return `${(value * 100).toFixed(1)} %`;
}

function number(value: number): string {
  return String(Math.round(value * 10_000) / 10_000);
}
