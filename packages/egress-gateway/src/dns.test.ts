import { decode, encode, type Packet } from "dns-packet";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { answerDns } from "./dns.ts";
import { compilePolicy, DENY_ALL } from "./policy.ts";

const policy = compilePolicy({ mode: "allowlist", hosts: ["example.com", "*.example.org", "93.184.215.14"] });
const question = (name: string, type = "A", more: Partial<Packet> = {}): Buffer =>
  encode({ type: "query", id: 4711, flags: 0x0100, questions: [{ name, type: type as "A" }], ...more });

function ask(bytes: Uint8Array, of = policy): { rcode: number; data: readonly unknown[]; packet: Packet } {
  const answer = answerDns(bytes, of);
  if (answer === null) throw new Error("no answer");
  const packet = decode(Buffer.from(answer.message));
  return {
    rcode: (packet.flags ?? 0) & 15,
    data: (packet.answers ?? []).map((each) => ("data" in each ? each.data : null)),
    packet,
  };
}

describe("names", () => {
  it.each([
    ["example.com", "A", 0, ["127.0.0.1"]],
    ["EXAMPLE.com", "A", 0, ["127.0.0.1"]],
    ["a.b.example.org", "A", 0, ["127.0.0.1"]],
    ["example.com", "AAAA", 0, []],
    ["example.com", "HTTPS", 0, []],
    ["example.com", "TXT", 0, []],
    ["example.com", "MX", 0, []],
    ["example.org", "A", 3, []],
    ["www.example.com", "A", 3, []],
    ["secret.evil.example", "A", 3, []],
    ["secret.evil.example", "AAAA", 3, []],
    ["secret.evil.example", "TXT", 3, []],
    ["93.184.215.14", "A", 3, []],
    ["14.215.184.93.in-addr.arpa", "PTR", 3, []],
    ["localhost", "A", 3, []],
  ])("%s %s: %i %j", (name, type, rcode, data) => {
    expect(ask(question(name, type))).toMatchObject({ rcode, data });
  });

  it("of a box without a list do not exist", () => {
    expect(ask(question("example.com"), DENY_ALL)).toMatchObject({ rcode: 3, data: [] });
    const unknown = answerDns(question("example.com"), null);
    expect(unknown?.refused).toBe("example.com");
  });

  it("answers have the question's number, its name as written, and no authority", () => {
    const { packet } = ask(question("ExAmPlE.com"));
    expect(packet).toMatchObject({ id: 4711, type: "response", questions: [{ name: "ExAmPlE.com", type: "A" }] });
    expect(packet).toMatchObject({ flag_rd: true, flag_ra: true, flag_aa: false, flag_tc: false });
  });

  it("with additional records are answered", () => {
    const edns = question("example.com", "A", {
      additionals: [
        {
          type: "OPT",
          name: ".",
          udpPayloadSize: 4096,
          extendedRcode: 0,
          ednsVersion: 0,
          flags: 0,
          flag_do: false,
          options: [],
        },
      ],
    });
    expect(ask(edns)).toMatchObject({ rcode: 0, data: ["127.0.0.1"] });
  });

  it("messages that ask for nothing, for two things, or for something else", () => {
    const two = encode({
      type: "query",
      id: 1,
      questions: [
        { name: "example.com", type: "A" },
        { name: "example.com", type: "AAAA" },
      ],
    });
    expect(ask(two).rcode).toBe(1);
    expect(ask(encode({ type: "query", id: 1, questions: [] })).rcode).toBe(1);
    expect(ask(question("example.com").subarray(0, 20)).rcode).toBe(1);
    const update = question("example.com");
    update.writeUInt16BE(5 << 11, 2);
    expect(ask(update).rcode).toBe(4);
    expect(
      answerDns(encode({ type: "response", id: 1, questions: [{ name: "example.com", type: "A" }] }), policy),
    ).toBeNull();
    expect(answerDns(Buffer.alloc(11), policy)).toBeNull();
  });

  it("any bytes are answered with little, or not at all", () => {
    const whole = question("example.com");
    const nearly = fc.tuple(fc.nat(whole.length - 1), fc.nat(255)).map(([at, value]) => {
      const copy = Buffer.from(whole);
      copy[at] = value;
      return copy;
    });
    fc.assert(
      fc.property(fc.oneof(fc.uint8Array({ maxLength: 600 }), nearly), (bytes) => {
        const answer = answerDns(bytes, policy);
        expect(answer?.message.length ?? 0).toBeLessThanOrEqual(12 + 2 * (bytes.length + 16));
      }),
      { numRuns: 3000 },
    );
  });
});
