import type { EndedBy } from "@breakwater/runtime-api";
import type { LeftOutMember } from "@breakwater/tar";

import type { NotEnforced } from "./plan.ts";
import type { TasksetProblem } from "./problems.ts";
import type { RewardFile, Rewards } from "./reward.ts";
import type { VerifierMode } from "./task.ts";
import type { TrialError } from "./trial-error.ts";

/**
 * What came of a trial; `result.json` has the same. Secrets are taken out. What belongs to one round of work and grading is at the top for a task of one
 * step, and in `steps` for a task with several, where the fields of `StepOutcome` at the top are empty, as in Harbor.
 */
export interface TrialResult extends StepOutcome {
  /** The trial's name, and that of its folder. */
  readonly trial: string;
  /** The task's name. */
  readonly task: string;
  /** The driver's name. */
  readonly driver: string;
  /** The map that the verifier wrote (of several steps: what the task's strategy makes of theirs), or `null`: then `error` says why. */
  readonly rewards: Rewards | null;
  /** The key `reward`, else the only key, else `null` (or the sum, with `sumRewards`). */
  readonly reward: number | null;
  /** Why there are no rewards; or why the last of several steps has none, which counts for the mean as one without keys. */
  readonly error: TrialError | null;
  /** ISO 8601, UTC. */
  readonly startedAt: string;
  readonly finishedAt: string;
  readonly durationMs: number;
  /** The trial's folder, absolute; `null` without `outputDir`. */
  readonly dir: string | null;
  /** `events.jsonl` in it. */
  readonly eventsFile: string | null;
  /** Those that were begun, in order; `null` for a task without `[[steps]]`. */
  readonly steps: readonly StepResult[] | null;
  /** Names of those that were not, because a step's rewards did not reach its `min_reward`, or because of `error`. */
  readonly stepsNotRun: readonly string[];
  readonly notEnforced: readonly NotEnforced[];
  /** What the boxes were made from, in the order of preparation. */
  readonly images: readonly PreparedImageRecord[];
  /** How many connections the boxes' allowlists refused, as far as the driver counts them; the first of each box are in `egress.jsonl`. */
  readonly deniedConnections: { readonly agent: number; readonly verifier: number };
  /** The task's, the plan's, and what came up on the way. */
  readonly warnings: readonly TasksetProblem[];
  /** Ids of what could not be shown to be gone; `sweep` finds it. */
  readonly leftovers: readonly string[];
  /** What a job has tried before and found no reward for; oldest first. */
  readonly retries: readonly Retried[];
  /** Set if no agent worked: the recorded trial whose artifacts were graded again. */
  readonly regradedFrom?: RegradedFrom | undefined;
}

/** A recorded trial that another one was graded from. */
export interface RegradedFrom {
  readonly trial: string;
  /** Absolute, as it was then. */
  readonly dir: string;
  /** `null`: its record has none. */
  readonly id: string | null;
  /** What it had come to. */
  readonly rewards: Rewards | null;
}

/** An attempt at a trial that ended for a reason that may pass. */
export interface Retried {
  /** What was tried again then: all of it, or the grading of what the agent had handed in. */
  readonly again: "trial" | "grading";
  /** ISO 8601, UTC. */
  readonly startedAt: string;
  readonly finishedAt: string;
  readonly error: TrialError;
}

/** One of several steps. */
export interface StepResult extends StepOutcome {
  readonly name: string;
  /** What its verifier wrote; `null` if it did not come to that, and then the trial's `error` says why. */
  readonly rewards: Rewards | null;
  readonly reward: number | null;
}

export interface StepOutcome {
  /** `null` where the trial ended before that was decided, and for the whole of several steps. */
  readonly mode: VerifierMode | null;
  /** `null` if the agent was never started. */
  readonly agent: AgentOutcome | null;
  readonly collectHooks: readonly CollectHookOutcome[];
  /** Every entry in the order of collection; empty in shared mode, unless it is of one of several steps. */
  readonly artifacts: readonly ArtifactOutcome[];
  /** What had to be left out: a whole entry, or single members of one. */
  readonly artifactsRefused: readonly RefusedArtifact[];
  /**
   * How still the agent's box was while artifacts were read: `halted` or `sealed`, proven; `frozen`, before a further step; `live`: what could be killed was
   * killed, the rest is listed in `events.jsonl` (before a further step nothing is killed). `null` if nothing was collected.
   */
  readonly collectedFrom: CollectedFrom | null;
  /** `null` if the verifier was never started. */
  readonly verifier: VerifierOutcome | null;
}

