import type { Retried, TrialResult } from "./result.ts";
import { mayGradeAgain } from "./run-trial.ts";

/** What a job tries again. Names follow Harbor's flags. */
export interface RetryPolicy {
  /** How often each trial may be tried again. Default is 0. */
  readonly maxRetries?: number | undefined;
  /** Codes of errors; all others are final. Default: every error that may pass. */
  readonly retryInclude?: readonly string[] | undefined;
  /** Codes of errors that are final; wins over `retryInclude`. */
  readonly retryExclude?: readonly string[] | undefined;
}

/**
 * What is tried again after a result; `null` = it is final. Never: what has rewards (also after an agent's timeout), a verifier's timeout while its tests ran, a
 * reward that is missing, empty or invalid, and everything else whose `retry` is `never`. Where the agent's work is on disk only the grading is.
 */
export function retryOf(
  result: TrialResult,
  before: readonly Retried[],
  hasWork: boolean,
  policy: RetryPolicy,
): Retried["again"] | null {
  const { error } = result;
  if (error === null || error.reason === "aborted" || before.length >= (policy.maxRetries ?? 0)) return null;
  if (policy.retryExclude?.includes(error.code) === true) return null;
  if (policy.retryInclude !== undefined && !policy.retryInclude.includes(error.code)) return null;
  return goOnWith(result, hasWork);
}

/** How a trial that has not come to its end goes on; `null` = it has. */
export function goOnWith(result: TrialResult, hasWork: boolean): Retried["again"] | null {
  if (!mayGradeAgain(result)) return null;
  if (hasWork) return "grading";
  // Its work was taken away by somebody: that is no reason to pay for it again.
  return result.error?.retry === "grading" ? null : "trial";
}
