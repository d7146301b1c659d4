/** The default of `ExecOptions.maxOutputBytes`: 10 MiB. */
export const DEFAULT_MAX_OUTPUT_BYTES: number = 10 * 1024 * 1024;

/** Keeps the beginning of a stream and counts all of it. Memory is bounded by what is kept, however small the chunks are. */
export class HeadCapture {
  readonly #maxBytes: number;
  #kept: Buffer = Buffer.alloc(0);
  #keptBytes = 0;
  #totalBytes = 0;

  /** Throws a `TypeError` for a limit that is not a whole number of 0 or more. */
  constructor(maxBytes: number = DEFAULT_MAX_OUTPUT_BYTES) {
    if (!Number.isSafeInteger(maxBytes) || maxBytes < 0) {
      throw new TypeError(`maxOutputBytes: expected a whole number of bytes, got ${String(maxBytes)}`);
    }
    this.#maxBytes = maxBytes;
  }

  push(chunk: Uint8Array): void {
    this.#totalBytes += chunk.length;
    const taken = Math.min(chunk.length, this.#maxBytes - this.#keptBytes);
    if (taken <= 0) return;
    this.#reserve(this.#keptBytes + taken);
    this.#kept.set(chunk.subarray(0, taken), this.#keptBytes);
    this.#keptBytes += taken;
  }

  /** What was kept. A view: do not push any more. */
  bytes(): Uint8Array {
    return this.#kept.subarray(0, this.#keptBytes);
  }

  /** What the stream really had. */
  get totalBytes(): number {
    return this.#totalBytes;
  }

  get truncated(): boolean {
    return this.#totalBytes > this.#keptBytes;
  }

  #reserve(bytes: number): void {
    if (bytes <= this.#kept.length) return;
    const grown = Buffer.allocUnsafeSlow(Math.min(this.#maxBytes, Math.max(bytes, 2 * this.#kept.length, 4096)));
    this.#kept.copy(grown, 0, 0, this.#keptBytes);
    this.#kept = grown;
  }
}
