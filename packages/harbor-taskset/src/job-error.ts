import { brandErrors, isBranded } from "./branded-error.ts";

/**
 * Why a job was not begun or not resumed; nothing was started. Codes never change between major versions.
 *
 * - `ERR_JOB_LOCKED`: another process runs the job in this folder, or one that cannot be seen from here may.
 * - `ERR_JOB_EXISTS`: the folder has a job already, and `resume` is not set. `ERR_JOB_NOT_FOUND`: `resume` is set, and there is none.
 * - `ERR_JOB_DIFFERENT`: the job in the folder was begun with other tasks or options.
 */
export type JobErrorCode = "ERR_JOB_LOCKED" | "ERR_JOB_EXISTS" | "ERR_JOB_NOT_FOUND" | "ERR_JOB_DIFFERENT";

const BRAND = Symbol.for("breakwater.JobError");

export class JobError extends Error {
  static {
    brandErrors(this.prototype, BRAND, "JobError");
  }

  readonly code: JobErrorCode;
  /** The job's folder. */
  readonly directory: string;

  constructor(code: JobErrorCode, directory: string, message: string) {
    super(`${directory}: ${message}`);
    this.code = code;
    this.directory = directory;
  }
}

/** True for a `JobError` of any copy of this package; with `codes`, only for those. */
export function isJobError(value: unknown, ...codes: readonly JobErrorCode[]): value is JobError {
  return isBranded(value, BRAND, codes);
}
