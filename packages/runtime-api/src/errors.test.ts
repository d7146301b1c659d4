import { describe, expect, it } from "vitest";
import { isRuntimeError, RuntimeError } from "./errors.ts";

type Errors = typeof import("./errors.ts");
/** A second copy of the module, as two packages with their own copies would load it. */
const SECOND_COPY = "./errors.ts?second";
const second = (await import(/* @vite-ignore */ SECOND_COPY)) as Errors;

const details = { code: "ERR_TIMEOUT", driver: "docker", operation: "exec", message: "it took too long" } as const;

describe("a RuntimeError", () => {
  it("says what happened where, and keeps the cause", () => {
    const cause = new Error("socket hang up");
    const error = new RuntimeError({ ...details, boxId: "box", cause, path: "/x", errno: "ENOENT", step: "cwd" });
    expect(error).toBeInstanceOf(Error);
    expect(String(error)).toBe("RuntimeError: docker: it took too long");
    expect(error).toMatchObject({ code: "ERR_TIMEOUT", driver: "docker", operation: "exec", boxId: "box", cause });
    expect(error).toMatchObject({ path: "/x", errno: "ENOENT", step: "cwd" });
  });

  it("is not retryable and has no refusals and leftovers unless it says so", () => {
    const error = new RuntimeError(details);
    expect(error).toMatchObject({ retryable: false, refusals: [], leftovers: [] });
    expect("cause" in error).toBe(false);
    const refusal = { key: "cpus", code: "REFUSED_CPUS", message: "m", advice: "a" } as const;
    const full = new RuntimeError({ ...details, retryable: true, refusals: [refusal], leftovers: ["id"] });
    expect(full).toMatchObject({ retryable: true, refusals: [refusal], leftovers: ["id"] });
  });

  it("does not show its brand when it is printed or copied", () => {
    expect(Object.getOwnPropertySymbols(new RuntimeError(details))).toEqual([]);
  });
});

describe("isRuntimeError", () => {
  it("knows the errors of another copy of the package, in both directions", () => {
    expect(second.RuntimeError).not.toBe(RuntimeError);
    const [ours, theirs] = [new RuntimeError(details), new second.RuntimeError(details)];
    expect(theirs instanceof RuntimeError).toBe(false);
    expect([isRuntimeError(ours), isRuntimeError(theirs)]).toEqual([true, true]);
    expect([second.isRuntimeError(ours), second.isRuntimeError(theirs)]).toEqual([true, true]);
  });

  it("asks for codes where some are given", () => {
    const error: unknown = new RuntimeError(details);
    expect(isRuntimeError(error, "ERR_TIMEOUT")).toBe(true);
    expect(isRuntimeError(error, "ERR_ABORTED", "ERR_TIMEOUT")).toBe(true);
    expect(isRuntimeError(error, "ERR_ABORTED")).toBe(false);
  });

  it.each([
    null,
    undefined,
    "ERR_TIMEOUT",
    new Error("x"),
    { code: "ERR_TIMEOUT", name: "RuntimeError" },
    new TypeError("x"),
  ])("does not take %o for one", (value) => {
    expect(isRuntimeError(value)).toBe(false);
  });
});
