import { createHash } from "node:crypto";

/**
 * What a server answers to a TLS greeting: `retry`, it asks for a second one; `other`, anything else. `invalid`: more warnings than any server
 * sends, or an answer in pieces that no server makes.
 */
export type ServerAnswer = "retry" | "other" | "invalid";

/** The longest that is looked at. */
export const MAX_ANSWER_BYTES: number = 64 * 1024;

const RECORD_ALERT = 21;
const RECORD_HANDSHAKE = 22;
const RECORD_HEADER_BYTES = 5;
const MAX_WARNING_BYTES = 1024;
const SERVER_HELLO = 2;
const RANDOM_OFFSET = 6;
const RANDOM_BYTES = 32;
/** RFC 8446, 4.1.3: what the random number of a server's greeting is if it asks for another one of the client. */
const RETRY_RANDOM = createHash("sha256").update("HelloRetryRequest").digest();

/** Reads the beginning of a server's side of a TLS connection, in whatever pieces it comes, until it is known what it answers. */
export class ServerHelloReader {
  #bytes: Buffer = Buffer.alloc(0);

  push(bytes: Uint8Array): ServerAnswer | "incomplete" {
    this.#bytes = Buffer.concat([this.#bytes, bytes]);
    let at = 0;
    // Warnings come before the greeting: for instance, that the host is not known.
    for (; this.#bytes[at] === RECORD_ALERT; at += RECORD_HEADER_BYTES + this.#bytes.readUInt16BE(at + 3)) {
      if (at > MAX_WARNING_BYTES) return "invalid";
      if (this.#bytes.length < at + RECORD_HEADER_BYTES) return "incomplete";
    }
    const record = this.#bytes.subarray(at);
    if (record.length === 0) return "incomplete";
    if (record[0] !== RECORD_HANDSHAKE) return "other";
    if (record.length <= RECORD_HEADER_BYTES) return "incomplete";
    if (record[RECORD_HEADER_BYTES] !== SERVER_HELLO) return "other";
    const message = record.subarray(RECORD_HEADER_BYTES, RECORD_HEADER_BYTES + record.readUInt16BE(3));
    if (record.readUInt16BE(3) < RANDOM_OFFSET + RANDOM_BYTES) return "invalid";
    if (message.length < RANDOM_OFFSET + RANDOM_BYTES) return "incomplete";
    return message.subarray(RANDOM_OFFSET, RANDOM_OFFSET + RANDOM_BYTES).equals(RETRY_RANDOM) ? "retry" : "other";
  }
}
