import { describe, expect, it } from "vitest";

import { Interrupts } from "./interrupts.ts";

describe("Interrupts", () => {
  it("aborts once, whatever follows", () => {
    const lines: string[] = [];
    const before = process.listenerCount("SIGINT");
    const interrupts = new Interrupts((line) => lines.push(line));
    try {
      process.emit("SIGINT", "SIGINT");
      process.emit("SIGINT", "SIGINT");
      process.emit("SIGTERM", "SIGTERM");
      expect(interrupts.signal.aborted).toBe(true);
      expect(interrupts.exitCode).toBe(130);
      expect(lines).toHaveLength(3);
    } finally {
      interrupts[Symbol.dispose]();
    }
    expect(process.listenerCount("SIGINT")).toBe(before);
  });
});
