import { Code, ConnectError, createClient, type Client, type Transport } from "@connectrpc/connect";
import { createTransport } from "@connectrpc/connect/protocol-connect";
import type { UniversalClientFn } from "@connectrpc/connect/protocol";
import type { BoxExec, Deadline, ProgramOutcome } from "@breakwater/driver-kit";
import type { OutputStream } from "@breakwater/runtime-api";
import type { Dispatcher } from "undici";
import { CommandSession, type CommandSessionEvent, type CommandSpec } from "./command-session-pb.ts";
import { AnswerError, ServiceError } from "./errors.ts";
import type { Gateway } from "./gateway.ts";
import { type Connections, errorText, parseJson, serviceErrorOf } from "./http.ts";
import type { CommandResult, GatewayAccess } from "./schemas.ts";

/** The longest that a stream lives. The service wants a bound. */
const STREAM_TIMEOUT_MS = 24 * 60 * 60 * 1000;
const INPUT_TIMEOUT_MS = 30_000;
/** The longest message that is taken or sent. */
const MAX_MESSAGE_BYTES = 16 * 1024 * 1024;
/** The most input in one message. */
const MESSAGE_BYTES = 1024 * 1024;
/** How much input is held here until it is on its way; a write waits beyond it. */
const HELD_BYTES = 4 * 1024 * 1024;
const MAX_COMMAND_OUTPUT_BYTES = 1024 * 1024;

/** What HTTP would have said in place of a Connect code. */
const STATUSES: Readonly<Partial<Record<Code, number>>> = {
  [Code.Unauthenticated]: 401,
  [Code.PermissionDenied]: 403,
  [Code.NotFound]: 410,
  [Code.ResourceExhausted]: 429,
  [Code.FailedPrecondition]: 409,
  [Code.Aborted]: 503,
  [Code.Unavailable]: 503,
  [Code.DeadlineExceeded]: 504,
};

export interface SessionCommand {
  readonly cmd: string;
  readonly args: readonly string[];
  /** `null` = the image's. */
  readonly user: string | null;
  /** `null` = the image's. */
  readonly cwd: string | null;
}

/** Programs in a VM: a server stream for each, its input by calls of their own. */
export class Sessions {
  readonly #gateway: Gateway;
  readonly #connections: Connections;

  constructor(gateway: Gateway, connections: Connections) {
    this.#gateway = gateway;
    this.#connections = connections;
  }

  /**
   * A program of our helper as root. Opening may be repeated: the helper does nothing before it gets its first input, and its other verbs can be run
   * twice. Throws `ServiceError`.
   */
  async open(clock: Deadline, argv: readonly string[]): Promise<BoxExec> {
    const [cmd = "", ...args] = argv;
    return this.#open(clock, { cmd, args, user: "root", cwd: "/" }, false);
  }

  /** Runs a command of the shell to its end; it may be run again. */
  async run(
    clock: Deadline,
    command: string,
    as: { readonly user: string | null; readonly cwd: string | null },
    isStarting: boolean,
  ): Promise<CommandResult> {
    const program = await this.#open(clock, { cmd: "/bin/bash", args: ["-c", command], ...as }, isStarting);
    const output = { stdout: "", stderr: "" };
    try {
      for await (const { stream, chunk } of program.output) {
        clock.throwIfOver();
        if (output[stream].length < MAX_COMMAND_OUTPUT_BYTES) output[stream] += Buffer.from(chunk).toString("utf8");
      }
      const exitCode = program.exitCode ?? 0;
      return { ...output, exitCode };
    } finally {
      program.close();
    }
  }

