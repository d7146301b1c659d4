import { describe, expect, it } from "vitest";
import {
  parseAllowlistEntry,
  parseNetworkPolicy,
  sameNetworkPolicy,
  widensNothing,
  type NetworkPolicy,
} from "./network.ts";

describe("an allowlist entry", () => {
  it.each([
    ["example.com", "example.com", "name"],
    [" Example.COM. ", "example.com", "name"],
    ["localhost", "localhost", "name"],
    ["xn--mnchen-3ya.de", "xn--mnchen-3ya.de", "name"],
    ["a-b.c1", "a-b.c1", "name"],
    ["1.2.3.4.example", "1.2.3.4.example", "name"],
    ["*.example.com", "*.example.com", "wildcard"],
    ["*.com", "*.com", "wildcard"],
    ["192.0.2.1", "192.0.2.1", "ipv4"],
    ["0.0.0.0", "0.0.0.0", "ipv4"],
    ["2001:DB8::1", "2001:db8::1", "ipv6"],
    ["::", "::", "ipv6"],
    ["::1", "::1", "ipv6"],
    ["1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8", "ipv6"],
    ["1:2:3:4:5:6:7::", "1:2:3:4:5:6:7:0", "ipv6"],
    ["2001:0DB8:0:0::0001", "2001:db8::1", "ipv6"],
    ["2001:db8:0::1", "2001:db8::1", "ipv6"],
    ["1:0:0:2:0:0:0:3", "1:0:0:2::3", "ipv6"],
    ["1:0:0:2:0:0:3:4", "1::2:0:0:3:4", "ipv6"],
    ["0:0:1:0:0:1:0:0", "::1:0:0:1:0:0", "ipv6"],
    ["10:0:0:10:100:1:1:1", "10::10:100:1:1:1", "ipv6"],
    ["1::", "1::", "ipv6"],
    ["::ffff:192.0.2.1", "::ffff:c000:201", "ipv6"],
    ["192.0.2.0/24", "192.0.2.0/24", "ipv4-cidr"],
    ["192.0.2.1/032", "192.0.2.1/32", "ipv4-cidr"],
    ["10.0.0.0/8", "10.0.0.0/8", "ipv4-cidr"],
    ["0.0.0.0/0", "0.0.0.0/0", "ipv4-cidr"],
    ["2001:db8::/32", "2001:db8::/32", "ipv6-cidr"],
    ["2001:db8:0:0::/32", "2001:db8::/32", "ipv6-cidr"],
    ["::/0", "::/0", "ipv6-cidr"],
    ["2001:db8::1/128", "2001:db8::1/128", "ipv6-cidr"],
  ] as const)("%s is %s, %s", (entry, host, kind) => {
    expect(parseAllowlistEntry(entry)).toEqual({ host, kind });
    // The canonical form is one.
    expect(parseAllowlistEntry(host)).toEqual({ host, kind });
  });

  it.each([
    ["", "empty"],
    [" . ", "empty"],
    ["https://example.com", "scheme"],
    ["example.com:443", "port"],
    ["192.0.2.1:443", "port"],
    ["[2001:db8::1]:443", "port"],
    ["[::1]", "port"],
    ["fe80::1%eth0", "port"],
    ["example.com/path", "path"],
    ["192.0.2.0/24/8", "path"],
    ["*", "wildcard"],
    ["*.", "wildcard"],
    ["a.*.com", "wildcard"],
    ["*a.com", "wildcard"],
    ["*.*.com", "wildcard"],
    ["*.192.0.2.1", "wildcard before an address"],
    ["-a.com", "label"],
    ["a-.com", "label"],
    ["a..com", "label"],
    [".com", "label"],
    ["a b.com", "label"],
    ["a_b.com", "label"],
    ["münchen.de", "label"],
    ["a.com\nb.com", "label"],
    [`${"a".repeat(64)}.com`, "label"],
    [`${"a.".repeat(127)}com`, "longer than 253"],
    ["1.2.3", "ends in a number"],
    ["1.2.3.4.5", "ends in a number"],
    ["256.1.1.1", "ends in a number"],
    ["01.2.3.4", "ends in a number"],
    ["0x7f000001", "ends in a number"],
    ["127.0.0.0x1", "ends in a number"],
    ["2130706433", "ends in a number"],
    ["192.0.2.1/24", "host bits"],
    ["2001:db8::1/32", "host bits"],
    ["192.0.2.0/33", "prefix"],
    ["2001:db8::/129", "prefix"],
    ["192.0.2.0/", "prefix"],
    ["192.0.2.0/-1", "prefix"],
    ["1::2::3", "port"],
    ["1:2:3:4:5:6:7", "port"],
    ["1:2:3:4:5:6:7:8:9", "port"],
    ["1:2:3:4:5:6:7:8::", "port"],
    ["12345::", "port"],
    ["::1.2.3", "port"],
  ])("%j is refused: %s", (entry, reason) => {
    expect(() => parseAllowlistEntry(entry)).toThrow(TypeError);
    expect(() => parseAllowlistEntry(entry)).toThrow(reason);
    expect(() => parseAllowlistEntry(entry)).toThrow(JSON.stringify(entry));
  });
});

const list = (...hosts: readonly string[]): NetworkPolicy => ({ mode: "allowlist", hosts });
const open: NetworkPolicy = { mode: "public" };
const shut: NetworkPolicy = { mode: "no-network" };

describe("a policy", () => {
  it("is made canonical and frozen", () => {
    const policy = parseNetworkPolicy(list("B.com.", "a.com", "b.com"));
    expect(policy).toEqual(list("b.com", "a.com"));
    expect(Object.isFrozen(policy)).toBe(true);
    expect(Object.isFrozen((policy as { hosts: readonly string[] }).hosts)).toBe(true);
  });

  it("with an empty list is no network", () => {
    expect(parseNetworkPolicy(list())).toEqual(shut);
  });

  it.each([{ mode: "open" }, { mode: "public", hosts: [] }, { mode: "no-network", hosts: ["a.com"] }, list("a:1")])(
    "%o is none",
    (wrong) => {
      expect(() => parseNetworkPolicy(wrong as NetworkPolicy)).toThrow(TypeError);
    },
  );

  it("is the same in any order of its hosts", () => {
    expect(sameNetworkPolicy(list("a", "b"), list("b", "a"))).toBe(true);
    expect(sameNetworkPolicy(list("a"), list("a", "b"))).toBe(false);
    expect(sameNetworkPolicy(open, open)).toBe(true);
    expect(sameNetworkPolicy(open, shut)).toBe(false);
    expect(sameNetworkPolicy(list("a"), open)).toBe(false);
  });

  it.each([
    [open, list("a"), true],
    [open, shut, true],
    [list("a", "b"), list("b"), true],
    [list("a"), shut, true],
    [shut, shut, true],
    [open, open, true],
    [list("a"), list("b"), false],
    [list("a"), open, false],
    [shut, list("a"), false],
    [shut, open, false],
  ] as const)("from %o to %o widens nothing: %s", (from, to, expected) => {
    expect(widensNothing(from, to)).toBe(expected);
  });
});
