import { randomBytes } from "node:crypto";
import { rm } from "node:fs/promises";
import { createServer, request, type IncomingMessage, type Server } from "node:http";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

/**
 * What becomes of a call. `refuse`: it is answered with 500 and not passed on. `full`: the same with 429. `lie`: the same with 200. `stall`: never answered, not passed on.
 * `cut`: passed on, and the connection ends without an answer.
 */
export type Fault = "refuse" | "full" | "lie" | "stall" | "cut";

export interface FaultyCall {
  readonly method: string;
  readonly path: RegExp;
  readonly fault: Fault;
}

/** A real engine behind a socket of its own, at which chosen calls go wrong. */
export class EngineProxy implements AsyncDisposable {
  readonly host: string;
  /** Every call that a fault was done to, as `METHOD PATH`. */
  readonly done: string[] = [];
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #path: string;
  #faults: readonly FaultyCall[] = [];

  static async start(host: string): Promise<EngineProxy> {
    const path = join(tmpdir(), `bw-proxy-${randomBytes(4).toString("hex")}.sock`);
    const proxy = new EngineProxy(new URL(host).pathname, path);
    await new Promise<void>((resolve) => proxy.#server.listen(path, resolve));
    return proxy;
  }

  private constructor(engine: string, path: string) {
    this.#path = path;
    this.host = `unix://${path}`;
    this.#server = createServer((call, response) => {
      const fault = this.#faultOf(call);
      if (fault === "stall") return;
      if (fault === "refuse" || fault === "full" || fault === "lie") {
        call.resume();
        const status = { refuse: 500, full: 429, lie: 200 }[fault];
        response.writeHead(status, { "Content-Type": "application/json" });
        response.end(JSON.stringify(fault === "lie" ? {} : { message: "something went wrong" }));
        return;
      }
      const { method, url, headers } = call;
      const passed = request({ socketPath: engine, method, path: url, headers, agent: false }, (answer) => {
        if (fault === "cut") {
          call.socket.destroy();
          return;
        }
        response.writeHead(answer.statusCode ?? 500, answer.headers);
        answer.pipe(response);
        answer.on("error", () => response.destroy());
      });
      passed.on("error", () => response.destroy());
      response.on("close", () => passed.destroy());
      call.pipe(passed);
    });
    // Longer than any client of ours keeps an idle connection: none is closed while it is used again.
    this.#server.keepAliveTimeout = 60_000;
    this.#server.on("connection", (socket) => {
      this.#sockets.add(socket);
      socket.once("close", () => this.#sockets.delete(socket));
    });
    // Programs: from the call on it is a raw connection.
    this.#server.on("upgrade", (call: IncomingMessage, socket: Socket, head: Buffer) => {
      const lines = [`${call.method} ${call.url} HTTP/1.1`];
      for (let at = 0; at < call.rawHeaders.length; at += 2)
        lines.push(`${call.rawHeaders[at]}: ${call.rawHeaders[at + 1]}`);
      const upstream = connect({ path: engine, allowHalfOpen: true });
      for (const [one, other] of [
        [socket, upstream],
        [upstream, socket],
      ] as const) {
        one.on("error", () => other.destroy());
        one.on("close", () => other.destroy());
      }
      upstream.write(`${lines.join("\r\n")}\r\n\r\n`);
      upstream.write(head);
      socket.pipe(upstream);
      upstream.pipe(socket);
    });
  }

  /** Replaces the faults; none makes everything go right again. */
  break(...faults: readonly FaultyCall[]): void {
    this.#faults = faults;
    this.done.length = 0;
  }

  #faultOf({ method = "", url = "" }: IncomingMessage): Fault | undefined {
    const found = this.#faults.find((it) => it.method === method && it.path.test(url));
    if (found !== undefined) this.done.push(`${method} ${url}`);
    return found?.fault;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
    await rm(this.#path, { force: true });
  }
}
