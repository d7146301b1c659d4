import { brandErrors, isBranded } from "./branded-error.ts";

/**
 * What is wrong with a task, with what was asked of it, or with a trial's preparation. Codes never change between major versions.
 *
 * - `ERR_TASK_NOT_FOUND`: the path is no task (no readable `task.toml`) and no folder of tasks.
 * - `ERR_TASK_INVALID`: the task's files break a rule of the format; `problems` has every one.
 * - `ERR_PLAN_REFUSED`: the task is valid, but this driver or these options cannot run it; `problems` has every reason. Nothing was started.
 */
export type TasksetErrorCode = "ERR_TASK_NOT_FOUND" | "ERR_TASK_INVALID" | "ERR_PLAN_REFUSED";

/** One mistake or doubt, precise enough to go and mend it. */
export interface TasksetProblem {
  /** Relative to the task's folder, for instance `task.toml` or `tests/test.sh`. */
  readonly file: string;
  /** The key in that file with its tables, for instance `verifier.environment.cpus` or `artifacts[1].source`; `null` for the file itself. */
  readonly key: string | null;
  /** Counted from 1, where it is known. */
  readonly line?: number | undefined;
  readonly message: string;
  /** What to do about it. */
  readonly advice: string;
}

export interface TasksetErrorDetails {
  readonly code: TasksetErrorCode;
  /** The task's folder. */
  readonly directory: string;
  /** At least one. */
  readonly problems: readonly TasksetProblem[];
  readonly cause?: unknown;
}

const BRAND = Symbol.for("breakwater.TasksetError");

/** A task that cannot be loaded or planned, with all reasons at once. */
export class TasksetError extends Error {
  static {
    brandErrors(this.prototype, BRAND, "TasksetError");
  }

  readonly code: TasksetErrorCode;
  readonly directory: string;
  readonly problems: readonly TasksetProblem[];

  constructor(details: TasksetErrorDetails) {
    const lines = details.problems.map((problem) => `\n  ${formatProblem(problem)}`);
    const what = details.code === "ERR_PLAN_REFUSED" ? "cannot be run as asked" : "is not a valid task";
    super(
      `${details.directory} ${what}:${lines.join("")}`,
      details.cause === undefined ? undefined : { cause: details.cause },
    );
    this.code = details.code;
    this.directory = details.directory;
    this.problems = details.problems;
  }
}

/** True for a `TasksetError` of any copy of this package; with `codes`, only for those. */
export function isTasksetError(value: unknown, ...codes: readonly TasksetErrorCode[]): value is TasksetError {
  return isBranded(value, BRAND, codes);
}

/** `task.toml:12: verifier.environment.cpus: what is wrong (what to do)`. */
export function formatProblem(problem: TasksetProblem): string {
  const place = problem.line === undefined ? problem.file : `${problem.file}:${problem.line}`;
  return `${place}: ${problem.key === null ? "" : `${problem.key}: `}${problem.message} (${problem.advice})`;
}
