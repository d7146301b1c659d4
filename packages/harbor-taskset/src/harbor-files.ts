import { pathToFileURL } from "node:url";

import type { TrialEventType } from "./events.ts";
import type { TrialOptions } from "./options.ts";
import type { AgentOutcome, StepOutcome, TrialResult } from "./result.ts";
import type { RecordedRound, RecordedTrial } from "./recorded-trial.ts";
import type { Rewards } from "./reward.ts";
import type { Task } from "./task.ts";
import type { TrialError } from "./trial-error.ts";

/*
 * A finished trial in the words of Harbor 0.26 (`models/trial/result.py`, `models/trial/config.py`, `models/job/lock.py`), so that its own tools read it. Its models
 * ignore keys that they do not know: ours stand beside them in `result.json`.
 */

/** What is known of a trial besides its result. */
export interface HarborFacts {
  readonly id: string;
  readonly task: Task;
  /** Of the task's files, 64 hexadecimal digits; `null` = not known. */
  readonly digest: string | null;
  readonly options: TrialOptions;
  readonly agentName: string;
  readonly outputDir: string | undefined;
  /** When something of a step happened last; `step` is `null` for a task without steps. ISO 8601, UTC. */
  readonly at: (type: TrialEventType, step: string | null) => string | null;
  /** Whose artifacts were graded again; `null`: an agent has worked in this trial. */
  readonly recorded?: RecordedTrial | null | undefined;
}

type Json = Readonly<Record<string, unknown>>;

/** `config.json`, and `config` in `result.json`. Values of environment variables are not written down. */
export function harborConfig(
  result: TrialResult,
  { task, options, agentName, outputDir, recorded }: HarborFacts,
): Json {
  const hosts = (list: readonly string[] | undefined): Json =>
    list === undefined ? {} : { extra_allowed_hosts: list };
  return {
    schema_version: 1,
    task: { path: task.directory },
    trial_name: result.trial,
    trials_dir: outputDir ?? "",
    timeout_multiplier: options.timeoutMultiplier ?? 1,
    agent_timeout_multiplier: options.agentTimeoutMultiplier ?? null,
    verifier_timeout_multiplier: options.verifierTimeoutMultiplier ?? null,
    environment_build_timeout_multiplier: options.environmentBuildTimeoutMultiplier ?? null,
    agent: recorded?.agentConfig ?? { name: agentName, ...hosts(options.allowAgentHosts) },
    ...(recorded === null || recorded === undefined ? {} : { source_trial: sourceTrial(recorded) }),
    environment: {
      // Harbor knows its own providers by name, and all others by where they can be imported from.
      ...(result.driver === "docker"
        ? { type: "docker" }
        : { type: null, import_path: `breakwater.${result.driver.replace(/\W/g, "_")}:Runtime` }),
      override_cpus: options.overrideCpus ?? null,
      override_memory_mb: options.overrideMemoryMb ?? null,
      override_storage_mb: options.overrideStorageMb ?? null,
      ...hosts(options.allowEnvironmentHosts),
    },
    verifier: { ...hosts(options.allowVerifierHosts) },
    artifacts: (options.artifacts ?? []).map((entry) => (typeof entry === "string" ? entry : { ...entry })),
  };
}

/** Harbor's keys of `result.json`. `verifier` has Harbor's times; ours come on top. */
export function harborResult(result: TrialResult, facts: HarborFacts): Json {
  const { task, id, digest, agentName, at, recorded = null } = facts;
  const { steps } = result;
  const round = (
    outcome: StepOutcome,
    rewards: Rewards | null,
    name: string | null,
    error: TrialError | null,
  ): Round => {
    const graded = describeRound(outcome, rewards, name, error, at);
    const before = name === null ? recorded?.round : recorded?.steps?.find((step) => step.name === name);
    return before === undefined ? graded : { ...graded, ...agentsPart(before, graded) };
  };
  const own = steps === null ? round(result, result.rewards, null, result.error) : null;
  return {
    schema_version: 1,
    id,
    task_name: result.task,
    trial_name: result.trial,
    trial_uri: result.dir === null ? "" : pathToFileURL(result.dir).href,
    task_id: { path: task.directory },
    source: task.source,
    task_checksum: digest ?? "",
    config: harborConfig(result, facts),
    agent_info: recorded?.result["agent_info"] ?? { name: agentName, version: "unknown", model_info: null },
    agent_result: own === null ? null : own.agent_result,
    verifier_result: result.rewards === null ? null : { rewards: result.rewards },
    verifier_environment_mode: steps === null ? result.mode : null,
    exception_info:
      own === null
        ? exceptionOf(stepOfError(result) === null ? result.error : null, result.finishedAt)
        : own.exception_info,
    started_at: result.startedAt,
    finished_at: result.finishedAt,
    environment_setup: span(
      at("agent-box.create", null),
      at("agent-box.healthy", null) ?? at("agent-box.started", null),
    ),
    agent_setup: null,
    agent_execution: own === null ? null : own.agent_execution,
    verifier: own === null ? null : own.verifier,
    step_results:
      steps === null || steps.length === 0
        ? null
        : steps.map((step) => ({
            step_name: step.name,
            ...round(step, step.rewards, step.name, stepOfError(result) === step.name ? result.error : null),
          })),
  };
}

