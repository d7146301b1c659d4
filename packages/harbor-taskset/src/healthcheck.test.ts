import { RuntimeError, type ExecResult, type Runtime } from "@breakwater/runtime-api";
import { describe, expect, it } from "vitest";

import { waitUntilHealthy } from "./healthcheck.ts";
import type { TaskHealthcheck } from "./task.ts";

type Attempt = number | "timed out" | Error;

/** A box whose attempts end as listed; the last one again and again. */
function boxThatAnswers(attempts: readonly Attempt[]): { readonly box: Runtime; readonly count: () => number } {
  let count = 0;
  const exec = async (): Promise<Partial<ExecResult>> => {
    const attempt = attempts[Math.min(count++, attempts.length - 1)] ?? 0;
    if (attempt instanceof Error) throw attempt;
    const timedOut = attempt === "timed out";
    return { exitCode: timedOut ? 137 : attempt, timedOut, stdout: Buffer.from("sick"), stderr: Buffer.alloc(0) };
  };
  return { box: { exec } as unknown as Runtime, count: () => count };
}

const CHECK: TaskHealthcheck = {
  command: "check",
  intervalMs: 1,
  timeoutMs: 1000,
  startPeriodMs: 0,
  startIntervalMs: 1,
  retries: 3,
};
const { signal } = new AbortController();

describe("a healthcheck", () => {
  it.each<[string, readonly Attempt[], number]>([
    ["succeeds at once", [0], 1],
    ["succeeds after fewer failures than retries", [1, "timed out", 0], 3],
  ])("%s", async (_what, answers, attempts) => {
    expect(await waitUntilHealthy(boxThatAnswers(answers).box, CHECK, "the box", signal)).toEqual({ attempts });
  });

  it("fails after as many failures as retries, and says why", async () => {
    const { box, count } = boxThatAnswers([1]);
    await expect(waitUntilHealthy(box, CHECK, "the box", signal)).rejects.toMatchObject({
      code: "ERR_HEALTHCHECK",
      message: expect.stringContaining("exit code 1 sick") as string,
    });
    expect(count()).toBe(3);
  });

  it("does not count failures within the start period", async () => {
    const { box } = boxThatAnswers([1, 1, 1, 1, 1, 0]);
    const check = { ...CHECK, startPeriodMs: 60_000 };
    expect(await waitUntilHealthy(box, check, "the box", signal)).toEqual({ attempts: 6 });
  });

  it("counts a command that cannot be started, and passes on a box that is lost", async () => {
    const error = (code: "ERR_EXEC_START" | "ERR_BOX_LOST"): RuntimeError =>
      new RuntimeError({ code, driver: "d", operation: "exec", message: "no sh" });
    await expect(
      waitUntilHealthy(boxThatAnswers([error("ERR_EXEC_START")]).box, CHECK, "the box", signal),
    ).rejects.toMatchObject({ code: "ERR_HEALTHCHECK", message: expect.stringContaining("no sh") as string });
    await expect(
      waitUntilHealthy(boxThatAnswers([error("ERR_BOX_LOST")]).box, CHECK, "the box", signal),
    ).rejects.toMatchObject({ code: "ERR_BOX_LOST" });
  });
});
