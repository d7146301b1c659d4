import { setTimeout as pause } from "node:timers/promises";
import { isRuntimeError, type Runtime } from "@breakwater/runtime-api";

import type { TaskHealthcheck } from "./task.ts";
import { TrialFailure } from "./trial-error.ts";

const MAX_OUTPUT_BYTES = 2000;

/**
 * Waits until the command succeeds, by Harbor's rules: failures within the start period do not count, then `retries` in a row make the box unhealthy. An
 * attempt that times out is one that failed. Throws `ERR_HEALTHCHECK`, and what `exec` throws.
 */
export async function waitUntilHealthy(
  box: Runtime,
  check: TaskHealthcheck,
  what: string,
  signal: AbortSignal,
): Promise<{ readonly attempts: number }> {
  const startedAt = performance.now();
  for (let attempts = 1, failures = 0; ; attempts++) {
    const failure = await attempt(box, check, signal);
    if (failure === null) return { attempts };
    const starting = performance.now() - startedAt < check.startPeriodMs;
    if (!starting) failures++;
    if (failures >= check.retries && !starting) {
      throw new TrialFailure(
        "unhealthy",
        "ERR_HEALTHCHECK",
        `the healthcheck of ${what} failed ${failures} times in a row (${JSON.stringify(check.command)}): ${failure}`,
      );
    }
    await pause(starting ? check.startIntervalMs : check.intervalMs, undefined, { signal });
  }
}

/** Why it failed; `null` = it did not. */
async function attempt(box: Runtime, check: TaskHealthcheck, signal: AbortSignal): Promise<string | null> {
  try {
    const { exitCode, timedOut, stdout, stderr } = await box.exec(["sh", "-c", check.command], {
      signal,
      maxOutputBytes: MAX_OUTPUT_BYTES,
      ...(check.timeoutMs === null ? {} : { timeoutMs: check.timeoutMs }),
    });
    if (timedOut) return `it did not end within ${check.timeoutMs} ms`;
    if (exitCode === 0) return null;
    return `exit code ${exitCode} ${Buffer.concat([stdout, stderr]).toString("utf8").trim()}`.trim();
  } catch (error) {
    if (isRuntimeError(error, "ERR_EXEC_START")) return error.message;
    throw error;
  }
}
