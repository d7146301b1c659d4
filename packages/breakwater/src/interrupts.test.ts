import { describe, expect, it } from "vitest";

import { Interrupts } from "./interrupts.ts";

describe("Interrupts", () => {
  it("aborts once, whatever follows", () => {
    const lines: string[] = [];
    const before = process.listeners("SIGINT");
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
    // Nobody listens to what is disposed, and a signal still does not kill.
    process.emit("SIGINT", "SIGINT");
    expect(lines).toHaveLength(3);
    const left = process.listeners("SIGINT").filter((it) => !before.includes(it));
    expect(left).toHaveLength(1);
    for (const name of ["SIGINT", "SIGTERM"] as const) for (const it of left) process.off(name, it);
  });
});
