import type { RuntimeCapabilities, RuntimeDriver } from "@breakwater/runtime-api";

import type { EventLog } from "./events.ts";
import type { StepPlan, TrialPlan } from "./plan.ts";
import type { TasksetProblem } from "./problems.ts";
import type { OnProgress } from "./progress.ts";
import type { Redactor } from "./redact.ts";
import type {
  AgentOutcome,
  ArtifactOutcome,
  CollectedFrom,
  CollectHookOutcome,
  EndedByContents,
  PreparedImageRecord,
  RefusedArtifact,
  VerifierOutcome,
} from "./result.ts";
import type { Rewards } from "./reward.ts";
import { TrialFailure, type TrialPhase } from "./trial-error.ts";
import type { TrialFolder } from "./trial-folder.ts";

/** What everything in one trial shares. */
export interface Trial {
  readonly name: string;
  readonly driver: RuntimeDriver;
  readonly capabilities: RuntimeCapabilities;
  readonly plan: TrialPlan;
  readonly events: EventLog;
  readonly folder: TrialFolder;
  readonly redactor: Redactor;
  readonly onProgress: OnProgress | undefined;
  /** Whether collected work is kept where it can be graded again. */
  readonly savesWork: boolean;
  /** The caller's. What cleans up does not take it. */
  readonly signal: AbortSignal;
  /** What is known so far; becomes the result. */
  readonly record: TrialRecord;
}

/** The same in one of the trial's steps, with what is the step's own. */
export interface Step extends Trial {
  readonly step: StepPlan;
  readonly isFirst: boolean;
  /** No further one needs the agent's box. */
  readonly isLast: boolean;
  /** The step's own place in the trial's folder, where the task has steps. */
  readonly folder: TrialFolder;
  readonly outcome: StepRecord;
}

export interface TrialRecord {
  phase: TrialPhase;
  /** From here on grading can be repeated without the agent. */
  artifactsAreSafe: boolean;
  /** Of the whole trial. */
  rewards: Rewards | null;
  agentBoxEndedBy: EndedByContents | null;
  /** Those that were begun. */
  readonly steps: StepRecord[];
  readonly images: PreparedImageRecord[];
  readonly deniedConnections: { agent: number; verifier: number };
  readonly warnings: TasksetProblem[];
  readonly leftovers: string[];
}

export interface StepRecord {
  readonly plan: StepPlan;
  rewards: Rewards | null;
  agent: AgentOutcome | null;
  readonly collectHooks: CollectHookOutcome[];
  readonly artifacts: ArtifactOutcome[];
  readonly artifactsRefused: RefusedArtifact[];
  collectedFrom: CollectedFrom | null;
  verifier: VerifierOutcome | null;
  testsSha256: string | null;
}

export function newRecord(): TrialRecord {
  return {
    phase: "images",
    artifactsAreSafe: false,
    rewards: null,
    agentBoxEndedBy: null,
    steps: [],
    images: [],
    deniedConnections: { agent: 0, verifier: 0 },
    warnings: [],
    leftovers: [],
  };
}

export function newStepRecord(plan: StepPlan): StepRecord {
  return {
    plan,
    rewards: null,
    agent: null,
    collectHooks: [],
    artifacts: [],
    artifactsRefused: [],
    collectedFrom: null,
    verifier: null,
    testsSha256: null,
  };
}

/** Begins a phase, unless the caller has given up. */
export function enter(trial: Trial, phase: TrialPhase): void {
  trial.record.phase = phase;
  if (trial.signal.aborted) throw abortedFailure(trial);
}

/** Something that came up on the way and does not stop a trial. */
export function warn(trial: Trial, what: string, message: string): void {
  trial.record.warnings.push({ file: what, key: null, message, advice: "see events.jsonl" });
}

export function abortedFailure(trial: Trial, cause?: unknown): TrialFailure {
  return new TrialFailure(
    "aborted",
    "ERR_ABORTED",
    "the trial was aborted by its caller",
    cause ?? trial.signal.reason,
  );
}
