import type { TrialEvent, TrialProgress, TrialResult } from "@breakwater/harbor-taskset";
import { createLogUpdate } from "log-update";

import { failuresLine, LiveView } from "./live-view.ts";
import { kind, outcome, printable, round, seconds, stepOf } from "./phrases.ts";
import { RunTotals } from "./run-totals.ts";

/** What a run says while it goes on. */
export interface Reporter {
  readonly totals: RunTotals;
  begin(trials: number, directory: string): void;
  event(event: TrialEvent): void;
  progress(progress: TrialProgress): void;
  result(result: TrialResult): void;
  note(line: string): void;
  /** Also of a run that has not begun. */
  end(): void;
}

/** A live view where progress is seen on a terminal, lines where it is not. */
export function makeReporter({ json, quiet }: { readonly json: boolean; readonly quiet: boolean }): Reporter {
  if (json) return new JsonReporter();
  return process.stderr.isTTY && !quiet ? new LiveReporter(process.stderr) : new TextReporter({ quiet });
}

/** One line of `--json`. Keys are API. */
export interface TrialLine {
  readonly task: string;
  readonly trial: string;
  readonly mode: string | null;
  readonly rewards: Readonly<Record<string, number>> | null;
  readonly reward: number | null;
  readonly error: {
    readonly code: string;
    readonly reason: string;
    readonly phase: string;
    readonly message: string;
  } | null;
  readonly durationMs: number;
  readonly dir: string | null;
}

export function trialLine(result: TrialResult): TrialLine {
  const { error } = result;
  return {
    task: result.task,
    trial: result.trial,
    mode: result.mode,
    rewards: result.rewards,
    reward: result.reward,
    error:
      error === null ? null : { code: error.code, reason: error.reason, phase: error.phase, message: error.message },
    durationMs: result.durationMs,
    dir: result.dir,
  };
}

/** Results on stdout, one JSON line each; notes on stderr. */
export class JsonReporter implements Reporter {
  readonly totals: RunTotals = new RunTotals();
  begin(trials: number): void {
    this.totals.trials = trials;
  }
  event(): void {}
  progress(): void {}
  result(result: TrialResult): void {
    this.totals.add(result);
    process.stdout.write(`${JSON.stringify(trialLine(result))}\n`);
  }
  note(line: string): void {
    process.stderr.write(`${line}\n`);
  }
  end(): void {}
}

/** Progress on stderr, a line per event; results on stdout. */
export class TextReporter implements Reporter {
  readonly totals: RunTotals = new RunTotals();
  readonly #quiet: boolean;
  #directory = "";
  /** What was said of a pull or a transfer last, so that it is not said again and again. */
  readonly #said = new Map<string | null, number>();

  constructor(options: { readonly quiet: boolean }) {
    this.#quiet = options.quiet;
  }

  begin(trials: number, directory: string): void {
    this.totals.trials = trials;
    this.#directory = directory;
    this.#line(`${trials} ${trials === 1 ? "trial" : "trials"}, results in ${directory}`);
  }

  event(event: TrialEvent): void {
    this.#said.delete(event.trial);
    this.#line(`${event.trial}  ${stepOf(event)}`);
  }

  /** At most every ten seconds of each trial. */
  progress({ trial, what, line, bytes }: TrialProgress): void {
    const now = this.totals.elapsedMs;
    if (now - (this.#said.get(trial) ?? -Infinity) < 10_000) return;
    this.#said.set(trial, now);
    this.#line(`${trial ?? "images ahead"}  ${printable(line ?? `${what}: ${bytes ?? 0} bytes`)}`);
  }

  result(result: TrialResult): void {
    this.totals.add(result);
    this.#said.delete(result.trial);
    process.stdout.write(resultLine(result));
  }

  note(line: string): void {
    process.stderr.write(`${line}\n`);
  }

  end(): void {
    if (this.#directory !== "") process.stdout.write(summary(this.totals, this.#directory));
  }

  #line(line: string): void {
    if (!this.#quiet) process.stderr.write(`${seconds(this.totals.elapsedMs).padStart(8)}  ${line}\n`);
  }
}

const REFRESH_MS = 250;

/** A view that is painted over and over on a terminal; results on stdout, above it. */
export class LiveReporter implements Reporter {
  readonly #stream: NodeJS.WriteStream;
  readonly #view = new LiveView();
  readonly #screen: ReturnType<typeof createLogUpdate>;
  #directory = "";
  #timer: NodeJS.Timeout | null = null;

  constructor(stream: NodeJS.WriteStream) {
    this.#stream = stream;
    this.#screen = createLogUpdate(stream);
  }

  get totals(): RunTotals {
    return this.#view.totals;
  }

  begin(trials: number, directory: string): void {
    this.totals.trials = trials;
    this.#directory = directory;
    this.note(`${trials} ${trials === 1 ? "trial" : "trials"}, results in ${directory}`);
    this.#timer = setInterval(() => this.#paint(), REFRESH_MS);
    this.#timer.unref();
  }

  event(event: TrialEvent): void {
    this.#view.event(event, performance.now());
  }

  progress(progress: TrialProgress): void {
    this.#view.progress(progress);
  }

  result(result: TrialResult): void {
    this.#view.result(result);
    this.#above(() => process.stdout.write(resultLine(result)));
  }

  note(line: string): void {
    this.#above(() => this.#stream.write(`${line}\n`));
  }

  end(): void {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
    this.#screen.clear();
    this.#screen.done();
    if (this.#directory !== "") process.stdout.write(summary(this.totals, this.#directory));
  }

  #above(write: () => void): void {
    this.#screen.clear();
    write();
    if (this.#timer !== null) this.#paint();
  }

  #paint(): void {
    this.#screen(this.#view.render(performance.now(), this.#stream));
  }
}

function resultLine(result: TrialResult): string {
  return `${result.trial}  ${outcome(result)}  ${seconds(result.durationMs)}  ${kind(result)}\n`;
}

function summary(totals: RunTotals, directory: string): string {
  const { meanReward } = totals;
  const mean = meanReward === null ? "" : `, mean reward ${round(meanReward.mean)} over ${meanReward.over}`;
  const failures = failuresLine(totals).map((line) => `${line}\n`);
  return `${failures.join("")}${totals.graded} of ${totals.trials} trials have rewards${mean}; ${seconds(totals.elapsedMs)}; ${directory}\n`;
}
