import { expect, test } from "vitest";

import { harborConfig, harborLock, harborResult, type HarborFacts } from "./harbor-files.ts";
import type { StepOutcome, TrialResult } from "./result.ts";
import type { TrialError, TrialErrorReason, TrialPhase } from "./trial-error.ts";

const NOTHING: StepOutcome = {
  mode: null,
  agent: null,
  collectHooks: [],
  artifacts: [],
  artifactsRefused: [],
  collectedFrom: null,
  verifier: null,
};
const RESULT: TrialResult = {
  ...NOTHING,
  trial: "task__abc1234",
  task: "org/task",
  driver: "docker",
  mode: "separate",
  agent: { status: "completed", exitCode: null, message: null, durationMs: 1, boxEndedBy: null },
  rewards: { reward: 1 },
  reward: 1,
  error: null,
  startedAt: "2026-01-01T00:00:00.000Z",
  finishedAt: "2026-01-01T00:01:00.000Z",
  durationMs: 60_000,
  dir: "/out/task__abc1234",
  eventsFile: null,
  steps: null,
  stepsNotRun: [],
  notEnforced: [],
  images: [],
  deniedConnections: { agent: 0, verifier: 0 },
  warnings: [],
  leftovers: [],
  retries: [],
};
/** Everything happened, second by second, in the order of this list. */
const ORDER = [
  "agent-box.create",
  "agent-box.started",
  "agent.started",
  "agent.ended",
  "verifier-box.create",
  "verifier-logs.read",
  "trial.ended",
];
const FACTS: HarborFacts = {
  id: "7d1f0c1e-6a0b-4f52-9b57-0c6f0f3f6a11",
  task: { directory: "/tasks/task", name: "org/task", source: null, about: { version: "1.0.0" } } as never,
  digest: "ab".repeat(32),
  options: { allowAgentHosts: ["a.b"], artifacts: ["/x"], overrideCpus: 2, agentEnv: { KEY: "hunter2" } },
  agentName: "oracle",
  outputDir: "/out",
  at: (type) => (ORDER.includes(type) ? `2026-01-01T00:00:0${ORDER.indexOf(type)}.000Z` : null),
};
const error = (reason: TrialErrorReason, phase: TrialPhase = "run"): TrialError => ({
  reason,
  phase,
  code: "ERR_INTERNAL",
  message: "why",
  retry: "never",
  causes: ["because"],
});

test("a trial in Harbor's words: everything that its models require, with zone-aware times", () => {
  expect(harborResult(RESULT, FACTS)).toMatchObject({
    schema_version: 1,
    id: FACTS.id,
    task_name: "org/task",
    trial_name: "task__abc1234",
    trial_uri: "file:///out/task__abc1234",
    task_id: { path: "/tasks/task" },
    task_checksum: FACTS.digest,
    config: { task: { path: "/tasks/task" }, environment: { type: "docker" } },
    agent_info: { name: "oracle", version: "unknown" },
    verifier_result: { rewards: { reward: 1 } },
    verifier_environment_mode: "separate",
    exception_info: null,
    environment_setup: { started_at: "2026-01-01T00:00:00.000Z", finished_at: "2026-01-01T00:00:01.000Z" },
    agent_execution: { started_at: "2026-01-01T00:00:02.000Z", finished_at: "2026-01-01T00:00:03.000Z" },
    verifier: { started_at: "2026-01-01T00:00:04.000Z", finished_at: "2026-01-01T00:00:05.000Z" },
    step_results: null,
  });
  expect(harborLock(RESULT, FACTS)).toMatchObject({
    task: { name: "org/task", type: "local", digest: `sha256:${FACTS.digest}`, version: "1.0.0" },
    verifier: { environment_mode: "separate" },
  });
});

test("another driver is named as Harbor names what it does not know; no value of a variable is in the configuration", () => {
  const config = harborConfig({ ...RESULT, driver: "my-driver" }, FACTS);
  expect(config["environment"]).toMatchObject({
    type: null,
    import_path: "breakwater.my_driver:Runtime",
    override_cpus: 2,
  });
  expect(config["agent"]).toEqual({ name: "oracle", extra_allowed_hosts: ["a.b"] });
  expect(JSON.stringify(config)).not.toContain("hunter2");
});

test.each<[TrialErrorReason, TrialPhase, string]>([
  ["missing", "reward", "RewardFileNotFoundError"],
  ["crashed", "run", "RewardFileNotFoundError"],
  ["empty", "reward", "RewardFileEmptyError"],
  ["invalid", "reward", "VerifierOutputParseError"],
  ["timeout", "run", "VerifierTimeoutError"],
  ["timeout", "provision", "EnvironmentStartTimeoutError"],
  ["unhealthy", "agent-box", "HealthcheckError"],
  ["aborted", "agent", "CancelledError"],
  ["refused", "agent-box", "ValueError"],
  ["infrastructure", "teardown", "RuntimeError"],
])("no rewards (%s, %s) is Harbor's %s", (reason, phase, type) => {
  const failed = { ...RESULT, rewards: null, reward: null, error: error(reason, phase) };
  expect(harborResult(failed, FACTS)).toMatchObject({
    verifier_result: null,
    exception_info: { exception_type: type, exception_message: "why", exception_traceback: "because" },
  });
});

test.each([
  [{ status: "timed-out" as const, exitCode: null }, "AgentTimeoutError"],
  [{ status: "failed" as const, exitCode: 3 }, "NonZeroAgentExitCodeError"],
  [{ status: "failed" as const, exitCode: null }, "RuntimeError"],
])("an agent that fails is the trial's exception, and graded: %j", (end, type) => {
  const agent = { ...end, message: "m", durationMs: 1, boxEndedBy: null };
  expect(harborResult({ ...RESULT, agent }, FACTS)).toMatchObject({
    verifier_result: { rewards: { reward: 1 } },
    exception_info: { exception_type: type, exception_message: "m", occurred_at: "2026-01-01T00:00:03.000Z" },
  });
});

test("steps have their own; what ends a step is the step's, what ends the trial is the trial's", () => {
  const step = { ...NOTHING, mode: "shared" as const, agent: RESULT.agent };
  const steps = [
    { ...step, name: "one", rewards: { reward: 1 }, reward: 1 },
    { ...step, name: "two", rewards: null, reward: null },
  ];
  const several = { ...RESULT, ...NOTHING, rewards: null, reward: null, steps };
  expect(harborResult({ ...several, error: error("invalid") }, FACTS)).toMatchObject({
    verifier_environment_mode: null,
    agent_result: null,
    agent_execution: null,
    verifier: null,
    exception_info: null,
    step_results: [
      { step_name: "one", verifier_result: { rewards: { reward: 1 } }, exception_info: null },
      { step_name: "two", verifier_result: null, exception_info: { exception_type: "VerifierOutputParseError" } },
    ],
  });
  expect(harborResult({ ...several, error: error("infrastructure") }, FACTS)).toMatchObject({
    exception_info: { exception_type: "RuntimeError" },
    step_results: [{ exception_info: null }, { exception_info: null }],
  });
});
