import assert from "node:assert/strict";
import {
  type Agent,
  isTasksetError,
  planTrial,
  shellAgent,
  type Task,
  type TasksetErrorCode,
  type TasksetProblem,
} from "@breakwater/harbor-taskset";
import type { RuntimeCapabilities } from "@breakwater/runtime-api";
import type { GradingCase, GradingContext } from "../case.ts";
import { delegate } from "../delegate.ts";
import { assertFacts, explain, fact, has, onlyEvent } from "../facts.ts";
import { HONEST_AGENT } from "../look-around.ts";
import { standardTask, text } from "../standard-tasks.ts";
import type { TaskFileContent } from "../write-task.ts";

const REFUSED_ROOTS: readonly string[] = [
  "/",
  "/logs",
  "/tests",
  "/tests/",
  "/tests/data",
  "/logs/verifier",
  "/logs/verifier/reward.json",
  "/logs/./verifier",
];

const LOADED_ROOTS: readonly string[] = ["/logs/artifacts/out", "/logs/artifacts", "/logs/agent", "/app", "/testsuite"];

/** What is decided before any box is paid for. */
export const planCases: readonly GradingCase[] = [
  {
    id: "grading.artifact-roots",
    title:
      "an artifact entry equal to, above or inside /tests or /logs/verifier, or equal to /logs or /, is refused at load; /logs/artifacts/… and /logs/agent load",
    promise: "Artifact roots equal to, above or inside /tests or /logs/verifier are refused.",
    async run(context) {
      for (const root of REFUSED_ROOTS) {
        const problems = await problemsOf(() => loadWith(context, root), "ERR_TASK_INVALID");
        assert.deepEqual(
          problems.map(({ file, key }) => [file, key]),
          [["task.toml", "artifacts[0]"]],
          root,
        );
      }
      for (const root of LOADED_ROOTS) assert.equal((await loadWith(context, root)).artifacts[0]?.source, root);
    },
  },
  {
    id: "grading.build-refused",
    title: "a build definition on a driver that cannot build is a load error that says to build and push",
    promise: "Where the driver cannot build, a load error says to build and push the image and where to name it.",
    async run(context) {
      const task = await context.trials.load(builtFiles(context));
      const problems = await problemsOf(() => planTrial(task, withoutBuilds(context)), "ERR_PLAN_REFUSED");
      const [problem] = problems;
      assert.ok(problem !== undefined && problems.length === 1, JSON.stringify(problems));
      assert.equal(problem.file, "tests/Dockerfile");
      assert.match(problem.advice, /build and push/);
      assert.match(problem.advice, /\[verifier\.environment\]/);
      return problem.advice;
    },
  },
  {
    id: "grading.ignore-dockerfile",
    title: "ignoreDockerfile loads a build definition with a warning, and grades in a fresh copy",
    promise: "ignoreDockerfile is the escape: falls back to the agent's image, with a warning.",
    timeoutMs: 120_000,
    async run(context) {
      const files = builtFiles(context);
      const plan = planTrial(await context.trials.load(files), withoutBuilds(context), { ignoreDockerfile: true });
      assert.equal(plan.steps[0].verifier.box?.image.kind, "agent-image");
      const warnings = plan.warnings.filter(({ file }) => file === "tests/Dockerfile");
      assert.equal(warnings.length, 1, JSON.stringify(plan.warnings));

      const driver = delegate(context.trials.driver, { probe: async () => withoutBuilds(context) });
      const trial = await context.trials.run({ files, agent, driver, ignoreDockerfile: true });
      // The task's whole folder is uploaded, what was meant for the image included.
      assertFacts(trial, { reward: 1, file_of_task: 1, own_file_of_image: 1, undeclared_file: 0 });
      assert.equal(fact(trial, "python_minor"), fact(trial, "agent_python_minor"), "not the agent's image");
      return warnings[0]?.message;
    },
  },
  {
    id: "grading.ignore-separate",
    title: "ignoreSeparateVerifier grades shared",
    promise:
      "ignoreSeparateVerifier: grade in the agent's box although the task asks for a separate one, with a warning.",
    async run(context) {
      const files = standardTask("fresh", context.options, context.capabilities, null);
      const trial = await context.trials.run({ files, agent, ignoreSeparateVerifier: true });
      assert.equal(trial.result.mode, "shared", explain(trial.result));
      assertFacts(trial, { reward: 1, undeclared_file: 1, file_of_task: 1 });
      assert.equal(has(trial, "verifier-box.create"), false);
      onlyEvent(trial, "trial.ended");
    },
  },
];

/** Honest work in the standard tasks. */
const agent: Agent = shellAgent(HONEST_AGENT);

function builtFiles({ options, capabilities }: GradingContext): Readonly<Record<string, TaskFileContent>> {
  return standardTask("built", options, capabilities, null);
}

/** What a backend says that has no builder. */
function withoutBuilds({ capabilities }: GradingContext): RuntimeCapabilities {
  return { ...capabilities, imageSources: ["reference"] };
}

async function loadWith(context: GradingContext, artifact: string): Promise<Task> {
  const { "task.toml": file, ...others } = standardTask("fresh", context.options, context.capabilities, null);
  const artifacts = `artifacts = [${text(artifact)}]`;
  return context.trials.load({ ...others, "task.toml": String(file).replace(/^artifacts = .*$/m, artifacts) });
}

async function problemsOf(work: () => unknown, code: TasksetErrorCode): Promise<readonly TasksetProblem[]> {
  try {
    await work();
  } catch (error) {
    if (isTasksetError(error, code)) return error.problems;
    throw error;
  }
  throw new assert.AssertionError({ message: `expected a TasksetError with code ${code}, but it loaded` });
}
