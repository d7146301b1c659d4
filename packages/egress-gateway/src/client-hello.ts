/** What counts of the first message of a TLS connection. */
export interface ClientHello {
  /** As the client wrote it; `null` if it named no host. */
  readonly serverName: string | null;
  /** It has (or pretends to have) a second, encrypted greeting, which may name another host. */
  readonly encryptedClientHello: boolean;
}

/** `incomplete`: more bytes are needed. `invalid`: no greeting, or one that two readers could read differently. */
export type ParsedHello = ClientHello | "incomplete" | "invalid";

/** The longest greeting that is read. Those of browsers with post-quantum keys have about 2 KiB. */
export const MAX_HELLO_BYTES: number = 32 * 1024;

const RECORD_CHANGE_CIPHER_SPEC = 20;
const RECORD_HANDSHAKE = 22;
const RECORD_APPLICATION_DATA = 23;
const RECORD_HEADER_BYTES = 5;
const MAX_RECORD_BYTES = 16 * 1024;
const MAX_PROTECTED_RECORD_BYTES: number = MAX_RECORD_BYTES + 256;
const CLIENT_HELLO = 1;
const HANDSHAKE_HEADER_BYTES = 4;
const RANDOM_BYTES = 32;
const EXTENSION_SERVER_NAME = 0;
const EXTENSION_ENCRYPTED_CLIENT_HELLO = 0xfe0d;
const NAME_TYPE_HOST = 0;

/** In so many records at most: real clients use one or two. */
const MAX_RECORDS = 256;
/** The longest that all of it can be on the wire. */
export const MAX_GREETING_BYTES: number = MAX_HELLO_BYTES + MAX_RECORDS * RECORD_HEADER_BYTES;

/**
 * Reads the beginning of a TLS connection (RFC 8446, 4.1.2 and 5.1; RFC 6066, 3), in whatever pieces it comes. Each byte is looked at once, as
 * soon as it is there: what is no TLS is not waited for.
 */
export class ClientHelloReader {
  readonly #isSecond: boolean;
  #taken = 0;
  readonly #recordHeader = Buffer.alloc(RECORD_HEADER_BYTES);
  #recordHeaderBytes = 0;
  #recordLeft = 0;
  #isSkipped = false;
  #records = 0;
  readonly #messageHeader = Buffer.alloc(HANDSHAKE_HEADER_BYTES);
  #messageBytes = 0;
  /** The message without its header, once its length is known. */
  #body: Buffer | undefined;
  #result: ParsedHello = "incomplete";

  /** A second greeting, which a server has asked for, may come after data that was sent ahead and after a sign for old machines on the way (RFC 8446, 4.2.10 and D.4). */
  constructor({ isSecond = false }: { readonly isSecond?: boolean } = {}) {
    this.#isSecond = isSecond;
  }

  /** How many of the bytes are the greeting. */
  get taken(): number {
    return this.#taken;
  }

  push(bytes: Uint8Array): ParsedHello {
    const chunk = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    for (let at = 0; at < chunk.length && this.#result === "incomplete";) {
      const rest = chunk.subarray(at);
      const taken =
        this.#recordLeft === 0
          ? this.#takeRecordHeader(chunk[at] ?? 0)
          : this.#isSkipped
            ? this.#skip(rest)
            : this.#takeMessage(rest);
      at += taken;
      this.#taken += taken;
    }
    return this.#result;
  }

