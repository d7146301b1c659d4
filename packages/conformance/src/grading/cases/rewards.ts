import assert from "node:assert/strict";
import { nopAgent } from "@breakwater/harbor-taskset";
import type { GradingCase, GradingContext } from "../case.ts";
import { assertFacts, explain, has, onlyEvent } from "../facts.ts";
import { FACTS } from "../look-around.ts";
import { buildNeeds } from "../needs.ts";
import { REWARD_OBSTACLES, REWARD_SHAPES, shapeId } from "../reward-shapes.ts";
import { slowSecondBox } from "../slow-second-box.ts";
import { STANDARD_TASKS, TASK_TITLES, text } from "../standard-tasks.ts";
import type { FinishedTrial } from "../trials.ts";
import type { TaskFileContent } from "../write-task.ts";

/** A reward exists only if the verifier wrote a valid one. */
export const rewardCases: readonly GradingCase[] = [
  ...STANDARD_TASKS.map((task): GradingCase => ({
    id: `grading.reward-json-${task}`,
    title: `reward.json read: ${TASK_TITLES[task]}`,
    promise: "rewards is the map that the verifier wrote.",
    ...buildNeeds(task),
    async run({ trials }) {
      const { result } = await trials.standard(task);
      assert.equal(result.error, null, explain(result));
      assert.equal(result.reward, 1);
      assert.equal(Object.keys(result.rewards ?? {}).length, FACTS, explain(result));
      assert.equal(result.verifier?.rewardFrom, "reward.json");
    },
  })),
  {
    id: "grading.wrong-answer",
    title: "wrong answer scores 0",
    promise: "rewards is the map that the verifier wrote.",
    async run({ trials }) {
      for (const task of ["shared", "fresh"] as const) {
        assert.equal((await trials.standard(task)).result.reward, 1, `${task}: the right answer`);
        const trial = await trials.standard(task, "wrong");
        assertFacts(trial, { reward: 0 });
        assert.equal(trial.result.reward, 0);
      }
    },
  },
  {
    id: "grading.bad-verifier-image",
    title: "a bad verifier image is an error before the agent runs, never 0",
    promise: "Both images are prepared first, so that grading cannot fail on a pull after a paid agent run.",
    async run(context) {
      const { trials } = context;
      const files = separateTask(context, { verifierImage: UNREACHABLE_IMAGE });
      const trial = await trials.run({ files, agent: nopAgent() });
      const { rewards, reward, error } = trial.result;
      assert.deepEqual([rewards, reward, error?.reason, error?.phase], [null, null, "infrastructure", "images"]);
      assert.match(error?.code ?? "", /^ERR_IMAGE_/);
      for (const type of ["agent-box.create", "agent.started", "verifier-box.create"] as const)
        assert.equal(has(trial, type), false, type);
      onlyEvent(trial, "trial.ended");
      return error?.code ?? "";
    },
  },
  {
    id: "grading.provision-timeout",
    title: "a verifier box that cannot be had in time is a timeout of phase provision",
    promise:
      "The verifier's deadline covers steps 8 to 11; a grading box that cannot be had in time may be tried again.",
    async run(context) {
      const { trials } = context;
      const files = separateTask(context, { verifierTimeoutSeconds: 3 });
      const driver = slowSecondBox(trials.driver);
      const trial = await trials.run({ files, agent: nopAgent(), driver });
      assertProvisionTimeout(trial);
      assert.equal(has(trial, "verifier-box.create"), true, "the box was not asked for");
      assert.equal(has(trial, "verifier.started"), false, "the tests were started");
    },
  },
  {
    id: "grading.provision-timeout-healthcheck",
    title: "a verifier box that does not become healthy in time is a timeout of phase provision",
    promise: "The verifier's deadline covers steps 8 to 11, the healthcheck among them.",
    async run(context) {
      const { options, trials } = context;
      const healthcheck = `[verifier.environment.healthcheck]\ncommand = "sleep 1000"\ntimeout_sec = 1000\n`;
      const files = separateTask(context, {
        verifierImage: options.image,
        // The box is had by then, also on a busy machine.
        verifierTimeoutSeconds: 30,
        more: healthcheck,
      });
      const trial = await trials.run({ files, agent: nopAgent() });
      assertProvisionTimeout(trial);
      assert.equal(has(trial, "verifier-box.started"), true, "the box was not had");
    },
  },
  ...REWARD_SHAPES.map((shape): GradingCase => ({
    id: `grading.shape-${shapeId(shape)}`,
    title: `reward shape: ${shape.file} ${JSON.stringify(shape.content)} is ${shape.outcome}`,
    promise: "docs/grading.md lists every shape with its outcome.",
    run: (context) =>
      expectOutcome(context, `cp /tests/content /logs/verifier/${shape.file}`, shape.outcome, shape.content),
  })),
  ...REWARD_OBSTACLES.map((obstacle): GradingCase => ({
    id: `grading.obstacle-${obstacle.id}`,
    title: `reward shape: ${obstacle.what} is ${obstacle.outcome}`,
    promise: "Nothing is followed and nothing blocks.",
    run: (context) => expectOutcome(context, `cd /logs/verifier && ${obstacle.leave}`, obstacle.outcome, ""),
  })),
];

