import { TarError } from "./errors.ts";

/** Reads a stream in pieces of the reader's choice. Holds one chunk; copies only what crosses chunks. */
export class ByteSource {
  readonly #iterator: AsyncIterator<Uint8Array>;
  #chunk: Buffer = Buffer.alloc(0);
  #ended = false;

  constructor(stream: AsyncIterable<Uint8Array>) {
    this.#iterator = stream[Symbol.asyncIterator]();
  }

  /** The next bytes, at least one and at most `maxBytes`; `null` at the end of the stream. */
  async some(maxBytes: number): Promise<Buffer | null> {
    while (this.#chunk.length === 0) {
      if (this.#ended) return null;
      const next = await this.#iterator.next();
      if (next.done === true) {
        this.#ended = true;
        return null;
      }
      this.#chunk = Buffer.from(next.value.buffer, next.value.byteOffset, next.value.byteLength);
    }
    const taken = this.#chunk.subarray(0, maxBytes);
    this.#chunk = this.#chunk.subarray(taken.length);
    return taken;
  }

  /** Exactly so many bytes. Throws `ERR_TAR_TRUNCATED` if the stream has fewer. */
  async exactly(bytes: number): Promise<Buffer> {
    const first = (await this.some(bytes)) ?? this.#truncated();
    if (first.length === bytes) return first;
    const all = Buffer.allocUnsafe(bytes);
    for (let at = first.copy(all); at < bytes;)
      at += ((await this.some(bytes - at)) ?? this.#truncated()).copy(all, at);
    return all;
  }

  /** Throws `ERR_TAR_TRUNCATED` if the stream has fewer. */
  async skip(bytes: number): Promise<void> {
    for (let left = bytes; left > 0;) left -= ((await this.some(left)) ?? this.#truncated()).length;
  }

  /** Tells the stream that nothing more is wanted. */
  async close(): Promise<void> {
    if (!this.#ended) await this.#iterator.return?.();
  }

  #truncated(): never {
    throw new TarError({ code: "ERR_TAR_TRUNCATED", message: "the archive ends before its end mark" });
  }
}
