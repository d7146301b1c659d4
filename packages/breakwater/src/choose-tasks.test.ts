import { describe, expect, it } from "vitest";

import { chooseTasks, type TaskChoice } from "./choose-tasks.ts";

const TASKS = ["org/alpha", "org/beta-1", "org/beta-2", "gamma", ".hidden"].map((name) => ({
  name,
  shortName: name.split("/").at(-1) ?? "",
}));
const chosen = (choice: TaskChoice): string[] => chooseTasks(TASKS, choice).map(({ name }) => name);

describe("which tasks are run", () => {
  it.each<[TaskChoice, readonly string[]]>([
    [{}, ["org/alpha", "org/beta-1", "org/beta-2", "gamma", ".hidden"]],
    [{ includeTaskName: ["beta-*"] }, ["org/beta-1", "org/beta-2"]],
    [{ includeTaskName: ["org/*"], excludeTaskName: ["*-2"] }, ["org/alpha", "org/beta-1"]],
    [{ includeTaskName: ["{alpha,gamma}"] }, ["org/alpha", "gamma"]],
    [{ excludeTaskName: ["org/**"] }, ["gamma", ".hidden"]],
    [{ nTasks: 2 }, ["org/alpha", "org/beta-1"]],
    [{ nTasks: 9, seed: "1" }, ["org/alpha", "org/beta-1", "org/beta-2", "gamma", ".hidden"]],
  ])("%o", (choice, names) => {
    expect(chosen(choice)).toEqual(names);
  });

  it("a sample depends on the seed, not on what else there is", () => {
    const samples = ["1", "2", "3", "4", "5", "6"].map((seed) => chosen({ nTasks: 2, seed }));
    expect(new Set(samples.map(String)).size).toBeGreaterThan(1);
    for (const [index, seed] of ["1", "2", "3", "4", "5", "6"].entries()) {
      const [first = "", second = ""] = samples[index] ?? [];
      expect(chosen({ nTasks: 2, seed, includeTaskName: [first, second] })).toEqual([first, second]);
      expect(chosen({ nTasks: 2, seed })).toEqual([first, second]);
    }
  });

  it("nothing left, and a seed for nothing, are mistakes", () => {
    expect(() => chosen({ includeTaskName: ["delta"] })).toThrow(/none of the 5 tasks is chosen/);
    expect(() => chosen({ seed: "1" })).toThrow(/--n-tasks/);
  });
});
