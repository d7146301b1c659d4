import type { NetworkPolicy, Runtime } from "@breakwater/runtime-api";

import { wasEndedByContents } from "./box-end.ts";
import { TrialFailure } from "./trial-error.ts";
import type { Trial } from "./trial.ts";

const NETWORK_TIMEOUT_MS = 120_000;

export interface PhaseNetwork {
  readonly of: "agent" | "verifier";
  /** `null` = the box's baseline stays, and nothing is switched. */
  readonly policy: NetworkPolicy | null;
  /** `false`: the box is stopped next, and need not get its baseline back. */
  readonly goesOn: boolean;
  /** For switching. Going back does not take it: the box may be the caller's, and live on. */
  readonly signal: AbortSignal;
}

/**
 * A phase under a policy of its own. However it ends, the box's baseline is in force again when this returns, unless the box was ended by its
 * contents meanwhile.
 */
export async function underPolicy<T>(
  trial: Trial,
  box: Runtime,
  { of, policy, goesOn, signal }: PhaseNetwork,
  phase: () => Promise<T>,
): Promise<T> {
  if (policy === null) return await phase();
  await begin(trial, box, of, policy, signal);
  let value: T;
  try {
    value = await phase();
  } catch (error) {
    // Why the phase failed is what counts. A driver that could not go back has declared its box unfit.
    if (goesOn) await restore(trial, box, of).catch(() => undefined);
    throw error;
  }
  if (goesOn) await restore(trial, box, of);
  return value;
}

/** In a box in which an agent has worked, what it left there may be what keeps the phase from beginning: that is no reason to try again. */
async function begin(
  trial: Trial,
  box: Runtime,
  of: "agent" | "verifier",
  policy: NetworkPolicy,
  signal: AbortSignal,
): Promise<void> {
  try {
    await change(trial, box, policy, signal);
  } catch (error) {
    const hasWorked = of === "agent" && trial.record.steps.some(({ agent }) => agent !== null);
    if (signal.aborted || !hasWorked || !(await wasEndedByContents(trial, box, of, error))) throw error;
    const { phase, agentBoxEndedBy } = trial.record;
    const message = `the agent's box was ended by its contents (${agentBoxEndedBy}) before the phase ${phase} could begin in it`;
    throw new TrialFailure("crashed", "ERR_BOX_ENDED", message, error);
  }
}

async function restore(trial: Trial, box: Runtime, of: "agent" | "verifier"): Promise<void> {
  try {
    await change(trial, box, box.spec.network.initial);
  } catch (error) {
    if (!(await wasEndedByContents(trial, box, of, error))) throw error;
  }
}

async function change(trial: Trial, box: Runtime, policy: NetworkPolicy, signal?: AbortSignal): Promise<void> {
  await box.setNetwork(policy, { signal, timeoutMs: NETWORK_TIMEOUT_MS });
  trial.events.emit("network.changed", { box: box.id, details: { policy } });
}
