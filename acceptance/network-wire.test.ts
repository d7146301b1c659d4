import { randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { contacts } from "@breakwater/backends/network";
import type { NetworkPolicy, Runtime } from "@breakwater/runtime-api";
import { dockerDriver } from "@breakwater/runtime-docker";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { image } from "./support/backend.ts";
import { assertNoWayOut, fakeInternet, notSealed } from "./support/sealed.ts";

/*
 * What a box with an allowlist can say to its forwarder, byte by byte, and what comes of it: the answer, the rule in the report, and what the servers of the
 * fake internet have heard. Nothing with a token of a refused row may ever arrive.
 */

vi.setConfig({ testTimeout: 240_000, hookTimeout: 240_000 });

const { hostileNames, rebinding, sites } = fakeInternet;
const PROGRAM = await readFile(join(import.meta.dirname, "support/wire.py"), "utf8");
const HOSTILE = Object.keys(hostileNames);
const REBOUND = `r${randomBytes(6).toString("hex")}.${rebinding.below}`;
/** On the list, and not of the internet. */
const LISTED_GROUND = [
  "10.77.7.7",
  "192.168.77.7",
  "100.64.7.7",
  "127.0.0.1",
  "169.254.169.254",
  "224.0.0.1",
  "255.255.255.255",
  "[::1]",
  "[fe80::1]",
  "[fd00:ec2::254]",
  "[::ffff:10.77.7.7]",
  "[64:ff9b::7f00:1]",
];
const POLICY: NetworkPolicy = {
  mode: "allowlist",
  hosts: [
    "example.com",
    "*.example.net",
    "1.1.1.1",
    REBOUND,
    ...HOSTILE,
    ...LISTED_GROUND.map((address) => address.replace(/^\[(.*)\]$/, "$1")),
  ],
};

const [HTTP, TLS, PROXY] = [80, 443, 3128];

interface Conversation {
  readonly port: number;
  /** Sent one after the other; `TOKEN` is replaced. */
  readonly send: readonly string[];
  /** After that TLS with this name; empty for none. */
  readonly sni?: string;
  /** Through a program of the box that passes everything on. */
  readonly relayed?: boolean;
}

interface Row extends Conversation {
  readonly what: string;
  /** The answer's status line, or how the conversation ended. */
  readonly answers: RegExp;
  /** The rule that the report gives; absent where all of it is allowed. */
  readonly rule?: string;
  /** Whether a part of it is allowed and arrives. Default: where there is no rule. */
  readonly arrives?: boolean;
}

const get = (url: string, host: string, ...more: readonly string[]): string =>
  [
    `GET ${url}${url.endsWith("/") ? "TOKEN" : ""} HTTP/1.1`,
    `Host: ${host}`,
    ...more,
    "Connection: close",
    "",
    "",
  ].join("\r\n");
const keep = (url: string, host: string, ...more: readonly string[]): string =>
  [`GET ${url}TOKEN HTTP/1.1`, `Host: ${host}`, ...more, "", ""].join("\r\n");
const connect = (target: string): string => `CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n\r\n`;
const FORBIDDEN = /^HTTP\/1\.1 403/;
const REFUSED = /^HTTP\/1\.1 4\d\d/;
const CLOSED = /^(?:closed|tls|failed)/;

const rows: readonly Row[] = [
  // The way with the proxy.
  {
    what: "CONNECT to a listed host",
    port: PROXY,
    send: [connect("example.com:443")],
    sni: "example.com",
    answers: /^HTTP/,
  },
  {
    what: "the same with a dot and in capitals",
    port: PROXY,
    send: [connect("EXAMPLE.com.:443")],
    sni: "example.com",
    answers: /^HTTP/,
  },
  {
    what: "CONNECT to a listed address, without a name in the greeting",
    port: PROXY,
    send: [connect("1.1.1.1:443")],
    sni: "",
    answers: /^HTTP/,
  },
  {
    what: "CONNECT to another host",
    port: PROXY,
    send: [connect("example.org:443")],
    answers: FORBIDDEN,
    rule: "not-listed",
  },
  { what: "CONNECT to port 22", port: PROXY, send: [connect("example.com:22")], answers: FORBIDDEN, rule: "port" },
  {
    what: "CONNECT to the address of a listed name",
    port: PROXY,
    send: [connect(`${sites["example.com"].v4}:443`)],
    answers: FORBIDDEN,
    rule: "not-listed",
  },
  {
    what: "CONNECT to an address as a number",
    port: PROXY,
    send: [connect("1572394766:443")],
    answers: REFUSED,
    rule: "host-invalid",
  },
  {
    what: "CONNECT to the IPv6 address of a listed name",
    port: PROXY,
    send: [connect(`[${sites["example.com"].v6}]:443`)],
    answers: FORBIDDEN,
    rule: "not-listed",
  },
  {
    what: "CONNECT to a name below a listed one",
    port: PROXY,
    send: [connect("www.example.com:443")],
    answers: FORBIDDEN,
    rule: "not-listed",
  },
  {
    what: "CONNECT to a name that a wildcard is about",
    port: PROXY,
    send: [connect("example.net:443")],
    answers: FORBIDDEN,
    rule: "not-listed",
  },
  ...LISTED_GROUND.map((address): Row => ({
    what: `CONNECT to ${address}, which is listed`,
    port: PROXY,
    send: [connect(`${address}:443`)],
    answers: FORBIDDEN,
    rule: "not-public",
  })),
  ...HOSTILE.map((name): Row => ({
    what: `CONNECT to ${name}`,
    port: PROXY,
    send: [connect(`${name}:443`)],
    answers: FORBIDDEN,
    rule: "not-public",
  })),
  ...[
    "localhost:443",
    "a.localhost:443",
    "0.0.0.0:443",
    "[::]:443",
    "2130706433:443",
    "0x7f000001:443",
    "0177.0.0.1:443",
    "127.1:443",
    "127.0.0.1.:443",
    "[::ffff:7f00:1]:443",
  ].map((target): Row => ({
    what: `CONNECT to ${target}`,
    port: PROXY,
    send: [connect(target)],
    answers: REFUSED,
    rule: "*",
  })),
  {
    what: "CONNECT to a listed host through a relay in the box",
    port: PROXY,
    relayed: true,
    send: [connect("example.com:443")],
    sni: "example.com",
    answers: /^HTTP/,
  },
  {
    what: "CONNECT to another host through a relay in the box",
    port: PROXY,
    relayed: true,
    send: [connect("example.org:443")],
    answers: FORBIDDEN,
    rule: "not-listed",
  },
  {
    what: "CONNECT to port 80, and requests to its host",
    port: PROXY,
    send: [connect("example.com:80"), get("/", "example.com")],
    answers: /^HTTP\/1\.1 200.*\r\n\r\nHTTP\/1\.1 (?:200|404)/s,
  },
  {
    what: "CONNECT to port 80, and a request to another host, which is listed too",
    port: PROXY,
    send: [connect("example.com:80"), get("/", "www.example.net")],
    answers: /^HTTP\/1\.1 200.*\r\n\r\nHTTP\/1\.1 403/s,
    rule: "host-mismatch",
  },
  {
    what: "CONNECT to port 80 of another host",
    port: PROXY,
    send: [connect("example.org:80")],
    answers: FORBIDDEN,
    rule: "not-listed",
  },
  {
    what: "credentials for a proxy, which nobody asks for",
    port: PROXY,
    send: [get("http://example.com/", "example.com", "Proxy-Authorization: Basic eDp5")],
    answers: /^HTTP\/1\.1 (?:200|404)/,
  },
  {
    what: "two requests at once",
    port: PROXY,
    send: [keep("http://example.com/first", "example.com") + get("http://example.org/", "example.org")],
    answers: /^HTTP\/1\.1 404.*HTTP\/1\.1 403/s,
    rule: "not-listed",
    arrives: true,
  },
  {
    what: "another name in the greeting than in CONNECT",
    port: PROXY,
    send: [connect("example.com:443")],
    sni: "example.org",
    answers: CLOSED,
    rule: "sni-mismatch",
  },
  {
    what: "no name in the greeting",
    port: PROXY,
    send: [connect("example.com:443")],
    sni: "",
    answers: CLOSED,
    rule: "sni-missing",
  },
  {
    what: "no TLS in the tunnel",
    port: PROXY,
    send: [connect("example.com:443"), "SSH-2.0-OpenSSH_9\r\n\r\n\r\n\r\n"],
    answers: /^HTTP\/1\.1 200.*\r\n\r\n\[TLS alert\]/s,
    rule: "malformed",
  },
  {
    what: "an absolute URL",
    port: PROXY,
    send: [get("http://example.com/", "example.com")],
    answers: /^HTTP\/1\.1 (?:200|404)/,
  },
  {
    what: "an absolute URL of another host",
    port: PROXY,
    send: [get("http://example.org/", "example.org")],
    answers: FORBIDDEN,
    rule: "not-listed",
  },
  {
    what: "a Host field other than the URL's",
    port: PROXY,
    send: [get("http://example.com/", "example.org")],
    answers: REFUSED,
    rule: "host-mismatch",
  },
  {
    what: "another port in the URL",
    port: PROXY,
    send: [get("http://example.com:9000/", "example.com:9000")],
    answers: FORBIDDEN,
    rule: "port",
  },
  {
    what: "a user in the URL",
    port: PROXY,
    send: [get("http://example.com@example.org/", "example.org")],
    answers: REFUSED,
    rule: "*",
  },
  {
    what: "a URL of https",
    port: PROXY,
    send: [get("https://example.com/", "example.com")],
    answers: REFUSED,
    rule: "form",
  },
  {
    what: "a URL of ftp",
    port: PROXY,
    send: [get("ftp://example.com/", "example.com")],
    answers: REFUSED,
    rule: "form",
  },
  {
    what: "a request without a host to go to",
    port: PROXY,
    send: [get("/", "example.com")],
    answers: REFUSED,
    rule: "form",
  },
  {
    what: "no HTTP",
    port: PROXY,
    send: ["\x16\x03\x01garbage\r\n\r\n"],
    answers: /^HTTP\/1\.1 400/,
    rule: "malformed",
  },
  {
    what: "a head of 70 KB",
    port: PROXY,
    send: [get("http://example.com/", "example.com", `X-Long: ${"x".repeat(70_000)}`)],
    answers: /^HTTP\/1\.1 4\d\d/,
    rule: "malformed",
  },
  {
    what: "a second request for another host",
    port: PROXY,
    send: [keep("http://example.com/first", "example.com"), get("http://example.org/", "example.org")],
    answers: /^HTTP\/1\.1 404.*HTTP\/1\.1 403/s,
    rule: "not-listed",
    arrives: true,
  },

  // The way without.
  { what: "TLS to a listed host", port: TLS, send: [], sni: "example.com", answers: /^HTTP/ },
  { what: "TLS to another host", port: TLS, send: [], sni: "example.org", answers: CLOSED, rule: "not-listed" },
  {
    what: "TLS to a name that leads to a private address",
    port: TLS,
    send: [],
    sni: "private.example.org",
    answers: CLOSED,
    rule: "not-public",
  },
  { what: "TLS without a name", port: TLS, send: [], sni: "", answers: CLOSED, rule: "sni-missing" },
  { what: "no TLS", port: TLS, send: ["SSH-2.0-OpenSSH_9\r\n\r\n\r\n"], answers: /^\[TLS alert\]/, rule: "malformed" },
  { what: "HTTP to a listed host", port: HTTP, send: [get("/", "example.com")], answers: /^HTTP\/1\.1 (?:200|404)/ },
  { what: "HTTP to another host", port: HTTP, send: [get("/", "example.org")], answers: FORBIDDEN, rule: "not-listed" },
  {
    what: "HTTP to the address of a listed name",
    port: HTTP,
    send: [get("/", sites["example.com"].v4)],
    answers: FORBIDDEN,
    rule: "not-listed",
  },
  {
    what: "HTTP to a private address behind a listed name",
    port: HTTP,
    send: [get("/", "private.example.org")],
    answers: FORBIDDEN,
    rule: "not-public",
  },
  {
    what: "no Host field",
    port: HTTP,
    send: ["GET /TOKEN HTTP/1.1\r\nConnection: close\r\n\r\n"],
    answers: REFUSED,
    rule: "*",
  },
  { what: "no Host field in HTTP/1.0", port: HTTP, send: ["GET /TOKEN HTTP/1.0\r\n\r\n"], answers: REFUSED, rule: "*" },
  {
    what: "two Host fields",
    port: HTTP,
    send: [get("/", "example.com", "Host: example.org")],
    answers: REFUSED,
    rule: "*",
  },
  {
    what: "a URL of another host than the Host field",
    port: HTTP,
    send: [get("http://example.org/", "example.com")],
    answers: REFUSED,
    rule: "*",
  },
  {
    what: "a port in the Host field",
    port: HTTP,
    send: [get("/", "example.com:9000")],
    answers: REFUSED,
    rule: "port",
  },
  {
    what: "a NUL in the Host field",
    port: HTTP,
    send: [get("/", "example.com\0.example.org")],
    answers: REFUSED,
    rule: "*",
  },
  {
    what: "a percent sign in the Host field",
    port: HTTP,
    send: [get("/", "example.org%2eexample.com")],
    answers: REFUSED,
    rule: "*",
  },
  {
    what: "a second request for another host (80)",
    port: HTTP,
    send: [keep("/first", "example.com"), get("/", "example.org")],
    answers: /^HTTP\/1\.1 404.*HTTP\/1\.1 403/s,
    rule: "not-listed",
    arrives: true,
  },

  // Requests that two readers would end at different places.
  ...[
    ["two lengths", ["Content-Length: 6", "Content-Length: 60"]],
    ["a length and chunks", ["Content-Length: 6", "Transfer-Encoding: chunked"]],
    ["chunks in other words", ["Transfer-Encoding: xchunked"]],
    ["chunks with a blank before the colon", ["Transfer-Encoding : chunked"]],
    ["chunks twice", ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"]],
    ["chunks on a folded line", ["X: y", " Transfer-Encoding: chunked"]],
    ["a length with a sign", ["Content-Length: +6"]],
    ["a bare line feed", ["X: y\nTransfer-Encoding: chunked"]],
  ].map(([what, fields]): Row => ({
    what: `a request with ${what as string}`,
    port: HTTP,
    send: [
      ["POST /TOKEN HTTP/1.1", "Host: example.com", ...(fields as readonly string[]), "", "0", "", ""].join("\r\n"),
      get("/", "example.org"),
    ],
    answers: /^(?:HTTP\/1\.1 4\d\d|closed)/,
    rule: "*",
  })),
  {
    what: "a request for another host within the body of one",
    port: HTTP,
    send: [
      `POST /countTOKEN HTTP/1.1\r\nHost: example.com\r\nContent-Length: ${get("/smuggled", "example.org").length + 60}\r\n\r\n`,
      get("/smuggled", "example.org").padEnd(get("/smuggled", "example.org").length + 60),
    ],
    answers: /^HTTP\/1\.1 404/,
  },
];

describe.skipIf(notSealed !== null)("[network.wire] what passes the gateway", () => {
  const driver = dockerDriver();
  let box: Runtime;

  beforeAll(async () => {
    await assertNoWayOut();
    box = await start();
  });
  afterAll(async () => {
    await box[Symbol.asyncDispose]();
    await driver[Symbol.asyncDispose]();
  });

  async function start(): Promise<Runtime> {
    const it = driver.create({ image, network: { initial: POLICY }, trial: "network-wire" });
    await it.start();
    return it;
  }

  async function say(conversations: readonly Conversation[]): Promise<readonly string[]> {
    const argv = ["python3", "-c", PROGRAM, JSON.stringify(conversations)];
    const { exitCode, stdout, stderr } = await box.exec(argv, { timeoutMs: 120_000 });
    if (exitCode !== 0) throw new Error(`wire.py: ${Buffer.from(stderr).toString("utf8")}`);
    const answers = JSON.parse(Buffer.from(stdout).toString("utf8")) as { data: string; end: string }[];
    return answers.map(({ data, end }) => (data === "" ? end : data.replace("\u0015\u0003", "[TLS alert]")));
  }

  it.each(rows)("$what", async ({ port, send, sni, relayed, answers, rule, arrives = rule === undefined }) => {
    const token = `t${randomBytes(6).toString("hex")}`;
    const before = (await box.report()).egress?.deniedCount ?? 0;
    const conversation = {
      port,
      send: send.map((part) => part.replaceAll("TOKEN", token)),
      ...(sni === undefined ? {} : { sni }),
      ...(relayed === undefined ? {} : { relayed }),
    };
    const [answer] = await say([conversation]);
    expect(answer).toMatch(answers);

    const { egress } = await box.report();
    const rules = new Set(egress?.denials.slice(before).map((it) => it.rule));
    const refusedBy = rule === "*" && rules.size > 0 ? ["*"] : [...rules];
    expect(refusedBy).toEqual(rule === undefined ? [] : [rule]);

    const heard = (await contacts("internet")).filter(({ text }) => text?.includes(token) === true);
    expect(heard.filter(({ text }) => text?.includes("example.org") === true)).toEqual([]);
    if (!send.some((part) => part.includes("TOKEN"))) return;
    expect(heard.length > 0).toBe(arrives);
  });

  it("asks for an address once for each connection, and dials no other", async () => {
    const hello = (): Promise<readonly string[]> => say([{ port: TLS, send: [], sni: REBOUND }]);
    const before = await arrivalsAt(rebinding.later.v4);
    expect(await hello()).toEqual([expect.stringMatching(/^HTTP/)]);
    // From its second answer on the name leads to a private address.
    expect(await hello()).toEqual([expect.stringMatching(CLOSED)]);
    expect(await arrivalsAt(rebinding.later.v4)).toBe(before);
    const { egress } = await box.report();
    expect(egress?.denials.at(-1)).toMatchObject({ host: REBOUND, rule: "not-public" });
  });

  async function arrivalsAt(address: string): Promise<number> {
    return (await contacts("internet")).filter(({ local }) => local.startsWith(`${address} `)).length;
  }
});
