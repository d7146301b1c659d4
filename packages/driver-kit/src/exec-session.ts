import { randomBytes } from "node:crypto";
import {
  isAbsolutePath,
  isEnvironmentName,
  isUser,
  RuntimeError,
  type ExecOptions,
  type ExecResult,
  type OutputStream,
  type RuntimeErrorCode,
  type RuntimeErrorDetails,
} from "@breakwater/runtime-api";
import { checkTimeoutMs, deadline } from "./deadline.ts";
import {
  frame,
  MAX_FRAME_BYTES,
  parseTrailer,
  TrailerScanner,
  type HelperRequest,
  type HelperTrailer,
} from "./exec-protocol.ts";
import { HeadCapture } from "./output.ts";
import { Gate, later, MAX_TIMER_MS, settlesWithin } from "./timers.ts";

/** A connection to one `box-helper exec`, demultiplexed. */
export interface ExecTransport {
  /**
   * What the helper's streams carry, in order. Not reading it must hold the backend back. Ends when both streams have ended or after
   * `close`; throws when the connection broke or was not what the backend's protocol allows.
   */
  readonly output: AsyncIterable<{ readonly stream: OutputStream; readonly chunk: Uint8Array }>;
  /** Sends to the helper's input, whole and in the order of the calls; resolves when there is room for more. */
  write(bytes: Uint8Array): Promise<void>;
  /** Closes both directions at once. May be called more than once. */
  close(): void;
}

/** What the backend knows about an exec whose streams ended without the helper's word. */
export type AbnormalEnd =
  | { readonly kind: "lost" }
  | { readonly kind: "running"; readonly exitCode: number | null; readonly startFailure?: string | undefined };

/** One program to run, complete: the driver has filled in the image's and the spec's defaults. */
export interface ExecRequest {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string;
  readonly user: string | null;
}

export interface ExecCall {
  readonly driver: string;
  readonly boxId: string;
  readonly request: ExecRequest;
  /** `cwd`, `env` and `user` are taken from `request`, the rest from here. */
  readonly options: ExecOptions;
  /** The deadline without `options.timeoutMs`: what is left of the box's lifetime. */
  readonly deadlineMs: number;
  /**
   * Starts `box-helper exec <execId>` as root and connects. The only part that may be repeated, by the driver, while it is known
   * that nothing has started. Throws the driver's own errors; the signal ends it.
   */
  readonly open: (execId: string, signal: AbortSignal) => Promise<ExecTransport>;
  /** Runs `box-helper kill <execId>`. */
  readonly killByExec: (execId: string) => Promise<void>;
  /** Asked once when the streams ended without a trailer: does the box run, and what does the backend know about the exec. */
  readonly afterAbnormalEnd: (execId: string) => Promise<AbnormalEnd>;
  /**
   * The backend ends the connection when the helper ends, whatever input is under way: the helper ends after us. Default is `false`.
   */
  readonly streamsEndWithProgram?: boolean;
}

/** The helper ends the program at the deadline; if we have not heard of it this much later we act ourselves. */
const BACKSTOP_MS = 5000;
/** How long the helper has to answer a kill frame before a second exec is sent after it. */
const KILL_FRAME_MS = 1000;
/** How long a second exec may take, and the helper's last word after it. */
const KILL_EXEC_MS = 10_000;
/** How long the backend may take to say what became of a box. */
const QUESTION_MS = 30_000;
/** A stream that brings nothing for this long after the helper's last word on the other one has no word of its own. */
const SILENCE_MS = 5000;

/**
 * Runs one program in a box by way of `box-helper exec`, and keeps the promises of `Runtime.exec`: the result is decided by the
 * program's exit, output is exact, a timeout or an abort leaves nothing of the program behind, and nothing is ever run twice.
 *
 * Throws `TypeError` for arguments that cannot be passed on, what `open` throws, and `ERR_TIMEOUT` (nothing was started),
 * `ERR_ABORTED`, `ERR_EXEC_START`, `ERR_EXEC_UNKNOWN`, `ERR_BOX_LOST`, `ERR_BOX_UNFIT` (what it had started may still run).
 * What `onOutput` or an iterable `stdin` throws ends the program and is thrown as it is.
 */
