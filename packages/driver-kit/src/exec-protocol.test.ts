import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { frame, parseTrailer, TrailerScanner } from "./exec-protocol.ts";
import { HeadCapture } from "./output.ts";

const NONCE = "0a0b0a0b0a0c";

function trailer(payload: Uint8Array): Buffer {
  const length = Buffer.alloc(4);
  length.writeUInt32BE(payload.length);
  return Buffer.concat([Buffer.from(NONCE), length, payload]);
}

function scan(
  bytes: Uint8Array,
  cuts: readonly number[],
): { readonly output: Buffer; readonly trailer: Uint8Array | null } {
  const scanner = new TrailerScanner(NONCE);
  const output: Uint8Array[] = [];
  const ends = [...new Set(cuts)].filter((cut) => cut < bytes.length).sort((a, b) => a - b);
  let at = 0;
  for (const end of [...ends, bytes.length]) {
    output.push(...scanner.push(bytes.subarray(at, end)));
    at = end;
  }
  output.push(scanner.end());
  return { output: Buffer.concat(output), trailer: scanner.trailer };
}

/** Output that is full of beginnings of the nonce, and never has all of it. */
const output = fc
  .array(
    fc.oneof(
      fc.uint8Array({ maxLength: 40 }),
      fc.nat(NONCE.length - 1).map((length) => Buffer.from(NONCE.slice(0, length))),
    ),
    { maxLength: 8 },
  )
  .map((parts) => Buffer.concat(parts))
  .filter((bytes) => !bytes.includes(NONCE));
const cuts = fc.array(fc.nat(300), { maxLength: 30 });

describe("the trailer of a stream", () => {
  it("is found and taken out, however the stream is cut", () => {
    fc.assert(
      fc.property(output, fc.uint8Array({ maxLength: 60 }), output, cuts, (before, payload, after, at) => {
        fc.pre(!Buffer.concat([before, Buffer.from(NONCE.slice(0, -1))]).includes(NONCE));
        const found = scan(Buffer.concat([before, trailer(payload), after]), at);
        expect(found.output.equals(Buffer.concat([before, after]))).toBe(true);
        expect(Buffer.from(found.trailer ?? []).equals(payload)).toBe(true);
      }),
      { numRuns: 500 },
    );
  });

  it("takes nothing from a stream without one", () => {
    fc.assert(
      fc.property(output, cuts, (bytes, at) => {
        const found = scan(bytes, at);
        expect(found.output.equals(bytes)).toBe(true);
        expect(found.trailer).toBeNull();
      }),
      { numRuns: 500 },
    );
  });

  it("holds nothing back that cannot be its beginning", () => {
    const scanner = new TrailerScanner(NONCE);
    expect(Buffer.concat(scanner.push(Buffer.from("password: "))).toString()).toBe("password: ");
  });

  it("that is longer than one can be is none, and is not kept", () => {
    const found = scan(
      Buffer.concat([Buffer.from(NONCE), Buffer.from([0x7f, 0xff, 0xff, 0xff]), Buffer.from("rest")]),
      [],
    );
    expect(found.trailer).toBeNull();
  });

  it("is looked for at more than 500 MB/s", () => {
    const chunk = Buffer.alloc(64 * 1024, "0a0b");
    const scanner = new TrailerScanner("f".repeat(48));
    const before = process.cpuUsage();
    let bytes = 0;
    for (let index = 0; index < 4096; index++) for (const piece of scanner.push(chunk)) bytes += piece.length;
    const { user, system } = process.cpuUsage(before);
    expect(bytes).toBe(256 * 1024 * 1024);
    expect((user + system) / 1e6).toBeLessThan(0.5);
  });
});

it("frames are their type, length and payload", () => {
  expect(Buffer.from(frame("D", Buffer.from("ab"))).toString("latin1")).toBe("D\0\0\0\x02ab");
  expect(Buffer.from(frame("K")).toString("latin1")).toBe("K\0\0\0\0");
});

describe("what a trailer says", () => {
  const parse = (text: string): unknown => parseTrailer(Buffer.from(text));
  it.each([
    "",
    "{",
    "null",
    "[]",
    "{}",
    '{"exit":"0"}',
    '{"exit":256}',
    '{"exit":-1}',
    '{"signal":1.5}',
    '{"startError":{}}',
  ])("%s says nothing", (text) => {
    expect(parse(text)).toBeNull();
  });
  it("is complete", () => {
    expect(parse('{"exit":0}')).toEqual({
      exit: 0,
      killed: null,
      killedCount: 0,
      survivors: [],
      outputHeld: false,
    });
    expect(parse('{"signal":9,"killed":"timeout","killedCount":3,"survivors":[7]}')).toMatchObject({
      signal: 9,
      killed: "timeout",
      killedCount: 3,
      survivors: [7],
    });
  });
});

describe("captured output", () => {
  it("is the beginning, with the true count", () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 50 })), fc.nat(300), (chunks, maxBytes) => {
        const capture = new HeadCapture(maxBytes);
        for (const chunk of chunks) capture.push(chunk);
        const all = Buffer.concat(chunks);
        expect(Buffer.from(capture.bytes()).equals(all.subarray(0, maxBytes))).toBe(true);
        expect([capture.totalBytes, capture.truncated]).toEqual([all.length, all.length > maxBytes]);
      }),
    );
  });

  it("does not cost more for coming in small pieces", () => {
    const capture = new HeadCapture(8 * 1024 * 1024);
    const piece = Buffer.from("x");
    const before = process.memoryUsage().rss;
    for (let index = 0; index < 8 * 1024 * 1024; index++) capture.push(piece);
    expect(capture.truncated).toBe(false);
    expect(process.memoryUsage().rss - before).toBeLessThan(64 * 1024 * 1024);
  });

  it.each([-1, 1.5, Number.NaN])("cannot have a limit of %d", (limit) => {
    expect(() => new HeadCapture(limit)).toThrow(TypeError);
  });
});
