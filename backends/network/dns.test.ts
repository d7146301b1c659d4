import { describe, expect, it } from "vitest";

import { addressBytes, answerQuery, rebindingTable } from "./dns.ts";

const records = new Map([
  ["example.com", { v4: "93.184.215.14", v6: "2606:2800::1" }],
  ["v4.test", { v4: "192.0.2.1" }],
]);

/** A query as a resolver library sends it: number 0x1234, recursion wanted. */
function query(name: string, type: number): Buffer {
  const question = name.split(".").flatMap((label) => [Buffer.from([label.length]), Buffer.from(label)]);
  return Buffer.concat([Buffer.from("123401000001000000000000", "hex"), ...question, Buffer.from([0, 0, type, 0, 1])]);
}

describe("answerQuery", () => {
  it("answers A with the address, whatever the case of the name", () => {
    const answered = answerQuery(query("Example.COM", 1), records);
    expect(answered?.name).toBe("example.com");
    expect(answered?.message.subarray(0, 12).toString("hex")).toBe("123485800001000100000000");
    expect(answered?.message.subarray(-6).toString("hex")).toBe("00045db8d70e");
  });

  it("answers AAAA, and a known name without one with no error and no address", () => {
    expect(answerQuery(query("example.com", 28), records)?.message.subarray(-18).toString("hex")).toBe(
      "001026062800000000000000000000000001",
    );
    const empty = answerQuery(query("v4.test", 28), records)?.message;
    expect(empty?.readUInt16BE(6)).toBe(0);
    expect((empty?.[3] ?? 0) & 0x0f).toBe(0);
  });

  it("knows no other name", () => {
    expect((answerQuery(query("com", 1), records)?.message[3] ?? 0) & 0x0f).toBe(3);
  });

  it("does not answer what is no query", () => {
    const answered = answerQuery(query("example.com", 1), records);
    expect(answerQuery(answered?.message ?? Buffer.alloc(0), records)).toBeUndefined();
    for (let length = 0; length < query("example.com", 1).length; length += 1) {
      expect(answerQuery(query("example.com", 1).subarray(0, length), records)).toBeUndefined();
    }
  });
});

describe("rebindingTable", () => {
  it("gives another answer to every question for IPv4 but the first, name by name", () => {
    const [first, later] = [{ v4: "192.0.2.1" }, { v4: "10.0.0.1" }];
    const table = rebindingTable(records, { below: "rebind.test", first, later });
    const asked = ["a", "a", "b", "a"].map((label) => table.get(`${label}.rebind.test`, 1));
    expect(asked).toEqual([first, later, first, later]);
    expect([table.get("c.rebind.test", 28), table.get("c.rebind.test", 1)]).toEqual([first, first]);
    expect(table.get("v4.test", 1)).toEqual({ v4: "192.0.2.1" });
  });
});

describe("addressBytes", () => {
  it.each([
    ["127.0.0.1", "7f000001"],
    ["::1", "00000000000000000000000000000001"],
    ["fd00:ec2::254", "fd000ec2000000000000000000000254"],
    ["::ffff:10.77.7.7", "00000000000000000000ffff0a4d0707"],
    ["2606:2800:21f:cb07:6820:80da:af6b:8b2c", "26062800021fcb07682080daaf6b8b2c"],
  ])("%s", (address, hex) => {
    expect(addressBytes(address).toString("hex")).toBe(hex);
  });
});
