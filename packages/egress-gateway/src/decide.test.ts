import { describe, expect, it } from "vitest";
import type { NetworkPolicy } from "@breakwater/runtime-api";
import { checkServerName, decide, hostOfGreeting, type Resolve } from "./decide.ts";
import type { Host } from "./hosts.ts";
import { compilePolicy, DENY_ALL, DIRECT } from "./policy.ts";

const PUBLIC_V4 = "93.184.215.14";
const PUBLIC_V6 = "2606:2800:21f:cb07::15";

const answers =
  (...addresses: readonly string[]): Resolve =>
  () =>
    Promise.resolve(addresses);
const nobodyAsks: Resolve = (name) => Promise.reject(new Error(`${name} was resolved`));

const allowlist = (...hosts: readonly string[]): NetworkPolicy => ({ mode: "allowlist", hosts });
const outcome = async (
  hosts: readonly string[],
  host: string,
  port = 443,
  resolve = answers(PUBLIC_V4),
): Promise<string> => {
  const decision = await decide(compilePolicy(allowlist(...hosts)), port, host, resolve);
  return decision.outcome === "refused" ? decision.rule : decision.outcome;
};

describe("who asks", () => {
  it.each([
    ["nobody has said anything about the box", null, "no-policy"],
    ["it may reach nothing", DENY_ALL, "no-network"],
    ["its list is empty", compilePolicy(allowlist()), "no-network"],
    ["it has a way of its own", DIRECT, "direct"],
  ] as const)("%s: refused", async (_title, policy, rule) => {
    // The same host is allowed to a box that has it on its list, so nothing else refuses it here.
    expect(await outcome(["example.com"], "example.com")).toBe("allowed");
    expect(await decide(policy, 443, "example.com", nobodyAsks)).toEqual({ outcome: "refused", rule });
  });

  it("a public box may reach every public host, and no other", async () => {
    const policy = compilePolicy({ mode: "public" });
    expect(await decide(policy, 443, "whatever.example", answers(PUBLIC_V4))).toMatchObject({
      outcome: "allowed",
      entry: "*",
    });
    expect(await decide(policy, 443, PUBLIC_V4, nobodyAsks)).toMatchObject({ outcome: "allowed" });
    expect(await decide(policy, 22, "whatever.example", nobodyAsks)).toMatchObject({ rule: "port" });
    expect(await decide(policy, 443, "whatever.example", answers("10.0.0.1"))).toMatchObject({ rule: "not-public" });
    expect(await decide(policy, 443, "127.0.0.1", nobodyAsks)).toMatchObject({ rule: "not-public" });
  });
});

describe("the port", () => {
  it.each([80, 443])("%i is open", async (port) => {
    expect(await outcome(["example.com"], "example.com", port)).toBe("allowed");
  });
  it.each([0, 1, 22, 25, 53, 79, 81, 442, 444, 3128, 8080, 8443, 65535, Number.NaN])("%i is not", async (port) => {
    expect(await outcome(["example.com"], "example.com", port, nobodyAsks)).toBe("port");
  });
});

describe("the host as it is written", () => {
  it.each([
    ["example.com", "example.com"],
    ["EXAMPLE.com", "example.com"],
    ["example.com.", "example.com"],
    ["bücher.example", "xn--bcher-kva.example"],
    ["BÜCHER.example", "xn--bcher-kva.example"],
    ["xn--bcher-kva.example", "xn--bcher-kva.example"],
    ["my_bucket.s3.example", "*.s3.example"],
    ["[2606:2800:21F:CB07:0:0:0:15]", "2606:2800:21f:cb07::15"],
    ["93.184.215.14", "93.184.215.14"],
  ])("%s is %s", async (host, entry) => {
    expect(await outcome([entry], host)).toBe("allowed");
  });

  // Each of these would be allowed if it were read as one of the entries.
  const entries = ["example.com", "*.example.com", "127.0.0.1", "93.184.215.14", "*.com", "com"];
  it.each([
    ["", "nothing"],
    [".", "only a dot"],
    ["example.com..", "two dots at the end"],
    [".example.com", "an empty label"],
    ["a..example.com", "an empty label in between"],
    ["user@example.com", "user information"],
    ["user:password@example.com", "user information with a password"],
    ["example.com@evil.example", "a host as user information"],
    ["example.com:443", "a port"],
    ["example.com\0.evil.example", "NUL"],
    ["example.com%00.evil.example", "an escaped NUL"],
    ["%65xample.com", "an escaped letter"],
    ["example.com%2eevil", "an escaped dot"],
    ["example.com/..", "a path"],
    ["example.com\\evil", "a backslash"],
    ["example.com?", "a query"],
    ["example.com#", "a fragment"],
    ["exam ple.com", "a blank"],
    ["example.com\t", "a tab"],
    ["example.com\r\nX: y", "a line end"],
    ["exam\u00adple.com\u0000", "a soft hyphen and NUL"],
    ["-a.example.com", "a label with a hyphen first"],
    [`${"a".repeat(64)}.example.com`, "a label that is too long"],
    [`${"a.".repeat(125)}example.com`, "a name that is too long"],
    ["93.184.215.14.", "an address with a dot at the end"],
    ["93.184.215.014", "an address in octal"],
    ["0x5d.184.215.14", "an address in hexadecimal"],
    ["1572395790", "an address as one number"],
    ["93.184.55054", "an address with three parts"],
    ["２１３.184.215.14", "digits of another alphabet"],
    ["[93.184.215.14]", "an IPv4 address in brackets"],
    ["2606:2800:21f:cb07::15", "an IPv6 address without brackets"],
    ["[fe80::1%eth0]", "a zone"],
    ["[::1", "one bracket"],
    ["*.example.com", "a wildcard"],
  ])("%j is refused: %s", async (host) => {
    expect(await outcome(entries, host, 443, nobodyAsks)).toBe("host-invalid");
  });
});

