/**
 * The bytes between `runExec` and `box-helper exec`: frames into its input, one trailer at the end of each output stream.
 * A frame is its type, a 4-byte big-endian length and the payload. A trailer is the nonce, a 4-byte big-endian length and, on stderr, JSON.
 */

/** What the helper is asked to run. */
export interface HelperRequest {
  readonly nonce: string;
  readonly argv: readonly string[];
  /** `NAME=value`, exactly what the program gets. */
  readonly env: readonly string[];
  readonly cwd: string;
  readonly user: string | null;
  readonly stdin: boolean;
  /** The helper's own deadline for the program; 0 = none. */
  readonly timeoutMs: number;
  /** Whether the helper is to stay until its input has ended (2 s at most). */
  readonly stay: boolean;
}

/** What the helper says about a program that has ended, on stderr. */
export interface HelperTrailer {
  readonly exit?: number | undefined;
  readonly signal?: number | undefined;
  readonly startError?:
    | { readonly step: "user" | "cwd" | "exec"; readonly errno: string; readonly message: string }
    | undefined;
  readonly killed: null | "timeout" | "request" | "owner-lost";
  readonly killedCount: number;
  /** Processes that could not be killed. */
  readonly survivors: readonly number[];
  /** Something that the program left behind has its output open. */
  readonly outputHeld: boolean;
}

export type FrameType = "R" | "D" | "E" | "K";

/** The most input that one frame carries. */
export const MAX_FRAME_BYTES: number = 64 * 1024;

export function frame(type: FrameType, payload: Uint8Array = new Uint8Array(0)): Uint8Array {
  const bytes = Buffer.allocUnsafe(5 + payload.length);
  bytes.write(type, 0, "latin1");
  bytes.writeUInt32BE(payload.length, 1);
  bytes.set(payload, 5);
  return bytes;
}

/** The end of a program as the trailer tells it, or `null` if that is not a trailer. */
export function parseTrailer(bytes: Uint8Array): HelperTrailer | null {
  let value: unknown;
  try {
    value = JSON.parse(Buffer.from(bytes).toString("utf8"));
  } catch {
    return null;
  }
  if (typeof value !== "object" || value === null) return null;
  const trailer = value as Partial<HelperTrailer>;
  const isByte = (code: unknown): boolean =>
    Number.isSafeInteger(code) && (code as number) >= 0 && (code as number) <= 255;
  const { startError } = trailer;
  if (!isByte(trailer.exit) && !isByte(trailer.signal) && typeof startError?.step !== "string") return null;
  return {
    exit: trailer.exit,
    signal: trailer.signal,
    startError,
    killed: trailer.killed ?? null,
    killedCount: trailer.killedCount ?? 0,
    survivors: Array.isArray(trailer.survivors) ? trailer.survivors : [],
    outputHeld: trailer.outputHeld === true,
  };
}

const MAX_TRAILER_BYTES = 64 * 1024;
const LENGTH_BYTES = 4;

/**
 * Finds the trailer in one output stream, however it is cut into chunks, and takes it out. Holds back only bytes that may be the
 * beginning of the nonce, so that a prompt without a line end still arrives at once.
 */
export class TrailerScanner {
  readonly #nonce: Buffer;
  #held: Buffer = Buffer.alloc(0);
  #state: "output" | "trailer" | "after" = "output";
  #trailer: Uint8Array | null = null;

  constructor(nonce: string) {
    this.#nonce = Buffer.from(nonce, "latin1");
  }

  /** The trailer's payload, as soon as it is complete. */
  get trailer(): Uint8Array | null {
    return this.#trailer;
  }

  /** The program's own bytes of this chunk, in order. */
  push(chunk: Uint8Array): readonly Uint8Array[] {
    let data = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    if (this.#state === "after") return [data];
    if (this.#held.length > 0) data = Buffer.concat([this.#held, data]);
    this.#held = Buffer.alloc(0);

    const output: Uint8Array[] = [];
    if (this.#state === "output") {
      const at = data.indexOf(this.#nonce);
      if (at < 0) {
        const held = this.#possibleNonceBytes(data);
        this.#held = Buffer.from(data.subarray(data.length - held));
        return data.length > held ? [data.subarray(0, data.length - held)] : [];
      }
      if (at > 0) output.push(data.subarray(0, at));
      data = data.subarray(at + this.#nonce.length);
      this.#state = "trailer";
    }

    const length = data.length < LENGTH_BYTES ? null : data.readUInt32BE(0);
    if (length !== null && length > MAX_TRAILER_BYTES) {
      this.#state = "after";
    } else if (length === null || data.length < LENGTH_BYTES + length) {
      this.#held = Buffer.from(data);
    } else {
      this.#trailer = Buffer.from(data.subarray(LENGTH_BYTES, LENGTH_BYTES + length));
      this.#state = "after";
      if (data.length > LENGTH_BYTES + length) output.push(data.subarray(LENGTH_BYTES + length));
    }
    return output;
  }

  /** Bytes that were held back and, as the stream has ended, are output after all. */
  end(): Uint8Array {
    const held = this.#state === "output" ? this.#held : Buffer.alloc(0);
    this.#held = Buffer.alloc(0);
    return held;
  }

  #possibleNonceBytes(data: Buffer): number {
    for (let length = Math.min(this.#nonce.length - 1, data.length); length > 0; length--) {
      if (data.compare(this.#nonce, 0, length, data.length - length) === 0) return length;
    }
    return 0;
  }
}
