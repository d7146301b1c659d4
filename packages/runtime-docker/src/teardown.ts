import { type Proof, RuntimeError } from "@breakwater/runtime-api";
import { type Deadline, proofOf } from "@breakwater/driver-kit";
import type { Engine } from "./engine.ts";
import { DRIVER, isStatus } from "./errors.ts";

const FIRST_PAUSE_MS = 20;
const LONGEST_PAUSE_MS = 1000;

/** The part of the engine's description of a container that counts. */
export interface ContainerInspection {
  readonly Id: string;
  readonly Name: string;
  readonly State: {
    readonly Status: string;
    readonly Running: boolean;
    readonly Paused: boolean;
    readonly OOMKilled: boolean;
    readonly Dead: boolean;
    readonly Pid: number;
    readonly ExitCode: number;
    readonly StartedAt: string;
    readonly FinishedAt: string;
  };
  readonly Config?: { readonly Labels?: Readonly<Record<string, string>> | null };
  readonly Mounts?: readonly { readonly Type?: string; readonly Name?: string; readonly Destination?: string }[];
  readonly NetworkSettings?: {
    readonly Networks?: Readonly<Record<string, { readonly NetworkID?: string }>> | null;
  };
}

/** What the engine says about a container, or `null` if there is none of this id or name. */
export async function inspectContainer(
  engine: Engine,
  clock: Deadline,
  id: string,
): Promise<ContainerInspection | null> {
  try {
    return await engine.json<ContainerInspection>(clock, { method: "GET", path: `/containers/${id}/json` });
  } catch (error) {
    if (isStatus(error, 404)) return null;
    throw error;
  }
}

/**
 * Removes a container with its anonymous volumes, and returns when the engine, asked by id, does not know it any more. Every answer to the
 * removal (done, none such, already in progress, failed) leads to that question, and so does a lost connection; only the deadline ends it.
 */
export async function removeUntilGone(engine: Engine, clock: Deadline, id: string): Promise<Proof> {
  let pauseMs = FIRST_PAUSE_MS;
  let lastFailure: unknown;
  for (;;) {
    try {
      await engine.done(clock, { method: "DELETE", path: `/containers/${id}`, query: { force: true, v: true } });
    } catch (error) {
      clock.throwIfOver();
      if (!isStatus(error, 404, 409, 304)) lastFailure = error;
    }
    try {
      if ((await inspectContainer(engine, clock, id)) === null) {
        // "Not found" is proof only from an engine that works.
        await engine.ping(clock);
        return proofOf(id, `GET /containers/${id}/json`, "404 no such container; GET /_ping: 200");
      }
    } catch (error) {
      clock.throwIfOver();
      lastFailure = error;
    }
    if (clock.remainingMs() <= pauseMs) {
      throw new RuntimeError({
        code: "ERR_TEARDOWN_UNCONFIRMED",
        driver: DRIVER,
        operation: "teardownConfirmed",
        leftovers: [id],
        cause: lastFailure,
        message: `the container ${id} could not be shown to be gone within ${clock.timeoutMs} ms; look at it with "docker inspect ${id}" and remove it`,
      });
    }
    await clock.sleep(pauseMs);
    pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
  }
}
