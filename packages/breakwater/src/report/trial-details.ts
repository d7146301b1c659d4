import type { StepOutcome } from "@breakwater/harbor-taskset";

import { inScript } from "../page.ts";
import type { StoredTrial } from "./job-folder.ts";
import { bounded, type Limits } from "./readable.ts";

/** From what is wanted to what is always small enough. */
const LIMITS: readonly Limits[] = [
  { text: 128 * 1024, members: 400 },
  { text: 16 * 1024, members: 200 },
  { text: 4 * 1024, members: 100 },
  { text: 1024, members: 50 },
  { text: 256, members: 20 },
  { text: 64, members: 8 },
];

/** All that a report has of one trial besides its row, as JSON that takes at most `maxBytes` (or next to nothing) in a page. `shortened` in it says that something is left out. */
export function detailsJson(trial: StoredTrial, maxBytes: number): string {
  const whole = sectionsOf(trial);
  for (const limits of LIMITS) {
    let shortened = false;
    const kept = bounded(whole, limits, () => (shortened = true)) as Readonly<Record<string, unknown>>;
    const text = inScript(JSON.stringify({ ...kept, shortened }));
    if (Buffer.byteLength(text) <= maxBytes) return text;
  }
  return JSON.stringify({ shortened: true });
}

function sectionsOf({ result, problem, events, egress, rewardFiles }: StoredTrial): Readonly<Record<string, unknown>> {
  const planned = events.find(({ type }) => type === "trial.planned")?.details?.["decisions"];
  const common = {
    problem,
    plan: Array.isArray(planned) ? planned : [],
    // What they say of the plan stands above.
    events: events.map(({ sequence, at, type, step, box, proof, details }) => ({
      sequence,
      at,
      type,
      step,
      box,
      proof,
      details: type === "trial.planned" ? undefined : details,
    })),
    egress,
    rewardFiles,
  };
  if (result === null) return { ...common, rounds: [] };
  return {
    ...common,
    error: result.error,
    driver: result.driver,
    directory: result.dir,
    rounds:
      result.steps === null
        ? [roundOf(null, result)]
        : result.steps.map((step) => ({ ...roundOf(step.name, step), rewards: step.rewards })),
    rewards: result.rewards,
    stepsNotRun: result.stepsNotRun,
    images: result.images,
    warnings: result.warnings,
    notEnforced: result.notEnforced,
    leftovers: result.leftovers,
    retries: result.retries,
    denied: result.deniedConnections,
  };
}

/** One round of work and grading: the whole trial, or one of its steps. */
function roundOf(name: string | null, round: StepOutcome): Readonly<Record<string, unknown>> {
  const { mode, agent, collectHooks, artifacts, artifactsRefused, collectedFrom, verifier } = round;
  return { name, mode, agent, collectHooks, artifacts, artifactsRefused, collectedFrom, verifier };
}
