import { setTimeout as pause } from "node:timers/promises";
import { RuntimeError, type RuntimeErrorCode } from "@breakwater/runtime-api";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { TrialFailure } from "./trial-error.ts";
import { newRecord, type Step } from "./trial.ts";
import { VerifierDeadline } from "./verifier-deadline.ts";

const TIMEOUT_MS = 1000;

function deadline(caller: AbortSignal = new AbortController().signal): VerifierDeadline {
  const record = { ...newRecord(), phase: "provision" };
  return new VerifierDeadline({
    step: { verifier: { timeoutMs: TIMEOUT_MS } },
    signal: caller,
    record,
  } as never as Step);
}

const failed = (code: RuntimeErrorCode, cause?: unknown): RuntimeError =>
  new RuntimeError({ code, driver: "d", operation: "start", message: "it failed", cause });

describe("the verifier's time", () => {
  beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] }));
  afterEach(() => void vi.useRealTimers());

  it.each([
    ["an operation that was given up", () => failed("ERR_ABORTED")],
    ["an operation that had no time left", () => failed("ERR_TIMEOUT")],
    ["a stop that had no time left", () => failed("ERR_STOP_UNCONFIRMED", failed("ERR_TIMEOUT"))],
    ["a change of network that was given up", () => failed("ERR_NETWORK_CHANGE", failed("ERR_ABORTED"))],
    ["a wait that was given up", ({ signal }: VerifierDeadline) => new Error("aborted", { cause: signal.reason })],
  ])("is over: %s is a timeout", (_what, make) => {
    using time = deadline();
    vi.advanceTimersByTime(TIMEOUT_MS);
    expect(time.translate(make(time))).toMatchObject({ reason: "timeout", code: "ERR_VERIFIER_TIMEOUT" });
  });

  it.each(["ERR_BACKEND_UNAVAILABLE", "ERR_BOX_LOST", "ERR_NETWORK_LOST", "ERR_BACKEND", "ERR_DISK_FULL"] as const)(
    "is over: %s stays what it is",
    (code) => {
      using time = deadline();
      vi.advanceTimersByTime(TIMEOUT_MS);
      const error = failed(code, new Error("socket hang up"));
      expect(time.translate(error)).toBe(error);
    },
  );

  it("is not over: nothing is a timeout", () => {
    using time = deadline();
    vi.advanceTimersByTime(TIMEOUT_MS / 2);
    const error = failed("ERR_TIMEOUT");
    expect(time.translate(error)).toBe(error);
  });

  it("is over, and so is the caller's patience, or a verdict was there: neither is a timeout", () => {
    const caller = new AbortController();
    using time = deadline(caller.signal);
    vi.advanceTimersByTime(TIMEOUT_MS);
    const verdict = new TrialFailure("missing", "ERR_REWARD_MISSING", "no reward");
    expect(time.translate(verdict)).toBe(verdict);
    caller.abort();
    const error = failed("ERR_ABORTED");
    expect(time.translate(error)).toBe(error);
  });
});

it("ends waits by its signal, however they wrap it", async () => {
  using time = deadline();
  const ended: unknown = await pause(30_000, undefined, { signal: time.signal }).catch((error: unknown) => error);
  expect(time.translate(ended)).toMatchObject({
    reason: "timeout",
    message: expect.stringContaining("a box for grading could not be had") as unknown,
  });
});
