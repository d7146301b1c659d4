import type { TrialEvent, TrialEventType } from "@breakwater/harbor-taskset";

/** What a stretch of a trial was: a box being there, and what went on in it. */
export type SpanKind = "images" | "agent-box" | "agent" | "frozen" | "verifier-box" | "tests";

/** Times are milliseconds since the trial's first event. */
export interface Timeline {
  readonly durationMs: number;
  readonly spans: readonly Span[];
  /** When boxes were proven to be gone. */
  readonly gone: readonly { readonly box: "agent" | "verifier"; readonly atMs: number }[];
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

/** The picture of a trial, read from its events; `null` if it has none. */
export function timelineOf(events: readonly TrialEvent[]): Timeline | null {
  const times = events.map(({ at }) => Date.parse(at));
  const start = times[0];
  const end = times.at(-1);
  if (start === undefined || end === undefined || !times.every(Number.isFinite)) return null;
  const spans: Span[] = [];
  for (const [kind, from, to] of ENDS) {
    let begun: { readonly atMs: number; readonly step: string | null } | null = null;
    let lastEnd: number | null = null;
    const close = (atMs: number): void => {
      if (begun !== null) spans.push({ kind, fromMs: begun.atMs, toMs: Math.max(begun.atMs, atMs), step: begun.step });
      begun = null;
    };
    events.forEach(({ type, step }, index) => {
      const atMs = (times[index] ?? start) - start;
      if (type === from) {
        begun ??= { atMs, step: step ?? null };
      } else if (to.includes(type)) {
        // Two images are prepared, one after the other: the last one ends it.
        if (kind === "images") lastEnd = atMs;
        else close(atMs);
      }
    });
    close(lastEnd ?? end - start);
  }
  const gone = (["agent", "verifier"] as const).flatMap((box) =>
    events.flatMap(({ type }, index) =>
      type === `${box}-box.gone` ? { box, atMs: (times[index] ?? start) - start } : [],
    ),
  );
  return { durationMs: Math.max(0, end - start), spans, gone };
}
