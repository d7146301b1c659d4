import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";

/*
 * An HTTP server on a unix socket that plays a Docker daemon with one container. What it answers is data: the rules of a script, first match
 * wins, then those of a daemon without faults. For faults that no real engine can be made to show; everything else is tried on real engines.
 */

export interface Script {
  readonly rules?: readonly Rule[];
  /** What programs in the box do. One that is not listed ends with 0 and says nothing. */
  readonly programs?: readonly Program[];
  /** How a connection becomes a raw one. Default is 101. */
  readonly upgrade?: 101 | 200;
}

export interface Rule {
  /** Method and path; `*` is one component of it. The query does not count. */
  readonly on: string;
  /** Only while this has happened. */
  readonly when?: Happening;
  /** Only requests with such a body. */
  readonly body?: RegExp;
  /** How often. Default is always. */
  readonly times?: number;
  readonly answer: Answer;
  /** What has happened once it has answered. */
  readonly makes?: Happening;
}

/** The past of the container and of its image. */
export type Happening = "pulled" | "started" | "killed" | "removed" | "asked";

export type Answer =
  | { readonly status: number; readonly json?: unknown; readonly afterMs?: number }
  /** The connection ends without an answer, or after the headers of one. */
  | { readonly cut: "before headers" | "after headers" }
  /** The same, and nobody listens for a while. */
  | { readonly gone: number }
  | "never";

export interface Program {
  /** Its argv, joined by blanks. */
  readonly argv: RegExp;
  readonly output?: readonly Piece[];
  /** Answers when its whole input is there, and says it again on stdout. */
  readonly echo?: boolean;
  /** Where the connection's bytes are cut into pieces that arrive one by one. */
  readonly cuts?: readonly number[] | "everywhere";
  /** Bytes that arrive before the connection ends. Default is all. */
  readonly keep?: number;
  /** What becomes of the connection afterwards. Default is `closed`. */
  readonly leaves?: "closed" | "open";
}

/** What is written to one of the program's streams, or the helper's last word on both, or bytes of the connection itself. */
export type Piece =
  | { readonly stdout: string }
  | { readonly stderr: string }
  | { readonly ends: { readonly exit: number } }
  | { readonly raw: readonly number[] };

/** What somebody asked of the daemon. */
export interface Request {
  /** Method and path; `RUN` and argv for a program in the box. */
  readonly call: string;
  readonly headers: IncomingMessage["headers"];
  /** At most the first 64 KiB. */
  readonly body: Buffer;
}

export const CONTAINER = "c0ffee";
const MAX_BODY_BYTES = 64 * 1024;

const state = (more: object): Answer => ({
  status: 200,
  json: {
    Id: CONTAINER,
    State: {
      Status: "exited",
      Running: false,
      Paused: false,
      OOMKilled: false,
      Dead: false,
      Pid: 0,
      ExitCode: 0,
      ...more,
    },
    NetworkSettings: { Networks: {} },
  },
});
export const RUNNING: Answer = state({ Status: "running", Running: true, Pid: 42 });
export const CREATED: Answer = state({ Status: "created" });
export const DEAD: Answer = state({ Status: "dead", Dead: true });

/** What the daemon says of a container that has ended, for rules that say otherwise of one that runs. */
export const ENDS: readonly Rule[] = [
  { on: "GET /containers/*/json", when: "removed", answer: { status: 404, json: { message: "no such container" } } },
  { on: "GET /containers/*/json", when: "killed", answer: state({ ExitCode: 137 }) },
];

/**
 * The second container there may be, before the one that everything is about: a box without a network, told from others by its lifetime, that is asked for the engine's name
 * servers. It has none.
 */
const NAME_SERVERS: readonly Rule[] = [
  {
    on: "POST /containers/create",
    body: /"--lifetime-ms","300000"/,
    answer: { status: 201, json: { Id: "asked" } },
  },
  { on: "POST /containers/asked/start", answer: { status: 204 } },
  { on: "GET /containers/asked/json", when: "asked", answer: { status: 404, json: { message: "no such container" } } },
  { on: "GET /containers/asked/json", answer: RUNNING },
  { on: "HEAD /containers/asked/archive", answer: { status: 404 } },
  { on: "DELETE /containers/asked", answer: { status: 204 }, makes: "asked" },
];