  async #open(clock: Deadline, { cmd, args, user, cwd }: SessionCommand, isStarting: boolean): Promise<SessionExec> {
    const command = {
      cmd,
      args: [...args],
      envs: {},
      ...(user === null ? {} : { user }),
      ...(cwd === null ? {} : { cwd }),
    };
    return this.#gateway.repeat(
      clock,
      async (access) => {
        const client = createClient(CommandSession, this.#transport(access));
        return SessionExec.start(client, command, clock);
      },
      isStarting,
    );
  }

  #transport({ base, token }: GatewayAccess): Transport {
    return createTransport({
      baseUrl: base,
      httpClient: this.#send,
      useBinaryFormat: true,
      acceptCompression: [],
      sendCompression: null,
      compressMinBytes: Number.MAX_SAFE_INTEGER,
      readMaxBytes: MAX_MESSAGE_BYTES,
      writeMaxBytes: MAX_MESSAGE_BYTES,
      interceptors: [
        (next) => (request) => {
          request.header.set("authorization", `Bearer ${token}`);
          request.header.set("user-agent", "breakwater");
          return next(request);
        },
      ],
    });
  }

  /** Connect's requests by undici. A stream holds its connection for as long as its program runs. */
  readonly #send: UniversalClientFn = async ({ url, method, header, body, signal }) => {
    const { origin, pathname } = new URL(url);
    const sent: Uint8Array[] = [];
    for await (const chunk of body ?? []) sent.push(chunk);
    const response = await this.#connections.streams(origin).request({
      method: method === "GET" ? "GET" : "POST",
      path: pathname,
      headers: Object.fromEntries(header),
      body: Buffer.concat(sent),
      signal: signal ?? null,
    });
    if (response.statusCode >= 400) {
      const text = await errorText(response);
      const { code } = (parseJson(text) ?? {}) as { readonly code?: unknown };
      // The gateway's own failures are not in Connect's words.
      if (typeof code !== "string")
        throw serviceErrorOf(`command_session ${pathname.replace(/.*\//, "")}`, response, text);
      return { status: response.statusCode, header: headersOf(response), body: once(text), trailer: new Headers() };
    }
    return { status: response.statusCode, header: headersOf(response), body: response.body, trailer: new Headers() };
  };
}

async function* once(text: string): AsyncGenerator<Uint8Array, void, undefined> {
  yield Buffer.from(text);
}

function headersOf(response: Dispatcher.ResponseData): Headers {
  const answered = new Headers();
  for (const [name, value] of Object.entries(response.headers)) {
    for (const each of Array.isArray(value) ? value : [value ?? ""]) answered.append(name, each);
  }
  return answered;
}

interface Output {
  readonly stream: OutputStream;
  readonly chunk: Uint8Array;
}

/** One program, as the transport of an exec session. */
class SessionExec implements BoxExec {
  readonly output: AsyncIterable<Output>;
  readonly #client: Client<typeof CommandSession>;
  readonly #events: AsyncIterator<CommandSessionEvent | undefined>;
  readonly #pid: number;
  readonly #over: AbortController;
  #exit: number | null = null;
  #input: Buffer[] = [];
  #inputBytes = 0;
  #isSending = false;
  #failure: Error | undefined;
  #roomWanted: (() => void)[] = [];

  private constructor(
    client: Client<typeof CommandSession>,
    events: AsyncIterator<CommandSessionEvent | undefined>,
    pid: number,
    over: AbortController,
  ) {
    this.#client = client;
    this.#events = events;
    this.#pid = pid;
    this.#over = over;
    this.output = this.#read();
  }

  /** Returns once the program runs. */
  static async start(
    client: Client<typeof CommandSession>,
    command: Omit<CommandSpec, "$typeName">,
    clock: Deadline,
  ): Promise<SessionExec> {
    const over = new AbortController();
    const giveUp = (): void => over.abort();
    clock.signal.addEventListener("abort", giveUp, { once: true });
    try {
      // Said to the service only: the client's own timer would outlive every stream that is not read to its last byte.
      const headers = { "Connect-Timeout-Ms": String(STREAM_TIMEOUT_MS) };
      const stream = client.start({ command, stdin: true }, { signal: over.signal, headers });
      const events = eventsOf(stream)[Symbol.asyncIterator]();
      for (;;) {
        const next = await events.next();
        if (next.done === true) throw new AnswerError("the stream of a program ended before the program was started");
        const event = next.value?.event;
        if (event?.case === "start") return new SessionExec(client, events, event.value.pid, over);
        if (event?.case !== "keepalive") {
          throw new AnswerError(`the stream of a program began with ${event?.case ?? "nothing known"}`);
        }
      }
    } catch (error) {
      over.abort();
      throw serviceError(error);
    } finally {
      clock.signal.removeEventListener("abort", giveUp);
    }
  }

