// Greetings of TLS as tests want them. What real clients send is in the tests as well.

import { createHash } from "node:crypto";

export interface HelloExtension {
  readonly type: number;
  readonly body: Buffer;
}

/** The extension that names hosts. */
export function serverName(...names: readonly string[]): HelloExtension {
  const entries = names.map((name) => Buffer.concat([Buffer.from([0]), vector(2, Buffer.from(name, "utf8"))]));
  return { type: 0, body: vector(2, Buffer.concat(entries)) };
}

/** The handshake message, without records. */
export function clientHello(extensions: readonly HelloExtension[]): Buffer {
  const all = extensions.map(({ type, body }) => Buffer.concat([number(2, type), vector(2, body)]));
  const body = Buffer.concat([
    number(2, 0x0303),
    Buffer.alloc(32, 7),
    vector(1, Buffer.alloc(32, 8)),
    vector(2, Buffer.from([0x13, 0x01, 0x0a, 0x0a])),
    vector(1, Buffer.from([0])),
    extensions.length === 0 ? Buffer.alloc(0) : vector(2, Buffer.concat(all)),
  ]);
  return Buffer.concat([Buffer.from([1]), vector(3, body)]);
}

/** What a server says that wants another greeting. */
export function retryRequest(): Buffer {
  const random = createHash("sha256").update("HelloRetryRequest").digest();
  const body = Buffer.concat([
    number(2, 0x0303),
    random,
    vector(1, Buffer.alloc(32, 8)),
    Buffer.from([0x13, 0x01, 0, 0, 0]),
  ]);
  return records(Buffer.concat([Buffer.from([2]), vector(3, body)]));
}

/** The message in records of at most so many bytes. */
export function records(message: Buffer, size = 16_384): Buffer {
  const pieces: Buffer[] = [];
  for (let at = 0; at < message.length; at += size) {
    pieces.push(Buffer.from([22, 3, 1]), vector(2, message.subarray(at, at + size)));
  }
  return Buffer.concat(pieces);
}

function vector(width: number, content: Buffer): Buffer {
  return Buffer.concat([number(width, content.length), content]);
}

function number(width: number, value: number): Buffer {
  const bytes = Buffer.alloc(width);
  bytes.writeUIntBE(value, 0, width);
  return bytes;
}
