import { afterAll, expect, test } from "vitest";
import { killTable, KilledJobs, KILLS } from "./support/killed-jobs.ts";
import { Workbench } from "./support/trials.ts";

/* A job that is killed in the middle goes on where it was; every moment is tried by jobs.long.test.ts. */

const workbench = new Workbench();
afterAll(() => workbench[Symbol.asyncDispose]());

const SOME = new Set(["0 agent.started", "0 work.saved", "0 verifier.started", "0 trial.ended"]);

test("killed and resumed: one result for each trial, no work that was handed in is done again, nothing is left", async () => {
  const jobs = new KilledJobs(await workbench.folder("kills"));
  const outcomes = [];
  for (const moment of KILLS.filter(({ after, delayMs }) => SOME.has(`${delayMs} ${after}`))) {
    outcomes.push(await jobs.kill(moment));
  }
  process.stdout.write(killTable(outcomes));
  expect(outcomes).toHaveLength(4);
  expect(outcomes.flatMap(({ problems }) => problems)).toEqual([]);
  expect(outcomes.map(({ wentOn }) => wentOn.includes("graded"))).toEqual([false, true, true, expect.anything()]);
});
