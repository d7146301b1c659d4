import { describe, expect, it } from "vitest";

import { runCommand } from "./command.ts";

describe("runCommand", () => {
  it("gives back what the program wrote", async () => {
    const result = await runCommand(["sh", "-c", "cat; echo error >&2; exit 3"], {
      timeoutMs: 5000,
      input: "in",
      okExitCodes: [3],
    });
    expect(result).toEqual({ exitCode: 3, stdout: "in", stderr: "error\n" });
  });

  it("says what failed with the program's last words", async () => {
    await expect(runCommand(["sh", "-c", "echo broken >&2; exit 1"], { timeoutMs: 5000 })).rejects.toMatchObject({
      code: "COMMAND_FAILED",
      message: expect.stringContaining("broken"),
    });
    await expect(runCommand(["/no/such/program"], { timeoutMs: 5000 })).rejects.toMatchObject({ code: "MISSING_TOOL" });
  });

  it("ends the whole process group at its deadline", async () => {
    const started = performance.now();
    await expect(runCommand(["sh", "-c", "sleep 30 | cat"], { timeoutMs: 100 })).rejects.toMatchObject({
      code: "TIMEOUT",
    });
    expect(performance.now() - started).toBeLessThan(5000);
  });
});