export interface PreparedImageRecord {
  readonly of: "agent" | "verifier";
  /** What pins it; with most drivers its digest. */
  readonly id: string;
  readonly reference: string;
}

export type CollectedFrom = "halted" | "sealed" | "frozen" | "live";

/** How a box ended that was ended by its own contents: its memory limit, its lifetime, or our hold's own exit. */
export type EndedByContents = Extract<EndedBy, "memory" | "lifetime" | "contents"> | "unknown";

export interface AgentOutcome {
  /** All four are graded. */
  readonly status: "completed" | "failed" | "timed-out" | "box-ended";
  /** Of a program in the box that was the agent and failed. */
  readonly exitCode: number | null;
  /** What the agent threw. */
  readonly message: string | null;
  readonly durationMs: number;
  /** Set if the agent's box was ended by its contents, then or later. */
  readonly boxEndedBy: EndedByContents | null;
}

export interface CollectHookOutcome {
  readonly command: string;
  /** Where it was run; absent = in the agent's box. */
  readonly service?: string | undefined;
  /** `not-run`: the box had ended. None of them stops a trial. */
  readonly status: "completed" | "failed" | "timed-out" | "not-run";
  readonly exitCode: number | null;
  /** The beginning of its output, or why it could not be started. */
  readonly message: string | null;
}

export interface ArtifactOutcome {
  /** Absolute path in both boxes. */
  readonly source: string;
  /** The service beside the agent's box that had it; absent = that box itself. */
  readonly service?: string | undefined;
  /** On the host, relative to the trial's folder, or to that of its step. */
  readonly destination: string;
  /** `missing`: there was nothing at `source`. `refused`: nothing of it was kept. */
  readonly status: "collected" | "missing" | "refused";
  readonly type: "file" | "directory" | null;
  readonly entries: number;
  readonly bytes: number;
  /** Of the plain tar that carried it; `null` if nothing did. */
  readonly sha256: string | null;
  /** Earlier entries that contain, equal or lie inside this one. */
  readonly overlaps: readonly string[];
}

export interface RefusedArtifact {
  readonly source: string;
  /** As in `ArtifactOutcome`. */
  readonly service?: string | undefined;
  /** Why nothing of the entry crossed over; `null` if only `members` were left out. */
  readonly reason: string | null;
  /** At most 100. */
  readonly members: readonly RefusedMember[];
  readonly memberCount: number;
}

export interface RefusedMember {
  /** As the archive has it; absolute for what was in the way in the verifier's box. */
  readonly path: string;
  readonly reason: LeftOutMember["reason"] | "no folder where the tests have to be started";
}

export interface VerifierOutcome {
  /** `null` if it was ended, or its end is not known, or a function graded. */
  readonly exitCode: number | null;
  readonly timedOut: boolean;
  readonly durationMs: number;
  readonly output: BoundedOutput;
  /** Where the reward was read from; `returned`: a function graded and returned it. */
  readonly rewardFrom: RewardFile | "returned" | null;
  /** Of the reward file as it was read; `null` if none was. */
  readonly rewardSha256: string | null;
  /** Of a list of the uploaded tests: a line with path, kind and SHA-256 for each. `null` where the image brings its own. */
  readonly testsSha256: string | null;
  /** `live`: the backend cannot stop a box and still read it. */
  readonly readFrom: CollectedFrom | null;
  /** Set if its box was ended by its contents; a valid reward counts all the same. */
  readonly boxEndedBy: EndedByContents | null;
  /** How many processes the memory limit of the box had killed by then (in shared mode, the agent's too); `null` where the backend does not count. */
  readonly oomKills: number | null;
}

/** Standard output and error of the tests as they came, both ends of it. */
export interface BoundedOutput {
  readonly head: string;
  /** Empty if `head` has everything. */
  readonly tail: string;
  readonly bytes: number;
  readonly truncated: boolean;
}
