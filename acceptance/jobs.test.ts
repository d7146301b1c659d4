import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import {
  loadTasks,
  runJob,
  shellAgent,
  type RunJobOptions,
  type TrialEvent,
  type TrialResult,
} from "@breakwater/harbor-taskset";
import { dockerDriver } from "@breakwater/runtime-docker";
import { dockerHost } from "./support/backend.ts";
import { EngineProxy } from "./support/engine-proxy.ts";
import { Stranger } from "./support/engine.ts";
import { killTable, KilledJobs, KILLS } from "./support/killed-jobs.ts";
import { type Files, taskFile, when, Workbench } from "./support/trials.ts";

/* Jobs: what is tried again and how, whose a folder is, and how one goes on that was killed; every moment of a trial is tried by jobs.long.test.ts. */

const workbench = new Workbench();
const stranger = new Stranger(dockerHost);
afterAll(() => workbench[Symbol.asyncDispose]());

const TASK: Files = {
  "task.toml": taskFile({ mode: "separate", artifacts: ["/app"] }),
  "instruction.md": "Leave the answer in /app/answer.txt.\n",
  "tests/test.sh": `#!/bin/sh\nsleep 1\nif [ "$(cat /app/answer.txt)" = right ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt\n`,
};
const AGENT = shellAgent("mkdir -p /app && echo right >/app/answer.txt");
const SLOW = shellAgent("sleep 3; mkdir -p /app && echo right >/app/answer.txt");

interface Job {
  readonly results: readonly TrialResult[];
  readonly events: readonly TrialEvent[];
  readonly options: RunJobOptions;
}

/** A job of one task in a folder of its own name. */
async function job(name: string, options: Partial<RunJobOptions> = {}): Promise<Job> {
  const directory = await workbench.writeTask(TASK, name);
  const { tasks } = await loadTasks(directory);
  const events: TrialEvent[] = [];
  const all: RunJobOptions = {
    driver: workbench.driver,
    agent: AGENT,
    outputDir: await workbench.folder(`jobs/${name}`),
    ...options,
    onEvent: (event) => {
      events.push(event);
      options.onEvent?.(event);
    },
  };
  const results: TrialResult[] = [];
  for await (const result of runJob(tasks, all)) results.push(result);
  return { results, events, options: all };
}

const count = ({ events }: Job, type: TrialEvent["type"]): number => events.filter((one) => one.type === type).length;

/** Kills the first box of which this is said. */
function killFirst(type: TrialEvent["type"]): ReturnType<typeof when> {
  let isFirst = true;
  return when(type, async ({ box = "" }) => {
    if (isFirst) {
      isFirst = false;
      await stranger.kill(box);
    }
  });
}

function rewardsOf(results: readonly TrialResult[]): Readonly<Record<string, number | null>> {
  return Object.fromEntries(results.map(({ trial, reward }) => [trial, reward]));
}

async function assertNothingLeft(of: Job): Promise<void> {
  for (const { trial } of of.results) expect(await stranger.objectsOf(trial)).toEqual([]);
}

describe.concurrent("what is tried again", () => {
  test("the grading only, where the agent's work is on disk: its agent works once", async () => {
    const kill = killFirst("verifier.started");
    const done = await job("verifier-lost", { maxRetries: 1, onEvent: kill.onEvent });
    await kill.acted();
    expect(done.results).toMatchObject([
      { reward: 1, error: null, retries: [{ again: "grading", error: { code: "ERR_BOX_LOST", phase: "run" } }] },
    ]);
    expect([count(done, "agent.started"), count(done, "verifier.started")]).toEqual([1, 2]);
    expect(done.events.map(({ sequence }) => sequence)).toEqual(done.events.map((_, index) => index + 1));
    await assertNothingLeft(done);
    const { outputDir } = done.options;
    expect(JSON.parse(await readFile(join(outputDir, "result.json"), "utf8"))).toMatchObject({
      n_total_trials: 1,
      stats: { n_completed_trials: 1, n_errored_trials: 0, n_retries: 1 },
    });
  });

  test("the trial, where it is not", async () => {
    const kill = killFirst("agent.started");
    const done = await job("agent-lost", { maxRetries: 1, agent: SLOW, onEvent: kill.onEvent });
    await kill.acted();
    expect(done.results).toMatchObject([{ reward: 1, retries: [{ again: "trial", error: { code: "ERR_BOX_LOST" } }] }]);
    expect(count(done, "agent.started")).toBe(2);
    await assertNothingLeft(done);
  });

  test("nothing that is excluded", async () => {
    const kill = killFirst("agent.started");
    const options = { maxRetries: 3, retryExclude: ["ERR_BOX_LOST"], agent: SLOW, onEvent: kill.onEvent };
    const done = await job("excluded", options);
    await kill.acted();
    expect(done.results).toMatchObject([{ rewards: null, error: { code: "ERR_BOX_LOST" }, retries: [] }]);
    expect(count(done, "agent.started")).toBe(1);
  });
});

