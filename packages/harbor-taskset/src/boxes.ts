import { isRuntimeError, type ImageSource, type PreparedImage, type Runtime } from "@breakwater/runtime-api";

import { recordEgress } from "./egress.ts";
import { waitUntilHealthy } from "./healthcheck.ts";
import { prepareImageOnce } from "./image-preparation.ts";
import type { AgentBoxPlan, PlannedImage, VerifierBoxPlan } from "./plan.ts";
import { watchTransfers } from "./progress.ts";
import { prepareServices } from "./service-images.ts";
import { startGate } from "./start-gate.ts";
import { packTaskFolder } from "./task-folder-archive.ts";
import { messageOf } from "./trial-error.ts";
import { enter, type Trial } from "./trial.ts";

/** For pulling nothing: the images are at hand. A backend may have to wait for room. */
const START_TIMEOUT_MS = 20 * 60 * 1000;
const STAGE_TIMEOUT_MS = 20 * 60 * 1000;
const TEARDOWN_TIMEOUT_MS = 90_000;

export type BoxKind = "agent" | "verifier";

export interface PreparedImages {
  readonly agent: PreparedImage;
  /** Of each step, in order; the agent's where it is graded in the agent's box, or in a fresh copy of it. */
  readonly verifiers: readonly PreparedImage[];
}

/** Step 2: all images at hand and pinned, before an agent is paid for. */
export async function prepareImages(trial: Trial): Promise<PreparedImages> {
  const { agentBox, steps } = trial.plan;
  enter(trial, "images");
  const agent = await prepareImage(trial, "agent", agentBox.image, agentBox.imageTimeoutMs);
  await prepareServices(trial, "agent", agentBox, prepareImage);
  const prepared = new Map<string, PreparedImage>();
  const verifiers: PreparedImage[] = [];
  for (const { box } of steps.map(({ verifier }) => verifier)) {
    if (box !== null) await prepareServices(trial, "verifier", box, prepareImage);
    if (box === null || box.image.kind === "agent-image") {
      verifiers.push(agent);
      continue;
    }
    const source = JSON.stringify(box.image);
    const image = prepared.get(source) ?? (await prepareImage(trial, "verifier", box.image, box.imageTimeoutMs));
    prepared.set(source, image);
    verifiers.push(image);
  }
  return { agent, verifiers };
}

export async function prepareImage(
  { name, driver, events, record, signal, onProgress }: Trial,
  of: BoxKind,
  image: PlannedImage,
  timeoutMs: number,
): Promise<PreparedImage> {
  const prepared = await prepareImageOnce(driver, imageSource(image), {
    signal,
    timeoutMs,
    onProgress: (line) => onProgress?.({ trial: name, what: "image", line }),
  });
  record.images.push({ of, id: prepared.id, reference: prepared.reference });
  events.emit("image.prepared", { details: { of, id: prepared.id, reference: prepared.reference } });
  return prepared;
}

export function imageSource(image: PlannedImage): ImageSource {
  if (image.kind === "declared") return { reference: image.reference };
  const { context, dockerfile, name } = image;
  return { context, name, ...(dockerfile === undefined ? {} : { dockerfile }) };
}

/** The boxes of one trial: none is left when it is disposed. */
export class Boxes implements AsyncDisposable {
  readonly #trial: Trial;
  readonly #there = new Map<Runtime, BoxKind>();

  constructor(trial: Trial) {
    this.#trial = trial;
  }

  /** Starts a box, puts staged files into it, and waits until it is healthy. */
  async start(
    of: BoxKind,
    planned: AgentBoxPlan | VerifierBoxPlan,
    image: PreparedImage,
    limits: { readonly signal: AbortSignal; readonly timeoutMs?: number },
  ): Promise<Runtime> {
    const { events } = this.#trial;
    const { signal } = limits;
    const box = await this.#startWhenThereIsRoom(of, planned, image, limits);
    events.emit(`${of}-box.started`, { box: box.id });

    if (planned.staged !== null) {
      const directory = planned.staged.directory ?? workdirOf(box, image);
      await box.upload(packTaskFolder(planned.staged.folder), directory, { signal, timeoutMs: STAGE_TIMEOUT_MS });
    }
    if (planned.healthcheck !== null) {
      const { attempts } = await waitUntilHealthy(box, planned.healthcheck, `the ${of}'s box`, signal);
      events.emit(`${of}-box.healthy`, { box: box.id, details: { attempts } });
    }
    return box;
  }

  /** A backend that has no room now is asked again, as long as there is time: each time for a box of its own, as nothing is left of a start that failed. */
  async #startWhenThereIsRoom(
    of: BoxKind,
    planned: AgentBoxPlan | VerifierBoxPlan,
    image: PreparedImage,
    { signal, timeoutMs = START_TIMEOUT_MS }: { readonly signal: AbortSignal; readonly timeoutMs?: number },
  ): Promise<Runtime> {
    const { driver, events, name, onProgress } = this.#trial;
    const { spec } = planned;
    const services = await prepareServices(this.#trial, of, planned, prepareImage);
    const gate = startGate(driver);
    const endsAt = performance.now() + timeoutMs;
    for (;;) {
      await gate.pass(of, signal);
      const created = driver.create({ ...spec, services, image: image.id, trial: name });
      const box =
        onProgress === undefined
          ? created
          : watchTransfers(created, (what, bytes) => onProgress({ trial: name, what, bytes }));
      events.emit(`${of}-box.create`, { box: box.id, details: { image: image.id, network: spec.network } });
      this.#there.set(box, of);
      try {
        await box.start({ signal, timeoutMs: Math.max(1, Math.ceil(endsAt - performance.now())) });
        gate.started();
        return box;
      } catch (error) {
        if (!isRuntimeError(error, "ERR_BACKEND_QUOTA") || !error.retryable) {
          gate.failed();
          throw error;
        }
        const waitMs = gate.refused();
        if (performance.now() + waitMs >= endsAt) throw error;
        const proof = await box.teardownConfirmed({ timeoutMs: TEARDOWN_TIMEOUT_MS });
        this.#there.delete(box);
        events.emit(`${of}-box.waiting`, { box: box.id, proof, details: { waitMs, reason: messageOf(error) } });
      }
    }
  }

  /** Steps 7 and 12. Throws if the box cannot be shown to be gone. */
  async tearDown(box: Runtime): Promise<void> {
    const of = this.#there.get(box);
    if (of === undefined) return;
    const proof = await box.teardownConfirmed({ timeoutMs: TEARDOWN_TIMEOUT_MS });
    this.#there.delete(box);
    this.#trial.events.emit(`${of}-box.gone`, { box: box.id, proof });
    await recordEgress(this.#trial, box, of);
  }

  /** Whatever happened: every box that is there is removed, as far as can be shown. Never rejects. */
  async [Symbol.asyncDispose](): Promise<void> {
    const { events, record } = this.#trial;
    const left = [...this.#there.keys()];
    await Promise.all(
      left.map(async (box) => {
        try {
          await this.tearDown(box);
        } catch (error) {
          const { leftovers = [] } = error as { readonly leftovers?: readonly string[] };
          const ids = leftovers.length > 0 ? leftovers : [box.id];
          events.emit("teardown.unconfirmed", { box: box.id, details: { leftovers: ids, message: messageOf(error) } });
          record.leftovers.push(...ids);
        }
      }),
    );
  }
}

/** Where programs of a box run unless they say otherwise. */
export function workdirOf(box: Runtime, image: PreparedImage): string {
  return box.spec.workdir ?? image.workdir ?? "/";
}
