import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { clientHello, records, type HelloExtension, serverName } from "../test/client-hello.ts";
import { realHello } from "../test/tls-site.ts";
import { ClientHelloReader, MAX_HELLO_BYTES, parseClientHello } from "./client-hello.ts";

const named = { serverName: "example.com", encryptedClientHello: false };

describe("a TLS greeting", () => {
  it("of a real client", async () => {
    expect(parseClientHello(await realHello("example.com"))).toEqual(named);
    expect(parseClientHello(await realHello(undefined))).toEqual({ serverName: null, encryptedClientHello: false });
  });

  it("is understood in any pieces, and never before it is whole", async () => {
    for (const hello of [await realHello("example.com"), records(clientHello([serverName("example.com")]), 1)]) {
      for (let size = 0; size < hello.length; size++) {
        expect(parseClientHello(hello.subarray(0, size))).toBe("incomplete");
      }
      expect(parseClientHello(hello)).toEqual(named);
    }
  });

  it.each([1, 2, 3, 7, 50, 16384])("split over records of %i bytes", (size) => {
    expect(parseClientHello(records(clientHello([serverName("example.com")]), size))).toEqual(named);
  });

  const grease = (type: number): HelloExtension => ({ type, body: Buffer.from([0]) });
  it.each([
    ["the name comes last", [grease(0x0a0a), grease(0x1a1a), serverName("example.com")], named],
    ["GREASE around it", [grease(0xfafa), serverName("example.com"), grease(0x2a2a)], named],
    ["no extensions at all", [], { serverName: null, encryptedClientHello: false }],
    ["no name", [grease(0x0a0a)], { serverName: null, encryptedClientHello: false }],
    [
      "a hidden greeting",
      [serverName("example.com"), { type: 0xfe0d, body: Buffer.alloc(200) }],
      { serverName: "example.com", encryptedClientHello: true },
    ],
    [
      "a hidden greeting and no name",
      [{ type: 0xfe0d, body: Buffer.alloc(0) }],
      { serverName: null, encryptedClientHello: true },
    ],
    [
      "a name of 255 bytes",
      [serverName("a".repeat(255))],
      { serverName: "a".repeat(255), encryptedClientHello: false },
    ],
    ["two names in two extensions", [serverName("example.com"), serverName("evil.example")], "invalid"],
    ["two names in one", [serverName("example.com", "evil.example")], "invalid"],
    ["another kind of name", [{ type: 0, body: Buffer.from([0, 4, 1, 0, 1, 0x61]) }], "invalid"],
    ["an empty name", [serverName("")], "invalid"],
    ["an empty list", [{ type: 0, body: Buffer.from([0, 0]) }], "invalid"],
    ["no list", [{ type: 0, body: Buffer.alloc(0) }], "invalid"],
    ["a name longer than its list", [{ type: 0, body: Buffer.from([0, 4, 0, 0, 9, 0x61]) }], "invalid"],
    ["bytes behind the list", [{ type: 0, body: Buffer.from([0, 4, 0, 0, 1, 0x61, 0]) }], "invalid"],
    ["NUL in the name", [serverName("example.com\0.evil.example")], "invalid"],
    ["a blank in the name", [serverName("example.com ")], "invalid"],
    ["a letter that is not ASCII", [serverName("bücher.example")], "invalid"],
    ["the same extension twice", [grease(0x0a0a), grease(0x0a0a), serverName("example.com")], "invalid"],
  ] as const)("%s", (_title, extensions, expected) => {
    expect(parseClientHello(records(clientHello(extensions)))).toEqual(expected);
  });

  const whole = records(clientHello([serverName("example.com")]));
  const changed = (at: number, value: number): Buffer => {
    const copy = Buffer.from(whole);
    copy[at] = value;
    return copy;
  };
  it.each([
    ["HTTP", Buffer.from("GET / HTTP/1.1\r\n")],
    ["SSH", Buffer.from("SSH-2.0-x\r\n")],
    ["SSL 2", Buffer.from([0x80, 0x2e, 1, 3, 1])],
    ["an alert", changed(0, 21)],
    ["application data", changed(0, 23)],
    ["another version of records", changed(1, 2)],
    ["an empty record", Buffer.from([22, 3, 1, 0, 0])],
    ["a record that is too long", Buffer.from([22, 3, 1, 0x40, 1])],
    ["the answer instead of the greeting", changed(5, 2)],
    ["a message that ends before its content", changed(8, whole.readUInt8(8) - 1)],
    [
      "more in the record than the greeting",
      records(Buffer.concat([clientHello([serverName("example.com")]), Buffer.from([0])])),
    ],
    ["a message that is too long", Buffer.from([22, 3, 1, 0, 4, 1, 0, 0x80, 1])],
    ["a session that is longer than the message", changed(43, 255)],
  ])("%s is none", (_title, bytes) => {
    expect(parseClientHello(bytes)).toBe("invalid");
    // And that is said with the first wrong byte.
    expect(["invalid", "incomplete"]).toContain(parseClientHello(bytes.subarray(0, 5)));
  });

  it("is not taken in more records than clients use", () => {
    const long = clientHello([serverName("example.com"), { type: 21, body: Buffer.alloc(1000) }]);
    expect(parseClientHello(records(long, 10))).toEqual(named);
    expect(parseClientHello(records(long, 1))).toBe("invalid");
  });

  it("may be as long as is allowed, and no longer", () => {
    const padded = (bytes: number): Buffer => {
      const bare = clientHello([serverName("example.com"), { type: 21, body: Buffer.alloc(0) }]);
      return clientHello([serverName("example.com"), { type: 21, body: Buffer.alloc(bytes - bare.length) }]);
    };
    expect(parseClientHello(records(padded(MAX_HELLO_BYTES)))).toEqual(named);
    expect(parseClientHello(records(padded(MAX_HELLO_BYTES + 1)))).toBe("invalid");
  });

  it("any bytes are read without an error, in any pieces with the same result", () => {
    const nearly = fc.tuple(fc.nat(whole.length - 1), fc.nat(255)).map(([at, value]) => changed(at, value));
    fc.assert(
      fc.property(fc.oneof(fc.uint8Array({ maxLength: 300 }), nearly), fc.nat(300), (bytes, cut) => {
        const result = parseClientHello(bytes);
        const reader = new ClientHelloReader();
        const before = reader.push(bytes.subarray(0, Math.min(cut, bytes.length)));
        // What was said of a part stays true: more bytes make a whole greeting only of an incomplete one.
        expect(before === "incomplete" ? result : before).toEqual(result);
        expect(reader.push(bytes.subarray(Math.min(cut, bytes.length)))).toEqual(result);
      }),
      { numRuns: 3000 },
    );
  });

  describe("that a server has asked for", () => {
    const hello = records(clientHello([serverName("example.com")]));
    const sign = Buffer.from([20, 3, 3, 0, 1, 1]);
    const sentAhead = Buffer.from([23, 3, 3, 0, 3, 1, 2, 3]);
    const read = (bytes: Buffer): unknown => new ClientHelloReader({ isSecond: true }).push(bytes);

    it("may come after data that was sent ahead and a sign for others", () => {
      for (const before of [[], [sign], [sentAhead, sign], [sign, sentAhead, sentAhead]]) {
        expect(read(Buffer.concat([...before, hello]))).toEqual(named);
      }
      expect(parseClientHello(Buffer.concat([sign, hello]))).toBe("invalid");
      expect(parseClientHello(Buffer.concat([sentAhead, hello]))).toBe("invalid");
    });

    it("is in one piece, and the only thing that may come", () => {
      expect(read(hello.subarray(0, -1))).toBe("incomplete");
      expect(read(Buffer.concat([records(clientHello([serverName("example.com")]), 20).subarray(0, 25), sign]))).toBe(
        "invalid",
      );
      expect(read(Buffer.from([21, 3, 3, 0, 2, 2, 49]))).toBe("invalid");
    });
  });

  it("knows where it ends", () => {
    const hello = records(clientHello([serverName("example.com")]), 50);
    const reader = new ClientHelloReader();
    reader.push(hello.subarray(0, 30));
    expect(reader.push(Buffer.concat([hello.subarray(30), hello]))).toEqual(named);
    expect(reader.taken).toBe(hello.length);
  });
});
