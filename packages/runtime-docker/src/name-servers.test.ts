import { describe, expect, it } from "vitest";
import { nameServersIn } from "./name-servers.ts";

describe("the name servers for a box", () => {
  it.each([
    ["nameserver 10.0.0.2\nnameserver 10.0.0.3\nsearch example.com\n", ["10.0.0.2", "10.0.0.3"]],
    ["# nameserver 10.0.0.9\n  nameserver\t10.0.0.2 \noptions ndots:0", ["10.0.0.2"]],
    // Without IPv6 they are out of reach.
    ["nameserver fd00::53\nnameserver 10.0.0.2\n", ["10.0.0.2"]],
    // Named, they are the box's own loopback.
    ["nameserver 127.0.0.53\nnameserver 127.0.0.11\nnameserver ::1\n", []],
    ["nameserver 10.0.0.2\nnameserver 10.0.0.2\n", ["10.0.0.2"]],
    ["nameserver localhost\n", []],
    ["", []],
  ])("in %j are %j", (resolvConf, servers) => {
    expect(nameServersIn(resolvConf)).toEqual(servers);
  });
});
