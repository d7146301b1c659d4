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

const RECORD_HANDSHAKE = 22;
const RECORD_HEADER_BYTES = 5;
const MAX_RECORD_BYTES = 16 * 1024;
const CLIENT_HELLO = 1;
const HANDSHAKE_HEADER_BYTES = 4;
const RANDOM_BYTES = 32;
const EXTENSION_SERVER_NAME = 0;
const EXTENSION_ENCRYPTED_CLIENT_HELLO = 0xfe0d;
const NAME_TYPE_HOST = 0;

/** Reads the beginning of a TLS connection (RFC 8446, 4.1.2 and 5.1; RFC 6066, 3). The greeting may be split over records. */
export function parseClientHello(bytes: Uint8Array): ParsedHello {
  const message = handshakeMessage(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength));
  if (typeof message === "string") return message;
  try {
    return readHello(new Reader(message));
  } catch (error) {
    if (error instanceof RangeError) return "invalid";
    throw error;
  }
}

/** The body of the first handshake message, put together from its records. */
function handshakeMessage(bytes: Buffer): Buffer | "incomplete" | "invalid" {
  const fragments: Buffer[] = [];
  let collected = 0;
  for (let at = 0; ;) {
    // Each byte is judged as soon as it is there: what is no TLS must not be waited for.
    const header = bytes.subarray(at, at + RECORD_HEADER_BYTES);
    if (header.length > 0 && header[0] !== RECORD_HANDSHAKE) return "invalid";
    if (header.length > 1 && header[1] !== 3) return "invalid";
    if (header.length < RECORD_HEADER_BYTES) return "incomplete";
    const length = header.readUInt16BE(3);
    if (length === 0 || length > MAX_RECORD_BYTES) return "invalid";
    const fragment = bytes.subarray(at + RECORD_HEADER_BYTES, at + RECORD_HEADER_BYTES + length);
    const announced = collected + length;
    fragments.push(fragment);
    collected += fragment.length;
    const message = fragments.length === 1 ? fragment : Buffer.concat(fragments, collected);
    if (message.length > 0 && message[0] !== CLIENT_HELLO) return "invalid";
    if (message.length >= HANDSHAKE_HEADER_BYTES) {
      const total = HANDSHAKE_HEADER_BYTES + message.readUIntBE(1, 3);
      // Nothing may follow in the same record: the client has to wait for the answer.
      if (total > MAX_HELLO_BYTES || announced > total) return "invalid";
      if (message.length === total) return message.subarray(HANDSHAKE_HEADER_BYTES);
    }
    if (fragment.length < length) return "incomplete";
    at += RECORD_HEADER_BYTES + length;
  }
}

function readHello(reader: Reader): ParsedHello {
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
