import type { Rewards, TrialError } from "@breakwater/harbor-taskset";

import type { StoredTrial } from "./job-folder.ts";
import { oneLine, readable } from "./readable.ts";
import { PASS_REWARD } from "./statistics.ts";
import { timelineOf, type Timeline } from "./timeline.ts";

/**
 * `passed`: its reward is 1 or more; `failed`: less. `graded`: several rewards and none that stands for all. `no-reward`: `error` says why. `unfinished`: it has
 * no result (yet), or one that cannot be read.
 */
export type Outcome = "passed" | "failed" | "graded" | "no-reward" | "unfinished";

/** What lists and totals say of a trial: small, and all texts readable. */
export interface TrialRow {
  readonly name: string;
  readonly task: string;
  /** Agent and data set: what belongs into one mean. */
  readonly group: string;
  readonly outcome: Outcome;
  readonly reward: number | null;
  readonly rewards: Rewards | null;
  readonly error: Pick<TrialError, "code" | "reason" | "phase" | "message"> | null;
  /** ISO 8601, UTC; `null` if nothing of it can be read. */
  readonly startedAt: string | null;
  readonly durationMs: number | null;
  /** `separate`, `shared`, or how many steps. */
  readonly kind: string;
  /** Connections that its boxes' allowlists refused. */
  readonly denied: number;
  /** Of what could not be shown to be gone. */
  readonly leftovers: number;
  readonly timeline: Timeline | null;
  /** The last of what its verifier printed. */
  readonly outputEnd: string;
}

/** The rows of each group, in the order in which groups come first. */
export function byGroup(rows: readonly TrialRow[]): ReadonlyMap<string, readonly TrialRow[]> {
  const groups = new Map<string, TrialRow[]>();
  for (const row of rows) {
    const group = groups.get(row.group);
    if (group === undefined) groups.set(row.group, [row]);
    else group.push(row);
  }
  return groups;
}

const MAX_NAME = 200;
const MAX_MESSAGE = 500;
const MAX_REWARDS = 40;
const OUTPUT_END = 2_000;

export function trialRow(trial: StoredTrial): TrialRow {
  const { name, result, events, problem } = trial;
  const timeline = timelineOf(events);
  const common = { name: oneLine(name, MAX_NAME), startedAt: events[0]?.at ?? result?.startedAt ?? null, timeline };
  if (result === null) {
    const task = events[0]?.details?.["task"];
    return {
      ...common,
      task: typeof task === "string" ? oneLine(task, MAX_NAME) : "unknown",
      group: "",
      outcome: "unfinished",
      reward: null,
      rewards: null,
      error: null,
      durationMs: timeline?.durationMs ?? null,
      kind: problem === null ? `last step: ${events.at(-1)?.type ?? "none"}` : oneLine(problem, MAX_MESSAGE),
      denied: trial.egress.length,
      leftovers: 0,
      outputEnd: "",
    };
  }
  const { error, rewards, reward, steps } = result;
  const verifier = result.verifier ?? steps?.at(-1)?.verifier ?? null;
  const output = verifier?.output;
  return {
    ...common,
    task: oneLine(result.task, MAX_NAME),
    group: oneLine(`${result.agent_info?.name ?? "agent"} on ${result.source ?? "tasks"}`, MAX_NAME),
    outcome: outcomeOf(rewards, reward),
    reward,
    rewards: rewards === null ? null : shownRewards(rewards),
    error: error === null ? null : { ...error, message: oneLine(error.message, MAX_MESSAGE) },
    durationMs: result.durationMs,
    kind:
      steps === null
        ? (result.mode ?? "not planned")
        : `${steps.length} of ${steps.length + result.stepsNotRun.length} steps`,
    denied: result.deniedConnections.agent + result.deniedConnections.verifier,
    leftovers: result.leftovers.length,
    outputEnd: readable((output?.tail || output?.head || "").slice(-OUTPUT_END)),
  };
}

function outcomeOf(rewards: Rewards | null, reward: number | null): Outcome {
  if (rewards === null) return "no-reward";
  if (reward === null) return "graded";
  return reward >= PASS_REWARD ? "passed" : "failed";
}

function shownRewards(rewards: Rewards): Rewards {
  return Object.fromEntries(
    Object.entries(rewards)
      .slice(0, MAX_REWARDS)
      .map(([key, value]) => [oneLine(key, MAX_NAME), value]),
  );
}
