import { createHash } from "node:crypto";
import type { Task } from "@breakwater/harbor-taskset";
import picomatch from "picomatch";

import { UsageError } from "./exit-codes.ts";

export interface TaskChoice {
  /** Patterns of names; all tasks if there are none. */
  readonly includeTaskName?: readonly string[];
  /** Win over those that include. */
  readonly excludeTaskName?: readonly string[];
  /** At most so many. */
  readonly nTasks?: number;
  /** Of a random sample; without it the first ones are taken. */
  readonly seed?: string;
}

type Named = Pick<Task, "name" | "shortName">;

/**
 * The tasks that are to be run, in their order. A pattern is a glob for the task's name, or for its last part. The sample of a seed is the same everywhere, and
 * a task's place in it depends on the seed and its name only. Throws a `UsageError` if nothing is left.
 */
export function chooseTasks<T extends Named>(tasks: readonly T[], choice: TaskChoice): readonly T[] {
  const { nTasks, seed } = choice;
  if (seed !== undefined && nTasks === undefined) throw new UsageError("--seed is for a sample: say --n-tasks, too");
  const matching = tasks.filter((task) => isChosen(task, choice));
  if (tasks.length > 0 && matching.length === 0) {
    const names = tasks.slice(0, 5).map(({ name }) => name);
    throw new UsageError(`none of the ${tasks.length} tasks is chosen; they are named ${names.join(", ")}, …`);
  }
  if (nTasks === undefined) return matching;
  if (seed === undefined) return matching.slice(0, nTasks);
  const place = ({ name }: T): string => createHash("sha256").update(`${seed}\0${name}`).digest("hex");
  const sample = new Set(
    matching
      .map((task) => ({ task, place: place(task) }))
      .sort((a, b) => (a.place < b.place ? -1 : 1))
      .slice(0, nTasks)
      .map(({ task }) => task),
  );
  return matching.filter((task) => sample.has(task));
}

/** Whether the patterns choose a task, before any sample is taken. */
export function isChosen(task: Named, { includeTaskName = ["**"], excludeTaskName = [] }: TaskChoice): boolean {
  const matches = (pattern: string): boolean => {
    const match = picomatch(pattern, { dot: true });
    return match(task.name) || match(task.shortName);
  };
  return includeTaskName.some(matches) && !excludeTaskName.some(matches);
}
