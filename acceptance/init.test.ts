import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { image } from "./support/backend.ts";
import { cli } from "./support/cli.ts";
import { Workbench } from "./support/trials.ts";

/* A new task, from nothing to a verdict. */

const workbench = new Workbench();
afterAll(() => workbench[Symbol.asyncDispose]());

test("breakwater init: a task that loads, that its solution passes, and that nothing passes by itself", async () => {
  await workbench.writeTask({ x: "" }, "other");
  const cwd = await workbench.folder("tasks");
  const init = await cli(["init", "My first task", "--image", image], { cwd });
  expect([init.exitCode, init.stderr]).toEqual([0, ""]);
  const check = await cli(["check", "-p", "My first task", "--json"], { cwd });
  expect([check.exitCode, JSON.parse(check.stdout)]).toMatchObject([
    0,
    { task: "local/My-first-task", ok: true, problems: [], warnings: [] },
  ]);

  const rewards: unknown[] = [];
  for (const agent of ["oracle", "nop"]) {
    const run = await cli(["run", "-p", "My first task", "-a", agent, "-o", "jobs", "--job-name", agent, "--json"], {
      cwd,
    });
    expect(run.exitCode).toBe(0);
    const line = JSON.parse(run.stdout) as { readonly mode: string; readonly reward: number };
    rewards.push([line.mode, line.reward]);
  }
  expect(rewards).toEqual([
    ["separate", 1],
    ["separate", 0],
  ]);
  // The job's own files, in Harbor's words.
  const job = async (file: string): Promise<unknown> => JSON.parse(await readFile(join(cwd, "jobs/nop", file), "utf8"));
  expect(await job("config.json")).toMatchObject({ job_name: "nop", agents: [{ name: "nop" }] });
  expect(await job("result.json")).toMatchObject({
    n_total_trials: 1,
    stats: { n_completed_trials: 1, n_errored_trials: 0, evals: { nop__adhoc: { metrics: [{ mean: 0 }] } } },
  });
  expect(await job("lock.json")).toMatchObject({ trials: [{ task: { name: "local/My-first-task" } }] });

  // Nothing is written over.
  const again = await cli(["init", "My first task"], { cwd });
  expect([again.exitCode, again.stderr]).toEqual([2, expect.stringContaining("is not empty")]);
});
