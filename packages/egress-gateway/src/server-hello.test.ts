import { describe, expect, it } from "vitest";
import { retryRequest } from "../test/client-hello.ts";
import { ServerHelloReader } from "./server-hello.ts";

const record = (type: number, body: Buffer): Buffer =>
  Buffer.concat([Buffer.from([type, 3, 3, body.length >> 8, body.length & 255]), body]);
const serverHello = (random: Buffer): Buffer =>
  Buffer.concat([Buffer.from([2, 0, 0, 70, 3, 3]), random, Buffer.alloc(36)]);
const RETRY = retryRequest().subarray(11, 43);
const warning = record(21, Buffer.from([1, 112]));

describe("a server's answer", () => {
  it.each([
    ["a greeting", record(22, serverHello(Buffer.alloc(32, 7))), "other"],
    ["the wish for another", record(22, serverHello(RETRY)), "retry"],
    ["the wish, after a warning", Buffer.concat([warning, warning, record(22, serverHello(RETRY))]), "retry"],
    ["another message", record(22, Buffer.from([1, 0, 0, 0])), "other"],
    ["no TLS", Buffer.from("HTTP/1.1 400 Bad Request\r\n\r\n"), "other"],
    [
      "the wish in pieces",
      Buffer.concat([record(22, serverHello(RETRY).subarray(0, 20)), record(22, serverHello(RETRY).subarray(20))]),
      "invalid",
    ],
    ["many warnings", Buffer.concat(Array.from({ length: 200 }, () => warning)), "invalid"],
  ])("%s", (_what, bytes, expected) => {
    expect(new ServerHelloReader().push(bytes)).toBe(expected);
    const slow = new ServerHelloReader();
    const answers = [...bytes].map((byte) => slow.push(Buffer.from([byte])));
    expect(answers.find((answer) => answer !== "incomplete")).toBe(expected);
  });

  it("is not known before it is there", () => {
    const whole = Buffer.concat([warning, record(22, serverHello(RETRY))]);
    for (let size = 0; size < warning.length + 5 + 38; size++) {
      expect(new ServerHelloReader().push(whole.subarray(0, size))).toBe("incomplete");
    }
  });
});
