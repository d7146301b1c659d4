import type { Runtime, RuntimeDriver } from "@breakwater/runtime-api";

import type { Agent } from "./agents.ts";
import type { Verify } from "./grade.ts";
import type { TrialEvent } from "./events.ts";
import type { TrialOptions } from "./options.ts";
import type { TrialResult } from "./result.ts";
import type { Task } from "./task.ts";

export interface RunTrialOptions extends TrialOptions {
  readonly driver: RuntimeDriver;
  readonly agent: Agent;
  /** Grades in place of `/tests/test.sh`. */
  readonly verify?: Verify | undefined;
  /**
   * A running box of the caller's that the agent works in; it is neither stopped nor removed. Cannot be proven gone, so only shared mode can be had with it:
   * separate mode is refused before anything starts.
   */
  readonly agentRuntime?: Runtime | undefined;
  /** The trial's folder is made in it. Default is to keep nothing. */
  readonly outputDir?: string | undefined;
  /** Default is the task's name and seven random characters. */
  readonly trialName?: string | undefined;
  /** Ends the trial: boxes are torn down, and the result says `aborted`. */
  readonly signal?: AbortSignal | undefined;
  /** Told of every step as it happens. */
  readonly onEvent?: ((event: TrialEvent) => void) | undefined;
}

/**
 * One attempt at a task, from the plan to the reward. Resolves with a result for everything that can go wrong on the way, and leaves no box.
 * Rejects only before anything was started: with a `TasksetError` (`ERR_PLAN_REFUSED`), a `TypeError` for options that make no sense, or because the
 * trial's folder cannot be made.
 */
export async function runTrial(task: Task, options: RunTrialOptions): Promise<TrialResult> {
  throw new Error(`not yet: ${task.name} ${options.driver.name}`);
}
