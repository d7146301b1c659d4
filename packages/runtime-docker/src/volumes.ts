import type { Proof, VolumeMount } from "@breakwater/runtime-api";
import { type Deadline, labelsFor, proofOf } from "@breakwater/driver-kit";
import type Dockerode from "dockerode";
import { type Engine, operate } from "./engine.ts";
import { isStatus } from "./errors.ts";
import { removeVolume } from "./gateway.ts";

/** The role of a box's volume in its labels. */
export const VOLUME_ROLE = "volume";

const CREATE_TIMEOUT_MS = 60_000;

/** Whose an object is, and for how long. */
export interface Owned {
  readonly boxId: string;
  readonly trial: string | null;
  readonly lifetimeMs: number;
}

/** The volumes that a box and its services share. */
export class BoxVolumes {
  readonly #engine: Engine;
  readonly #owned: Owned;
  readonly #made = new Set<string>();

  constructor(engine: Engine, owned: Owned) {
    this.#engine = engine;
    this.#owned = owned;
  }

  async make(clock: Deadline, names: Iterable<string>): Promise<void> {
    const { trial, lifetimeMs, boxId } = this.#owned;
    for (const name of names) {
      clock.throwIfOver();
      const Labels = labelsFor({ role: VOLUME_ROLE, trial, expiresAtMs: Date.now() + lifetimeMs });
      const body = { Name: this.#nameOf(name), Driver: "local", Labels };
      this.#made.add(name);
      const doing = { operation: "start", what: "making a volume of the box", boxId, subject: "other" } as const;
      // On a clock of its own: the engine finishes a call whose caller has gone.
      const create = (own: Deadline): Promise<unknown> =>
        this.#engine.json(own, { method: "POST", path: "/volumes/create", body }, { idempotent: true });
      await operate(undefined, doing, create, CREATE_TIMEOUT_MS);
    }
  }

  /** What the engine is asked to make, with volumes in it. */
  mount(options: Dockerode.ContainerCreateOptions, mounts: readonly VolumeMount[]): Dockerode.ContainerCreateOptions {
    if (mounts.length === 0) return options;
    const Mounts = mounts.map(({ volume, path, readOnly }) => ({
      Type: "volume" as const,
      Source: this.#nameOf(volume),
      Target: path,
      ReadOnly: readOnly,
    }));
    return { ...options, HostConfig: { ...options.HostConfig, Mounts } };
  }

  /** When no container has them any more. */
  async remove(clock: Deadline): Promise<readonly Proof[]> {
    const proofs: Proof[] = [];
    for (const name of this.#made) proofs.push(await removeVolumeConfirmed(this.#engine, clock, this.#nameOf(name)));
    return proofs;
  }

  #nameOf(name: string): string {
    return `${this.#owned.boxId}-volume-${name}`;
  }
}

async function removeVolumeConfirmed(engine: Engine, clock: Deadline, name: string): Promise<Proof> {
  await removeVolume(engine, clock, name);
  await assertGone(engine, clock, `/volumes/${name}`);
  return proofOf(name, `GET /volumes/${name}`, "404 no such volume; GET /_ping: 200");
}

/** "Not found" is proof only from an engine that works. */
export async function assertGone(engine: Engine, clock: Deadline, path: string): Promise<void> {
  try {
    await engine.json(clock, { method: "GET", path });
  } catch (error) {
    if (!isStatus(error, 404)) throw error;
    await engine.ping(clock);
    return;
  }
  throw new Error(`the engine has removed ${path}, and still knows it`);
}
