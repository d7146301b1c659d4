import { describe, expect, it } from "vitest";

import { createRedactor } from "./redact.ts";

describe("what is written down", () => {
  it("has no secret in it, at any depth", () => {
    const { value } = createRedactor(["hunter22"]);
    expect(value({ a: ["my hunter22"], b: { c: "hunter22hunter22", d: 22, e: null } })).toEqual({
      a: ["my [REDACTED]"],
      b: { c: "[REDACTED][REDACTED]", d: 22, e: null },
    });
  });

  it("keeps keys, codes, kinds, names and ids, whatever word a secret is", () => {
    const { value } = createRedactor(["agent", "invalid", "device", "verifier", "text"]);
    const kept = {
      type: "agent-box.create",
      trial: "agent__abc",
      step: "agent",
      error: { reason: "invalid", code: "ERR_REWARD_INVALID", phase: "agent" },
      images: [{ of: "agent", id: "sha256:agent" }],
      members: [{ path: "/x", reason: "device" }],
      agent: { status: "verifier", verifier: null },
    };
    expect(value(kept)).toEqual(kept);
    expect(
      value({ message: "no agent", reason: "it is a device", causes: ["agent"], output: { head: "text" } }),
    ).toEqual({
      message: "no [REDACTED]",
      reason: "it is a [REDACTED]",
      causes: ["[REDACTED]"],
      output: { head: "[REDACTED]" },
    });
  });

  it("loses the longer of two that contain each other first", () => {
    expect(createRedactor(["secret", "secret-and-more"]).text("secret-and-more, secret")).toBe(
      "[REDACTED], [REDACTED]",
    );
  });

  it.each(["", "abc", "true", "12345", "None"])("keeps %j, which is no secret", (text) => {
    expect(createRedactor([text]).text(`it says ${text}.`)).toBe(`it says ${text}.`);
  });

  it("is the same however a stream is cut", () => {
    const redactor = createRedactor(["hunter22", "päss"]);
    const content = Buffer.from("a hunter22 b päss c hunter2 d");
    for (let size = 1; size <= content.length; size++) {
      const stream = redactor.stream();
      const pieces: Buffer[] = [];
      for (let at = 0; at < content.length; at += size) pieces.push(stream.push(content.subarray(at, at + size)));
      const all = Buffer.concat([...pieces, stream.end()]).toString();
      expect(all, `in pieces of ${size}`).toBe("a [REDACTED] b [REDACTED] c hunter2 d");
    }
  });
});