/** A daemon without faults. */
const HEALTHY: readonly Rule[] = [
  { on: "GET /_ping", answer: { status: 200 } },
  { on: "GET /version", answer: { status: 200, json: { Version: "20.10.24", ApiVersion: "1.41", Arch: "amd64" } } },
  {
    on: "GET /info",
    answer: {
      status: 200,
      json: { OSType: "linux", NCPU: 2, MemTotal: 2 ** 33, MemoryLimit: true, PidsLimit: true, CpuCfsQuota: true },
    },
  },
  { on: "GET /images/*/json", answer: { status: 200, json: { Id: `sha256:${"1".repeat(64)}`, Os: "linux" } } },
  { on: "POST /images/create", answer: { status: 200, json: { status: "done" } }, makes: "pulled" },
  { on: "POST /containers/create", answer: { status: 201, json: { Id: CONTAINER } } },
  { on: "PUT /containers/*/archive", answer: { status: 200 } },
  { on: "POST /containers/*/start", answer: { status: 204 }, makes: "started" },
  ...ENDS,
  { on: "GET /containers/*/json", when: "started", answer: RUNNING },
  { on: "GET /containers/*/json", answer: CREATED },
  { on: "GET /containers/*/stats", answer: { status: 200, json: {} } },
  { on: "POST /containers/*/exec", when: "killed", answer: { status: 409, json: { message: "not running" } } },
  // Our helper's `kill` is no program that it is asked to run: it ends at once.
  { on: "POST /containers/*/exec", body: /"kill"/, answer: { status: 201, json: { Id: "kill" } } },
  { on: "POST /exec/kill/start", answer: { cut: "after headers" } },
  { on: "POST /containers/*/exec", answer: { status: 201, json: { Id: "exec" } } },
  { on: "GET /exec/*/json", answer: { status: 200, json: { Running: false, ExitCode: 0, Pid: 43 } } },
  // The same for all programs: they differ once the connection is raw.
  { on: "POST /exec/*/start", answer: { status: 200 } },
  { on: "POST /containers/*/kill", answer: { status: 204 }, makes: "killed" },
  { on: "DELETE /containers/*", answer: { status: 204 }, makes: "removed" },
  { on: "GET /events", answer: { status: 200 } },
];

export class FakeDaemon implements AsyncDisposable {
  readonly requests: Request[] = [];
  readonly #script: Script;
  readonly #rules: Rule[];
  readonly #folder: string;
  readonly #server = createServer();
  readonly #connections = new Set<Socket>();
  readonly #happened = new Set<Happening>();
  readonly #used = new Map<Rule, number>();
  #closed = false;

