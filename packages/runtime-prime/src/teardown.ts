import { type Deadline, proofOf } from "@breakwater/driver-kit";
import { type Proof, RuntimeError } from "@breakwater/runtime-api";
import { DRIVER, isStatus } from "./errors.ts";
import { isTerminal } from "./schemas.ts";
import type { SeenStatus, Service } from "./service.ts";

const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 3000;
/** A sandbox that was deleted before it ran can come up all the same: it is watched so much longer. */
const WATCH_MS = 20_000;
/** A removal that had no effect is asked for again after this long. */
const ASK_AGAIN_MS = 5000;

export interface Removal {
  /** A label that only this sandbox has. */
  readonly label: string;
  /** Whether it is known to have run. If not, a deletion may race its start. */
  readonly hasRun: boolean;
}

/**
 * Deletes a sandbox, and returns when the service, asked by id, says that it has ended or does not know it, and the list of active sandboxes does not have it either. No
 * answer to the deletion itself is proof, and neither is a failed question; only the deadline ends it.
 */
export async function removeUntilGone(service: Service, clock: Deadline, id: string, removal: Removal): Promise<Proof> {
  let lastFailure: unknown;
  let askedAt = -Infinity;
  let goneSince: number | undefined;
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(1.5 * pauseMs, LONGEST_PAUSE_MS)) {
    let seen: SeenStatus | "unknown" = "unknown";
    try {
      if (performance.now() - askedAt >= ASK_AGAIN_MS && (await askToDelete(service, clock, id))) {
        askedAt = performance.now();
      }
      seen = await service.status(clock, id);
    } catch (error) {
      clock.throwIfOver();
      // Nobody who is not let in gets further by asking again.
      if (isStatus(error, 401, 403)) throw error;
      lastFailure = error;
    }
    const isGone = seen !== "unknown" && (seen === null || isTerminal(seen.status));
    if (isGone && seen !== "unknown") {
      goneSince ??= performance.now();
      const watchedMs = performance.now() - goneSince;
      if (removal.hasRun || watchedMs >= WATCH_MS) {
        try {
          const listed = await service.listActive(clock, [removal.label], { patienceMs: 0 });
          if (listed.length === 0) return provenGone(id, removal, seen);
        } catch (error) {
          clock.throwIfOver();
          if (isStatus(error, 401, 403)) throw error;
          lastFailure = error;
        }
      }
    } else if (seen !== "unknown") {
      // It is back, or still there: deleting it once more is not too early after it was gone.
      if (goneSince !== undefined) askedAt = -Infinity;
      goneSince = undefined;
    }
    if (clock.remainingMs() <= pauseMs) throw unconfirmed(id, clock, lastFailure);
    await clock.sleep(pauseMs * (0.75 + Math.random() / 2));
  }
}

/** Whether the service has taken it. */
async function askToDelete(service: Service, clock: Deadline, id: string): Promise<boolean> {
  try {
    await service.deleteOnce(clock, id);
    return true;
  } catch (error) {
    // It is not known any more, which the next question shows; or its state forbids it now.
    if (isStatus(error, 404, 410)) return true;
    throw error;
  }
}

function provenGone(id: string, { label }: Removal, seen: SeenStatus): Proof {
  const status = seen === null ? "NOT_FOUND" : seen.status;
  const question = `POST /api/v1/sandbox/status:batchGet for ${id}; GET /api/v1/sandbox?is_active=true&labels=${label}`;
  return proofOf(id, question, `${status}; no active sandbox with this label`);
}

function unconfirmed(id: string, clock: Deadline, cause: unknown): RuntimeError {
  return new RuntimeError({
    code: "ERR_TEARDOWN_UNCONFIRMED",
    driver: DRIVER,
    operation: "teardownConfirmed",
    leftovers: [id],
    cause,
    message: `the sandbox ${id} could not be shown to have ended within ${clock.timeoutMs} ms; look at it with "prime sandbox get ${id}" and delete it`,
  });
}
