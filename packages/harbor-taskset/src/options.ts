/**
 * How trials are run: everything that the caller, not the task's author, decides. Taken by `planTrial` and `runTrial`. Names follow
 * Harbor's flags where it has one.
 */
export interface TrialOptions {
  /** Multiplies the agent's and the verifier's timeout. Default is 1. */
  readonly timeoutMultiplier?: number | undefined;
  /** Instead of `timeoutMultiplier`, for the agent. */
  readonly agentTimeoutMultiplier?: number | undefined;
  /** Instead of `timeoutMultiplier`, for the verifier. */
  readonly verifierTimeoutMultiplier?: number | undefined;
  /** Instead of `timeoutMultiplier`, for pulling or building images. */
  readonly environmentBuildTimeoutMultiplier?: number | undefined;
  /** Leave out the agent's and the verifier's timeout; the boxes' lifetimes still end everything. Default is `false`. */
  readonly ignoreTimeouts?: boolean | undefined;
  /** Grade in the agent's box although the task asks for a separate one, with a warning. Default is `false`. */
  readonly ignoreSeparateVerifier?: boolean | undefined;
  /** Grade in a fresh copy of the agent's image instead of building `tests/`, with a warning. Default is `false`. */
  readonly ignoreDockerfile?: boolean | undefined;
  /**
   * Let the agent's box run while a step that is not the last is collected and graded in a box of its own, where the driver cannot freeze it. What runs in
   * it can change artifacts while they are read. Default is `false`: such a task is refused.
   */
  readonly allowLiveAgentBox?: boolean | undefined;
  /** An artifact that had to be left out, as a whole or in part, makes the trial end without rewards. Default is `false`: recorded only. */
  readonly strictArtifacts?: boolean | undefined;
  /** Further artifacts, after the task's own: sources, or entries as in `task.toml`. */
  readonly artifacts?: readonly (string | TrialArtifact)[] | undefined;
  /** Limits of one artifact entry. Default is `DEFAULT_ARTIFACT_LIMITS`. */
  readonly artifactLimits?: Partial<ArtifactLimits> | undefined;
  /** Environment of the agent (not of its box). Literal. */
  readonly agentEnv?: Readonly<Record<string, string>> | undefined;
  /** On top of `[verifier.env]`. Literal. */
  readonly verifierEnv?: Readonly<Record<string, string>> | undefined;
  /** Hosts that the agent may reach besides the task's, for instance its model's endpoint. Nothing is added unless it is said here. */
  readonly allowAgentHosts?: readonly string[] | undefined;
  /** The same for every box that `[environment]` describes: the agent's at any time, and a verifier's that has no environment of its own. */
  readonly allowEnvironmentHosts?: readonly string[] | undefined;
  /** The same for the verifier, and for its own box at any time. */
  readonly allowVerifierHosts?: readonly string[] | undefined;
  /** Instead of the task's value, for every box of the trial. Cores. */
  readonly overrideCpus?: number | undefined;
  /** Instead of the task's value, for every box of the trial. */
  readonly overrideMemoryMb?: number | undefined;
  /** Instead of the task's value, for every box of the trial. */
  readonly overrideStorageMb?: number | undefined;
  /** Ends an agent whose task sets no timeout. Default is runtime-api's `DEFAULT_LIFETIME_MS`, less where a box cannot live that long. */
  readonly agentDeadlineMs?: number | undefined;
  /** Where `${VAR}` in the task's `env` tables comes from. Default is `process.env`. */
  readonly hostEnv?: Readonly<Record<string, string | undefined>> | undefined;
  /** `reward` becomes the sum of all keys where the verifier wrote no key `reward`. Default is `false`. */
  readonly sumRewards?: boolean | undefined;
}

/** What `planTrial` must know about a trial besides its options. */
export interface PlanOptions extends TrialOptions {
  /** The agent's box is the caller's own and stays theirs: it cannot be proven gone, so a separate verifier is refused. Default is `false`. */
  readonly borrowedAgentRuntime?: boolean | undefined;
  /** A grader in TypeScript takes the place of `tests/test.sh`, which need not exist then. Default is `false`. */
  readonly customVerifier?: boolean | undefined;
  /** The agent is the task's own solution: one that cannot be run is refused. Default is `false`. */
  readonly oracle?: boolean | undefined;
  /** No agent works: what only its box needs is not refused. Default is `false`. */
  readonly gradesOnly?: boolean | undefined;
}

/** An artifact entry that the caller adds. */
export interface TrialArtifact {
  readonly source: string;
  readonly destination?: string | undefined;
  readonly exclude?: readonly string[] | undefined;
  /** The service beside the agent's box that has it. Default is that box itself. */
  readonly service?: string | undefined;
}

/** What one artifact entry may have; an entry with more is left out whole. */
export interface ArtifactLimits {
  readonly maxBytes: number;
  readonly maxEntries: number;
}

/** 2 GiB and 100,000 members for each entry. */
export const DEFAULT_ARTIFACT_LIMITS: ArtifactLimits = { maxBytes: 2 * 1024 ** 3, maxEntries: 100_000 };