  get exitCode(): number | null {
    return this.#exit;
  }

  async outcome(_clock: Deadline): Promise<ProgramOutcome | null> {
    return this.#exit === null ? null : { exitCode: this.#exit };
  }

  async *#read(): AsyncGenerator<Output, void, undefined> {
    try {
      for (;;) {
        const next = await this.#events.next();
        if (next.done === true) throw new AnswerError("the stream of a program ended without the program's end");
        const event = next.value?.event;
        if (event?.case === "end") {
          this.#exit = event.value.exitCode;
          return;
        }
        if (event?.case !== "data") continue;
        const { output } = event.value;
        if (output.case !== undefined)
          yield { stream: output.case === "stderr" ? "stderr" : "stdout", chunk: output.value };
      }
    } catch (error) {
      if (this.#over.signal.aborted) return;
      throw serviceError(error);
    }
  }

  async write(bytes: Uint8Array): Promise<void> {
    this.#throwIfFailed();
    this.#input.push(Buffer.from(bytes));
    this.#inputBytes += bytes.length;
    void this.#send();
    while (this.#inputBytes > HELD_BYTES) {
      await new Promise<void>((resolve) => this.#roomWanted.push(resolve));
      this.#throwIfFailed();
    }
  }

  #throwIfFailed(): void {
    if (this.#failure !== undefined) throw this.#failure;
  }

  /** One message after the other, as input has an order. */
  async #send(): Promise<void> {
    if (this.#isSending) return;
    this.#isSending = true;
    try {
      while (this.#inputBytes > 0 && !this.#over.signal.aborted) {
        const all = Buffer.concat(this.#input);
        const value = all.subarray(0, MESSAGE_BYTES);
        this.#input = value.length < all.length ? [all.subarray(value.length)] : [];
        await this.#client.sendInput(
          {
            session: { selector: { case: "pid", value: this.#pid } },
            input: { input: { case: "stdin", value: new Uint8Array(value) } },
          },
          { signal: this.#over.signal, timeoutMs: INPUT_TIMEOUT_MS },
        );
        this.#inputBytes -= value.length;
        this.#wakeWriters();
      }
    } catch (error) {
      this.#failure = error instanceof Error ? error : new Error(String(error));
      this.#input = [];
      this.#inputBytes = 0;
    } finally {
      this.#isSending = false;
      this.#wakeWriters();
    }
  }

  #wakeWriters(): void {
    const waiting = this.#roomWanted;
    this.#roomWanted = [];
    for (const resolve of waiting) resolve();
  }

  /** The program is not ended by it. */
  close(): void {
    this.#over.abort();
  }
}

async function* eventsOf(
  stream: AsyncIterable<{ readonly event?: CommandSessionEvent | undefined }>,
): AsyncGenerator<CommandSessionEvent | undefined, void, undefined> {
  for await (const { event } of stream) yield event;
}

function serviceError(error: unknown): unknown {
  if (!(error instanceof ConnectError)) return error;
  const status = STATUSES[error.code];
  // Not Connect's: the gateway's, or undici's own, which says what happened.
  const { cause } = error;
  if (cause instanceof ServiceError || (cause instanceof Error && "code" in cause)) return cause;
  return new ServiceError("command_session Start", status ?? 500, {
    reason: Code[error.code] ?? null,
    detail: error.rawMessage.slice(0, 500),
  });
}
