import { closeSync, constants, ftruncateSync, openSync, readFileSync, writeSync } from "node:fs";
import type { Proof } from "@breakwater/runtime-api";

import type { Redactor } from "./redact.ts";

/** The steps of a trial, in the order in which they can happen; `docs/grading.md` says what each stands for. */
export type TrialEventType =
  | "trial.started"
  | "trial.planned"
  | "trial.resumed"
  | "image.prepared"
  | "agent-box.create"
  | "agent-box.waiting"
  | "agent-box.started"
  | "agent-box.healthy"
  | "step.started"
  | "agent-box.cleared"
  | "setup.ended"
  | "agent.started"
  | "agent.ended"
  | "agent-box.ended"
  | "network.changed"
  | "collect-hook.ended"
  | "agent-logs.read"
  | "agent-box.stopped"
  | "agent-box.quietened"
  | "agent.frozen"
  | "agent.thawed"
  | "artifact.collected"
  | "work.saved"
  | "agent-box.gone"
  | "verifier-box.create"
  | "verifier-box.waiting"
  | "verifier-box.started"
  | "verifier-box.healthy"
  | "verifier-box.cleared"
  | "artifact.restored"
  | "tests.uploaded"
  | "tests.compared"
  | "tests.found"
  | "verifier.started"
  | "verifier.ended"
  | "verifier-box.ended"
  | "verifier-box.stopped"
  | "verifier-box.quietened"
  | "reward.read"
  | "verifier-logs.read"
  | "step.ended"
  | "verifier-box.gone"
  | "teardown.unconfirmed"
  | "trial.ended";

/** One step, as it stands in `events.jsonl`. */
export interface TrialEvent {
  /** Counted from 1, without gaps: the order of the steps. */
  readonly sequence: number;
  /** ISO 8601, UTC. */
  readonly at: string;
  readonly trial: string;
  readonly type: TrialEventType;
  /** The step that it belongs to, where the task has steps. */
  readonly step?: string | undefined;
  /** The box that the step is about. */
  readonly box?: string | undefined;
  /** What the backend answered, where it was asked. */
  readonly proof?: Proof | undefined;
  /** What else there is to know. JSON values. */
  readonly details?: Readonly<Record<string, unknown>> | undefined;
}

/** Numbers the steps of one trial and writes each down before the next begins. */
export class EventLog implements Disposable {
  readonly #trial: string;
  readonly #redactor: Redactor;
  readonly #onEvent: ((event: TrialEvent) => void) | undefined;
  #file: number | null;
  #sequence = 0;
  #step: string | null = null;
  #writeError: unknown = null;
  /** When each type of event happened last in each step. */
  readonly #last = new Map<string, string>();

  /**
   * `file`: must not exist; `null` = nothing is written. With `goesOn` it is that of a trial that was interrupted: what is added comes after what it has. What
   * `onEvent` throws is not ours to handle and is dropped.
   */
  constructor(options: {
    readonly trial: string;
    readonly redactor: Redactor;
    readonly file: string | null;
    readonly onEvent?: ((event: TrialEvent) => void) | undefined;
    readonly goesOn?: boolean | undefined;
  }) {
    this.#trial = options.trial;
    this.#redactor = options.redactor;
    this.#onEvent = options.onEvent;
    const goesOn = options.goesOn === true;
    const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_APPEND | (goesOn ? 0 : constants.O_EXCL);
    this.#file = options.file === null ? null : openSync(options.file, flags, 0o644);
    if (options.file !== null && this.#file !== null && goesOn) this.#takeUp(options.file, this.#file);
  }

  /** A line that its process did not come to end is cut off: it says nothing for sure. */
  #takeUp(path: string, file: number): void {
    const content = readFileSync(path);
    const whole = content.subarray(0, content.lastIndexOf("\n") + 1);
    if (whole.length < content.length) ftruncateSync(file, whole.length);
    for (const line of whole.toString("utf8").split("\n")) {
      if (line === "") continue;
      const { sequence, step, type, at } = JSON.parse(line) as TrialEvent;
      this.#sequence = sequence;
      this.#last.set(`${step ?? ""}/${type}`, at);
    }
  }

  /** What follows belongs to this step of the task; `null` = to none. */
  enterStep(step: string | null): void {
    this.#step = step;
  }

  /** Synchronous, so that a step is on record before what comes after it can happen. */
  emit(type: TrialEventType, about: Omit<TrialEvent, "sequence" | "at" | "trial" | "type" | "step"> = {}): void {
    const event: TrialEvent = this.#redactor.value({
      sequence: (this.#sequence += 1),
      at: new Date().toISOString(),
      trial: this.#trial,
      type,
      ...(this.#step === null ? {} : { step: this.#step }),
      ...about,
    });
    this.#last.set(`${event.step ?? ""}/${type}`, event.at);
    this.#write(event);
    try {
      this.#onEvent?.(event);
    } catch {
      // A listener that fails must not decide over a trial.
    }
  }

  /** When something happened last, in a step or (`null`) outside of all; ISO 8601. `null` = never. */
  lastAt(type: TrialEventType, step: string | null): string | null {
    return this.#last.get(`${step ?? ""}/${type}`) ?? null;
  }

  /** Why the file is not complete; `null` if it is. Boxes are torn down all the same. */
  get writeError(): unknown {
    return this.#writeError;
  }

  #write(event: TrialEvent): void {
    if (this.#file === null || this.#writeError !== null) return;
    try {
      writeSync(this.#file, `${JSON.stringify(event)}\n`);
    } catch (error) {
      this.#writeError = error;
    }
  }

  [Symbol.dispose](): void {
    if (this.#file !== null) closeSync(this.#file);
    this.#file = null;
  }
}
