import type { Socket } from "node:net";
import { type ClientHello, ClientHelloReader, MAX_GREETING_BYTES } from "./client-hello.ts";

/** How long a client may take to greet. */
const HELLO_TIMEOUT_MS = 30_000;
/** The longest that nothing at all may pass through a tunnel. A model may think for a quarter of an hour. */
const IDLE_TIMEOUT_MS = 60 * 60 * 1000;
export interface Greeting {
  readonly hello: ClientHello;
  /** All that has been read, to be passed on. */
  readonly bytes: Buffer;
}

/** Reads the TLS greeting of a client. `null` if there is none: something else, too long, too slow, or the end. */
export function readGreeting(socket: Socket): Promise<Greeting | null> {
  return new Promise((resolve) => {
    const reader = new ClientHelloReader();
    // One buffer, however small the pieces are that it comes in.
    let bytes = Buffer.alloc(2048);
    let size = 0;
    const settle = (greeting: Greeting | null): void => {
      clearTimeout(timer);
      socket.off("readable", read).off("end", onEnd).off("close", onEnd);
      resolve(greeting);
    };
    const onEnd = (): void => settle(null);
    const read = (): void => {
      for (let chunk = socket.read() as Buffer | null; chunk !== null; chunk = socket.read() as Buffer | null) {
        if (size + chunk.length > bytes.length) {
          bytes = Buffer.concat([bytes.subarray(0, size)], 2 * (size + chunk.length));
        }
        bytes.set(chunk, size);
        size += chunk.length;
        const hello = reader.push(chunk);
        if (hello === "invalid" || (hello === "incomplete" && size > MAX_GREETING_BYTES)) settle(null);
        else if (hello !== "incomplete") settle({ hello, bytes: bytes.subarray(0, size) });
        if (hello !== "incomplete") return;
      }
    };
    const timer = setTimeout(onEnd, HELLO_TIMEOUT_MS);
    socket.on("readable", read).once("end", onEnd).once("close", onEnd);
    if (socket.readableEnded || socket.destroyed) onEnd();
    else read();
  });
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
