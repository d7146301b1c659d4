import { brandErrors, isBranded } from "./branded-error.ts";

/**
 * Why a recorded trial cannot be graded again with a task, in the order in which it is found out. Nothing was started.
 *
 * - `ERR_REGRADE_RESULT`: no `result.json` that could be read.
 * - `ERR_REGRADE_SHARED`: the task, or one of its steps, is graded in the agent's box, which is gone.
 * - `ERR_REGRADE_TASK`: the trial was of another task.
 * - `ERR_REGRADE_STEPS`: the steps that were done are not those of the task.
 * - `ERR_REGRADE_MANIFEST`: no list of artifacts that could be read.
 * - `ERR_REGRADE_ARTIFACTS`: what the task declares is not what the record has; `problems` has each.
 * - `ERR_REGRADE_FOLDER`: the new trial would be written into the recorded one.
 */
export type RegradeErrorCode =
  | "ERR_REGRADE_RESULT"
  | "ERR_REGRADE_SHARED"
  | "ERR_REGRADE_TASK"
  | "ERR_REGRADE_STEPS"
  | "ERR_REGRADE_MANIFEST"
  | "ERR_REGRADE_ARTIFACTS"
  | "ERR_REGRADE_FOLDER";

const BRAND = Symbol.for("breakwater.RegradeError");

/** A recorded trial that cannot be graded again as asked. */
export class RegradeError extends Error {
  static {
    brandErrors(this.prototype, BRAND, "RegradeError");
  }

  readonly code: RegradeErrorCode;
  /** The recorded trial's folder. */
  readonly directory: string;
  /** Each by itself; at least one. */
  readonly problems: readonly string[];

  constructor(code: RegradeErrorCode, directory: string, ...problems: readonly string[]) {
    super(`${directory} cannot be graded again: ${problems.join("; ")}`);
    this.code = code;
    this.directory = directory;
    this.problems = problems;
  }
}

/** True for a `RegradeError` of any copy of this package. */
export function isRegradeError(value: unknown): value is RegradeError {
  return isBranded(value, BRAND, []);
}
