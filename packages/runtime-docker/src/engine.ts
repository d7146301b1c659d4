import http, { IncomingMessage } from "node:http";
import https from "node:https";
import type { Duplex, Readable } from "node:stream";
import { isRuntimeError, type OperationOptions, RuntimeError } from "@breakwater/runtime-api";
import { type Deadline, remembered, retry, withDeadline } from "@breakwater/driver-kit";
import Dockerode from "dockerode";
import { type Doing, DRIVER, EngineError, toRuntimeError } from "./errors.ts";
import { defaultSockets, type DockerDriverOptions, type EngineAddress, findEngine } from "./options.ts";

/** One call of the Engine API. */
export interface EngineCall {
  readonly method: "GET" | "HEAD" | "POST" | "PUT" | "DELETE";
  readonly path: string;
  /** Objects are sent as JSON. `undefined` is left out. */
  readonly query?: Readonly<Record<string, string | number | boolean | object | undefined>> | undefined;
  readonly body?: object | undefined;
  readonly file?: Buffer | Readable | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
}

/** A raw connection to a program: what `exec start` turns into. */
export interface HijackedConnection {
  readonly input: Duplex;
  /** The multiplexed output, from its first byte. */
  readonly output: Readable;
}

interface Connected {
  readonly address: EngineAddress;
  readonly calls: Dockerode;
  readonly hijacks: Dockerode;
}

const MAX_JSON_BYTES = 32 * 1024 * 1024;
const MAX_ERROR_BYTES = 64 * 1024;
const MAX_IDLE_CONNECTIONS = 16;
/** Shorter than what any engine keeps an idle connection for, Podman's service with its 5 s included. */
const IDLE_CONNECTION_MS = 4000;
const CALL_TIMEOUT_MS = 30_000;

/** Every status comes back to us as a response: what it means depends on the call. */
const EVERY_STATUS: Record<number, true> = Object.fromEntries(
  Array.from({ length: 500 }, (_, index) => [100 + index, true as const]),
);

/**
 * The Engine API over dockerode's transport. dockerode finds out how to talk (socket, TCP, TLS, ssh); its methods are not used, because not all
 * of them take a signal, and its demultiplexer and `end()` lose data.
 */
export class Engine implements AsyncDisposable {
  readonly #options: DockerDriverOptions;
  readonly #connect: () => Promise<Connected> = remembered(() => this.#findAndConnect());
  #agent: http.Agent | undefined;

  constructor(options: DockerDriverOptions) {
    this.#options = options;
  }

  /** What the engine is called in messages. */
  async label(): Promise<string> {
    return (await this.#connect()).address.label;
  }

  /** The JSON of a successful answer. Throws `EngineError` for another status. A GET is repeated when the connection fails. */
  async json<T>(clock: Deadline, call: EngineCall, { idempotent = isRead(call) }: RepeatOptions = {}): Promise<T> {
    return this.#repeated(clock, call, idempotent, async () => {
      const response = await this.send(clock.signal, call);
      const bytes = await readAll(response, MAX_JSON_BYTES);
      return (bytes.length === 0 ? null : JSON.parse(bytes.toString("utf8"))) as T;
    });
  }

  /** A successful answer whose content does not matter. Gives the status. */
  async done(clock: Deadline, call: EngineCall): Promise<number> {
    return this.#repeated(clock, call, isRead(call), async () => {
      const response = await this.send(clock.signal, call);
      response.resume();
      return response.statusCode ?? 0;
    });
  }

  /** The headers of a successful answer. */
  async head(clock: Deadline, call: Omit<EngineCall, "method">): Promise<http.IncomingHttpHeaders> {
    return this.#repeated(clock, { ...call, method: "HEAD" }, true, async () => {
      const response = await this.send(clock.signal, { ...call, method: "HEAD" });
      response.resume();
      return response.headers;
    });
  }

  /** The response of a successful call, its body unread. Destroy it, or read it to its end. */
  async send(signal: AbortSignal, call: EngineCall): Promise<IncomingMessage> {
    const { calls } = await this.#connect();
    const response = (await dial(calls, signal, call)) as IncomingMessage;
    const status = response.statusCode ?? 0;
    if (status >= 200 && status < 400) return response;
    const bytes = await readAll(response, MAX_ERROR_BYTES).catch(() => Buffer.alloc(0));
    throw new EngineError(status, `${call.method} ${call.path}`, describeBody(bytes), response.headers);
  }

  /** Turns a call into a raw connection. Always on a connection of its own: a reused one may be dead, and this call is never repeated. */
  async hijack(signal: AbortSignal, call: EngineCall): Promise<HijackedConnection> {
    const { hijacks } = await this.#connect();
    const answer = await dial(hijacks, signal, call, true);
    if (!(answer instanceof IncomingMessage)) return { input: answer, output: answer };
    const status = answer.statusCode ?? 0;
    // Engines behind a proxy that takes away the upgrade headers hijack after a 200.
    if (status === 200) return { input: answer.socket, output: answer };
    const bytes = await readAll(answer, MAX_ERROR_BYTES).catch(() => Buffer.alloc(0));
    throw new EngineError(status, `${call.method} ${call.path}`, describeBody(bytes));
  }

  /** Asks the engine whether it is there: the control question before "not found" counts as proof. */
  async ping(clock: Deadline): Promise<void> {
    await this.done(clock, { method: "GET", path: "/_ping" });
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#agent?.destroy();
    return Promise.resolve();
  }

  async #findAndConnect(): Promise<Connected> {
    const address = await findEngine(this.#options);
    if (address === null) {
      throw new RuntimeError({
        code: "ERR_BACKEND_UNAVAILABLE",
        driver: DRIVER,
        operation: "connect",
        retryable: true,
        message: `no engine found: DOCKER_HOST is not set and none of ${defaultSockets(process.env).join(", ")} can be opened; start Docker or Podman, or set DOCKER_HOST`,
      });
    }
    const { protocol } = address.connection as { protocol?: string };
    if (protocol === "ssh") {
      // dockerode makes an agent of its own for each of these.
      const client = new Dockerode(address.connection as Dockerode.DockerOptions);
      return { address, calls: client, hijacks: client };
    }
    const { Agent } = protocol === "https" ? https : http;
    // The number of connections is not bounded: a download that waits for its reader must not hold up the call that the reader makes.
    const agent = new Agent({ keepAlive: true, maxFreeSockets: MAX_IDLE_CONNECTIONS, timeout: IDLE_CONNECTION_MS });
    this.#agent = agent;
    return {
      address,
      calls: dockerode(address, agent),
      hijacks: dockerode(address, new Agent({ keepAlive: false })),
    };
  }

  async #repeated<T>(clock: Deadline, call: EngineCall, idempotent: boolean, once: () => Promise<T>): Promise<T> {
    if (!idempotent) return once();
    const isRetryable = (error: unknown): boolean => {
      const mapped = toRuntimeError({ operation: "connect", what: call.path, idempotent }, error);
      return isRuntimeError(mapped) && mapped.retryable;
    };
    return retry(clock, once, { attempts: 4, isRetryable });
  }
}

