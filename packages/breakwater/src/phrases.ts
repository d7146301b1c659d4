import type { TrialEvent, TrialResult } from "@breakwater/harbor-taskset";

/** The steps of a trial in words; one that is not here is called by its name. */
const STEPS: Partial<Record<TrialEvent["type"], string>> = {
  "trial.started": "begins",
  "trial.planned": "is planned",
  "trial.resumed": "goes on with what its agent handed in",
  "image.prepared": "image is at hand",
  "agent-box.create": "agent's box is made",
  "agent-box.waiting": "waits for room for the agent's box",
  "agent-box.started": "agent's box runs",
  "agent-box.healthy": "agent's box is healthy",
  "agent.started": "agent works",
  "agent.ended": "agent has ended",
  "agent-box.stopped": "agent's box is stopped",
  "artifact.collected": "an artifact is collected",
  "work.saved": "what the agent handed in is on disk",
  "agent-box.gone": "agent's box is proven gone",
  "verifier-box.create": "verifier's box is made",
  "verifier-box.waiting": "waits for room for the verifier's box",
  "verifier-box.started": "verifier's box runs",
  "verifier-box.healthy": "verifier's box is healthy",
  "artifact.restored": "an artifact is restored",
  "tests.uploaded": "tests are in place",
  "verifier.started": "tests run",
  "verifier.ended": "tests have ended",
  "reward.read": "reward is read",
  "verifier-box.gone": "verifier's box is proven gone",
  "teardown.unconfirmed": "a box could not be proven gone",
  "trial.ended": "has ended",
};

export function stepOf({ type, step }: TrialEvent): string {
  const phrase = STEPS[type] ?? type;
  return step === undefined ? phrase : `${printable(step)}: ${phrase}`;
}

export function outcome({ rewards, reward, error }: TrialResult): string {
  if (rewards === null)
    return `no reward: ${error?.reason ?? "unknown"} (${error?.code ?? "?"}) ${printable(error?.message ?? "")}`;
  if (reward !== null) return `reward ${round(reward)}`;
  return `rewards ${Object.entries(rewards)
    .map(([name, value]) => `${printable(name)}=${round(value)}`)
    .join(" ")}`;
}

export function kind({ mode, steps, stepsNotRun }: TrialResult): string {
  if (steps === null) return mode ?? "not planned";
  return `${steps.length} of ${steps.length + stepsNotRun.length} steps`;
}

export function round(value: number): string {
  return String(Math.round(value * 10_000) / 10_000);
}

export function seconds(durationMs: number): string {
  return `${(durationMs / 1000).toFixed(1)} s`;
}

/** `7 s`, `4:12`, `1:03:20`. */
export function duration(durationMs: number): string {
  const all = Math.max(0, Math.round(durationMs / 1000));
  if (all < 60) return `${all} s`;
  const [hours, minutes, rest] = [Math.floor(all / 3600), Math.floor(all / 60) % 60, all % 60];
  const two = (value: number): string => String(value).padStart(2, "0");
  return hours === 0 ? `${minutes}:${two(rest)}` : `${hours}:${two(minutes)}:${two(rest)}`;
}

/** What a box wrote may hold terminal escapes. */
export function printable(text: string): string {
  // oxlint-disable-next-line no-control-regex -- control characters are what is looked for
  return text.replaceAll(/[\u0000-\u001f\u007f-\u009f]+/g, " ");
}
