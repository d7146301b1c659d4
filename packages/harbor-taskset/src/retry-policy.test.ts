import { describe, expect, it } from "vitest";

import type { Retried, TrialResult } from "./result.ts";
import { retryOf } from "./retry-policy.ts";
import type { TrialError } from "./trial-error.ts";

function result(error: Partial<TrialError> | null): TrialResult {
  const whole: TrialError = {
    reason: "infrastructure",
    phase: "agent",
    code: "ERR_BOX_LOST",
    message: "",
    retry: "trial",
    causes: [],
  };
  return { trial: "a", rewards: null, error: error === null ? null : { ...whole, ...error } } as unknown as TrialResult;
}
const once: Retried = { again: "trial", startedAt: "1", finishedAt: "2", error: result({}).error as TrialError };

describe("what is tried again", () => {
  it("nothing, unless it is asked for", () => {
    expect(retryOf(result({}), [], false, {})).toBeNull();
    expect(retryOf(result({}), [], false, { maxRetries: 1 })).toBe("trial");
    expect(retryOf(result({}), [once], false, { maxRetries: 1 })).toBeNull();
    expect(retryOf(result({}), [once], false, { maxRetries: 2 })).toBe("trial");
  });

  it.each([
    ["a result with rewards", null],
    ["an abort", { reason: "aborted", code: "ERR_ABORTED", retry: "trial" }],
    ["a verifier's timeout while its tests ran", { reason: "timeout", phase: "run", retry: "never" }],
    ["a missing reward", { reason: "missing", code: "ERR_REWARD_MISSING", retry: "never" }],
    ["an empty one", { reason: "empty", code: "ERR_REWARD_EMPTY", retry: "never" }],
    ["an invalid one", { reason: "invalid", code: "ERR_REWARD_INVALID", retry: "never" }],
  ] as const)("never: %s, whatever is included", (_what, error) => {
    const retryInclude = [error === null ? "ERR_BOX_LOST" : (result(error).error?.code ?? "")];
    expect(retryOf(result(error), [], true, { maxRetries: 9, retryInclude })).toBeNull();
  });

  it("the grading only, where the agent's work is on disk", () => {
    const policy = { maxRetries: 1 };
    expect(retryOf(result({ phase: "run", retry: "grading" }), [], true, policy)).toBe("grading");
    expect(retryOf(result({ phase: "provision", reason: "timeout", retry: "grading" }), [], true, policy)).toBe(
      "grading",
    );
    expect(retryOf(result({ phase: "teardown", retry: "trial" }), [], true, policy)).toBe("grading");
    // Somebody took the work away: nobody pays for it again.
    expect(retryOf(result({ phase: "run", retry: "grading" }), [], false, policy)).toBeNull();
  });

  it("what its code is included for, and not excluded", () => {
    const policy = { maxRetries: 1, retryInclude: ["ERR_BOX_LOST", "ERR_TIMEOUT"], retryExclude: ["ERR_TIMEOUT"] };
    expect(retryOf(result({ code: "ERR_BOX_LOST" }), [], false, policy)).toBe("trial");
    expect(retryOf(result({ code: "ERR_TIMEOUT" }), [], false, policy)).toBeNull();
    expect(retryOf(result({ code: "ERR_BACKEND" }), [], false, policy)).toBeNull();
  });
});
