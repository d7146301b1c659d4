import { promises as dns } from "node:dns";
import { connect, isIPv6, type Socket, type SocketConnectOpts } from "node:net";

/** The gateway's side of the world: how names get addresses, and connections. A parameter, so that the rules can be tried without the internet. */
export interface Network {
  /** Every address of a name, IPv4 before IPv6; empty if it has none. Rejects where nobody answers. */
  resolve(name: string): Promise<readonly string[]>;
  /** A connection that has just been started to an address and a port. */
  connect(address: string, port: number): Socket;
  /** A question as it is to the gateway's own name servers, and their answer. The signal closes what is open for it at once. */
  relayDns(question: Uint8Array, signal: AbortSignal): Promise<Uint8Array>;
}

const RESOLVE_TIMEOUT_MS = 5000;
const RESOLVE_TRIES = 2;
const CONNECT_TIMEOUT_MS = 10_000;
const KEEP_ALIVE_MS = 60_000;
/** From how many bytes on, of each direction of a connection, nothing more is read until they are taken. What is read at once may be 64 KiB. */
export const STREAM_BYTES: number = 16 * 1024;
/** The longest that nothing at all may pass in what is under way. A model may think for a quarter of an hour. */
export const IDLE_TIMEOUT_MS: number = 60 * 60 * 1000;
const DNS_PORT = 53;

/** The real one. Names are resolved by the container's name servers; its table of hosts is not asked. */
export function systemNetwork(): Network {
  const resolver = new dns.Resolver({ timeout: RESOLVE_TIMEOUT_MS, tries: RESOLVE_TRIES });
  return {
    async resolve(name) {
      // A name at least one family of which is known can be reached by that one.
      const answers = await Promise.allSettled([resolver.resolve4(name), resolver.resolve6(name)]);
      const addresses = answers.flatMap((answer) => (answer.status === "fulfilled" ? answer.value : []));
      const failure = answers.find((answer) => answer.status === "rejected" && !isAbsence(answer.reason));
      if (addresses.length === 0 && failure?.status === "rejected") throw failure.reason;
      return addresses;
    },
    connect: (address, port) =>
      connect({
        host: address,
        port,
        family: isIPv6(address) ? 6 : 4,
        allowHalfOpen: true,
        noDelay: true,
        keepAlive: true,
        keepAliveInitialDelay: KEEP_ALIVE_MS,
        highWaterMark: STREAM_BYTES,
      } as SocketConnectOpts),
    relayDns: (question, signal) => relayDns(question, resolver.getServers(), signal),
  };
}

function isAbsence(reason: unknown): boolean {
  const { code } = reason as NodeJS.ErrnoException;
  return code === dns.NODATA || code === dns.NOTFOUND;
}

/** Connects to the first address that answers, in order. Rejects with the last error, or with the signal's reason. */
export async function dial(
  network: Network,
  addresses: readonly string[],
  port: number,
  signal: AbortSignal,
): Promise<Socket> {
  let failure: unknown = new Error("no address");
  for (const address of addresses) {
    signal.throwIfAborted();
    const socket = network.connect(address, port);
    try {
      await connected(socket, AbortSignal.any([signal, AbortSignal.timeout(CONNECT_TIMEOUT_MS)]));
      return socket;
    } catch (error) {
      socket.destroy();
      failure = error;
    }
  }
  signal.throwIfAborted();
  throw failure;
}

function connected(socket: Socket, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const settle = (error?: unknown): void => {
      signal.removeEventListener("abort", onAbort);
      socket.off("connect", onConnect).off("error", settle).off("close", onClose);
      if (error === undefined) resolve();
      else {
        // Whatever it says later, nobody waits for it any more.
        socket.on("error", () => undefined);
        reject(error instanceof Error ? error : new Error("the connection failed"));
      }
    };
    const onAbort = (): void => settle(signal.reason);
    const onConnect = (): void => settle();
    const onClose = (): void => settle(new Error("closed"));
    socket.once("connect", onConnect).once("error", settle).once("close", onClose);
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
  });
}

/** One question over TCP to the first of the servers that answers: `ADDRESS`, `ADDRESS:PORT` or `[ADDRESS]:PORT`. */
export async function relayDns(
  question: Uint8Array,
  servers: readonly string[],
  signal: AbortSignal,
): Promise<Uint8Array> {
  let failure: unknown = new Error("the gateway has no name server");
  for (const server of servers) {
    signal.throwIfAborted();
    const [, v6, v4, port] = /^(?:\[(.*)\]|([\d.]+)):(\d+)$/.exec(server) ?? [];
    const socket = connect({ host: v6 ?? v4 ?? server, port: Number(port ?? DNS_PORT) });
    try {
      const deadline = AbortSignal.any([signal, AbortSignal.timeout(RESOLVE_TIMEOUT_MS)]);
      return await askOverStream(socket, question, deadline);
    } catch (error) {
      failure = error;
    } finally {
      socket.destroy();
    }
  }
  signal.throwIfAborted();
  throw failure;
}

async function askOverStream(socket: Socket, question: Uint8Array, signal: AbortSignal): Promise<Uint8Array> {
  const onAbort = (): void => void socket.destroy(signal.reason as Error);
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    const length = Buffer.alloc(2);
    length.writeUInt16BE(question.length);
    socket.write(Buffer.concat([length, question]));
    let received = Buffer.alloc(0);
    for await (const chunk of socket as AsyncIterable<Buffer>) {
      received = Buffer.concat([received, chunk]);
      if (received.length >= 2 && received.length >= 2 + received.readUInt16BE(0)) {
        return received.subarray(2, 2 + received.readUInt16BE(0));
      }
    }
    throw new Error("the name server ended the connection");
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}
