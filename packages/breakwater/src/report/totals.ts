import type { StoredJob } from "./job-folder.ts";
import { meanReward, passAtK, passRate, type Estimate, type PassAtK } from "./statistics.ts";
import { byGroup, type Outcome, type TrialRow } from "./trial-row.ts";

export interface Totals {
  readonly trials: number;
  /** How many the job was to have; `null` = not known. */
  readonly expectedTrials: number | null;
  readonly outcomes: Readonly<Record<Outcome, number>>;
  readonly tasks: number;
  readonly startedAt: string | null;
  readonly endedAt: string | null;
  readonly denied: number;
  readonly leftovers: number;
  readonly groups: readonly Group[];
  readonly rewards: readonly RewardDistribution[];
  readonly errors: readonly ErrorKind[];
}

/** Trials of one agent on one data set. Only those with a single reward count in what is estimated; none is taken for 0. */
export interface Group {
  readonly name: string;
  readonly trials: number;
  readonly graded: number;
  readonly passRate: Estimate | null;
  readonly meanReward: Estimate | null;
  readonly passAtK: readonly PassAtK[];
}

export interface RewardDistribution {
  readonly key: string;
  readonly trials: number;
  readonly mean: number;
  /** A value, or a range of values of which the last one belongs to the next range. */
  readonly bars: readonly { readonly from: number; readonly to: number; readonly trials: number }[];
}

export interface ErrorKind {
  readonly code: string;
  readonly reason: string;
  readonly phase: string;
  readonly trials: number;
  /** Of the first trial of that kind. */
  readonly example: string;
}

const MAX_GROUPS = 50;
const MAX_KEYS = 30;
const MAX_KINDS = 50;
const BARS = 10;

export function totalsOf(job: StoredJob, rows: readonly TrialRow[]): Totals {
  const outcomes: Record<Outcome, number> = { passed: 0, failed: 0, graded: 0, "no-reward": 0, unfinished: 0 };
  for (const { outcome } of rows) outcomes[outcome] += 1;
  const starts = rows.flatMap(({ startedAt }) => startedAt ?? []).toSorted();
  const ends = rows.flatMap(({ startedAt, durationMs }) =>
    startedAt === null || durationMs === null ? [] : Date.parse(startedAt) + durationMs,
  );
  const end = ends.reduce((latest, each) => Math.max(latest, each), -Infinity);
  return {
    trials: rows.length,
    expectedTrials: job.expectedTrials,
    outcomes,
    tasks: new Set(rows.map(({ task }) => task)).size,
    startedAt: starts[0] ?? null,
    endedAt: Number.isFinite(end) ? new Date(end).toISOString() : null,
    denied: rows.reduce((sum, { denied }) => sum + denied, 0),
    leftovers: rows.reduce((sum, { leftovers }) => sum + leftovers, 0),
    groups: groupsOf(rows).slice(0, MAX_GROUPS),
    rewards: distributionsOf(rows).slice(0, MAX_KEYS),
    errors: errorsOf(rows).slice(0, MAX_KINDS),
  };
}

function groupsOf(rows: readonly TrialRow[]): readonly Group[] {
  const finished = rows.filter(({ outcome }) => outcome !== "unfinished");
  return [...byGroup(finished)].map(([name, trials]) => {
    const attempts = trials.flatMap(({ task, reward }) => (reward === null ? [] : [{ task, reward }]));
    return {
      name,
      trials: trials.length,
      graded: trials.filter(({ rewards }) => rewards !== null).length,
      passRate: passRate(attempts),
      meanReward: meanReward(attempts),
      passAtK: passAtK(attempts),
    };
  });
}

/** The key `reward` first, then the others in the order in which they came. */
function distributionsOf(rows: readonly TrialRow[]): readonly RewardDistribution[] {
  const values = new Map<string, number[]>();
  for (const { rewards } of rows) {
    for (const [key, value] of Object.entries(rewards ?? {})) {
      const list = values.get(key);
      if (list === undefined) values.set(key, [value]);
      else list.push(value);
    }
  }
  return [...values]
    .toSorted(([a], [b]) => Number(b === "reward") - Number(a === "reward"))
    .map(([key, found]) => ({
      key,
      trials: found.length,
      mean: found.reduce((sum, value) => sum + value, 0) / found.length,
      bars: barsOf(found),
    }));
}

function barsOf(values: readonly number[]): RewardDistribution["bars"] {
  const distinct = [...new Set(values)].toSorted((a, b) => a - b);
  if (distinct.length <= BARS)
    return distinct.map((value) => ({
      from: value,
      to: value,
      trials: values.filter((each) => each === value).length,
    }));
  const least = distinct[0] ?? 0;
  const most = distinct.at(-1) ?? 0;
  const counts = Array.from({ length: BARS }, () => 0);
  for (const value of values) {
    const at = Math.min(BARS - 1, Math.floor(((value - least) / (most - least)) * BARS));
    counts[at] = (counts[at] ?? 0) + 1;
  }
  const edge = (index: number): number => least + ((most - least) * index) / BARS;
  return counts.map((trials, index) => ({ from: edge(index), to: edge(index + 1), trials }));
}

function errorsOf(rows: readonly TrialRow[]): readonly ErrorKind[] {
  const kinds = new Map<string, ErrorKind>();
  for (const { error } of rows) {
    if (error === null) continue;
    const { code, reason, phase } = error;
    const kind = `${code} ${reason} ${phase}`;
    const before = kinds.get(kind);
    kinds.set(kind, {
      code,
      reason,
      phase,
      trials: (before?.trials ?? 0) + 1,
      example: before?.example ?? error.message,
    });
  }
  return [...kinds.values()].toSorted((a, b) => b.trials - a.trials);
}
