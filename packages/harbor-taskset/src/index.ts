export { resolveArtifacts } from "./artifacts-declaration.ts";
export type { KeyProblem } from "./artifacts-declaration.ts";
export { describePlan } from "./describe-plan.ts";
export { loadTask, loadTasks } from "./load-task.ts";
export type { LoadedTasks, LoadOptions } from "./load-task.ts";
export type { ArtifactLimits, PlanOptions, TrialArtifact, TrialOptions } from "./options.ts";
export { DEFAULT_ARTIFACT_LIMITS } from "./options.ts";
export type {
  AgentBoxPlan,
  AgentPhasePlan,
  ArtifactPlan,
  CollectHookPlan,
  ModeOrigin,
  NotEnforced,
  OraclePlan,
  PlannedImage,
  PlannedSpec,
  StagedFiles,
  TrialPlan,
  VerifierBoxPlan,
  VerifierPlan,
} from "./plan.ts";
export { planTrial } from "./plan-trial.ts";
export { formatProblem, isTasksetError, TasksetError } from "./problems.ts";
export type { TasksetErrorCode, TasksetErrorDetails, TasksetProblem } from "./problems.ts";
export type {
  ArtifactEntry,
  BuildFolder,
  CollectHook,
  Task,
  TaskAbout,
  TaskAgent,
  TaskEnvironment,
  TaskFiles,
  TaskFolder,
  TaskFolderEntry,
  TaskHealthcheck,
  TaskVerifier,
  VerifierMode,
} from "./task.ts";
