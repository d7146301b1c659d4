import assert from "node:assert/strict";
import type { TrialEvent, TrialEventType } from "@breakwater/harbor-taskset";
import type { FinishedTrial } from "./trials.ts";

/** A fact that the verifier of a standard trial wrote. A trial without rewards fails the case with its error. */
export function fact({ result }: FinishedTrial, name: string): number {
  const value = result.rewards?.[name];
  assert.ok(value !== undefined, `the verifier wrote no ${name}: ${explain(result)}`);
  return value;
}

/** Several facts at once, so that a failure shows all of them. */
export function assertFacts(trial: FinishedTrial, expected: Readonly<Record<string, number>>): void {
  const found = Object.fromEntries(Object.keys(expected).map((name) => [name, fact(trial, name)]));
  assert.deepEqual(found, expected);
}

/** The only event of its type. */
export function onlyEvent({ events, result }: FinishedTrial, type: TrialEventType): TrialEvent {
  const found = events.filter((event) => event.type === type);
  const [event] = found;
  assert.ok(event !== undefined && found.length === 1, `${found.length} events ${type}: ${explain(result)}`);
  return event;
}

export function has({ events }: FinishedTrial, type: TrialEventType): boolean {
  return events.some((event) => event.type === type);
}

/** The result, short, for messages. */
export function explain(result: FinishedTrial["result"]): string {
  const { rewards, error, mode } = result;
  return JSON.stringify({ mode, rewards, error });
}