interface RepeatOptions {
  /** Whether the call may be made again when the connection fails. Default: only what reads. */
  readonly idempotent?: boolean;
}

function isRead(call: EngineCall): boolean {
  return call.method === "GET" || call.method === "HEAD";
}

/** Runs the calls of one operation under its deadline; whatever the engine answers or fails with comes out as a `RuntimeError`. */
export async function operate<T>(
  options: OperationOptions | undefined,
  doing: Doing,
  work: (clock: Deadline) => Promise<T>,
  defaultMs: number = CALL_TIMEOUT_MS,
): Promise<T> {
  try {
    return await withDeadline(
      options,
      defaultMs,
      { driver: DRIVER, operation: doing.operation, boxId: doing.boxId, what: doing.what },
      work,
    );
  } catch (error) {
    throw toRuntimeError(doing, error);
  }
}

const CREATE_TIMEOUT_MS = 2 * 60 * 1000;

/**
 * Makes a container and gives the engine's id of it. The engine finishes a creation whose caller has gone: so it has a clock of its own, and whoever removes what it may
 * have made waits for it first.
 */
export async function createContainer(engine: Engine, name: string, body: object, doing: Doing): Promise<string> {
  const call = { method: "POST", path: "/containers/create", query: { name }, body } as const;
  const create = (own: Deadline): Promise<{ readonly Id: string }> => engine.json(own, call);
  return (await operate(undefined, doing, create, CREATE_TIMEOUT_MS)).Id;
}

function dockerode(address: EngineAddress, agent: http.Agent): Dockerode {
  // dockerode passes the agent on; its types do not know.
  const connection: Dockerode.DockerOptions & { readonly agent: http.Agent } = {
    ...(address.connection as Dockerode.DockerOptions),
    agent,
  };
  return new Dockerode(connection);
}

function dial(
  client: Dockerode,
  signal: AbortSignal,
  call: EngineCall,
  hijack = false,
): Promise<IncomingMessage | Duplex> {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const query = Object.fromEntries(Object.entries(call.query ?? {}).filter(([, value]) => value !== undefined));
    client.modem.dial(
      {
        method: call.method,
        path: `${call.path}?`,
        options: { _query: query, _body: call.body ?? {} },
        abortSignal: signal,
        isStream: true,
        hijack,
        openStdin: false,
        statusCodes: EVERY_STATUS,
        ...(call.file === undefined ? {} : { file: call.file }),
        ...(call.headers === undefined ? {} : { headers: { ...call.headers } }),
      },
      (error, answer) => {
        if (error !== null) reject(error);
        else resolve(answer as IncomingMessage | Duplex);
      },
    );
  });
}

/** The whole body, bounded. */
export async function readAll(stream: Readable, maxBytes: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > maxBytes) {
      stream.destroy();
      throw new EngineError(0, "an answer of the engine", `is longer than ${maxBytes} bytes`);
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function describeBody(bytes: Buffer): string {
  const text = bytes.toString("utf8").trim();
  try {
    const body = JSON.parse(text) as { message?: unknown; cause?: unknown };
    if (typeof body.message === "string") return body.message;
  } catch {
    // Not JSON: as it is.
  }
  return text.slice(0, 500) || "no explanation";
}