describe("the allowlist", () => {
  it.each([
    ["example.com", "example.com", true],
    ["example.com", "a.example.com", false],
    ["example.com", "badexample.com", false],
    ["example.com", "example.com.evil.example", false],
    ["example.com", "com", false],
    ["*.example.com", "a.example.com", true],
    ["*.example.com", "a.b.c.example.com", true],
    ["*.example.com", "example.com", false],
    ["*.example.com", "badexample.com", false],
    ["*.example.com", "a.example.com.evil.example", false],
    ["*.com", "example.com", true],
    ["93.184.215.14", "93.184.215.14", true],
    ["93.184.215.14", "93.184.215.15", false],
    ["93.184.215.0/24", "93.184.215.14", true],
    ["93.184.215.0/24", "93.184.216.14", false],
    ["0.0.0.0/0", "93.184.215.14", true],
    ["0.0.0.0/0", "[2606:2800:21f:cb07::15]", false],
    ["0.0.0.0/0", "example.com", false],
    ["2606:2800:21f:cb07:0:0:0:15", "[2606:2800:21f:cb07::15]", true],
    ["2606:2800::/32", "[2606:2800:21f:cb07::15]", true],
    ["2606:2800::/32", "[2606:2801::15]", false],
    ["::/0", "93.184.215.14", false],
    ["localhost", "evil.example", false],
  ])("%s and %s: %s", async (entry, host, isAllowed) => {
    expect(await outcome([entry], host)).toBe(isAllowed ? "allowed" : "not-listed");
  });

  it("an address that belongs to an allowed name is not allowed by that", async () => {
    expect(await outcome(["example.com"], PUBLIC_V4, 443, nobodyAsks)).toBe("not-listed");
  });

  it("names nothing that was refused to anybody", async () => {
    expect(await outcome(["other.example"], "example.com", 443, nobodyAsks)).toBe("not-listed");
  });
});

