import type { IncomingMessage } from "node:http";
import { WebSocket } from "ws";
import type { OutputStream } from "@breakwater/runtime-api";
import { type BoxExec, type Deadline, type ProgramOutcome, retry } from "@breakwater/driver-kit";
import type { Cluster } from "./cluster.ts";
import { ConnectionError, isStatus, statusError } from "./errors.ts";

/** Which program of which container is started. */
export interface ExecTarget {
  readonly pod: string;
  readonly container: string;
  readonly argv: readonly string[];
}

/** The channels of `v4.channel.k8s.io` and `v5.channel.k8s.io`: the first byte of every message. */
const CHANNEL = { stdin: 0, stdout: 1, stderr: 2, status: 3, close: 255 } as const;
const STREAMS: Readonly<Record<number, OutputStream>> = { [CHANNEL.stdout]: "stdout", [CHANNEL.stderr]: "stderr" };

/** Servers refuse messages of 32 MiB; small ones are also faster. */
const MAX_MESSAGE_BYTES = 64 * 1024;
/** Output that nobody has taken yet; more than this holds the server back. */
const MAX_WAITING_BYTES = 256 * 1024;
/** Whoever sends more than this in one message is no API server. */
const MAX_SERVER_MESSAGE_BYTES = 32 * 1024 * 1024;
const MAX_ANSWER_BYTES = 64 * 1024;
const MAX_STATUS_BYTES = 64 * 1024;
/** Load balancers cut what is silent for a minute or more. */
const HEARTBEAT_MS = 20_000;
/** How long the streams may still go on when the server has said how the program ended. */
const AFTER_STATUS_MS = 5_000;
const CLOSE_MS = 1_000;
/** Container runtimes lose the ends of programs when very many start in one container at once. */
const STARTS_AT_ONCE = 8;
/** A server that says nothing at first is not waited for: some send an empty message, some do not. */
const FIRST_MESSAGE_MS = 500;
/** What `box-helper exec` takes for input of no bytes: it keeps connections within the cluster from being idle. */
const NO_INPUT = Buffer.from([0x44, 0, 0, 0, 0]);
const KILLED = 137;

/** `metav1.Status` on the status channel. */
interface ExecStatus {
  readonly status?: string;
  readonly reason?: string;
  readonly message?: string;
  readonly details?: { readonly causes?: readonly { readonly reason?: string; readonly message?: string }[] };
}

/** At most so many starts at once, the others wait in order. */
export class StartSlots {
  #free = STARTS_AT_ONCE;
  readonly #waiting: (() => void)[] = [];

  async take(clock: Deadline): Promise<() => void> {
    if (this.#free > 0) this.#free -= 1;
    else {
      const turn = new Promise<void>((resolve) => this.#waiting.push(resolve));
      try {
        await clock.race(turn);
      } catch (error) {
        // The turn may come all the same; then it is the next one's.
        void turn.then(() => this.#give());
        throw error;
      }
    }
    let isGiven = false;
    return () => {
      if (isGiven) return;
      isGiven = true;
      this.#give();
    };
  }

  #give(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#free += 1;
    else next();
  }
}

/**
 * Starts a program in a container and connects its streams. Repeated only while the server has refused the connection, when nothing has started, and as long as
 * the container runs. Throws `ClusterError`, `ConnectionError`.
 */
export async function openExec(
  cluster: Cluster,
  target: ExecTarget,
  protocols: readonly string[],
  slots: StartSlots,
  clock: Deadline,
  isRunning: () => Promise<boolean> = () => Promise.resolve(true),
): Promise<PodExec> {
  const giveBack = await slots.take(clock);
  try {
    let hasEnded = false;
    const connect = async (): Promise<PodExec> => {
      try {
        return new PodExec(await openSocket(cluster, target, protocols, clock));
      } catch (error) {
        hasEnded = !(await isRunning());
        throw error;
      }
    };
    const isRetryable = (error: unknown): boolean => !hasEnded && isStatus(error, 429, 500, 502, 503, 504);
    const exec = await retry(clock, connect, { attempts: 5, isRetryable });
    void exec.begun(FIRST_MESSAGE_MS).then(giveBack);
    return exec;
  } catch (error) {
    giveBack();
    throw error;
  }
}

const ASK_ATTEMPTS = 3;
const MAX_TEXT_BYTES = 4 * 1024 * 1024;

/** What a program of ours writes to its output, for questions that may be asked again. Empty if it ended without a word. */
export async function ask(
  cluster: Cluster,
  target: ExecTarget,
  protocols: readonly string[],
  slots: StartSlots,
  clock: Deadline,
): Promise<string> {
  for (let attempt = 1; ; attempt++) {
    const exec = await openExec(cluster, target, protocols, slots, clock);
    try {
      return await clock.race(textOf(exec));
    } catch (error) {
      clock.throwIfOver();
      if (attempt >= ASK_ATTEMPTS) throw error;
    } finally {
      exec.close();
    }
  }
}

async function textOf(exec: PodExec): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const { stream, chunk } of exec.output) {
    bytes += chunk.length;
    if (bytes > MAX_TEXT_BYTES) throw new Error("our helper wrote more than it ever does");
    if (stream === "stdout") chunks.push(chunk);
  }
  const text = Buffer.concat(chunks).toString("utf8");
  const outcome = await exec.outcome();
  if (outcome?.startFailure !== undefined) throw new Error(`our helper could not be started: ${outcome.startFailure}`);
  // A line of JSON that is not whole was cut on the way.
  if (text.length > 0 && !text.endsWith("\n")) throw new Error("the answer of our helper was cut");
  return text;
}