/** Nothing listens on this port of whatever host pulls images. */
const UNREACHABLE_IMAGE = "127.0.0.1:1/breakwater/no-such-image:1";

async function expectOutcome(
  { options, trials, capabilities }: GradingContext,
  leave: string,
  outcome: string,
  content: string,
): Promise<void> {
  const network = networkOf(capabilities);
  const files = {
    "task.toml": `[environment]\ndocker_image = ${text(options.image)}\n${network}\n[verifier]\ntimeout_sec = 300\n`,
    "instruction.md": "Nothing to do.\n",
    "tests/test.sh": `#!/bin/sh\n${leave}\n`,
    "tests/content": content,
  };
  const { result } = await trials.run({ files, agent: nopAgent() });
  const found = result.rewards === null ? result.error?.reason : JSON.stringify(result.rewards);
  assert.equal(found, outcome, explain(result));
  if (result.rewards === null) assert.equal(result.reward, null);
  else assert.equal(result.error, null);
}

/** None of these cases needs a network, and not every driver has one. */
function networkOf({ networkModes }: GradingContext["capabilities"]): string {
  return networkModes.includes("no-network") ? 'network_mode = "no-network"' : "";
}

function assertProvisionTimeout({ result }: FinishedTrial): void {
  const { rewards, error } = result;
  assert.deepEqual(
    [rewards, error?.reason, error?.phase, error?.code, error?.retry],
    [null, "timeout", "provision", "ERR_VERIFIER_TIMEOUT", "grading"],
    explain(result),
  );
}

interface SeparateTask {
  readonly verifierImage?: string;
  readonly verifierTimeoutSeconds?: number;
  /** Further tables. */
  readonly more?: string;
}

function separateTask(
  { options: { image }, capabilities }: GradingContext,
  { verifierImage, verifierTimeoutSeconds = 300, more = "" }: SeparateTask,
): Readonly<Record<string, TaskFileContent>> {
  const network = networkOf(capabilities);
  const environment =
    verifierImage === undefined ? "" : `[verifier.environment]\ndocker_image = ${text(verifierImage)}\n${network}\n`;
  return {
    "task.toml": `[environment]\ndocker_image = ${text(image)}\n${network}\n[verifier]\nenvironment_mode = "separate"\ntimeout_sec = ${verifierTimeoutSeconds}\n${environment}${more}`,
    "instruction.md": "Nothing to do.\n",
    "tests/test.sh": "#!/bin/sh\necho 1 >/logs/verifier/reward.txt\n",
  };
}
