import { isRuntimeError, type RuntimeErrorCode } from "@breakwater/runtime-api";

/**
 * Why a trial has no rewards.
 *
 * - `missing`, `empty`, `invalid`: the reward file. `crashed`: the verifier left none and failed, or could not be started.
 * - `timeout`: the verifier's; `phase` says whether its tests ran. (An agent's timeout is graded.)
 * - `infrastructure`: a box was lost, a backend did not answer, an image could not be had, a teardown was not confirmed.
 * - `unhealthy`: a box's healthcheck, or the first step's setup, failed. (In a box that an agent has worked in, that is `crashed`.) `refused`: a rule is broken that only shows in a box.
 * - `artifacts`: some were left out, and `strictArtifacts` is set. `aborted`: the caller's signal.
 */
export type TrialErrorReason = (typeof REASONS)[number];

const REASONS = [
  "missing",
  "empty",
  "invalid",
  "crashed",
  "timeout",
  "infrastructure",
  "unhealthy",
  "refused",
  "artifacts",
  "aborted",
] as const;

export function isTrialErrorReason(text: string): text is TrialErrorReason {
  return (REASONS as readonly string[]).includes(text);
}

/** Where in a trial something went wrong, in the order in which they are passed. `setup` is a step's; `provision` and `run` are the verifier's. */
export type TrialPhase =
  | "images"
  | "agent-box"
  | "setup"
  | "agent"
  | "collect"
  | "teardown"
  | "provision"
  | "run"
  | "reward";

/**
 * Codes of a trial's own; those of a driver (`RuntimeErrorCode`) are passed on as they are.
 *
 * - `ERR_REWARD_MISSING`, `ERR_REWARD_EMPTY`, `ERR_REWARD_INVALID`.
 * - `ERR_VERIFIER_SCRIPT`: there is no `/tests/test.sh`. `ERR_VERIFIER_START`: it cannot be started. `ERR_VERIFIER_EXIT`: it ended with
 *   another code than 0 and left no reward. `ERR_VERIFIER_THREW`: a grader in TypeScript did.
 * - `ERR_VERIFIER_TIMEOUT`, `ERR_HEALTHCHECK`, `ERR_ABORTED`.
 * - `ERR_BOX_ENDED`: the box that was to grade was ended by its own contents, and left no reward; or the agent's was, and a further step needs it.
 * - `ERR_STEP_SETUP`: a step's files could not be put in place, its `setup.sh` failed, or what the step before it left could not be taken away.
 * - `ERR_ARTIFACT_ROOT`: an artifact's place is on a memory file system, or a link leads it to where none may be.
 * - `ERR_ARTIFACTS_LEFT_OUT`: with `strictArtifacts`.
 * - `ERR_HOST_FILES`: the host's file system, for instance because it is full.
 * - `ERR_INTERNAL`: a mistake in this library or in what the caller passed; please report it.
 */
export type TrialErrorCode =
  | RuntimeErrorCode
  | "ERR_REWARD_MISSING"
  | "ERR_REWARD_EMPTY"
  | "ERR_REWARD_INVALID"
  | "ERR_VERIFIER_SCRIPT"
  | "ERR_VERIFIER_START"
  | "ERR_VERIFIER_EXIT"
  | "ERR_VERIFIER_THREW"
  | "ERR_VERIFIER_TIMEOUT"
  | "ERR_HEALTHCHECK"
  | "ERR_STEP_SETUP"
  | "ERR_BOX_ENDED"
  | "ERR_ARTIFACT_ROOT"
  | "ERR_ARTIFACTS_LEFT_OUT"
  | "ERR_HOST_FILES"
  | "ERR_INTERNAL";

/** What may be tried again: all of it, the grading with the artifacts that were collected, or nothing. Nothing is retried here. */
export type Retry = "trial" | "grading" | "never";