test("an engine without room is waited for, not failed on", async () => {
  await using proxy = await EngineProxy.start(dockerHost);
  await using driver = dockerDriver({ host: proxy.host });
  proxy.break({ method: "POST", path: /\/containers\/create/, fault: "full" });
  const done = await job("no-room", {
    driver,
    onEvent: ({ type }) => {
      if (type === "agent-box.waiting" && proxy.done.length >= 2) proxy.break();
    },
  });
  expect(done.results).toMatchObject([{ reward: 1, retries: [] }]);
  const waits = done.events.filter(({ type }) => type === "agent-box.waiting");
  expect(waits.length).toBeGreaterThanOrEqual(2);
  expect(waits[0]).toMatchObject({ proof: {}, details: { reason: expect.stringContaining("429") as unknown } });
  await assertNothingLeft(done);
});

test("a folder is one process's at a time, and one job's", async () => {
  let second = null as Promise<unknown> | null;
  const { tasks } = await loadTasks(await workbench.writeTask(TASK, "folder"));
  const outputDir = await workbench.folder("jobs/folder");
  const first = await job("folder", {
    attempts: 2,
    onEvent: ({ type }) => {
      if (type !== "agent.started" || second !== null) return;
      second = runJob(tasks, { driver: workbench.driver, agent: AGENT, outputDir, resume: true, attempts: 2 })
        .next()
        .then(
          () => "began",
          (error: unknown) => error,
        );
    },
  });
  expect(first.results).toHaveLength(2);
  expect(await second).toMatchObject({ code: "ERR_JOB_LOCKED" });

  await expect(job("folder", { attempts: 2 })).rejects.toMatchObject({ code: "ERR_JOB_EXISTS" });
  await expect(job("folder", { attempts: 3, resume: true })).rejects.toMatchObject({
    code: "ERR_JOB_DIFFERENT",
    message: expect.stringContaining("attempts was 2 and is 3") as unknown,
  });
  const resumed = await job("folder", { attempts: 2, resume: true, concurrentTrials: 1 });
  expect(resumed.events).toEqual([]);
  expect(rewardsOf(resumed.results)).toEqual(rewardsOf(first.results));
  await expect(job("elsewhere", { resume: true })).rejects.toMatchObject({ code: "ERR_JOB_NOT_FOUND" });
});

test("who leaves the loop ends the job, and can go on with it", async () => {
  const { tasks } = await loadTasks(await workbench.writeTask(TASK, "left"));
  const options = {
    driver: workbench.driver,
    agent: SLOW,
    outputDir: await workbench.folder("jobs/left"),
    attempts: 3,
  };
  const names = new Set<string>();
  for await (const { trial } of runJob(tasks, { ...options, concurrentTrials: 2 })) {
    names.add(trial);
    break;
  }
  const lists = JSON.parse(await readFile(join(options.outputDir, "job.json"), "utf8")) as {
    readonly trials: readonly { readonly name: string }[];
  };
  for (const { name } of lists.trials) expect(await stranger.objectsOf(name)).toEqual([]);
  const results: TrialResult[] = [];
  for await (const result of runJob(tasks, { ...options, resume: true })) results.push(result);
  expect(rewardsOf(results)).toEqual(Object.fromEntries(lists.trials.map(({ name }) => [name, 1])));
  expect(results).toHaveLength(3);
  expect(results.map(({ trial }) => trial)).toEqual(expect.arrayContaining([...names]));
});

const SOME = new Set(["0 agent.started", "0 work.saved", "0 verifier.started", "0 trial.ended"]);

test(
  "killed and resumed: one result for each trial, no work that was handed in is done again, nothing is left",
  { timeout: 1_200_000 },
  async () => {
    const jobs = new KilledJobs(await workbench.folder("kills"));
    const outcomes = [];
    for (const moment of KILLS.filter(({ after, delayMs }) => SOME.has(`${delayMs} ${after}`))) {
      outcomes.push(await jobs.kill(moment));
    }
    process.stdout.write(killTable(outcomes));
    expect(outcomes).toHaveLength(4);
    expect(outcomes.flatMap(({ problems }) => problems)).toEqual([]);
    expect(outcomes.map(({ wentOn }) => wentOn.includes("graded"))).toEqual([false, true, true, expect.anything()]);
  },
);
