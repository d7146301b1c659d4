import { posix } from "node:path";
import { isRuntimeError, type Runtime, type UploadEntry } from "@breakwater/runtime-api";
import { readSpool, type Spool } from "@breakwater/tar";

import type { Owner } from "./box-owner.ts";
import { isInside, resolveFolderInBox } from "./box-paths.ts";
import type { CollectedArtifact } from "./collect.ts";
import type { RefusedMember } from "./result.ts";
import { messageOf } from "./trial-error.ts";
import type { Step } from "./trial.ts";

export interface Limits {
  readonly signal: AbortSignal;
}

export interface Place {
  readonly artifact: CollectedArtifact;
  /** Where it goes in the verifier's box. */
  readonly path: string;
}

/** All artifacts together: less than that does not fill a disk. If there is no room for them, there was none before, and that is not the agent's doing. */
const HEAVY_BYTES = 64 * 1024 ** 2;
/** Of disk, for an entry of an archive that has little or no content. */
const ENTRY_BYTES = 4096;
/** What tests may need for files of their own. */
const ROOM_TO_WORK_BYTES = 16 * 1024 ** 2;
const ROOM_FILE = "breakwater-room";

/** The artifacts in the verifier's box. What of them would keep the tests from running is left out and recorded; it never ends the trial. */
export class RestoredArtifacts {
  hasLeftOut = false;
  readonly #step: Step;
  readonly #box: Runtime;
  readonly #limits: Limits;
  readonly #restored = new Map<Place, Spool>();

  constructor(step: Step, box: Runtime, limits: Limits) {
    this.#step = step;
    this.#box = box;
    this.#limits = limits;
  }

  async add(place: Place, owner: Owner): Promise<void> {
    const { artifact, path } = place;
    const { plan, spool } = artifact;
    if (spool === null) return;
    this.#restored.set(place, spool);
    try {
      await this.withRoom(async () => {
        if (!this.#restored.has(place)) return;
        await this.#box.upload(readSpool(spool), posix.dirname(path), { ...this.#limits, owner });
      });
    } catch (error) {
      // Another entry is in the way, as only a box that still lived can have given both.
      const isInAnother = [...this.#restored.keys()].some((one) => one !== place && isInside(path, one.path));
      if (!isInAnother || !isRuntimeError(error, "ERR_PATH_KIND", "ERR_PATH_LINK")) throw error;
      this.#restored.delete(place);
      this.#record(place, messageOf(error), []);
    }
    if (!this.#restored.has(place)) return;
    const { entries, bytes, sha256 } = spool;
    this.#step.events.emit("artifact.restored", {
      box: this.#box.id,
      details: { source: plan.source, path, entries, bytes, sha256 },
    });
  }

  /** Does what needs room. Where the artifacts leave none, the heaviest is left out whole, as it would be over a limit, until it can be done. */
  async withRoom<T>(act: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await act();
      } catch (error) {
        if (!isRuntimeError(error, "ERR_DISK_FULL") || this.#weight < HEAVY_BYTES) throw error;
        const [heaviest] = [...this.#restored].sort(([, a], [, b]) => weight(b) - weight(a));
        if (heaviest === undefined) throw error;
        await this.#leaveOut(heaviest[0], `the verifier's box has no room for it: ${messageOf(error)}`);
      }
    }
  }

  /** Artifacts that fill the disk to the brim must not be what keeps a verdict from being written there. */
  async assertRoomToWork(directory: string): Promise<void> {
    if (this.#weight < HEAVY_BYTES) return;
    try {
      const file = { path: ROOM_FILE, content: new Uint8Array(ROOM_TO_WORK_BYTES) };
      await this.#box.upload([file], directory, this.#limits);
    } finally {
      await this.#box.removePaths([`${directory}/${ROOM_FILE}`], this.#limits);
    }
  }

  get #weight(): number {
    return [...this.#restored.values()].reduce((sum, spool) => sum + weight(spool), 0);
  }

  /** Where the tests are started is a folder, whatever came over. */
  async makeWorkdir(directory: string, owner: Owner): Promise<void> {
    const { blockedBy } = await resolveFolderInBox(this.#box, directory, this.#limits);
    const place = [...this.#restored.keys()].findLast(({ path }) => blockedBy !== null && isInside(blockedBy, path));
    if (blockedBy !== null && place !== undefined) {
      const reason = "no folder where the tests have to be started";
      if (blockedBy === place.path) await this.#leaveOut(place, `it is ${reason}`);
      else await this.#leaveOutMember(place, { path: blockedBy, reason });
    }
    await this.withRoom(() => makeFolder(this.#box, directory, owner, this.#limits));
  }

  /** With what was restored inside of it. */
  async #leaveOut(place: Place, reason: string): Promise<void> {
    await this.#box.removePaths([place.path], this.#limits);
    const gone = [...this.#restored.keys()].filter(({ path }) => isInside(path, place.path));
    for (const one of gone) {
      this.#restored.delete(one);
      this.#record(one, reason, []);
    }
  }

  async #leaveOutMember(place: Place, member: RefusedMember): Promise<void> {
    await this.#box.removePaths([member.path], this.#limits);
    this.#record(place, null, [member]);
  }

  #record({ artifact }: Place, reason: string | null, members: readonly RefusedMember[]): void {
    const { source, destination } = artifact.plan;
    const { artifacts, artifactsRefused } = this.#step.outcome;
    this.hasLeftOut = true;
    const index = artifactsRefused.findIndex((one) => one.source === source);
    const before = artifactsRefused[index] ?? { source, reason: null, members: [], memberCount: 0 };
    artifactsRefused.splice(index < 0 ? artifactsRefused.length : index, 1, {
      source,
      reason: reason ?? before.reason,
      members: [...members, ...before.members],
      memberCount: before.memberCount + members.length,
    });
    const collected = artifacts.findIndex((one) => one.destination === destination);
    const outcome = artifacts[collected];
    if (reason !== null && outcome !== undefined) artifacts[collected] = { ...outcome, status: "refused" };
    this.#step.events.emit("artifact.restored", {
      box: this.#box.id,
      details: { source, refused: reason ?? members.map((member) => `${member.path}: ${member.reason}`).join("; ") },
    });
  }
}

function weight({ bytes, entries }: Spool): number {
  return bytes + entries * ENTRY_BYTES;
}

/** Makes a folder that the agent's work may not have left, so that its absence is nothing that keeps the tests from running. */
export async function makeFolder(box: Runtime, directory: string, owner: Owner, limits: Limits): Promise<void> {
  if (directory === "/") return;
  const { path, isThere, blockedBy } = await resolveFolderInBox(box, directory, limits);
  if (isThere || blockedBy !== null) return;
  const entry: UploadEntry = { path: posix.basename(path), directory: true, mode: 0o755 };
  await box.upload([entry], posix.dirname(path), { ...limits, owner });
}
