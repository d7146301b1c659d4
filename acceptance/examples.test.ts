import { readdir } from "node:fs/promises";
import { join, relative } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import {
  loadTask,
  nopAgent,
  oracleAgent,
  runTrial,
  shellAgent,
  type Agent,
  type TrialResult,
} from "@breakwater/harbor-taskset";
import { Workbench } from "./support/trials.ts";

/* The example tasks do what they are there to show: their solution passes, and an untouched environment does not. */

const EXAMPLES = join(import.meta.dirname, "../examples/tasks");
const workbench = new Workbench();
afterAll(() => workbench[Symbol.asyncDispose]());

async function run(name: string, agent: Agent): Promise<TrialResult> {
  const task = await loadTask(join(EXAMPLES, name));
  return runTrial(task, { driver: workbench.driver, agent, outputDir: await workbench.folder("examples") });
}

// The folders whose names begin with "network" need a network: the matrix of policies runs them.
const folders = await readdir(EXAMPLES, { recursive: true, withFileTypes: true });
const tasks = folders
  .filter(({ name }) => name === "task.toml")
  .map(({ parentPath }) => relative(EXAMPLES, parentPath))
  .filter((name) => !name.startsWith("network"))
  .sort();

describe.concurrent("every example", () => {
  test.for(tasks)("%s: 1 with its solution, 0 with nothing", async (name) => {
    const oracle = await run(name, oracleAgent());
    expect([oracle.error, oracle.reward]).toEqual([null, 1]);
    const nop = await run(name, nopAgent());
    expect([nop.error, nop.reward]).toEqual([null, 0]);
  });
});

describe.concurrent("model-patch: only the patch reaches the verifier", () => {
  test("its reward file has a key for each check, and one counts", async () => {
    const { rewards } = await run(
      "model-patch",
      shellAgent(
        "sed -i 's/ordered\\[len.*/(ordered[len(ordered) \\/\\/ 2] + ordered[(len(ordered) - 1) \\/\\/ 2]) \\/ 2/' stats.py && git commit -qam x",
      ),
    );
    expect(Object.keys(rewards ?? {})).toHaveLength(12);
    expect(rewards).toMatchObject({ reward: 1, applied: 1, even: 1, mean_kept: 1 });
  });

  test("a patch that does not apply is 0", async () => {
    const agent = shellAgent(
      "git tag -d base; git checkout -q --orphan other; echo 'x = 1' >stats.py; git add .; git commit -qm x; git tag base; echo 'x = 2' >stats.py; git commit -qam y",
    );
    const { error, rewards } = await run("model-patch", agent);
    expect([error, rewards]).toEqual([null, expect.objectContaining({ reward: 0, applied: 0, odd: 1 })]);
  });

  test("what is not committed does not count", async () => {
    const { reward } = await run(
      "model-patch",
      shellAgent(
        "echo 'def median(values): raise SystemExit' >stats.py; mkdir -p /tests; echo 1 >/logs/verifier/reward.txt",
      ),
    );
    expect(reward).toBe(0);
  });
});
