import type { NetworkPolicy } from "@breakwater/runtime-api";
import type { ForwarderReport } from "./box.ts";
import {
  CONTROL_PROTOCOL,
  type ControlRefusal,
  type ControlReply,
  type ControlRequest,
  type ControlResults,
  encodeLine,
  type GatewayStatus,
  type Greeting,
  LineReader,
} from "./control-messages.ts";
import type { EgressRecords } from "./records.ts";

/** The input and the output of a program that runs `CONTROL_ARGV` in the gateway's container. */
export interface ControlTransport {
  write(bytes: Uint8Array): Promise<void>;
  readonly output: AsyncIterable<Uint8Array>;
  /** Ends the program's input, at least. */
  close(): void;
}

export interface ControlOptions {
  readonly signal?: AbortSignal | undefined;
  /** Default is 30 000. */
  readonly timeoutMs?: number | undefined;
}

/**
 * - `ERR_GATEWAY_LOST`: the session has ended. What was asked may have happened.
 * - `ERR_GATEWAY_REFUSED`: the gateway answered that it will not; `reason` says why.
 * - `ERR_GATEWAY_TIMEOUT`: no answer in time, or the caller's signal. What was asked may have happened, or may yet.
 * - `ERR_GATEWAY_PROTOCOL`: the other side is no gateway of this version.
 */
export type GatewayErrorCode =
  | "ERR_GATEWAY_LOST"
  | "ERR_GATEWAY_REFUSED"
  | "ERR_GATEWAY_TIMEOUT"
  | "ERR_GATEWAY_PROTOCOL";

export class GatewayError extends Error {
  override readonly name = "GatewayError";
  readonly code: GatewayErrorCode;
  /** `ERR_GATEWAY_REFUSED`: why. */
  readonly reason: ControlRefusal | undefined;

  constructor(
    code: GatewayErrorCode,
    message: string,
    details: { readonly reason?: ControlRefusal; readonly cause?: unknown } = {},
  ) {
    super(message, { cause: details.cause });
    this.code = code;
    this.reason = details.reason;
  }
}

const DEFAULT_TIMEOUT_MS = 30_000;

interface Waiting {
  resolve(value: unknown): void;
  reject(error: unknown): void;
}

/** A control session: what the owner of a gateway says to it. Calls may overlap. Errors: `GatewayError`. */
export class GatewayControl {
  readonly #transport: ControlTransport;
  readonly #waiting = new Map<number, Waiting>();
  readonly #greeting: Promise<Greeting>;
  /** Settles when the session has ended, for whatever reason. */
  readonly closed: Promise<void>;
  #instance = "";
  #nextId = 1;
  #ended: GatewayError | undefined;

