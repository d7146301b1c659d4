import { describe, expect, it } from "vitest";

import { RuntimeError } from "@breakwater/runtime-api";
import { isInfrastructure, judgeEnd } from "./box-end.ts";

describe("how a box's end is judged", () => {
  it.each([
    [null, "agent", "ours", null],
    ["stopped", "agent", "ours", null],
    ["memory", "agent", "ours", "memory"],
    ["lifetime", "agent", "ours", "lifetime"],
    ["contents", "verifier", "ours", "contents"],
    ["outside", "agent", "ours", "infrastructure"],
    ["outside", "agent", "backend", "infrastructure"],
    ["unknown", "agent", "ours", "infrastructure"],
    // Root in such a box can end it without a record: that must not be a way to a retry.
    ["unknown", "agent", "backend", "unknown"],
    ["unknown", "verifier", "backend", "infrastructure"],
  ] as const)("%s of the %s's box, first process %s: %s", (endedBy, of, firstProcess, judged) => {
    expect(judgeEnd(endedBy, of, { firstProcess })).toBe(judged);
  });
});

describe("what an agent can bring about is no failure of the infrastructure", () => {
  it.each([
    ["ERR_TRANSFER", false],
    ["ERR_EXEC_START", false],
    ["ERR_BOX_UNFIT", false],
    ["ERR_BACKEND", true],
    ["ERR_BOX_LOST", true],
    ["ERR_NETWORK_LOST", true],
  ] as const)("%s: %s", (code, is) => {
    const error = new RuntimeError({ code, driver: "test", operation: "exec", message: "failed" });
    expect(isInfrastructure(error)).toBe(is);
  });
});