async function openSocket(
  cluster: Cluster,
  { pod, container, argv }: ExecTarget,
  protocols: readonly string[],
  clock: Deadline,
): Promise<WebSocket> {
  const path = `/api/v1/namespaces/${cluster.namespace}/pods/${pod}/exec`;
  const streams = ["stdin", "stdout", "stderr"].map((name): [string, string] => [name, "true"]);
  const command = argv.map((argument): [string, string] => ["command", argument]);
  const { url, options } = await cluster.socketTarget(path, [["container", container], ...streams, ...command]);
  const call = `exec in pods/${pod}`;
  const socket = new WebSocket(url, [...protocols], {
    ...options,
    perMessageDeflate: false,
    maxPayload: MAX_SERVER_MESSAGE_BYTES,
    handshakeTimeout: Math.max(1, Math.min(clock.remainingMs(), 30_000)),
  });
  const opened = new Promise<WebSocket>((resolve, reject) => {
    socket.once("open", () => {
      // What comes before anybody reads must wait, not be lost.
      socket.pause();
      resolve(socket);
    });
    socket.once("unexpected-response", (_request, response) => {
      void readAnswer(response).then((text) =>
        reject(statusError(call, response.statusCode ?? 0, text, response.headers["retry-after"])),
      );
    });
    socket.on("error", (error: NodeJS.ErrnoException) =>
      reject(new ConnectionError(`${call}: ${error.message}`, error.code ?? "", error)),
    );
  });
  try {
    return await clock.race(opened);
  } catch (error) {
    socket.terminate();
    throw error;
  }
}

async function readAnswer(response: IncomingMessage): Promise<string> {
  let text = "";
  try {
    for await (const chunk of response.setEncoding("utf8") as AsyncIterable<string>) {
      text += chunk;
      if (text.length > MAX_ANSWER_BYTES) break;
    }
  } catch {
    // What came is all there is.
  }
  return text;
}

/**
 * One program that was started through the API server. Two witnesses tell how it ended: our helper's trailers on both streams, which driver-kit reads, and
 * the server's status, which is `outcome`. The server's word alone is not believed: servers report success for output that they have cut.
 */
export class PodExec implements BoxExec {
  readonly output: AsyncIterable<{ readonly stream: OutputStream; readonly chunk: Uint8Array }>;
  /** The connection has ended. */
  readonly closed: Promise<void>;
  readonly #socket: WebSocket;
  readonly #waiting: { readonly stream: OutputStream; readonly chunk: Uint8Array }[] = [];
  #waitingBytes = 0;
  #wake: (() => void) | undefined;
  #begin: (() => void) | undefined;
  #hasBegun = false;
  #hasWritten = false;
  #isAlive = true;
  #status: ExecStatus | null = null;
  #failure: ConnectionError | null = null;
  #ended = false;
  readonly #heartbeat: NodeJS.Timeout;

