import { afterAll, expect, test } from "vitest";
import { killTable, KilledJobs, KILLS } from "./support/killed-jobs.ts";
import { Workbench } from "./support/trials.ts";

/* SIGKILL at least twice in each phase of a trial; the table shows what was hit. */

const workbench = new Workbench();
afterAll(() => workbench[Symbol.asyncDispose]());

test(
  "killed at any moment and resumed, a job comes to what it comes to undisturbed",
  { timeout: 3_600_000 },
  async () => {
    const jobs = new KilledJobs(await workbench.folder("kills"));
    const outcomes = [];
    for (const moment of KILLS) outcomes.push(await jobs.kill(moment));
    process.stdout.write(killTable(outcomes));
    expect(outcomes.flatMap(({ problems }) => problems)).toEqual([]);
    for (const { phase } of KILLS) {
      expect(outcomes.filter((outcome) => outcome.phase === phase).length).toBeGreaterThanOrEqual(2);
    }
  },
);
