import type { RuntimeCapabilities, RuntimeDriver } from "@breakwater/runtime-api";

import type { EventLog } from "./events.ts";
import type { TrialPlan } from "./plan.ts";
import type { TasksetProblem } from "./problems.ts";
import type { Redactor } from "./redact.ts";
import type {
  AgentOutcome,
  ArtifactOutcome,
  CollectedFrom,
  CollectHookOutcome,
  EndedByContents,
  RefusedArtifact,
  VerifierOutcome,
} from "./result.ts";
import type { Rewards } from "./reward.ts";
import { TrialFailure, type TrialPhase } from "./trial-error.ts";
import type { TrialFolder } from "./trial-folder.ts";

/** What the steps of one trial share. */
export interface Trial {
  readonly name: string;
  readonly driver: RuntimeDriver;
  readonly capabilities: RuntimeCapabilities;
  readonly plan: TrialPlan;
  readonly events: EventLog;
  readonly folder: TrialFolder;
  readonly redactor: Redactor;
  /** The caller's. What cleans up does not take it. */
  readonly signal: AbortSignal;
  /** What is known so far; becomes the result. */
  readonly record: TrialRecord;
}

export interface TrialRecord {
  phase: TrialPhase;
  /** From here on grading can be repeated without the agent. */
  artifactsAreSafe: boolean;
  rewards: Rewards | null;
  agent: AgentOutcome | null;
  agentBoxEndedBy: EndedByContents | null;
  readonly collectHooks: CollectHookOutcome[];
  readonly artifacts: ArtifactOutcome[];
  readonly artifactsRefused: RefusedArtifact[];
  collectedFrom: CollectedFrom | null;
  verifier: VerifierOutcome | null;
  readonly deniedConnections: { agent: number; verifier: number };
  readonly warnings: TasksetProblem[];
  readonly leftovers: string[];
}

export function newRecord(): TrialRecord {
  return {
    phase: "images",
    artifactsAreSafe: false,
    rewards: null,
    agent: null,
    agentBoxEndedBy: null,
    collectHooks: [],
    artifacts: [],
    artifactsRefused: [],
    collectedFrom: null,
    verifier: null,
    deniedConnections: { agent: 0, verifier: 0 },
    warnings: [],
    leftovers: [],
  };
}

/** Begins a phase, unless the caller has given up. */
export function enter(trial: Trial, phase: TrialPhase): void {
  trial.record.phase = phase;
  if (trial.signal.aborted) throw abortedFailure(trial);
}

export function abortedFailure(trial: Trial, cause?: unknown): TrialFailure {
  return new TrialFailure(
    "aborted",
    "ERR_ABORTED",
    "the trial was aborted by its caller",
    cause ?? trial.signal.reason,
  );
}
