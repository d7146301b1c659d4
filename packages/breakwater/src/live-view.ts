import type { TrialEvent, TrialProgress, TrialResult } from "@breakwater/harbor-taskset";

import { duration, printable, round, stepOf } from "./phrases.ts";
import { RunTotals } from "./run-totals.ts";

interface Running {
  readonly trial: string;
  readonly startedAtMs: number;
  step: string;
  box: string;
  /** What goes on in the step, for instance a pull. */
  detail: string;
}

const MAX_DETAIL_CHARACTERS = 60;

/** What a terminal shows of a job while it runs: a line for each trial under way, and the totals. */
export class LiveView {
  readonly totals: RunTotals = new RunTotals();
  readonly #running = new Map<string, Running>();
  /** Of images that are prepared ahead. */
  #ahead = "";
  #endedBefore: number | null = null;

  event(event: TrialEvent, nowMs: number): void {
    if (event.type === "trial.ended") {
      this.#running.delete(event.trial);
      return;
    }
    // What is resumed and has its result was no work of this run.
    this.#endedBefore ??= this.totals.ended;
    let running = this.#running.get(event.trial);
    if (running === undefined) {
      running = { trial: event.trial, startedAtMs: nowMs, step: "", box: "", detail: "" };
      this.#running.set(event.trial, running);
    }
    running.step = stepOf(event);
    running.detail = "";
    if (event.box !== undefined) running.box = event.type.endsWith("-box.gone") ? "" : event.box;
  }

  progress({ trial, what, line, bytes }: TrialProgress): void {
    const detail = printable(line ?? `${what} ${((bytes ?? 0) / 1024 ** 2).toFixed(1)} MiB`);
    const short = detail.slice(0, MAX_DETAIL_CHARACTERS);
    if (trial === null) this.#ahead = short;
    const running = trial === null ? undefined : this.#running.get(trial);
    if (running !== undefined) running.detail = short;
  }

  result(result: TrialResult): void {
    this.totals.add(result);
    if (this.totals.ended === this.totals.trials) this.#ahead = "";
  }

  /** At most so many lines, none longer than the terminal is wide. */
  render(nowMs: number, size: { readonly columns: number; readonly rows: number }): string {
    const { totals } = this;
    const running = [...this.#running.values()];
    const fitting = Math.max(1, size.rows - 5);
    const width = Math.max(0, ...running.map(({ trial }) => trial.length));
    const lines = running.slice(0, fitting).map(({ trial, step, detail, box, startedAtMs }) => {
      const elapsed = duration(nowMs - startedAtMs).padStart(7);
      return `${trial.padEnd(width)}  ${elapsed}  ${[step, detail, box].filter((part) => part !== "").join("  ")}`;
    });
    if (running.length > fitting) lines.push(`and ${running.length - fitting} more`);
    if (this.#ahead !== "" && running.every(({ detail }) => detail === "")) lines.push(`images ahead: ${this.#ahead}`);
    lines.push(this.#summary(), ...failuresLine(totals));
    return lines.map((line) => line.slice(0, Math.max(20, size.columns - 1))).join("\n");
  }

  #summary(): string {
    const { trials, ended, graded, meanReward, elapsedMs } = this.totals;
    const endedNow = ended - (this.#endedBefore ?? ended);
    const left =
      endedNow > 0 && ended < trials ? `about ${duration((elapsedMs / endedNow) * (trials - ended))} left` : "";
    const mean = meanReward === null ? "" : `mean reward ${round(meanReward.mean)}`;
    const parts = [`${ended} of ${trials} ended`, `${graded} with rewards`, mean, duration(elapsedMs), left];
    return parts.filter((part) => part !== "").join(", ");
  }
}

export function failuresLine({ failures }: RunTotals): readonly string[] {
  if (failures.size === 0) return [];
  const most = [...failures].sort(([, a], [, b]) => b - a).slice(0, 6);
  return [`no reward: ${most.map(([code, count]) => `${count} ${code}`).join(", ")}`];
}
