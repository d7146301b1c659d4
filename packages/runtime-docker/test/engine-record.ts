import { once } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import type { BackendRecord, BoxRecord } from "@breakwater/conformance/grading";
import Dockerode from "dockerode";

/** How long the engine may take to report what it has done. */
const SETTLE_MS = 60_000;

interface EngineEvent {
  readonly Action: string;
  readonly timeNano: number;
  readonly Actor: { readonly ID: string; readonly Attributes: Readonly<Record<string, string>> };
}

/** The engine's own account of our boxes: its event stream, listened to from now on. */
export async function engineRecord(): Promise<BackendRecord> {
  const stopped = new AbortController();
  const stream = await new Dockerode().getEvents({
    filters: JSON.stringify({
      type: ["container"],
      // Podman calls the end "remove".
      event: ["create", "destroy", "remove"],
      label: ["breakwater.role=box"],
    }),
    abortSignal: stopped.signal,
  });
  const events: EngineEvent[] = [];
  const lines = createInterface({ input: stream });
  lines.on("line", (line) => events.push(JSON.parse(line) as EngineEvent));
  for (const each of [stream, lines]) each.on("error", () => lines.close());

  const boxesNow = (trial: string): readonly BoxRecord[] => {
    const ofTrial = events.filter(({ Actor }) => Actor.Attributes["breakwater.trial"] === trial);
    // By id, because Podman may tell the newest event twice.
    const timesOf = (...actions: readonly string[]): ReadonlyMap<string, number> =>
      new Map(ofTrial.filter((it) => actions.includes(it.Action)).map((it) => [it.Actor.ID, it.timeNano]));
    const gone = timesOf("destroy", "remove");
    return [...timesOf("create")].map(([id, createdAt]) => ({ id, createdAt, goneAt: gone.get(id) ?? null }));
  };
  return {
    boxes: async (trial) => {
      const end = performance.now() + SETTLE_MS;
      const settled = (): boolean =>
        boxesNow(trial).length > 0 && boxesNow(trial).every(({ goneAt }) => goneAt !== null);
      while (!settled() && performance.now() < end) await sleep(50);
      return boxesNow(trial);
    },
    [Symbol.asyncDispose]: async () => {
      // That it ends with an error is what we ask for.
      const closed = once(lines, "close").catch(() => undefined);
      stopped.abort();
      await Promise.race([closed, sleep(1_000, undefined, { ref: false })]);
    },
  };
}
