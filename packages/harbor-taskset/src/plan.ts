import type { NetworkPolicy, RuntimeSpecInput, ServiceSpec } from "@breakwater/runtime-api";
import type { ArtifactLimits } from "./options.ts";
import type { TasksetProblem } from "./problems.ts";
import type { McpServer, MinReward, TaskFolder, TaskHealthcheck, VerifierMode } from "./task.ts";

/**
 * Every decision of a trial, made before any box starts; pure data. Environment values are resolved here and may be secrets: print
 * names, never values (`describePlan` does).
 */
export interface TrialPlan {
  readonly task: { readonly name: string; readonly shortName: string; readonly directory: string };
  /** The task's and the plan's own. */
  readonly warnings: readonly TasksetProblem[];
  /** What was asked for and this backend does not enforce, for instance `storageMb`; recorded in the result. */
  readonly notEnforced: readonly NotEnforced[];
  /** One box for all steps. */
  readonly agentBox: AgentBoxPlan;
  /** In order. A task without `[[steps]]` has one, without a name. */
  readonly steps: readonly [StepPlan, ...StepPlan[]];
  /** What the rewards of several steps come to. */
  readonly rewardStrategy: "mean" | "final";
  readonly strictArtifacts: boolean;
  readonly sumRewards: boolean;
}

/** One round of work and grading. */
export interface StepPlan {
  /** `null`: the task has no `[[steps]]`. */
  readonly name: string | null;
  readonly mode: VerifierMode;
  readonly modeFrom: ModeOrigin;
  /** Before the agent; `null` = nothing. */
  readonly setup: StepSetupPlan | null;
  readonly agent: AgentPhasePlan;
  /** `null` if there is no `solve.sh`, or if its environment has a template without a value (see `oracleUnavailable`). */
  readonly oracle: OraclePlan | null;
  /** Why `oracle` is `null`. */
  readonly oracleUnavailable: TasksetProblem | null;
  /** In the agent's box, in order, under its baseline network. */
  readonly collect: readonly CollectHookPlan[];
  /** In the order of collection; the convention entry `/logs/artifacts` is among them, first unless the task wrote it itself. */
  readonly artifacts: readonly ArtifactPlan[];
  readonly verifier: VerifierPlan;
  /** What this step's rewards must reach for the next one to be done; `null` = anything. */
  readonly minReward: MinReward | null;
}

export interface StepSetupPlan {
  /** Put into the working directory. */
  readonly files: TaskFolder | null;
  /** Run there afterwards by `bash`, as the agent's user; `null` = there is none. */
  readonly script: "setup.sh" | null;
  /** Of the script. */
  readonly timeoutMs: number;
  readonly healthcheck: TaskHealthcheck | null;
}

/** What decided the mode; `steps.…` is the step's own word. */
export type ModeOrigin =
  | "verifier.environment_mode"
  | "verifier.environment"
  | "steps.verifier.environment_mode"
  | "steps.verifier.environment"
  | "default"
  | "ignoreSeparateVerifier";

export interface NotEnforced {
  readonly box: "agent" | "verifier";
  readonly key: "storageMb";
  readonly value: number;
}

/** A spec without what is only known when the trial starts. `user` is never set: each phase passes its own to `exec`. */
export type PlannedSpec = Omit<RuntimeSpecInput, "image" | "trial" | "user" | "services">;

/** A service beside a box, as its compose file has it. */
export interface PlannedService {
  readonly image: PlannedImage;
  readonly spec: Omit<ServiceSpec, "image">;
}

export type PlannedImage =
  | { readonly kind: "declared"; readonly reference: string }
  /** `context` is an absolute folder with a `Dockerfile`, or what `dockerfile` says; `name` is for tags and messages. */
  | {
      readonly kind: "build";
      readonly context: string;
      readonly dockerfile?: string | undefined;
      readonly name: string;
    };

