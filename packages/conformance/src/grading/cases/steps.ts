import assert from "node:assert/strict";
import { type Agent, isTasksetError, planTrial, type TrialEventType } from "@breakwater/harbor-taskset";
import { freezes } from "../../needs.ts";
import type { GradingCase, GradingContext } from "../case.ts";
import { explain } from "../facts.ts";
import { text } from "../standard-tasks.ts";
import type { FinishedTrial } from "../trials.ts";
import type { TaskFileContent } from "../write-task.ts";

/** Tasks of several steps: one box for the agent, a verdict after each. */
export const stepCases: readonly GradingCase[] = [
  {
    id: "grading.steps-frozen",
    title: "before another step the agent's box stays frozen until the verifier's box is proven gone",
    promise: "The box goes on to a further step: it stays frozen until that step's verifier box is proven gone.",
    needs: [freezes],
    timeoutMs: 180_000,
    async run(context) {
      const trial = await context.trials.run({ files: twoSteps(context, "separate"), agent });
      assert.equal(trial.result.error, null, explain(trial.result));
      const order = types(trial, [
        "agent.frozen",
        "artifact.collected",
        "verifier-box.create",
        "verifier-box.gone",
        "agent.thawed",
        "agent-box.gone",
      ]);
      assert.deepEqual(order, [
        "one agent.frozen",
        "one artifact.collected",
        "one verifier-box.create",
        "one verifier-box.gone",
        "two agent.thawed",
        "two artifact.collected",
        "two agent-box.gone",
        "two verifier-box.create",
        "- verifier-box.gone",
      ]);
      // Files of /logs/artifacts belong to the step that wrote them; a process of the first step lives on.
      assert.deepEqual(
        trial.result.steps?.map(({ rewards }) => rewards),
        [
          { reward: 1, of_step_one: 1, of_step_two: 0, ticks: 1 },
          { reward: 1, of_step_one: 0, of_step_two: 1, ticks: 1 },
        ],
      );
      assert.deepEqual(trial.result.rewards, { reward: 1, of_step_one: 0.5, of_step_two: 0.5, ticks: 1 });
    },
  },
  {
    id: "grading.steps-cleared",
    title: "after a shared step the next agent finds neither tests nor verdict",
    promise: "A shared step followed by another: tests and verifier output are removed and shown gone.",
    timeoutMs: 180_000,
    async run(context) {
      const trial = await context.trials.run({ files: twoSteps(context, "shared"), agent });
      assert.equal(trial.result.error, null, explain(trial.result));
      assert.deepEqual(types(trial, ["verifier.ended", "agent-box.cleared", "agent.started"]), [
        "one agent.started",
        "one verifier.ended",
        "two agent-box.cleared",
        "two agent.started",
        "two verifier.ended",
      ]);
      const rewards = trial.result.steps?.map((step) => step.rewards);
      // What the second agent found: its tests would have been there, and a reward of 1.
      assert.deepEqual(rewards, [
        { reward: 1, of_step_one: 1, of_step_two: 0, ticks: 1 },
        { reward: 1, of_step_one: 0, of_step_two: 1, ticks: 1 },
      ]);
      assert.deepEqual(
        trial.result.warnings.map(({ key }) => key),
        ["steps[0]"],
        "shared before another step is a warning",
      );
    },
  },
  {
    id: "grading.steps-live-refused",
    title: "a driver that cannot freeze refuses a separate step before another one",
    promise: "Drivers without freeze are refused unless --allow-live-agent-box.",
    async run(context) {
      const task = await context.trials.load(twoSteps(context, "separate"));
      const capabilities = { ...context.capabilities, freeze: "none" as const };
      assert.throws(
        () => planTrial(task, capabilities),
        (error) => isTasksetError(error, "ERR_PLAN_REFUSED") && error.problems.some(({ key }) => key === "steps[0]"),
      );
      assert.equal(planTrial(task, capabilities, { allowLiveAgentBox: true }).steps.length, 2);
    },
  },
];

/** The first agent starts a clock; the second one hands in nothing if it finds tests or a verdict, or if the clock stands still. */
const agent: Agent = async ({ box, step }) => {
  const script =
    step === "one"
      ? `(while :; do date +%s%N >/clock; sleep 0.1; done) </dev/null >/dev/null 2>&1 &
touch /logs/artifacts/of-one`
      : `[ ! -e /tests ] && [ -z "$(ls -A /logs/verifier)" ] || exit 1
touch /logs/artifacts/of-two`;
  const { exitCode } = await box.exec([
    "sh",
    "-c",
    `${script}
first=$(cat /clock 2>/dev/null)
for try in $(seq 300); do
  if [ "$(cat /clock 2>/dev/null)" != "$first" ]; then touch /logs/artifacts/ticks; exit 0; fi
  sleep 0.1
done`,
  ]);
  assert.equal(exitCode, 0);
};

function twoSteps(
  { options, capabilities }: Pick<GradingContext, "options" | "capabilities">,
  mode: "shared" | "separate",
): Readonly<Record<string, TaskFileContent>> {
  const network = capabilities.networkModes.includes("no-network") ? 'network_mode = "no-network"' : "";
  return {
    "task.toml": `[agent]
timeout_sec = 60
[environment]
docker_image = ${text(options.image)}
${network}
[verifier]
environment_mode = "${mode}"
timeout_sec = 90
[[steps]]
name = "one"
[[steps]]
name = "two"
`,
    "steps/one/instruction.md": "Leave of-one and ticks in /logs/artifacts.\n",
    "steps/two/instruction.md": "Leave of-two and ticks in /logs/artifacts.\n",
    "tests/test.sh": `#!/bin/sh
there() { if [ -e "/logs/artifacts/$1" ]; then echo 1; else echo 0; fi; }
cat >/logs/verifier/reward.json <<END
{"reward": 1, "of_step_one": $(there of-one), "of_step_two": $(there of-two), "ticks": $(there ticks)}
END
`,
  };
}

function types({ events }: FinishedTrial, wanted: readonly TrialEventType[]): readonly string[] {
  return events.filter(({ type }) => wanted.includes(type)).map(({ type, step }) => `${step ?? "-"} ${type}`);
}