  private constructor(script: Script, folder: string) {
    this.#script = script;
    this.#rules = [...NAME_SERVERS, ...(script.rules ?? []), ...HEALTHY];
    this.#folder = folder;
    this.#server.keepAliveTimeout = 60_000;
    this.#server.on("connection", (socket) => {
      this.#connections.add(socket);
      socket.on("error", () => undefined).on("close", () => this.#connections.delete(socket));
    });
    this.#server.on("request", (request, response) => void this.#serve(request, response));
    this.#server.on("upgrade", (request, socket, head) => void this.#serveRaw(request, socket, head));
  }

  static async start(script: Script = {}): Promise<FakeDaemon> {
    const daemon = new FakeDaemon(script, await mkdtemp(join(tmpdir(), "fake-daemon-")));
    await daemon.#listen();
    return daemon;
  }

  /** As in `DOCKER_HOST`. */
  get host(): string {
    return `unix://${this.#socket}`;
  }

  /** How often somebody asked for it; `*` as in rules. */
  count(call: string): number {
    return this.requests.filter((request) => matches(call, request.call)).length;
  }

  /** A rule that comes before all others, from now on. */
  misbehave(rule: Rule): void {
    this.#rules.unshift(rule);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true;
    this.#server.close();
    for (const socket of this.#connections) socket.destroy();
    await rm(this.#folder, { recursive: true, force: true });
  }

  get #socket(): string {
    return join(this.#folder, "docker.sock");
  }

  #listen(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#server.once("error", reject).listen(this.#socket, resolve);
    });
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    let bytes = 0;
    try {
      for await (const chunk of request as AsyncIterable<Buffer>) {
        if (bytes < MAX_BODY_BYTES) chunks.push(chunk);
        bytes += chunk.length;
      }
    } catch {
      return; // whoever asked has gone
    }
    const answer = this.#answer(request, Buffer.concat(chunks));
    if (answer === "never") return;
    if ("gone" in answer) return this.#leave(answer.gone);
    if ("cut" in answer) {
      if (answer.cut === "after headers") {
        response.writeHead(200, { "Content-Type": "application/json", "Content-Length": 1000 });
        response.write("{");
        await sleep(20);
      }
      request.socket.destroy();
      return;
    }
    if (answer.afterMs !== undefined) await sleep(answer.afterMs);
    const body = answer.json === undefined ? "" : JSON.stringify(answer.json);
    response.writeHead(answer.status, { "Content-Type": "application/json" });
    response.end(answer.status === 204 ? undefined : body);
  }

  /** What a connection is used for once it carries a program's input and output. */
  async #serveRaw(request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    const input = new Input(socket, head);
    const answer = this.#answer(request, await input.take(Number(request.headers["content-length"] ?? 0)));
    if (answer === "never") return;
    if ("status" in answer && answer.status >= 300) {
      const body = JSON.stringify(answer.json ?? {});
      socket.end(`HTTP/1.1 ${answer.status} Refused\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
      return;
    }
    if ("gone" in answer) return this.#leave(answer.gone);
    if ("cut" in answer && answer.cut === "before headers") {
      socket.destroy();
      return;
    }
    const upgraded = "101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp";
    const status = this.#script.upgrade === 200 ? "200 OK" : upgraded;
    socket.write(`HTTP/1.1 ${status}\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\n`);
    if ("cut" in answer) socket.end();
    else await this.#run(socket, input);
  }

  async #run(socket: Duplex, input: Input): Promise<void> {
    const first = await input.frame();
    if (first === undefined) return;
    const { nonce, argv } = JSON.parse(first.payload.toString()) as { readonly nonce: string; readonly argv: string[] };
    this.requests.push({ call: `RUN ${argv.join(" ")}`, headers: {}, body: first.payload });
    const program = this.#script.programs?.find((it) => it.argv.test(argv.join(" ")));
    const echoed: Buffer[] = [];
    for (let frame = first; program?.echo === true && frame.type !== "E";) {
      const next = await input.frame();
      if (next === undefined) return;
      if (next.type === "D") echoed.push(next.payload);
      frame = next;
    }
    const bytes = Buffer.concat([
      ...echoed.map((payload) => multiplexed(1, payload)),
      ...(program?.output ?? [{ ends: { exit: 0 } }]).map((piece) => encode(piece, nonce)),
    ]);
    const end = program?.keep ?? bytes.length;
    const { cuts = [] } = program ?? {};
    const ends = cuts === "everywhere" ? Array.from(bytes.keys()) : cuts;
    let at = 0;
    for (const cut of [...ends.filter((it) => it > 0 && it < end), end]) {
      socket.write(bytes.subarray(at, cut));
      at = cut;
      if (cut < end) await sleep(cuts === "everywhere" ? 0 : 10);
    }
    if (program?.leaves !== "open") socket.end();
  }

  #answer(request: IncomingMessage, body: Buffer): Answer {
    const path = (request.url ?? "").split("?")[0] ?? "";
    const call = `${request.method} ${path}`;
    this.requests.push({ call, headers: request.headers, body });
    const rule = this.#rules.find((it) => this.#applies(it, call, body));
    if (rule === undefined) return { status: 501, json: { message: `the fake daemon has no answer to ${call}` } };
    this.#used.set(rule, (this.#used.get(rule) ?? 0) + 1);
    if (rule.makes !== undefined) this.#happened.add(rule.makes);
    return rule.answer;
  }

  #applies(rule: Rule, call: string, body: Buffer): boolean {
    if (!matches(rule.on, call)) return false;
    if (rule.when !== undefined && !this.#happened.has(rule.when)) return false;
    if ((this.#used.get(rule) ?? 0) >= (rule.times ?? Number.POSITIVE_INFINITY)) return false;
    return rule.body === undefined || rule.body.test(body.toString());
  }

  /** Stops as a killed daemon does, and comes back. */
  #leave(forMs: number): void {
    this.#server.close();
    for (const socket of this.#connections) socket.destroy();
    setTimeout(() => {
      if (!this.#closed) void this.#listen();
    }, forMs);
  }
}

function matches(pattern: string, call: string): boolean {
  const [wanted, given] = [pattern.split("/"), call.split("/")];
  return wanted.length === given.length && wanted.every((part, index) => part === "*" || part === given[index]);
}

function encode(piece: Piece, nonce: string): Buffer {
  if ("raw" in piece) return Buffer.from(piece.raw);
  if ("stdout" in piece) return multiplexed(1, Buffer.from(piece.stdout));
  if ("stderr" in piece) return multiplexed(2, Buffer.from(piece.stderr));
  const last = (payload: string): Buffer => {
    const length = Buffer.alloc(4);
    length.writeUInt32BE(Buffer.byteLength(payload));
    return Buffer.concat([Buffer.from(nonce, "latin1"), length, Buffer.from(payload)]);
  };
  const word = JSON.stringify({ killed: null, killedCount: 0, survivors: [], ...piece.ends });
  return Buffer.concat([multiplexed(1, last("")), multiplexed(2, last(word))]);
}

/** One frame of the engine's format. */
function multiplexed(stream: 1 | 2, payload: Buffer): Buffer {
  const header = Buffer.from([stream, 0, 0, 0, 0, 0, 0, 0]);
  header.writeUInt32BE(payload.length, 4);
  return Buffer.concat([header, payload]);
}

/** The caller's end of a raw connection. */
class Input {
  #bytes: Buffer;
  #ended = false;
  #wake: () => void = () => undefined;

  constructor(socket: Duplex, head: Buffer) {
    this.#bytes = head;
    socket.on("data", (chunk: Buffer) => {
      this.#bytes = Buffer.concat([this.#bytes, chunk]);
      this.#wake();
    });
    for (const event of ["end", "close", "error"]) {
      socket.on(event, () => {
        this.#ended = true;
        this.#wake();
      });
    }
  }

  /** That many bytes, fewer if the connection ends before. */
  async take(count: number): Promise<Buffer> {
    while (this.#bytes.length < count && !this.#ended) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    const taken = this.#bytes.subarray(0, count);
    this.#bytes = this.#bytes.subarray(count);
    return taken;
  }

  /** One frame of what the driver tells our helper; `undefined` at the end. */
  async frame(): Promise<{ readonly type: string; readonly payload: Buffer } | undefined> {
    const header = await this.take(5);
    if (header.length < 5) return undefined;
    return { type: header.toString("latin1", 0, 1), payload: await this.take(header.readUInt32BE(1)) };
  }
}