export async function runExec(call: ExecCall): Promise<ExecResult> {
  checkRequest(call.request);
  const timeoutMs = checkTimeoutMs(call.options.timeoutMs) ?? call.deadlineMs;
  const session = new ExecSession(call, Math.min(Math.max(Math.ceil(timeoutMs), 1), MAX_TIMER_MS));
  return await session.run();
}

/** Why we, not the program, brought the end about. */
type Interruption = { readonly by: "abort" | "backstop" } | { readonly by: "caller"; readonly error: unknown };

class ExecSession {
  readonly #call: ExecCall;
  readonly #timeoutMs: number;
  readonly #execId = randomBytes(12).toString("hex");
  // The first character is one that output hardly ever ends in: what may be the beginning of the nonce is held back.
  readonly #nonce = `\x1e${randomBytes(24).toString("hex")}`;
  readonly #captures: Readonly<Record<OutputStream, HeadCapture>>;
  readonly #scanners: Readonly<Record<OutputStream, TrailerScanner>>;

  /** The helper's word on stderr has come, or the streams have ended. */
  readonly #outcome = later<void>();
  /** Both words have come, or the streams have ended. */
  readonly #complete = later<void>();
  readonly #interrupted = later<void>();
  /** Opened when the program's input is not wanted any more. */
  readonly #inputOver = new Gate();
  /** Opened when the caller's `onOutput` is not waited for any more. */
  readonly #deliveryOver = new Gate();

  #interruption: Interruption | undefined;
  #trailer: HelperTrailer | null = null;
  #delivery: Promise<void> | null = null;
  #dropped = false;
  #finished = false;
  #chunks = 0;
  #streamsEnded = false;
  #connectionError: unknown;
  #killError: unknown;

  constructor(call: ExecCall, timeoutMs: number) {
    this.#call = call;
    this.#timeoutMs = timeoutMs;
    const { maxOutputBytes } = call.options;
    this.#captures = { stdout: new HeadCapture(maxOutputBytes), stderr: new HeadCapture(maxOutputBytes) };
    this.#scanners = { stdout: new TrailerScanner(this.#nonce), stderr: new TrailerScanner(this.#nonce) };
  }

