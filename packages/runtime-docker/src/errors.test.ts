import { isRuntimeError, RuntimeError } from "@breakwater/runtime-api";
import { describe, expect, it } from "vitest";
import { type Doing, EngineError, isStatus, toRuntimeError } from "./errors.ts";

const doing: Doing = { operation: "exec", what: "starting a program", boxId: "box" };

function systemError(code: string): Error {
  return Object.assign(new Error(`connect ${code}`), { code });
}

describe("an answer of the engine", () => {
  it.each([
    [401, undefined, "ERR_BACKEND_AUTH", false],
    [403, undefined, "ERR_BACKEND_AUTH", false],
    [404, undefined, "ERR_BOX_LOST", false],
    [404, "image", "ERR_IMAGE_NOT_FOUND", false],
    [404, "network", "ERR_BACKEND", false],
    [409, undefined, "ERR_BOX_STATE", false],
    [429, undefined, "ERR_BACKEND_QUOTA", true],
    [500, undefined, "ERR_BACKEND", false],
    [503, undefined, "ERR_BACKEND_UNAVAILABLE", true],
  ] as const)("%i about %s is %s", (status, subject, code, retryable) => {
    const cause = new EngineError(status, "POST /x", "permission denied, no such container");
    expect(toRuntimeError({ ...doing, subject }, cause)).toMatchObject({
      code,
      retryable,
      cause,
      driver: "docker",
      operation: "exec",
      boxId: "box",
    });
  });

  it("means the same whatever it says", () => {
    const codes = ["not found", "conflict", "out of memory", ""].map((detail) => {
      const error = toRuntimeError(doing, new EngineError(500, "POST /x", detail));
      return isRuntimeError(error) ? error.code : error;
    });
    expect(new Set(codes)).toEqual(new Set(["ERR_BACKEND"]));
  });

  it("is known by its status", () => {
    expect(isStatus(new EngineError(404, "GET /x", ""), 404, 409)).toBe(true);
    expect(isStatus(new EngineError(500, "GET /x", ""), 404, 409)).toBe(false);
    expect(isStatus({ status: 404 }, 404)).toBe(false);
  });
});

describe("a failed connection", () => {
  it.each(["ECONNREFUSED", "ENOENT", "EHOSTUNREACH", "ENOTFOUND"])("with %s reached nobody", (code) => {
    expect(toRuntimeError(doing, systemError(code))).toMatchObject({
      code: "ERR_BACKEND_UNAVAILABLE",
      retryable: true,
    });
  });

  it.each(["ECONNRESET", "EPIPE", "ETIMEDOUT"])("with %s is retryable only for what may be done twice", (code) => {
    const error = toRuntimeError(doing, systemError(code));
    expect(error).toMatchObject({ code: "ERR_BACKEND_UNAVAILABLE", retryable: false });
    expect(toRuntimeError({ ...doing, idempotent: true }, systemError(code))).toMatchObject({ retryable: true });
  });

  it("with EACCES is about this user", () => {
    expect(toRuntimeError(doing, systemError("EACCES"))).toMatchObject({ code: "ERR_BACKEND_AUTH" });
  });

  it("with anything else is the backend's", () => {
    expect(toRuntimeError(doing, new Error("odd"))).toMatchObject({ code: "ERR_BACKEND" });
    expect(toRuntimeError(doing, null)).toMatchObject({ code: "ERR_BACKEND" });
  });
});

it("leaves typed errors and mistakes as they are", () => {
  const typed = new RuntimeError({ code: "ERR_TIMEOUT", driver: "docker", operation: "exec", message: "late" });
  const mistake = new TypeError("argv");
  expect([toRuntimeError(doing, typed), toRuntimeError(doing, mistake)]).toEqual([typed, mistake]);
});
