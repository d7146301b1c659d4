import type { OutputStream } from "@breakwater/runtime-api";
import type { HelperRequest, HelperTrailer } from "../src/exec-protocol.ts";
import type { ExecTransport } from "../src/exec-session.ts";

export interface Frame {
  readonly type: string;
  readonly payload: Buffer;
}

/** The other end of an exec session, in this process: shows the faults that no real helper can be made to show. */
export class ScriptedHelper implements ExecTransport {
  readonly frames: Frame[] = [];
  closed = false;
  /** Set to make `write` reject or never take anything. */
  writing: () => Promise<void> = () => Promise.resolve();
  /** Called for every frame. */
  onFrame: (frame: Frame) => void = () => undefined;
  /** Chunks that the session has taken. */
  taken = 0;

  readonly #queue: { readonly stream: OutputStream; readonly chunk: Uint8Array }[] = [];
  #end: "open" | "ended" | { readonly error: Error } = "open";
  #wake: () => void = () => undefined;

  readonly output: AsyncIterable<{ readonly stream: OutputStream; readonly chunk: Uint8Array }> = this.#read();

  get request(): HelperRequest {
    const request = this.frames.find(({ type }) => type === "R");
    if (request === undefined) throw new Error("no request was sent");
    return JSON.parse(request.payload.toString()) as HelperRequest;
  }

  async write(bytes: Uint8Array): Promise<void> {
    const buffer = Buffer.from(bytes);
    const frame = { type: buffer.toString("latin1", 0, 1), payload: buffer.subarray(5, 5 + buffer.readUInt32BE(1)) };
    if (frame.payload.length + 5 !== buffer.length) throw new Error("not one whole frame");
    this.frames.push(frame);
    this.onFrame(frame);
    await this.writing();
  }

  close(): void {
    this.closed = true;
    this.end();
  }

  say(stream: OutputStream, bytes: Uint8Array | string): void {
    this.#queue.push({ stream, chunk: Buffer.from(bytes) });
    this.#wake();
  }

  /** The last words on both streams, cut into pieces of this size. */
  conclude(trailer: Partial<HelperTrailer>, pieceBytes = 1000): void {
    this.concludeStream("stdout", {}, pieceBytes);
    this.concludeStream("stderr", trailer, pieceBytes);
  }

  concludeStream(stream: OutputStream, trailer: Partial<HelperTrailer>, pieceBytes = 1000): void {
    const whole = { killed: null, killedCount: 0, survivors: [], ...trailer };
    const json = Buffer.from(stream === "stdout" ? "" : JSON.stringify(whole));
    const length = Buffer.alloc(4);
    length.writeUInt32BE(json.length);
    const bytes = Buffer.concat([Buffer.from(this.request.nonce, "latin1"), length, json]);
    for (let at = 0; at < bytes.length; at += pieceBytes) this.say(stream, bytes.subarray(at, at + pieceBytes));
  }

  end(): void {
    if (this.#end === "open") this.#end = "ended";
    this.#wake();
  }

  break(error: Error): void {
    this.#end = { error };
    this.#wake();
  }

  async *#read(): AsyncGenerator<{ readonly stream: OutputStream; readonly chunk: Uint8Array }> {
    for (;;) {
      const next = this.#queue.shift();
      if (next !== undefined) {
        this.taken += 1;
        yield next;
      } else if (typeof this.#end === "object") {
        throw this.#end.error;
      } else if (this.#end === "ended") {
        return;
      } else {
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
      }
    }
  }
}
