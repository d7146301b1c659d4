import { Socket } from "node:net";
import type { Policy } from "./policy.ts";

/** How long we wait for the system to close what was cut. */
const CLOSE_TIMEOUT_MS = 5000;

/** Something of a box that is under way: a tunnel, one request with its answer, a question to a name server. */
export class Flow {
  readonly isAllowedBy: (policy: Policy) => boolean;
  readonly #sockets = new Set<Socket>();
  readonly #cut = new AbortController();

  constructor(isAllowedBy: (policy: Policy) => boolean) {
    this.isAllowedBy = isAllowedBy;
  }

  /** Fires when the flow is cut. */
  get signal(): AbortSignal {
    return this.#cut.signal;
  }

  /** From now on the socket ends with the flow. */
  add(socket: Socket): void {
    this.#sockets.add(socket);
    if (this.#cut.signal.aborted) destroy(socket);
  }

  /** From now on the socket lives on without the flow. */
  release(socket: Socket): void {
    this.#sockets.delete(socket);
  }

  /** Ends everything at once, unsent bytes included. Resolves when it is closed; rejects when the system does not close it within 5 s. */
  async cut(): Promise<void> {
    this.#cut.abort(new Error("no longer allowed"));
    await Promise.all([...this.#sockets].map(closed));
  }
}

/** Ends a socket without sending what is still in it. */
export function destroy(socket: Socket): void {
  const isTcp = socket instanceof Socket && socket.remoteFamily !== undefined && !socket.connecting;
  if (isTcp) socket.resetAndDestroy();
  else socket.destroy();
}

async function closed(socket: Socket): Promise<void> {
  if (socket.closed) return;
  const closing = new Promise<void>((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error("a connection that was cut is not closed")), CLOSE_TIMEOUT_MS);
    socket.once("close", () => {
      clearTimeout(timer);
      resolve();
    });
  });
  destroy(socket);
  await closing;
}