  async run(): Promise<ExecResult> {
    const startedAt = performance.now();
    const transport = await this.#connect();
    const remainingMs = Math.max(1, Math.ceil(this.#timeoutMs - (performance.now() - startedAt)));

    const { signal } = this.#call.options;
    const onAbort = (): void => this.#interrupt({ by: "abort" });
    signal?.addEventListener("abort", onAbort, { once: true });
    const backstop = setTimeout(
      () => this.#interrupt({ by: "backstop" }),
      Math.min(remainingMs + BACKSTOP_MS, MAX_TIMER_MS),
    );
    try {
      if (signal?.aborted === true) throw this.#aborted();
      void this.#send(transport, frame("R", Buffer.from(JSON.stringify(this.#helperRequest(remainingMs)))));
      void this.#feed(transport);
      void this.#read(transport);

      await Promise.race([this.#outcome.promise, this.#interrupted.promise]);
      this.#inputOver.open();
      if (this.#interruption !== undefined) await this.#endProgram(transport);
      else await Promise.race([this.#restOfOutput(), this.#interrupted.promise]);
      await this.#stopReading();
      return await this.#verdict(performance.now() - startedAt);
    } finally {
      this.#finished = true;
      this.#inputOver.open();
      clearTimeout(backstop);
      signal?.removeEventListener("abort", onAbort);
      transport.close();
    }
  }

  #interrupt(interruption: Interruption): void {
    this.#interruption ??= interruption;
    this.#interrupted.resolve();
  }

  /** Opens the connection. Until the request frame is sent nothing runs, so a deadline here is harmless. */
  async #connect(): Promise<ExecTransport> {
    const { driver, boxId, options } = this.#call;
    using clock = deadline({ signal: options.signal, timeoutMs: this.#timeoutMs }, this.#timeoutMs, {
      driver,
      boxId,
      operation: "exec",
      what: `starting ${this.#program}`,
    });
    clock.throwIfOver();
    const opening = this.#call.open(this.#execId, clock.signal);
    try {
      return await clock.race(opening);
    } catch (error) {
      opening.then(
        (transport) => transport.close(),
        () => undefined,
      );
      throw clock.translate(error);
    }
  }

  #helperRequest(timeoutMs: number): HelperRequest {
    const { argv, env, cwd, user } = this.#call.request;
    return {
      nonce: this.#nonce,
      argv,
      env: Object.entries(env).map(([name, value]) => `${name}=${value}`),
      cwd,
      user,
      stdin: this.#call.options.stdin !== undefined,
      timeoutMs,
      stay: this.#call.streamsEndWithProgram === true,
    };
  }

  /** Sends the program's input, as fast as it is taken, until the program or the input ends. Never rejects. */
  async #feed(transport: ExecTransport): Promise<void> {
    const { stdin } = this.#call.options;
    if (stdin === undefined) return;
    const input = inputIterator(stdin);
    const ended = { done: true, value: undefined } as const;
    try {
      for (;;) {
        const next = await this.#inputOver.wait(
          input.next().catch((error: unknown) => {
            this.#interrupt({ by: "caller", error });
            return ended;
          }),
        );
        if (next === undefined || this.#interruption !== undefined) return;
        if (next.done === true) break;
        for (let at = 0; at < next.value.length; at += MAX_FRAME_BYTES) {
          await this.#inputOver.wait(transport.write(frame("D", next.value.subarray(at, at + MAX_FRAME_BYTES))));
          if (this.#inputOver.isOpen) return;
        }
      }
      await transport.write(frame("E"));
    } catch {
      // The connection does not take input any more: how the output ends says what that means.
    } finally {
      // An input that is waiting for its own source ends when that does; nobody waits for it.
      void Promise.resolve(input.return?.()).catch(() => undefined);
    }
  }

  async #send(transport: ExecTransport, bytes: Uint8Array): Promise<void> {
    try {
      await transport.write(bytes);
    } catch {
      // As in #feed.
    }
  }

  async #read(transport: ExecTransport): Promise<void> {
    try {
      for await (const { stream, chunk } of transport.output) {
        if (this.#finished) return;
        this.#chunks += 1;
        const scanner = this.#scanners[stream];
        for (const bytes of scanner.push(chunk)) await this.#deliver(stream, bytes);
        if (scanner.trailer !== null) this.#noteTrailers();
      }
      for (const stream of ["stdout", "stderr"] as const) {
        const held = this.#scanners[stream].end();
        if (held.length > 0) await this.#deliver(stream, held);
      }
      this.#streamsEnded = true;
    } catch (error) {
      this.#connectionError = error;
    }
    this.#outcome.resolve();
    this.#complete.resolve();
  }

  #noteTrailers(): void {
    const { stdout, stderr } = this.#scanners;
    if (stderr.trailer === null) return;
    this.#trailer ??= parseTrailer(stderr.trailer);
    // A trailer that is none leaves the end of the streams to decide.
    if (this.#trailer === null) return;
    this.#outcome.resolve();
    if (stdout.trailer !== null) this.#complete.resolve();
  }

  async #deliver(stream: OutputStream, bytes: Uint8Array): Promise<void> {
    if (this.#finished) return;
    this.#captures[stream].push(bytes);
    const { onOutput } = this.#call.options;
    if (onOutput === undefined) return;
    if (this.#deliveryOver.isOpen) {
      this.#dropped = true;
      return;
    }
    try {
      const taken = onOutput(stream, bytes);
      if (taken === undefined) return;
      this.#delivery = taken;
      await this.#deliveryOver.wait(taken);
    } catch (error) {
      this.#interrupt({ by: "caller", error });
    } finally {
      this.#delivery = null;
    }
  }

  /** Has the program and all that it started killed. From here on the caller's `onOutput` is not waited for. */
  async #endProgram(transport: ExecTransport): Promise<void> {
    this.#deliveryOver.open();
    void this.#send(transport, frame("K"));
    if (await settlesWithin(this.#outcome.promise, KILL_FRAME_MS)) return;
    await this.#killFromOutside();
    await settlesWithin(this.#outcome.promise, KILL_EXEC_MS);
  }

  async #killFromOutside(): Promise<void> {
    const killing = this.#call.killByExec(this.#execId).catch((error: unknown) => {
      this.#killError = error;
    });
    await settlesWithin(killing, KILL_EXEC_MS);
  }

  /** The helper's word on stderr is there: waits for the one on stdout, as long as the stream moves or the caller holds it. */
  async #restOfOutput(): Promise<void> {
    for (;;) {
      const before = this.#chunks;
      if (await settlesWithin(this.#complete.promise, SILENCE_MS)) return;
      if (this.#chunks === before && this.#delivery === null) return;
    }
  }

  /** Nothing is given to the caller after this. A delivery that is under way is the caller's own and is let finish. */
  async #stopReading(): Promise<void> {
    this.#finished = true;
    if (this.#delivery === null || this.#deliveryOver.isOpen) return;
    await Promise.race([this.#delivery.catch(() => undefined), this.#interrupted.promise]);
  }

  async #verdict(durationMs: number): Promise<ExecResult> {
    const interruption = this.#interruption;
    const trailer = this.#trailer;
    if (trailer === null) return await this.#withoutTrailer(interruption, durationMs);

    if (trailer.survivors.length > 0) {
      throw this.#error(
        "ERR_BOX_UNFIT",
        `${trailer.survivors.length} processes of ${this.#program} could not be killed; tear the box down`,
      );
    }
    if (interruption?.by === "caller") throw interruption.error;
    if (interruption?.by === "abort") throw this.#aborted();
    if (trailer.startError !== undefined) {
      const { step, errno, message } = trailer.startError;
      throw this.#error(
        "ERR_EXEC_START",
        `${this.#program} could not be started (${step}: ${errno}, ${message}); ${START_ADVICE[step]}`,
        {
          step,
          errno,
        },
      );
    }
    if (trailer.killed === "owner-lost") {
      throw this.#error(
        "ERR_EXEC_UNKNOWN",
        `the connection's input broke, and ${this.#program} was killed for it; whether it had done its work is not known`,
        {
          cause: this.#connectionError,
        },
      );
    }
    const exitCode = trailer.exit ?? 128 + (trailer.signal ?? 0);
    return this.#result(exitCode, trailer.killed === "timeout", !trailer.outputHeld, durationMs);
  }

  /** The streams ended, or we gave up on them, and the helper had not said how the program ended. */
  async #withoutTrailer(interruption: Interruption | undefined, durationMs: number): Promise<ExecResult> {
    let end: AbnormalEnd | undefined;
    let cause = this.#connectionError;
    const asked = this.#call.afterAbnormalEnd(this.#execId).then(
      (answer) => {
        end = answer;
      },
      (error: unknown) => {
        cause ??= error;
      },
    );
    if (!(await settlesWithin(asked, QUESTION_MS)))
      cause ??= new Error(`the backend did not answer within ${QUESTION_MS} ms`);

    if (end?.kind === "lost") {
      if (interruption?.by === "caller") throw interruption.error;
      if (interruption?.by === "abort") throw this.#aborted();
      throw this.#error("ERR_BOX_LOST", `the box was lost while ${this.#program} ran`, { cause });
    }
    if (end?.startFailure !== undefined) {
      throw this.#error(
        "ERR_EXEC_START",
        `our helper could not be started: ${end.startFailure}; ${START_ADVICE.helper}`,
        {
          step: "helper",
          cause,
        },
      );
    }
    const helperEnded = end !== undefined && end.exitCode !== null;
    if (interruption?.by === "abort" || interruption?.by === "caller" || (interruption !== undefined && !helperEnded)) {
      throw this.#error("ERR_BOX_UNFIT", `it is not known whether ${this.#program} was ended; tear the box down`, {
        cause: interruption.by === "caller" ? interruption.error : (this.#killError ?? cause),
      });
    }
    // Root in the box can end our helper. That is the program's own doing, and its exit code is what the backend recorded.
    if (end !== undefined && end.exitCode !== null && this.#connectionError === undefined) {
      return this.#result(end.exitCode, false, this.#streamsEnded, durationMs);
    }
    await settlesWithin(this.#call.killByExec(this.#execId), KILL_EXEC_MS);
    throw this.#error(
      "ERR_EXEC_UNKNOWN",
      `the connection to ${this.#program} broke after it was started; what it did is not known`,
      { cause },
    );
  }

  #result(exitCode: number, timedOut: boolean, streamsClosed: boolean, durationMs: number): ExecResult {
    const { stdout, stderr } = this.#captures;
    // Without the helper's word on stdout, or any, its end may be missing, and what was dropped was not delivered: neither passes for complete.
    const incomplete = this.#dropped || this.#scanners.stdout.trailer === null;
    return {
      exitCode,
      stdout: stdout.bytes(),
      stderr: stderr.bytes(),
      stdoutBytes: stdout.totalBytes,
      stderrBytes: stderr.totalBytes,
      truncated: stdout.truncated || stderr.truncated || incomplete,
      timedOut,
      streamsClosed,
      durationMs,
    };
  }

  #aborted(): RuntimeError {
    return this.#error("ERR_ABORTED", `${this.#program} was aborted by the caller; nothing of it is left`, {
      cause: this.#call.options.signal?.reason,
    });
  }

  #error(code: RuntimeErrorCode, message: string, more?: Partial<RuntimeErrorDetails>): RuntimeError {
    const { driver, boxId } = this.#call;
    return new RuntimeError({ ...more, code, driver, boxId, operation: "exec", message });
  }

  get #program(): string {
    return JSON.stringify(this.#call.request.argv[0]);
  }
}

