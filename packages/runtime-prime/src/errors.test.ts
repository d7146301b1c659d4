import { RuntimeError } from "@breakwater/runtime-api";
import { describe, expect, it } from "vitest";
import { isPassing, ServiceError, toRuntimeError } from "./errors.ts";
import { retryAfterMs } from "./http.ts";

const doing = { operation: "exec", what: "running a program", boxId: "a-box" };

function codeOf(error: unknown): string {
  return (toRuntimeError(doing, error) as RuntimeError).code;
}

describe("toRuntimeError", () => {
  it.each([
    [401, "ERR_BACKEND_AUTH"],
    [402, "ERR_BACKEND_QUOTA"],
    [404, "ERR_BOX_LOST"],
    [409, "ERR_BOX_STATE"],
    [410, "ERR_BOX_LOST"],
    [422, "ERR_BACKEND"],
    [429, "ERR_BACKEND_QUOTA"],
    [500, "ERR_BACKEND_UNAVAILABLE"],
    [524, "ERR_BACKEND_UNAVAILABLE"],
  ])("takes %i for %s", (status, code) => {
    expect(codeOf(new ServiceError("GET /x", status, { detail: "whatever it says" }))).toBe(code);
  });

  it("tells the gateway's two kinds of 502 apart by their name, not by their text", () => {
    const detail = "sandbox not found";
    const gone = new ServiceError("GET /x", 502, { reason: "sandbox_not_found", detail });
    const trouble = new ServiceError("GET /x", 502, { reason: "gateway_error", detail });
    expect([codeOf(gone), isPassing(gone)]).toEqual(["ERR_BOX_LOST", false]);
    expect([codeOf(trouble), isPassing(trouble)]).toEqual(["ERR_BACKEND_UNAVAILABLE", true]);
  });

  it("says that a call may be made again only if it was not sent", () => {
    const of = (code: string): RuntimeError =>
      toRuntimeError(doing, Object.assign(new Error("x"), { code })) as RuntimeError;
    expect([of("ECONNREFUSED").code, of("ECONNREFUSED").retryable]).toEqual(["ERR_BACKEND_UNAVAILABLE", true]);
    expect([of("ECONNRESET").code, of("ECONNRESET").retryable]).toEqual(["ERR_BACKEND_UNAVAILABLE", false]);
  });

  it("leaves mistakes as they are", () => {
    const mistake = new TypeError("x");
    expect(toRuntimeError(doing, mistake)).toBe(mistake);
  });
});

describe("retryAfterMs", () => {
  it("reads seconds and dates, and nothing else", () => {
    const now = Date.parse("2026-11-30T12:00:00Z");
    expect(retryAfterMs("7", now)).toBe(7000);
    expect(retryAfterMs("Mon, 30 Nov 2026 12:00:05 GMT", now)).toBe(5000);
    expect(retryAfterMs("soon", now)).toBeNull();
    expect(retryAfterMs(undefined, now)).toBeNull();
  });
});
