import { appendFile, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";

import { JobFiles, readJob, type JobAbout, type StoredJob } from "./job-files.ts";
import type { Retried } from "./result.ts";

let directory = "";
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "breakwater-job-"));
});
afterEach(() => rm(directory, { recursive: true, force: true }));

async function trial(
  name: string,
  rewards: object | null,
  exception?: string,
  steps: readonly string[] = [],
): Promise<void> {
  await mkdir(join(directory, name));
  const info = (type: string): object => ({ exception_type: type });
  const result = {
    agent_info: { name: "oracle" },
    source: null,
    verifier_result: rewards === null ? null : { rewards },
    exception_info: exception === undefined ? null : info(exception),
    step_results: steps.length === 0 ? null : steps.map((type) => ({ exception_info: info(type) })),
  };
  await writeFile(join(directory, name, "result.json"), JSON.stringify(result));
  await writeFile(join(directory, name, "lock.json"), JSON.stringify({ task: { name } }));
}

const ERROR: Retried["error"] = {
  reason: "infrastructure",
  phase: "agent",
  code: "ERR_BOX_LOST",
  message: "lost",
  retry: "trial",
  causes: [],
};

function about(): JobAbout {
  return {
    directory,
    agentName: "oracle",
    attempts: 1,
    concurrentTrials: 4,
    maxRetries: 2,
    taskDirectories: ["/tasks/a"],
  };
}

function stored(...names: readonly string[]): StoredJob {
  const trials = names.map((name) => ({ name, task: "/tasks/a", digest: null }));
  return { schemaVersion: 1, startedAt: "2026-01-01T00:00:00.000Z", settings: {}, trials };
}

async function read(name: string): Promise<unknown> {
  return JSON.parse(await readFile(join(directory, name), "utf8"));
}

it("counts what has rewards and what has not; the mean is over those that have some", async () => {
  const files = await JobFiles.create(about(), stored("a", "b", "c", "d", "not-finished", "not-begun"));
  expect(await read("result.json")).toMatchObject({ n_total_trials: 6, finished_at: null });
  await trial("a", { reward: 1 });
  await trial("b", { reward: 0 }, "AgentTimeoutError");
  await trial("c", null, "RewardFileNotFoundError");
  await trial("d", null, undefined, ["VerifierTimeoutError"]);
  await mkdir(join(directory, "not-finished"));
  for (const name of ["d", "a", "b", "c", "not-finished"]) await files.addTrial(name);
  await files.write();
  expect(await read("config.json")).toMatchObject({ agents: [{ name: "oracle" }], tasks: [{ path: "/tasks/a" }] });
  expect(await read("result.json")).toMatchObject({
    started_at: "2026-01-01T00:00:00.000Z",
    finished_at: null,
    n_total_trials: 6,
    stats: {
      n_completed_trials: 4,
      n_errored_trials: 3,
      n_pending_trials: 2,
      evals: {
        oracle__adhoc: {
          n_trials: 2,
          n_errors: 3,
          metrics: [{ mean: 0.5 }],
          reward_stats: { reward: { 0: ["b"], 1: ["a"] } },
          exception_stats: { AgentTimeoutError: ["b"], RewardFileNotFoundError: ["c"], VerifierTimeoutError: ["d"] },
        },
      },
    },
  });
  expect(await read("lock.json")).toMatchObject({ n_concurrent_trials: 4, trials: [{}, {}, {}, {}] });
});

it("takes the keys of rewards for words, whatever they mean elsewhere", async () => {
  const files = await JobFiles.create(about(), stored("a", "b"));
  await trial("a", { reward: 1 });
  await trial("b", { reward: 0, constructor: 1 });
  for (const name of ["a", "b"]) await files.addTrial(name);
  await files.write();
  const { finished_at: finishedAt, stats } = (await read("result.json")) as {
    readonly finished_at: string | null;
    readonly stats: { readonly evals: Readonly<Record<string, unknown>> };
  };
  expect(finishedAt).not.toBeNull();
  expect(Object.values(stats.evals)).toMatchObject([
    {
      metrics: [{ reward: 0.5, constructor: 0.5 }],
      reward_stats: { reward: { 0: ["b"], 1: ["a"] }, constructor: { 1: ["b"] } },
    },
  ]);
});

it("remembers a job and what was tried again of it; a line that was not written to its end counts for nothing", async () => {
  const job = stored("a");
  const files = await JobFiles.create(about(), job);
  const retried: Retried = { again: "grading", startedAt: "1", finishedAt: "2", error: ERROR };
  await files.addRetry("a", retried);
  await appendFile(join(directory, "retries.jsonl"), '{"trial":"a","again":"tri');
  expect(await readJob(directory)).toEqual(job);
  const again = await JobFiles.open(about(), job);
  expect(again.retriesOf("a")).toEqual([retried]);
  expect(again.retriesOf("constructor")).toEqual([]);
  await again.addRetry("a", { ...retried, again: "trial" });
  expect((await JobFiles.open(about(), job)).retriesOf("a").map((one) => one.again)).toEqual(["grading", "trial"]);
});