const START_ADVICE = {
  user: "use a user that the image has, or a numeric id",
  cwd: "use a folder that exists in the box and that the user may enter",
  exec: "see whether the program is in the image, executable, on PATH and made for its architecture",
  helper: "see whether the box is still able to run programs",
} as const;

function checkRequest({ argv, env, cwd, user }: ExecRequest): void {
  const text = (value: unknown): boolean => typeof value === "string" && !value.includes("\0");
  if (argv.length === 0 || argv[0] === "" || !argv.every(text)) {
    throw new TypeError("exec: argv has to be a program and its arguments, all text without NUL");
  }
  for (const [name, value] of Object.entries(env)) {
    if (!isEnvironmentName(name) || !text(value)) {
      throw new TypeError(
        `exec: env ${JSON.stringify(name)}: expected a name without "=" and NUL, and text without NUL`,
      );
    }
  }
  if (!isAbsolutePath(cwd)) throw new TypeError(`exec: cwd ${JSON.stringify(cwd)} is not an absolute path`);
  if (user !== null && !isUser(user)) {
    throw new TypeError(`exec: user ${JSON.stringify(user)} is not a name, an id, or "user:group"`);
  }
}

function inputIterator(stdin: string | Uint8Array | AsyncIterable<Uint8Array>): AsyncIterator<Uint8Array> {
  if (typeof stdin !== "string" && !(stdin instanceof Uint8Array)) return stdin[Symbol.asyncIterator]();
  const values = [typeof stdin === "string" ? Buffer.from(stdin) : stdin].values();
  return { next: async () => values.next() };
}