export interface AgentBoxPlan {
  readonly image: PlannedImage;
  /** Bounds pulling or building. */
  readonly imageTimeoutMs: number;
  readonly spec: PlannedSpec;
  readonly services: readonly PlannedService[];
  /** Values of the host that a compose file asked for; never to be written down. */
  readonly fromHost: readonly string[];
  /** Files of `environment/` to be put into `directory` (`null` = the working directory of the image) before the healthcheck. */
  readonly staged: StagedFiles | null;
  readonly healthcheck: TaskHealthcheck | null;
}

export interface StagedFiles {
  readonly folder: TaskFolder;
  readonly directory: string | null;
}

export interface AgentPhasePlan {
  readonly instruction: string;
  /** The task's limit with its multiplier; `null` = none. */
  readonly timeoutMs: number | null;
  /** Always a number: the limit, or what the box's lifetime leaves for the agent. */
  readonly deadlineMs: number;
  readonly user: string | null;
  /** For the agent's programs only. */
  readonly env: Readonly<Record<string, string>>;
  /** To be set before and undone (to the box's `network.initial`) after the phase; `null` = stays as it is. */
  readonly network: NetworkPolicy | null;
  readonly skillsDirectory: string | null;
  /** Headers are resolved and may be secrets. */
  readonly mcpServers: readonly McpServer[];
}

/** The task's own solution as an agent. */
export interface OraclePlan {
  readonly solution: TaskFolder;
  /** Relative to the folder. */
  readonly script: "solve.sh";
  readonly env: Readonly<Record<string, string>>;
}

export interface CollectHookPlan {
  /** For `sh -c`. */
  readonly command: string;
  /** Beside the agent's box; absent = in that itself. */
  readonly service?: string | undefined;
  readonly user: string | null;
  readonly timeoutMs: number;
}

export interface ArtifactPlan {
  /**
   * Absolute, or relative to the working directory of the agent's image: then `environment.workdir` is not set and the path is only known
   * when the image is at hand; `resolveArtifacts` makes it absolute and applies the rules about roots again, before the agent starts.
   */
  readonly source: string;
  /** The service beside the agent's box that has it; absent = that box itself. */
  readonly service?: string | undefined;
  /** On the host, relative to the trial's folder: `artifacts/…`. Has no influence on where the verifier sees it, which is `source`. */
  readonly destination: string;
  /** Patterns in the manner of tar's `--exclude`, relative to `source`; they do not apply to single files. */
  readonly exclude: readonly string[];
  readonly limits: ArtifactLimits;
  readonly declaredBy: "convention" | "task" | "trial" | "step";
  /** Sources of earlier entries that contain, equal or lie inside this one. */
  readonly overlaps: readonly string[];
}

export interface VerifierPlan {
  /** `null` in shared mode. */
  readonly box: VerifierBoxPlan | null;
  /** Relative path in `tests` and below `/tests`. */
  readonly script: "test.sh" | "test.bat";
  /** To be wiped and uploaded to `/tests`, the step's files over the task's; `null` where the image brings its own `/tests`, which is never touched. */
  readonly tests: TaskFolder | null;
  readonly user: string | null;
  /** For the script: `[verifier.env]` and the caller's on top. */
  readonly env: Readonly<Record<string, string>>;
  /** Shared: of the grading. Separate: of everything from creating the box to the reward's reading. */
  readonly timeoutMs: number;
  /** To be set before the script and undone after it; `null` = stays as it is. */
  readonly network: NetworkPolicy | null;
}

export interface VerifierBoxPlan {
  /** `agent-image`: the agent box's prepared image again, in a fresh box. */
  readonly image: PlannedImage | { readonly kind: "agent-image" };
  /** Bounds pulling or building. */
  readonly imageTimeoutMs: number;
  readonly spec: PlannedSpec;
  /** As for the agent's box, where it is a fresh copy of that; else those of its own compose file. */
  readonly services: readonly PlannedService[];
  readonly fromHost: readonly string[];
  /** As for the agent's box: only with `agent-image`. */
  readonly staged: StagedFiles | null;
  readonly healthcheck: TaskHealthcheck | null;
}