/** As it stands in `result.json`. */
export interface TrialError {
  readonly reason: TrialErrorReason;
  readonly phase: TrialPhase;
  readonly code: TrialErrorCode;
  /** What happened to what, why, and what to do. */
  readonly message: string;
  readonly retry: Retry;
  /** The messages of what caused it, outermost first. */
  readonly causes: readonly string[];
}

/** Ends a trial without rewards. Thrown only inside of this package: `runTrial` turns it into a result. */
export class TrialFailure extends Error {
  readonly reason: TrialErrorReason;
  readonly code: TrialErrorCode;

  constructor(reason: TrialErrorReason, code: TrialErrorCode, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.reason = reason;
    this.code = code;
  }
}

const MAX_CAUSES = 5;
const MAX_MESSAGE_CHARACTERS = 4000;

/** The entry for `result.json` of whatever ended a trial in a phase. */
export function describeFailure(
  error: unknown,
  at: { readonly phase: TrialPhase; readonly artifactsAreSafe: boolean; readonly aborted: boolean },
): TrialError {
  const known = reasonOf(error);
  // Whatever failed once the caller had given up failed because of that.
  const reason = at.aborted && known === "infrastructure" ? "aborted" : known;
  return {
    reason,
    phase: at.phase,
    code: reason === "aborted" ? "ERR_ABORTED" : codeOf(error),
    message: messageOf(error),
    retry: retryOf(reason, at.phase, at.artifactsAreSafe ? "grading" : "trial", error),
    causes: causesOf(error),
  };
}

/** Whether a step ended without a verdict by itself, or by what the agent made: nobody's failure, and never tried again. */
export function isWithoutVerdict({ reason, retry }: TrialError): boolean {
  return retry === "never" && WITHOUT_VERDICT.has(reason);
}

const WITHOUT_VERDICT: ReadonlySet<TrialErrorReason> = new Set([
  "missing",
  "empty",
  "invalid",
  "crashed",
  "timeout",
  "artifacts",
]);

/** At most so many characters of an error's message. */
export function messageOf(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  return message.length > MAX_MESSAGE_CHARACTERS ? `${message.slice(0, MAX_MESSAGE_CHARACTERS)}…` : message;
}

function reasonOf(error: unknown): TrialErrorReason {
  if (error instanceof TrialFailure) return error.reason;
  return isRuntimeError(error, "ERR_ABORTED") ? "aborted" : "infrastructure";
}

function codeOf(error: unknown): TrialErrorCode {
  if (error instanceof TrialFailure || isRuntimeError(error)) return error.code;
  return isSystemError(error) ? "ERR_HOST_FILES" : "ERR_INTERNAL";
}

/** What Node throws for a system call that failed. */
function isSystemError(error: unknown): boolean {
  return error instanceof Error && "syscall" in error;
}

function retryOf(reason: TrialErrorReason, phase: TrialPhase, again: Retry, error: unknown): Retry {
  switch (reason) {
    case "infrastructure":
      // What cannot be had now will not be had again either, unless somebody changes it.
      return codeOf(error) === "ERR_INTERNAL" ||
        isRuntimeError(error, "ERR_UNSUPPORTED", "ERR_IMAGE_NOT_FOUND", "ERR_IMAGE_BUILD", "ERR_IMAGE_UNFIT")
        ? "never"
        : again;
    case "unhealthy":
    case "aborted":
      return again;
    case "timeout":
      return phase === "provision" ? again : "never";
    case "missing":
    case "empty":
    case "invalid":
    case "crashed":
    case "refused":
    case "artifacts":
      return "never";
  }
}

function causesOf(error: unknown): readonly string[] {
  const causes: string[] = [];
  for (
    let cause = error instanceof Error ? error.cause : undefined;
    cause !== undefined && causes.length < MAX_CAUSES;
    cause = cause instanceof Error ? cause.cause : undefined
  ) {
    causes.push(messageOf(cause));
  }
  return causes;
}