  #takeRecordHeader(byte: number): number {
    this.#recordHeader[this.#recordHeaderBytes++] = byte;
    const type = this.#recordHeader[0];
    this.#isSkipped =
      this.#isSecond &&
      this.#messageBytes === 0 &&
      (type === RECORD_CHANGE_CIPHER_SPEC || type === RECORD_APPLICATION_DATA);
    if (type !== RECORD_HANDSHAKE && !this.#isSkipped) this.#result = "invalid";
    if (this.#recordHeaderBytes > 1 && this.#recordHeader[1] !== 3) this.#result = "invalid";
    if (this.#recordHeaderBytes === RECORD_HEADER_BYTES) {
      this.#recordHeaderBytes = 0;
      this.#recordLeft = this.#recordHeader.readUInt16BE(3);
      const most = this.#isSkipped ? MAX_PROTECTED_RECORD_BYTES : MAX_RECORD_BYTES;
      if (this.#recordLeft === 0 || this.#recordLeft > most || ++this.#records > MAX_RECORDS) {
        this.#result = "invalid";
      }
      this.#checkLength();
    }
    return 1;
  }

  #skip(rest: Buffer): number {
    const skipped = Math.min(this.#recordLeft, rest.length);
    this.#recordLeft -= skipped;
    return skipped;
  }

  #takeMessage(rest: Buffer): number {
    const headerLeft = HANDSHAKE_HEADER_BYTES - this.#messageBytes;
    const piece = rest.subarray(0, headerLeft > 0 ? Math.min(this.#recordLeft, headerLeft) : this.#recordLeft);
    if (headerLeft > 0) this.#messageHeader.set(piece, this.#messageBytes);
    else this.#body?.set(piece, this.#messageBytes - HANDSHAKE_HEADER_BYTES);
    this.#messageBytes += piece.length;
    this.#recordLeft -= piece.length;
    if (this.#messageHeader[0] !== CLIENT_HELLO) this.#result = "invalid";
    if (this.#body === undefined && this.#messageBytes === HANDSHAKE_HEADER_BYTES) {
      const length = this.#messageHeader.readUIntBE(1, 3);
      if (HANDSHAKE_HEADER_BYTES + length > MAX_HELLO_BYTES) this.#result = "invalid";
      else this.#body = Buffer.alloc(length);
    }
    this.#checkLength();
    return piece.length;
  }

  /** Nothing may follow in the record that the greeting ends in: the client has to wait for the answer. */
  #checkLength(): void {
    if (this.#body === undefined || this.#result !== "incomplete") return;
    const left = HANDSHAKE_HEADER_BYTES + this.#body.length - this.#messageBytes;
    if (this.#recordLeft > left) this.#result = "invalid";
    else if (left === 0) this.#result = readHello(this.#body);
  }
}

/** A greeting that is there as a whole, or its beginning. */
export function parseClientHello(bytes: Uint8Array): ParsedHello {
  return new ClientHelloReader().push(bytes);
}

function readHello(message: Buffer): ParsedHello {
  try {
    return readFields(new Reader(message));
  } catch (error) {
    if (error instanceof RangeError) return "invalid";
    throw error;
  }
}

function readFields(reader: Reader): ParsedHello {
  reader.take(2 + RANDOM_BYTES);
  reader.vector(1); // session
  reader.vector(2); // cipher suites
  reader.vector(1); // compression
  let serverName: string | null = null;
  let encryptedClientHello = false;
  if (reader.left === 0) return { serverName, encryptedClientHello };
  const extensions = reader.vector(2);
  if (reader.left > 0) return "invalid";
  const seen = new Set<number>();
  while (extensions.left > 0) {
    const type = extensions.number(2);
    const body = extensions.vector(2);
    if (seen.has(type)) return "invalid";
    seen.add(type);
    if (type === EXTENSION_ENCRYPTED_CLIENT_HELLO) encryptedClientHello = true;
    if (type !== EXTENSION_SERVER_NAME) continue;
    const names = body.vector(2);
    const nameType = names.number(1);
    const name = names.vector(2).rest();
    if (nameType !== NAME_TYPE_HOST || names.left > 0 || body.left > 0) return "invalid";
    // Printable ASCII only, as names on the wire are.
    if (name.length === 0 || !name.every((byte) => byte > 0x20 && byte < 0x7f)) return "invalid";
    serverName = name.toString("latin1");
  }
  return { serverName, encryptedClientHello };
}

/** Reads forward; throws a `RangeError` at the end. */
class Reader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get left(): number {
    return this.#bytes.length - this.#at;
  }

  take(count: number): Buffer {
    if (count > this.left) throw new RangeError("the greeting ends too early");
    this.#at += count;
    return this.#bytes.subarray(this.#at - count, this.#at);
  }

  number(width: 1 | 2): number {
    return this.take(width).readUIntBE(0, width);
  }

  /** Bytes with their length before them. */
  vector(width: 1 | 2): Reader {
    return new Reader(this.take(this.number(width)));
  }

  rest(): Buffer {
    return this.take(this.left);
  }
}