  private constructor(transport: ControlTransport) {
    this.#transport = transport;
    this.#greeting = new Promise((resolve, reject) => {
      this.#waiting.set(0, { resolve: (greeting) => resolve(greeting as Greeting), reject });
    });
    this.#greeting.catch(() => undefined);
    this.closed = this.#read();
  }

  /** Waits for the gateway's greeting. When it rejects, the transport is closed. */
  static async open(transport: ControlTransport, options: ControlOptions = {}): Promise<GatewayControl> {
    const control = new GatewayControl(transport);
    try {
      control.#instance = (await control.#within(control.#greeting, options, "the gateway's greeting")).instance;
      return control;
    } catch (error) {
      control.close();
      throw error;
    }
  }

  /** Random, one per start of the gateway: with another one everything is denied again, and no box is known. */
  get instance(): string {
    return this.#instance;
  }

  /** Makes the sockets of a new box. Everything is denied to it until `setPolicy`. Refused: `box-exists`, `box-name`. */
  async addBox(box: string, options?: ControlOptions): Promise<ControlResults["add-box"]> {
    return this.#ask({ op: "add-box", box }, options);
  }

  /** Waits until the box's forwarder listens. Refused: `unknown-box`, `box-removed`. */
  async awaitForwarder(box: string, options?: ControlOptions): Promise<ForwarderReport> {
    return this.#ask({ op: "await-forwarder", box }, options);
  }

  /**
   * What the box may reach from now on. When it resolves, everything else of the box is closed. With `direct` (and a policy `public`) the box has a
   * way of its own: the gateway refuses connections and only passes its questions on to name servers. Refused: `unknown-box`, `policy`.
   */
  async setPolicy(
    box: string,
    policy: NetworkPolicy,
    options: ControlOptions & { readonly direct?: boolean | undefined } = {},
  ): Promise<ControlResults["set-policy"]> {
    return this.#ask({ op: "set-policy", box, policy, direct: options.direct }, options);
  }

  /** Ends everything of the box, its forwarder included. */
  async removeBox(box: string, options?: ControlOptions): Promise<ControlResults["remove-box"]> {
    return this.#ask({ op: "remove-box", box }, options);
  }

  /**
   * What the box was refused and allowed. `after` (default 0) is the number of the last denial that the caller has: those up to it are
   * forgotten. Refused: `unknown-box`.
   */
  async records(
    box: string,
    options: ControlOptions & { readonly after?: number | undefined } = {},
  ): Promise<EgressRecords> {
    return this.#ask({ op: "records", box, after: options.after ?? 0 }, options);
  }

  async status(options?: ControlOptions): Promise<GatewayStatus> {
    return this.#ask({ op: "status" }, options);
  }

  /** Ends the session. The gateway goes on. */
  close(): void {
    this.#end(new GatewayError("ERR_GATEWAY_LOST", "the session with the gateway was closed"));
  }

  async #ask<T>(request: ControlRequest, options: ControlOptions = {}): Promise<T> {
    if (this.#ended !== undefined) throw this.#ended;
    const id = this.#nextId++;
    const answer = new Promise<T>((resolve, reject) => {
      this.#waiting.set(id, { resolve: (value) => resolve(value as T), reject });
    });
    this.#transport.write(encodeLine({ id, ...request })).catch((cause: unknown) => {
      this.#end(new GatewayError("ERR_GATEWAY_LOST", "the session with the gateway broke", { cause }));
    });
    try {
      return await this.#within(answer, options, `the gateway's answer to ${request.op}`);
    } finally {
      this.#waiting.delete(id);
    }
  }

  #within<T>(answer: Promise<T>, { signal, timeoutMs = DEFAULT_TIMEOUT_MS }: ControlOptions, what: string): Promise<T> {
    return new Promise((resolve, reject) => {
      const late = (cause?: unknown): void =>
        reject(new GatewayError("ERR_GATEWAY_TIMEOUT", `${what} did not come within ${timeoutMs} ms`, { cause }));
      const onAbort = (): void => late(signal?.reason);
      const timer = setTimeout(late, Math.min(timeoutMs, 0x7fff_ffff));
      signal?.addEventListener("abort", onAbort, { once: true });
      if (signal?.aborted === true) onAbort();
      answer.then(resolve, reject).finally(() => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", onAbort);
      });
    });
  }

  async #read(): Promise<void> {
    const lines = new LineReader();
    try {
      for await (const chunk of this.#transport.output) {
        for (const line of lines.push(chunk)) this.#take(line);
      }
      this.#end(new GatewayError("ERR_GATEWAY_LOST", "the gateway ended the session"));
    } catch (cause) {
      this.#end(
        cause instanceof GatewayError
          ? cause
          : new GatewayError("ERR_GATEWAY_LOST", "the session with the gateway broke", { cause }),
      );
    }
  }

  #take(line: string): void {
    let message: unknown;
    try {
      message = JSON.parse(line);
    } catch (cause) {
      throw new GatewayError("ERR_GATEWAY_PROTOCOL", "the gateway does not speak JSON", { cause });
    }
    const greeting = this.#waiting.get(0);
    if (greeting !== undefined) {
      const { protocol, instance } = (message ?? {}) as Partial<Greeting>;
      if (protocol !== CONTROL_PROTOCOL || typeof instance !== "string") {
        throw new GatewayError("ERR_GATEWAY_PROTOCOL", `this is no gateway that speaks ${CONTROL_PROTOCOL}`);
      }
      this.#waiting.delete(0);
      greeting.resolve(message);
      return;
    }
    const reply = message as ControlReply;
    const waiting = this.#waiting.get(reply.id);
    if (waiting === undefined) return; // nobody waits for it any more
    if ("error" in reply) {
      const { reason, message: text } = reply.error;
      waiting.reject(new GatewayError("ERR_GATEWAY_REFUSED", text, { reason }));
    } else {
      waiting.resolve(reply.result);
    }
  }

  #end(error: GatewayError): void {
    if (this.#ended !== undefined) return;
    this.#ended = error;
    for (const waiting of this.#waiting.values()) waiting.reject(error);
    this.#waiting.clear();
    this.#transport.close();
  }
}
