import type { Socket } from "node:net";
import { type ClientHello, ClientHelloReader, MAX_GREETING_BYTES } from "./client-hello.ts";
import type { DenialRule } from "./decide.ts";
import { IDLE_TIMEOUT_MS } from "./network.ts";
import { MAX_ANSWER_BYTES, ServerHelloReader } from "./server-hello.ts";

/** How long a client may take to greet. */
const HELLO_TIMEOUT_MS = 30_000;

export interface Greeting {
  readonly hello: ClientHello;
  /** The greeting, to be passed on. What the client has sent behind it is still to be read. */
  readonly bytes: Buffer;
}

/** Reads the TLS greeting of a client. `null` if there is none: something else, too long, too slow, or the end. */
export async function readGreeting(
  socket: Socket,
  reader: ClientHelloReader = new ClientHelloReader(),
): Promise<Greeting | null> {
  const { result: hello, bytes } = await readWith(socket, reader, MAX_GREETING_BYTES, HELLO_TIMEOUT_MS);
  return hello === null || hello === "invalid" ? null : { hello, bytes };
}

/**
 * Reads until a reader knows what it has. `null` if it never does: too long, too slow, or the end. The bytes are all that was read; if the reader says
 * how many it has taken, the others are still to be read.
 */
function readWith<T>(
  socket: Socket,
  reader: { push(bytes: Uint8Array): T | "incomplete"; readonly taken?: number },
  maxBytes: number,
  timeoutMs: number,
): Promise<{ readonly result: T | null; readonly bytes: Buffer }> {
  return new Promise((resolve) => {
    // One buffer, however small the pieces are that it comes in.
    let bytes = Buffer.alloc(2048);
    let size = 0;
    const settle = (result: T | null): void => {
      clearTimeout(timer);
      socket.off("readable", read).off("end", onEnd).off("close", onEnd);
      const taken = reader.taken ?? size;
      if (taken < size && !socket.destroyed) socket.unshift(Buffer.from(bytes.subarray(taken, size)));
      resolve({ result, bytes: bytes.subarray(0, taken) });
    };
    const onEnd = (): void => settle(null);
    const read = (): void => {
      for (let chunk = socket.read() as Buffer | null; chunk !== null; chunk = socket.read() as Buffer | null) {
        if (size + chunk.length > bytes.length) {
          bytes = Buffer.concat([bytes.subarray(0, size)], 2 * (size + chunk.length));
        }
        bytes.set(chunk, size);
        size += chunk.length;
        const result = reader.push(chunk);
        if (result !== "incomplete") settle(result);
        else if (size > maxBytes) settle(null);
        if (result !== "incomplete" || size > maxBytes) return;
      }
    };
    const timer = setTimeout(onEnd, timeoutMs);
    socket.on("readable", read).once("end", onEnd).once("close", onEnd);
    if (socket.readableEnded || socket.destroyed) onEnd();
    else read();
  });
}

/**
 * Passes a greeting that was checked on, and joins the connections. A server may ask for a second greeting (RFC 8446, 4.1.4), and goes by the host that this
 * one names: so it is checked like the first, and until the server has answered nothing else of the box reaches it. Gives the rule that refused the
 * second greeting; then everything is ended.
 */
export async function joinTls(
  box: Socket,
  server: Socket,
  greeting: Uint8Array,
  check: (second: ClientHello) => DenialRule | null,
): Promise<DenialRule | null> {
  server.write(greeting);
  const { result, bytes } = await readWith(server, new ServerHelloReader(), MAX_ANSWER_BYTES, IDLE_TIMEOUT_MS);
  if (result === "invalid") server.destroy();
  else if (bytes.length > 0) box.write(bytes);
  if (result === "retry") {
    const second = await readGreeting(box, new ClientHelloReader({ isSecond: true }));
    const rule = second === null ? "malformed" : check(second.hello);
    if (second === null || rule !== null) {
      const isGone = box.readableEnded || box.destroyed;
      server.destroy();
      refuseTls(box);
      return isGone ? null : rule;
    }
    server.write(second.bytes);
  }
  join(box, server);
  return null;
}

/** Tells the client by TLS's own means that this is not allowed (alert `access_denied`), and ends. */
export function refuseTls(socket: Socket): void {
  socket.end(Buffer.from([21, 3, 3, 0, 2, 2, 49]));
  discard(socket);
}

/** What a client still sends to a connection that has been answered for good is read and forgotten, for a moment. */
export function discard(socket: Socket, timeoutMs = 5000): void {
  const timer = setTimeout(() => socket.destroy(), timeoutMs);
  socket
    .on("error", () => undefined)
    .once("end", () => socket.destroy())
    .once("close", () => clearTimeout(timer))
    .resume();
}

/** Joins two connections until both directions have ended. Each may end its own direction first. Memory stays flat if one does not read. */
export function join(box: Socket, server: Socket): void {
  const end = (): void => {
    box.destroy();
    server.destroy();
  };
  if (box.destroyed || server.destroyed) {
    end();
    return;
  }
  for (const [from, to] of [
    [box, server],
    [server, box],
  ] as const) {
    from.on("error", end);
    from.once("close", () => {
      // Closed before its end: the other direction has nobody to talk to.
      if (!from.readableEnded || !from.writableFinished) end();
    });
    from.pipe(to);
  }
  box.setTimeout(IDLE_TIMEOUT_MS, end);
}
