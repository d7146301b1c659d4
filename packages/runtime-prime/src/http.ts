import { type Dispatcher, FormData, Pool } from "undici";
import type { z } from "zod";
import type { Deadline } from "@breakwater/driver-kit";
import { AnswerError, isPassing, isStatus, ServiceError } from "./errors.ts";

/** Connections to one origin: most calls wait for something in a box. */
const CONNECTIONS = 128;
const CONNECT_TIMEOUT_MS = 10_000;
const CALL_TIMEOUT_MS = 30_000;
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;
const MAX_ERROR_BYTES = 64 * 1024;
const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 5000;
/** Where a rate limit does not say how long to wait. */
const RATE_LIMIT_PAUSES_MS = [10_000, 30_000, 40_000] as const;

/** One pool of connections for each origin. */
export class Connections implements AsyncDisposable {
  readonly #pools = new Map<string, Pool>();
  readonly #streams = new Map<string, Pool>();

  pool(origin: string): Pool {
    let pool = this.#pools.get(origin);
    if (pool === undefined) {
      pool = new Pool(origin, {
        connections: CONNECTIONS,
        pipelining: 1,
        connect: { timeout: CONNECT_TIMEOUT_MS },
        keepAliveTimeout: 30_000,
      });
      this.#pools.set(origin, pool);
    }
    return pool;
  }

  /** Connections that are held for as long as a program runs: others must not wait for them. */
  streams(origin: string): Pool {
    let pool = this.#streams.get(origin);
    if (pool === undefined) {
      pool = new Pool(origin, {
        pipelining: 1,
        connect: { timeout: CONNECT_TIMEOUT_MS },
        headersTimeout: CALL_TIMEOUT_MS,
        bodyTimeout: 0,
      });
      this.#streams.set(origin, pool);
    }
    return pool;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const pools = [...this.#pools.values(), ...this.#streams.values()];
    this.#pools.clear();
    this.#streams.clear();
    await Promise.all(pools.map((pool) => pool.destroy()));
  }
}

export interface HttpCall {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  /** For messages: the path without what a stranger could make use of. */
  readonly what: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly json?: unknown;
  readonly form?: FormData | undefined;
  /** For the answer's first byte. Default is 30 s. */
  readonly timeoutMs?: number | undefined;
}

/** One request and its whole answer. Throws `ServiceError`, `AnswerError`, and undici's errors. */
export async function call<T>(pool: Pool, clock: Deadline, schema: z.ZodType<T>, request: HttpCall): Promise<T> {
  clock.throwIfOver();
  const { method, what, path, json, form } = request;
  const timeoutMs = request.timeoutMs ?? CALL_TIMEOUT_MS;
  const response = await pool.request({
    method,
    path,
    headers: { ...request.headers, ...(json === undefined ? {} : { "content-type": "application/json" }) },
    body: json === undefined ? (form ?? null) : JSON.stringify(json),
    signal: clock.signal,
    headersTimeout: timeoutMs,
    bodyTimeout: timeoutMs,
  });
  const name = `${method} ${what}`;
  if (response.statusCode >= 300) throw await serviceError(name, response);
  const text = await readText(response.body, MAX_ANSWER_BYTES);
  const parsed = schema.safeParse(parseJson(text));
  if (!parsed.success) {
    throw new AnswerError(
      `${name} answered ${response.statusCode} with something else than documented: ${parsed.error.message}`,
    );
  }
  return parsed.data;
}

/** One request whose answer is bytes: given on as they come. Throws as `call`, and `AnswerError` for another number of bytes. */
export async function fetchBytes(
  pool: Pool,
  clock: Deadline,
  request: Omit<HttpCall, "json" | "form">,
  expected: { readonly bytes: number; readonly take: (chunk: Buffer) => void },
): Promise<void> {
  clock.throwIfOver();
  const { method, what, path, headers } = request;
  const timeoutMs = request.timeoutMs ?? CALL_TIMEOUT_MS;
  const limits = { signal: clock.signal, headersTimeout: timeoutMs, bodyTimeout: timeoutMs };
  const response = await pool.request({ method, path, headers: { ...headers }, ...limits });
  if (response.statusCode >= 300) throw await serviceError(`${method} ${what}`, response);
  let bytes = 0;
  for await (const chunk of response.body as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes <= expected.bytes) expected.take(chunk);
  }
  if (bytes !== expected.bytes) throw new AnswerError(`${method} ${what} gave ${bytes} bytes of ${expected.bytes}`);
}

export interface RepeatOptions {
  /** How long failures are put up with. Default is 60 s. */
  readonly patienceMs?: number | undefined;
  /** Which failures may pass. Default: those of transport and of the service itself. */
  readonly isPassing?: ((error: unknown) => boolean) | undefined;
}

/** Repeats a call that has the same effect when it is made twice, as long as its failures may pass, within the deadline. */
export async function repeat<T>(clock: Deadline, once: () => Promise<T>, options: RepeatOptions = {}): Promise<T> {
  const mayPass = options.isPassing ?? isPassing;
  return pausing(clock, once, mayPass, options.patienceMs ?? 60_000);
}

async function pausing<T>(
  clock: Deadline,
  once: () => Promise<T>,
  mayPass: (error: unknown) => boolean,
  patienceMs: number,
): Promise<T> {
  const patienceEndsAt = performance.now() + patienceMs;
  let rateLimited = 0;
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS)) {
    clock.throwIfOver();
    try {
      return await once();
    } catch (error) {
      clock.throwIfOver();
      if (!mayPass(error)) throw error;
      let waitMs = pauseMs * (0.75 + Math.random() / 2);
      if (isStatus(error, 429)) {
        const asTold = error.retryAfterMs ?? RATE_LIMIT_PAUSES_MS[rateLimited];
        rateLimited += 1;
        if (asTold === undefined) throw error;
        waitMs = asTold;
      }
      // The last word is the service's failure, not our deadline.
      const leftMs = Math.min(patienceEndsAt - performance.now(), clock.remainingMs());
      if (waitMs >= leftMs) throw error;
      await clock.sleep(waitMs);
    }
  }
}

async function serviceError(name: string, response: Dispatcher.ResponseData): Promise<ServiceError> {
  return serviceErrorOf(name, response, await errorText(response));
}

/** What came with a failure; nothing if that cannot be had. */
export async function errorText(response: Dispatcher.ResponseData): Promise<string> {
  return readText(response.body, MAX_ERROR_BYTES).catch(() => "");
}

export function serviceErrorOf(name: string, response: Dispatcher.ResponseData, text: string): ServiceError {
  const body = parseJson(text);
  const fields = (typeof body === "object" && body !== null ? body : {}) as Readonly<Record<string, unknown>>;
  const { error, detail, message, errors } = fields;
  const said = detail ?? message ?? errors ?? error ?? text;
  return new ServiceError(name, response.statusCode, {
    reason: typeof error === "string" ? error : null,
    detail: (typeof said === "string" ? said : JSON.stringify(said)).slice(0, 500),
    retryAfterMs: retryAfterMs(response.headers["retry-after"]),
  });
}

/** Seconds or a date. */
export function retryAfterMs(header: string | string[] | undefined, nowMs: number = Date.now()): number | null {
  if (typeof header !== "string") return null;
  if (/^\d+$/.test(header)) return Number(header) * 1000;
  const atMs = Date.parse(header);
  return Number.isNaN(atMs) ? null : Math.max(0, atMs - nowMs);
}

async function readText(body: Dispatcher.ResponseData["body"], maxBytes: number): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of body as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > maxBytes) {
      body.destroy();
      throw new AnswerError(`an answer has more than ${maxBytes} bytes`);
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
