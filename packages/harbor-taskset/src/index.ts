export { nopAgent, oracleAgent, shellAgent } from "./agents.ts";
export type { Agent, AgentBox, AgentContext } from "./agents.ts";
export { resolveArtifacts } from "./artifacts-declaration.ts";
export type { KeyProblem } from "./artifacts-declaration.ts";
export { describePlan } from "./describe-plan.ts";
export type { EgressLine } from "./egress.ts";
export type { TrialEvent, TrialEventType } from "./events.ts";
export type { Verify, VerifyContext } from "./grade.ts";
export { isJobError, JobError } from "./job-error.ts";
export type { JobErrorCode } from "./job-error.ts";
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
  StepPlan,
  StepSetupPlan,
  StagedFiles,
  TrialPlan,
  VerifierBoxPlan,
  VerifierPlan,
} from "./plan.ts";
export { planTrial } from "./plan-trial.ts";
export type { TrialProgress } from "./progress.ts";
export { formatProblem, isTasksetError, TasksetError } from "./problems.ts";
export type { TasksetErrorCode, TasksetErrorDetails, TasksetProblem } from "./problems.ts";
export type {
  ArtifactEntry,
  BuildFolder,
  CollectHook,
  McpServer,
  MinReward,
  Task,
  TaskAbout,
  TaskAgent,
  TaskEnvironment,
  TaskFiles,
  TaskFolder,
  TaskFolderEntry,
  TaskHealthcheck,
  TaskStep,
  TaskStepFiles,
  TaskVerifier,
  VerifierMode,
} from "./task.ts";
export { readRecordedTrial } from "./recorded-trial.ts";
export type { RecordedTrial } from "./recorded-trial.ts";
export { regradeJob } from "./regrade-job.ts";
export type { RegradeJobOptions, RegradeOutcome } from "./regrade-job.ts";
export { regradeTrial } from "./regrade.ts";
export type { RegradeOptions } from "./regrade.ts";
export { isRegradeError, RegradeError } from "./regrade-error.ts";
export type { RegradeErrorCode } from "./regrade-error.ts";
export type { Retry, TrialError, TrialErrorCode, TrialErrorReason, TrialPhase } from "./trial-error.ts";
export type {
  AgentOutcome,
  ArtifactOutcome,
  BoundedOutput,
  CollectedFrom,
  CollectHookOutcome,
  EndedByContents,
  PreparedImageRecord,
  RefusedArtifact,
  RegradedFrom,
  Retried,
  StepOutcome,
  StepResult,
  TrialResult,
  VerifierOutcome,
} from "./result.ts";
export { combineRewards, REWARD_FILES } from "./reward.ts";
export type { RewardFile, Rewards } from "./reward.ts";
export type { RetryPolicy } from "./retry-policy.ts";
export { runJob } from "./run-job.ts";
export type { RunJobOptions } from "./run-job.ts";
export { runTrial } from "./run-trial.ts";
export type { RunTrialOptions } from "./run-trial.ts";
