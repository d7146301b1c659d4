import { open } from "node:fs/promises";
import { RuntimeError, type RuntimeErrorCode } from "@breakwater/runtime-api";
import { describe, expect, it } from "vitest";

import { describeFailure, isWithoutVerdict, TrialFailure } from "./trial-error.ts";

function driverError(code: RuntimeErrorCode): RuntimeError {
  return new RuntimeError({ code, driver: "docker", operation: "start", message: "it is so" });
}

describe("what is written down of a failure", () => {
  it.each([
    ["a backend that is away", driverError("ERR_BACKEND_UNAVAILABLE"), "infrastructure", "trial", "grading"],
    ["an image that is not there", driverError("ERR_IMAGE_NOT_FOUND"), "infrastructure", "never", "never"],
    ["an abort", driverError("ERR_ABORTED"), "aborted", "trial", "grading"],
    ["a rule", new TrialFailure("refused", "ERR_ARTIFACT_ROOT", "no"), "refused", "never", "never"],
    ["no reward", new TrialFailure("missing", "ERR_REWARD_MISSING", "none"), "missing", "never", "never"],
    ["a mistake of ours", new TypeError("x is not a function"), "infrastructure", "never", "never"],
  ] as const)("%s", (_what, error, reason, before, after) => {
    const at = { phase: "teardown", aborted: false } as const;
    expect(describeFailure(error, { ...at, artifactsAreSafe: false })).toMatchObject({ reason, retry: before });
    expect(describeFailure(error, { ...at, artifactsAreSafe: true })).toMatchObject({ reason, retry: after });
  });

  it("tells a box that could not be had from tests that ran too long", () => {
    const error = new TrialFailure("timeout", "ERR_VERIFIER_TIMEOUT", "over");
    const at = { artifactsAreSafe: true, aborted: false };
    expect(describeFailure(error, { ...at, phase: "provision" }).retry).toBe("grading");
    expect(describeFailure(error, { ...at, phase: "run" }).retry).toBe("never");
  });

  it("takes what failed after an abort for the abort, but not a verdict", () => {
    const at = { phase: "run", artifactsAreSafe: false, aborted: true } as const;
    expect(describeFailure(driverError("ERR_BOX_LOST"), at)).toMatchObject({ reason: "aborted", code: "ERR_ABORTED" });
    expect(describeFailure(new TrialFailure("invalid", "ERR_REWARD_INVALID", "no"), at).reason).toBe("invalid");
  });

  it("says whether it is the work that has no verdict, or something else that failed", () => {
    const at = { artifactsAreSafe: true, aborted: false } as const;
    const timeout = new TrialFailure("timeout", "ERR_VERIFIER_TIMEOUT", "too slow");
    const crashed = new TrialFailure("crashed", "ERR_BOX_ENDED", "gone");
    expect(isWithoutVerdict(describeFailure(crashed, { ...at, phase: "setup" }))).toBe(true);
    expect(isWithoutVerdict(describeFailure(timeout, { ...at, phase: "run" }))).toBe(true);
    expect(isWithoutVerdict(describeFailure(timeout, { ...at, phase: "provision" }))).toBe(false);
    for (const code of ["ERR_BOX_LOST", "ERR_UNSUPPORTED"] as const)
      expect(isWithoutVerdict(describeFailure(driverError(code), { ...at, phase: "agent" }))).toBe(false);
  });

  it("knows the host's file system", async () => {
    const error: unknown = await open("/no/such/file").catch((reason: unknown) => reason);
    const at = { phase: "collect", artifactsAreSafe: false, aborted: false } as const;
    expect(describeFailure(error, at)).toMatchObject({ code: "ERR_HOST_FILES", reason: "infrastructure" });
  });

  it("has the messages of the causes, bounded", () => {
    let error = new Error("the first");
    for (let count = 0; count < 20; count++) error = new Error("x".repeat(10_000), { cause: error });
    const at = { phase: "agent", artifactsAreSafe: false, aborted: false } as const;
    const { message, causes } = describeFailure(error, at);
    expect([message.length, causes.length]).toEqual([4001, 5]);
  });
});
