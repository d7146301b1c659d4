import type { TrialEvent, TrialEventType } from "@breakwater/harbor-taskset";

/** What a stretch of a trial was: a box being there, and what went on in it. */
export type SpanKind = "images" | "agent-box" | "agent" | "frozen" | "verifier-box" | "tests";

/** Times are milliseconds of work since the trial's first event. */
export interface Timeline {
  readonly durationMs: number;
  readonly spans: readonly Span[];
  /** When boxes were proven to be gone. */
  readonly gone: readonly { readonly box: "agent" | "verifier"; readonly atMs: number }[];
  /** Where another process took the trial up. */
  readonly resumedMs: readonly number[];
}

export interface Span {
  readonly kind: SpanKind;
  readonly fromMs: number;
  readonly toMs: number;
  /** Of the task's steps, where it has some. */
  readonly step: string | null;
}

/** What begins and ends each kind. What is begun and not ended lasts until the last event. */
const ENDS: readonly (readonly [kind: SpanKind, from: TrialEventType, to: readonly TrialEventType[]])[] = [
  ["images", "trial.planned", ["image.prepared"]],
  ["agent-box", "agent-box.create", ["agent-box.gone"]],
  ["agent", "agent.started", ["agent.ended"]],
  ["frozen", "agent.frozen", ["agent.thawed", "agent-box.gone"]],
  ["verifier-box", "verifier-box.create", ["verifier-box.gone"]],
  ["tests", "verifier.started", ["verifier.ended"]],
];

/** The picture of a trial, read from its events; `null` if it has none. What lies between a process that died and the one that went on is left out. */
export function timelineOf(events: readonly TrialEvent[]): Timeline | null {
  const times = workingTimes(events);
  const end = times?.at(-1);
  if (times === null || end === undefined) return null;
  const atOf = (index: number): number => times[index] ?? end;
  const spans: Span[] = [];
  for (const [kind, from, to] of ENDS) {
    let begun: Omit<Span, "toMs"> | null = null;
    let lastEnd: number | null = null;
    const close = (toMs: number): void => {
      if (begun !== null) spans.push({ ...begun, toMs });
      begun = null;
    };
    events.forEach(({ type, step }, index) => {
      if (type === from) {
        begun ??= { kind, fromMs: atOf(index), step: step ?? null };
      } else if (type === "trial.resumed") {
        close(kind === "images" ? (lastEnd ?? atOf(index)) : atOf(index));
      } else if (to.includes(type)) {
        lastEnd = atOf(index);
        // Two images are prepared, one after the other: the last one ends it.
        if (kind !== "images") close(lastEnd);
      }
    });
    close(kind === "images" ? (lastEnd ?? end) : end);
  }
  const gone = (["agent", "verifier"] as const).flatMap((box) =>
    events.flatMap(({ type }, index) => (type === `${box}-box.gone` ? { box, atMs: atOf(index) } : [])),
  );
  const resumedMs = events.flatMap(({ type }, index) => (type === "trial.resumed" ? atOf(index) : []));
  return { durationMs: end, spans, gone, resumedMs };
}

/** Milliseconds since the first event, never going back; `null` if a time is none. */
function workingTimes(events: readonly TrialEvent[]): readonly number[] | null {
  let workedMs = 0;
  let before: number | null = null;
  const times: number[] = [];
  for (const { at, type } of events) {
    const now = Date.parse(at);
    if (!Number.isFinite(now)) return null;
    if (before !== null && type !== "trial.resumed") workedMs += Math.max(0, now - before);
    before = now;
    times.push(workedMs);
  }
  return times;
}
