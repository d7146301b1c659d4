import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";

import { writeJobConfig, writeJobResult, type JobAbout } from "./job-files.ts";

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

it("counts what has rewards and what has not; the mean is over those that have some", async () => {
  const job: JobAbout = {
    directory,
    startedAt: new Date("2026-01-01T00:00:00Z"),
    agentName: "oracle",
    attempts: 1,
    concurrentTrials: 4,
    taskDirectories: ["/tasks/a"],
  };
  await writeJobConfig(job);
  await trial("a", { reward: 1 });
  await trial("b", { reward: 0 }, "AgentTimeoutError");
  await trial("c", null, "RewardFileNotFoundError");
  await trial("d", null, undefined, ["VerifierTimeoutError"]);
  await mkdir(join(directory, "not-finished"));
  await writeJobResult(job, 2);
  const read = async (name: string): Promise<unknown> => JSON.parse(await readFile(join(directory, name), "utf8"));
  expect(await read("config.json")).toMatchObject({ agents: [{ name: "oracle" }], tasks: [{ path: "/tasks/a" }] });
  expect(await read("result.json")).toMatchObject({
    started_at: "2026-01-01T00:00:00.000Z",
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
  const taskDirectories = ["/tasks/a"];
  const job: JobAbout = {
    directory,
    startedAt: new Date(),
    agentName: "x",
    attempts: 1,
    concurrentTrials: 1,
    taskDirectories,
  };
  await trial("a", { reward: 1 });
  await trial("b", { reward: 0, constructor: 1 });
  await writeJobResult(job, 0);
  const { stats } = JSON.parse(await readFile(join(directory, "result.json"), "utf8")) as {
    readonly stats: { readonly evals: Readonly<Record<string, unknown>> };
  };
  expect(Object.values(stats.evals)).toMatchObject([
    {
      metrics: [{ reward: 0.5, constructor: 0.5 }],
      reward_stats: { reward: { 0: ["b"], 1: ["a"] }, constructor: { 1: ["b"] } },
    },
  ]);
});
