import { Socket } from "node:net";
import type { Host } from "./hosts.ts";
import type { Policy } from "./policy.ts";

/** How long we wait for the system to close what was cut. */
const CLOSE_TIMEOUT_MS = 5000;

/** Something of a box that is under way to one host: a tunnel, or one request with its answer. */
export class Flow {
  readonly host: Host;
  readonly #sockets = new Set<Socket>();
  readonly #cut = new AbortController();

  constructor(host: Host) {
    this.host = host;
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

  isAllowedBy(policy: Policy | null): boolean {
    return policy !== null && policy.allows(this.host) !== null;
  }

  /** Ends everything at once, unsent bytes included. Resolves when it is closed. */
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
  const closing = new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, CLOSE_TIMEOUT_MS);
    socket.once("close", () => {
      clearTimeout(timer);
      resolve();
    });
  });
  destroy(socket);
  await closing;
}
