import type { TrialEvent, TrialResult } from "@breakwater/harbor-taskset";

/** What a run says while it goes on. */
export interface Reporter {
  begin(trials: number, directory: string): void;
  event(event: TrialEvent): void;
  result(result: TrialResult): void;
  note(line: string): void;
  end(): void;
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
  begin(): void {}
  event(): void {}
  result(result: TrialResult): void {
    process.stdout.write(`${JSON.stringify(trialLine(result))}\n`);
  }
  note(line: string): void {
    process.stderr.write(`${line}\n`);
  }
  end(): void {}
}

/** The steps that people wait for; the others are in `events.jsonl`. */
const STEPS: Partial<Record<TrialEvent["type"], string>> = {
  "image.prepared": "image is at hand",
  "agent-box.started": "agent's box runs",
  "agent.started": "agent works",
  "agent.ended": "agent has ended",
  "agent-box.gone": "agent's box is proven gone",
  "verifier-box.started": "verifier's box runs",
  "verifier.started": "tests run",
  "verifier.ended": "tests have ended",
  "verifier-box.gone": "verifier's box is proven gone",
  "teardown.unconfirmed": "a box could not be proven gone",
};

/** Progress on stderr, a line per step; results on stdout. */
export class TextReporter implements Reporter {
  readonly #quiet: boolean;
  readonly #startedAt = performance.now();
  readonly #results: TrialResult[] = [];
  #trials = 0;
  #directory = "";

  constructor(options: { readonly quiet: boolean }) {
    this.#quiet = options.quiet;
  }

  begin(trials: number, directory: string): void {
    this.#trials = trials;
    this.#directory = directory;
    this.#progress(`${trials} ${trials === 1 ? "trial" : "trials"}, results in ${directory}`);
  }

  event(event: TrialEvent): void {
    const step = STEPS[event.type];
    if (step !== undefined) this.#progress(`${event.trial}  ${step}`);
  }

  result(result: TrialResult): void {
    this.#results.push(result);
    process.stdout.write(`${result.trial}  ${outcome(result)}  ${seconds(result.durationMs)}  ${kind(result)}\n`);
  }

  note(line: string): void {
    process.stderr.write(`${line}\n`);
  }

  end(): void {
    const graded = this.#results.filter((result) => result.rewards !== null);
    const single = graded.flatMap(({ reward }) => (reward === null ? [] : [reward]));
    const mean =
      single.length === 0
        ? ""
        : `, mean reward ${round(single.reduce((sum, value) => sum + value, 0) / single.length)} over ${single.length}`;
    process.stdout.write(
      `${graded.length} of ${this.#trials} trials have rewards${mean}; ${seconds(performance.now() - this.#startedAt)}; ${this.#directory}\n`,
    );
  }

  #progress(line: string): void {
    if (!this.#quiet) process.stderr.write(`${seconds(performance.now() - this.#startedAt).padStart(8)}  ${line}\n`);
  }
}

function kind({ mode, steps, stepsNotRun }: TrialResult): string {
  if (steps === null) return mode ?? "not planned";
  return `${steps.length} of ${steps.length + stepsNotRun.length} steps`;
}

function outcome({ rewards, reward, error }: TrialResult): string {
  if (rewards === null)
    return `no reward: ${error?.reason ?? "unknown"} (${error?.code ?? "?"}) ${printable(error?.message ?? "")}`;
  if (reward !== null) return `reward ${round(reward)}`;
  return `rewards ${Object.entries(rewards)
    .map(([name, value]) => `${printable(name)}=${round(value)}`)
    .join(" ")}`;
}

function round(value: number): string {
  return String(Math.round(value * 10_000) / 10_000);
}

function seconds(durationMs: number): string {
  return `${(durationMs / 1000).toFixed(1)} s`;
}

/** What a box wrote may hold terminal escapes. */
export function printable(text: string): string {
  // oxlint-disable-next-line no-control-regex -- control characters are what is looked for
  return text.replaceAll(/[\u0000-\u001f\u007f-\u009f]+/g, " ");
}