  constructor(socket: WebSocket) {
    this.#socket = socket;
    this.output = this.#read();
    this.closed = new Promise((resolve) => socket.once("close", () => resolve()));
    socket.on("message", (data) => this.#take(data as Buffer));
    socket.on("pong", () => {
      this.#isAlive = true;
    });
    socket.on("error", (error: NodeJS.ErrnoException) => this.#fail(error.message, error.code));
    socket.on("close", (code) => this.#end(code));
    this.#heartbeat = setInterval(() => this.#beat(), HEARTBEAT_MS);
    this.#heartbeat.unref();
    socket.resume();
  }

  /** The server has begun, or that long has passed. */
  async begun(limitMs: number): Promise<void> {
    if (this.#hasBegun) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, limitMs);
      this.#begin = (): void => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  async write(bytes: Uint8Array): Promise<void> {
    this.#hasWritten = true;
    // All pieces are handed over at once, so that nothing comes between them; the last one is waited for.
    let sent: Promise<void> = Promise.resolve();
    for (let at = 0; at < bytes.length; at += MAX_MESSAGE_BYTES)
      sent = this.#send(bytes.subarray(at, at + MAX_MESSAGE_BYTES));
    await sent;
  }

  /** The server's word; `null` as long as there is none. */
  async outcome(): Promise<ProgramOutcome | null> {
    const status = this.#status;
    if (status === null) return null;
    const causes = status.details?.causes ?? [];
    const exitCode = Number(causes.find(({ reason }) => reason === "ExitCode")?.message ?? Number.NaN);
    if (status.status === "Success" || status.reason === "NonZeroExitCode") {
      // A helper that ends by itself leaves trailers. Without them only a kill is believed: for all else output was cut on the way.
      return { exitCode: exitCode === KILLED ? KILLED : null };
    }
    return { exitCode: null, startFailure: status.message ?? status.reason ?? "the cluster gave no reason" };
  }

  /** Ends the connection for a reason of ours: whoever reads gets an error, not an end. */
  abort(reason: string): void {
    this.#fail(reason);
    this.#socket.terminate();
  }

  close(): void {
    this.#finish();
    if (this.#socket.readyState === WebSocket.CLOSED) return;
    this.#socket.close(1000);
    this.#socket.resume();
    setTimeout(() => this.#socket.terminate(), CLOSE_MS).unref();
  }

  #send(piece: Uint8Array): Promise<void> {
    const message = Buffer.allocUnsafe(piece.length + 1);
    message[0] = CHANNEL.stdin;
    message.set(piece, 1);
    const sent = new Promise<void>((resolve, reject) => {
      this.#socket.send(message, (error) => {
        if (error) reject(error);
        else resolve();
      });
    });
    sent.catch(() => undefined);
    return sent;
  }

  #take(message: Buffer): void {
    this.#hasBegun = true;
    this.#begin?.();
    if (message.length <= 1 || this.#ended) return;
    const channel = message[0] ?? 0;
    const body = message.subarray(1);
    const stream = STREAMS[channel];
    if (stream !== undefined) this.#push(stream, body);
    else if (channel === CHANNEL.status) this.#takeStatus(body);
    else if (channel !== CHANNEL.close) {
      this.#fail(`a message on channel ${channel}, which there is not`);
      this.#socket.terminate();
    }
  }

  #push(stream: OutputStream, chunk: Buffer): void {
    this.#waiting.push({ stream, chunk });
    this.#waitingBytes += chunk.length;
    if (this.#waitingBytes > MAX_WAITING_BYTES) this.#socket.pause();
    this.#wake?.();
  }

  #takeStatus(body: Buffer): void {
    try {
      this.#status = JSON.parse(body.subarray(0, MAX_STATUS_BYTES).toString("utf8")) as ExecStatus;
    } catch {
      this.#fail("the server's status is no JSON");
    }
    setTimeout(() => this.#socket.terminate(), AFTER_STATUS_MS).unref();
  }

  #beat(): void {
    if (!this.#isAlive && !this.#socket.isPaused) {
      this.#fail(`no sign of life for ${HEARTBEAT_MS} ms`);
      this.#socket.terminate();
      return;
    }
    this.#isAlive = false;
    this.#socket.ping(undefined, undefined, () => undefined);
    if (this.#hasWritten && !this.#ended) void this.#send(NO_INPUT);
  }

  #fail(reason: string, code = ""): void {
    this.#failure ??= new ConnectionError(`the connection of an exec: ${reason}`, code);
  }

  #end(code: number): void {
    if (this.#status === null) this.#fail(`ended with ${code} and without a status`);
    this.#finish();
  }

  #finish(): void {
    this.#ended = true;
    clearInterval(this.#heartbeat);
    this.#begin?.();
    this.#wake?.();
  }

  async *#read(): AsyncGenerator<{ readonly stream: OutputStream; readonly chunk: Uint8Array }, void, undefined> {
    for (;;) {
      const next = this.#waiting.shift();
      if (next !== undefined) {
        this.#waitingBytes -= next.chunk.length;
        if (this.#socket.isPaused && this.#waitingBytes <= MAX_WAITING_BYTES / 2) this.#socket.resume();
        yield next;
        continue;
      }
      if (this.#ended) break;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    if (this.#failure !== null && this.#status === null) throw this.#failure;
  }
}