/** The step whose own end is what ended the trial; `null` where it was something else, or where there are no steps. */
function stepOfError({ error, steps }: TrialResult): string | null {
  if (error === null || steps === null) return null;
  const isSteps = error.reason !== "infrastructure" && error.reason !== "aborted" && error.reason !== "refused";
  return isSteps ? (steps.at(-1)?.name ?? null) : null;
}

/** `lock.json`. */
export function harborLock(result: TrialResult, { task, digest, agentName, recorded }: HarborFacts): Json {
  return {
    schema_version: 2,
    task: {
      name: task.name,
      type: "local",
      digest: `sha256:${digest ?? "0".repeat(64)}`,
      path: task.directory,
      ...(task.about?.version === null || task.about === null ? {} : { version: task.about.version }),
      ...(task.source === null ? {} : { source: task.source }),
    },
    agent: { name: agentName },
    environment: {},
    verifier: result.mode === null ? {} : { environment_mode: result.mode },
    ...(recorded === null || recorded === undefined
      ? {}
      : {
          source_trial: {
            ...sourceTrial(recorded),
            ...(recorded.lockedTask === null ? {} : { task: recorded.lockedTask }),
          },
        }),
  };
}

/** Where what was graded again came from, in Harbor's words. */
function sourceTrial({ id, directory }: RecordedTrial): Json {
  return { action: "regrade", type: "local", ...(id === null ? {} : { trial_id: id }), path: directory };
}

/** What stays of a recorded round: all that the agent did, and its failure, but not that of the verifier of then. */
function agentsPart(before: RecordedRound, graded: Round): Partial<Round> {
  const { exception_info: exception } = before;
  const gradedAt = before.verifier?.started_at ?? null;
  const isAgents =
    exception !== null &&
    exception !== undefined &&
    (gradedAt === null
      ? before.verifier === null || before.verifier === undefined || hasRewards(before)
      : Date.parse(exception.occurred_at) <= Date.parse(gradedAt));
  return {
    agent_result: before.agent_result ?? null,
    agent_execution: before.agent_execution ?? null,
    exception_info: graded.exception_info ?? (isAgents ? exception : null),
  };
}

function hasRewards({ verifier_result: verified }: RecordedRound): boolean {
  return verified !== null && verified !== undefined;
}

interface Round {
  readonly agent_result: Json | null;
  readonly verifier_result: Json | null;
  readonly exception_info: Json | null;
  readonly agent_execution: Json | null;
  readonly verifier: Json | null;
}

function describeRound(
  { agent }: StepOutcome,
  rewards: Rewards | null,
  step: string | null,
  error: TrialError | null,
  at: HarborFacts["at"],
): Round {
  const began = at("verifier-box.create", step) ?? at("tests.uploaded", step) ?? at("verifier.started", step);
  const ended =
    at("verifier-box.gone", step) ??
    at("verifier-logs.read", step) ??
    at("reward.read", step) ??
    at("verifier.ended", step);
  const agentEndedAt = at("agent.ended", step);
  return {
    agent_result: agent === null ? null : {},
    verifier_result: rewards === null ? null : { rewards },
    // The first one wins.
    exception_info:
      agentException(agent, agentEndedAt) ?? exceptionOf(error, at("trial.ended", null) ?? new Date().toISOString()),
    agent_execution: span(at("agent.started", step), agentEndedAt),
    verifier: began === null ? null : span(began, ended),
  };
}

function span(from: string | null, to: string | null): Json | null {
  return from === null ? null : { started_at: from, finished_at: to };
}

function agentException(agent: AgentOutcome | null, at: string | null): Json | null {
  if (agent === null || at === null || agent.status === "completed") return null;
  const type =
    agent.status === "timed-out"
      ? "AgentTimeoutError"
      : agent.status === "failed" && agent.exitCode !== null
        ? "NonZeroAgentExitCodeError"
        : "RuntimeError";
  return exception(type, agent.message ?? `the agent's box was ended by its contents (${agent.boxEndedBy})`, "", at);
}

function exceptionOf(error: TrialError | null, at: string): Json | null {
  return error === null ? null : exception(exceptionType(error), error.message, error.causes.join("\n"), at);
}

function exception(type: string, message: string, traceback: string, at: string): Json {
  return { exception_type: type, exception_message: message, exception_traceback: traceback, occurred_at: at };
}

/** Harbor's class for a reason: it decides there what is retried, and what counts (`models/trial/error_policy.py`). */
function exceptionType({ reason, phase }: TrialError): string {
  switch (reason) {
    case "missing":
    case "crashed":
      return "RewardFileNotFoundError";
    case "empty":
      return "RewardFileEmptyError";
    case "invalid":
      return "VerifierOutputParseError";
    case "timeout":
      return phase === "provision" ? "EnvironmentStartTimeoutError" : "VerifierTimeoutError";
    case "unhealthy":
      return "HealthcheckError";
    case "aborted":
      return "CancelledError";
    case "refused":
    case "artifacts":
      return "ValueError";
    case "infrastructure":
      return "RuntimeError";
  }
}