describe("the addresses", () => {
  it("the ones that were looked at are the ones to be dialled", async () => {
    const policy = compilePolicy(allowlist("example.com"));
    expect(await decide(policy, 443, "Example.COM.", answers(PUBLIC_V4, PUBLIC_V6))).toEqual({
      outcome: "allowed",
      host: { kind: "name", text: "example.com" },
      port: 443,
      entry: "example.com",
      addresses: [PUBLIC_V4, PUBLIC_V6],
    });
  });

  it("each connection is decided by what its own answer says", async () => {
    const sequence = [[PUBLIC_V4], ["169.254.169.254"]];
    const rebinding: Resolve = () => Promise.resolve(sequence.shift() ?? []);
    expect(await outcome(["example.com"], "example.com", 80, rebinding)).toBe("allowed");
    expect(await outcome(["example.com"], "example.com", 80, rebinding)).toBe("not-public");
  });

  it("no address, or no answer, is no way", async () => {
    expect(await outcome(["example.com"], "example.com", 443, answers())).toBe("unresolved");
    expect(await outcome(["example.com"], "example.com", 443, nobodyAsks)).toBe("unresolved");
  });

  it.each([
    ["93.184.215.14", "public"],
    ["1.1.1.1", "public"],
    ["223.255.255.255", "public"],
    ["2606:2800:21f:cb07::15", "public"],
    ["2a00:1450:4001:81b::200e", "public"],
  ])("%s is public", async (address) => {
    expect(await outcome(["example.com"], "example.com", 443, answers(address))).toBe("allowed");
  });

  const notPublic = [
    ["0.0.0.0", "this host"],
    ["0.1.2.3", "this network"],
    ["10.0.0.1", "private"],
    ["100.64.0.1", "CGNAT"],
    ["100.100.100.200", "CGNAT: a cloud's metadata"],
    ["127.0.0.1", "loopback"],
    ["127.255.255.254", "loopback"],
    ["168.63.129.16", "a cloud's own service"],
    ["169.254.169.254", "metadata"],
    ["172.16.0.1", "private"],
    ["172.31.255.255", "private"],
    ["192.0.0.192", "protocol assignments: a cloud's metadata"],
    ["192.0.2.1", "documentation"],
    ["192.88.99.1", "6to4 relay"],
    ["192.168.1.1", "private"],
    ["198.18.0.1", "benchmarks"],
    ["198.51.100.1", "documentation"],
    ["203.0.113.1", "documentation"],
    ["224.0.0.1", "multicast"],
    ["239.255.255.255", "multicast"],
    ["240.0.0.1", "reserved"],
    ["255.255.255.255", "broadcast"],
    ["::", "unspecified"],
    ["::1", "loopback"],
    ["::127.0.0.1", "compatible"],
    ["::ffff:127.0.0.1", "mapped"],
    ["::ffff:10.0.0.1", "mapped"],
    ["::ffff:93.184.215.14", "mapped, even of a public one"],
    ["::ffff:0:10.0.0.1", "translated"],
    ["64:ff9b::7f00:1", "NAT64"],
    ["64:ff9b::5db8:d70e", "NAT64, even of a public one"],
    ["64:ff9b:1::1", "local NAT64"],
    ["100::1", "discard"],
    ["2001::1", "Teredo"],
    ["2001:db8::1", "documentation"],
    ["3fff::1", "documentation"],
    ["2002:a00:1::1", "6to4"],
    ["2002:5db8:d70e::1", "6to4, even of a public one"],
    ["5f00::1", "segment routing"],
    ["fc00::1", "unique local"],
    ["fd00:ec2::254", "metadata"],
    ["fe80::1", "link-local"],
    ["fec0::1", "site-local"],
    ["4000::1", "not given out"],
    ["e000::1", "not given out"],
    ["ff02::1", "multicast"],
    ["fe80::1%eth0", "with a zone"],
    ["not an address", "nonsense"],
    ["1.2.3", "nonsense"],
    ["0x7f.1", "nonsense"],
  ] as const;
  it.each(notPublic)("%s is not: %s", async (address) => {
    expect(await outcome(["example.com"], "example.com", 443, answers(address))).toBe("not-public");
    // One such address spoils the name, wherever it stands.
    expect(await outcome(["example.com"], "example.com", 443, answers(PUBLIC_V4, PUBLIC_V6, address))).toBe(
      "not-public",
    );
    expect(await outcome(["example.com"], "example.com", 443, answers(address, PUBLIC_V4))).toBe("not-public");
  });

  it.each([
    ["10.0.0.1", "10.0.0.0/8"],
    ["127.0.0.1", "127.0.0.1"],
    ["169.254.169.254", "0.0.0.0/0"],
    ["[fd00:ec2::254]", "fd00:ec2::254"],
    ["[::ffff:10.0.0.1]", "::/0"],
    ["[64:ff9b::a00:1]", "::/0"],
  ])("%s is not, though the list has %s", async (host, entry) => {
    expect(await outcome([entry], host, 443, nobodyAsks)).toBe("not-public");
  });
});

describe("the TLS greeting", () => {
  const name: Host = { kind: "name", text: "example.com" };
  const address: Host = { kind: "address", text: PUBLIC_V4 };
  it.each([
    [name, "example.com", false, null],
    [name, "EXAMPLE.com", false, null],
    [name, "example.com.", false, "sni-mismatch"],
    [name, "www.example.com", false, "sni-mismatch"],
    [name, "evil.example", false, "sni-mismatch"],
    [name, PUBLIC_V4, false, "sni-mismatch"],
    [name, null, false, "sni-missing"],
    [name, "example.com", true, "ech"],
    [name, null, true, "ech"],
    [address, null, false, null],
    [address, PUBLIC_V4, false, null],
    [address, "example.com", false, "sni-mismatch"],
    [address, null, true, "ech"],
  ] as const)("for %j, %s, hidden: %s", (host, serverName, encryptedClientHello, rule) => {
    expect(checkServerName(host, { serverName, encryptedClientHello })).toBe(rule);
  });

  it.each([
    ["example.com", false, "example.com"],
    ["Example.COM", false, "example.com"],
    ["example.com.", false, "host-invalid"],
    [PUBLIC_V4, false, "host-invalid"],
    ["a b", false, "host-invalid"],
    [null, false, "sni-missing"],
    ["example.com", true, "ech"],
  ] as const)("asks for %s, hidden: %s", (serverName, encryptedClientHello, expected) => {
    const named = hostOfGreeting({ serverName, encryptedClientHello });
    expect(named.outcome === "named" ? named.host : named.rule).toBe(expected);
  });
});
