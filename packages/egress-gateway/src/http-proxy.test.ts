import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { describe, expect, it } from "vitest";
import { readAll, readBytes, SITE, startGateway, type TestBox, type TestGateway, until } from "../test/gateway.ts";

interface Heard {
  readonly line: string;
  readonly headers: IncomingMessage["headers"];
  readonly body: string;
}

/** A web server at example.com that answers with what it got. */
async function site(test: TestGateway): Promise<Heard[]> {
  const heard: Heard[] = [];
  const server = createServer((incoming, response) => {
    const chunks: Buffer[] = [];
    incoming.on("data", (chunk: Buffer) => chunks.push(chunk));
    incoming.on("end", () => {
      heard.push({
        line: `${incoming.method} ${incoming.url}`,
        headers: incoming.headers,
        body: String(Buffer.concat(chunks)),
      });
      response.setHeader("Set-Cookie", ["a=1", "b=2"]);
      response.end(`got ${incoming.method} ${incoming.url}`);
    });
  });
  await test.serve(SITE, 80, server);
  return heard;
}

/** A server at example.com that only listens: everything that it was sent. */
async function wire(
  test: TestGateway,
  answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
): Promise<() => string> {
  const connections: Buffer[][] = [];
  await test.serve(SITE, 80, (socket) => {
    const chunks: Buffer[] = [];
    connections.push(chunks);
    socket.on("data", (chunk: Buffer) => {
      chunks.push(chunk);
      if (String(Buffer.concat(chunks)).includes("\r\n\r\n")) socket.write(answer);
    });
    socket.on("end", () => socket.end());
  });
  return () => connections.map((chunks) => Buffer.concat(chunks).toString("latin1")).join("----");
}

const rulesOf = async (test: TestGateway, box: TestBox): Promise<readonly string[]> =>
  (await test.control.records(box.name)).denials.map(({ rule }) => rule);
const statusOf = (answer: string): number => Number(answer.slice(9, 12));
const count = (text: string, part: string): number => text.split(part).length - 1;

describe("requests", () => {
  it.each([
    [3128, "GET http://example.com/a?b HTTP/1.1\r\nHost: example.com\r\n\r\n"],
    [3128, "GET http://EXAMPLE.com:80/a?b HTTP/1.1\r\nHost: Example.com.\r\n\r\n"],
    [3128, "GET http://example.com/a?b HTTP/1.0\r\n\r\n"],
    [80, "GET /a?b HTTP/1.1\r\nHost: example.com\r\n\r\n"],
    [80, "GET http://example.com/a?b HTTP/1.1\r\nHost: example.com\r\n\r\n"],
  ] as const)("come through port %i: %j", async (port, bytes) => {
    await using test = await startGateway();
    const heard = await site(test);
    const box = await test.box();
    const answer = await box.talk(port, bytes);
    expect(answer).toMatch(/^HTTP\/1.1 200 OK\r\n/);
    expect(count(answer, "Set-Cookie:")).toBe(2);
    expect(answer).toContain("got GET /a?b");
    expect(heard).toMatchObject([{ line: "GET /a?b", headers: { host: "example.com" }, body: "" }]);
    expect(await test.control.records(box.name)).toMatchObject({ allowed: 1, denied: 0 });
  });

  it.each([
    ["Content-Length: 5\r\n\r\nhello", { "content-length": "5" }],
    [
      "Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;extension=1\r\nllo\r\n0\r\nTrailer: x\r\n\r\n",
      { "transfer-encoding": "chunked" },
    ],
    ["Expect: 100-continue\r\nContent-Length: 5\r\n\r\nhello", { "content-length": "5" }],
  ])("with a body: %j", async (rest, headers) => {
    await using test = await startGateway();
    const heard = await site(test);
    const box = await test.box();
    const answer = await box.talk(3128, `POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\n${rest}`);
    expect(answer).toContain("got POST /");
    expect(heard).toMatchObject([{ body: "hello", headers }]);
  });

  it("a body waits for the server's word", async () => {
    await using test = await startGateway();
    await site(test);
    const box = await test.box();
    const socket = box.connect(80);
    socket.write(
      "POST / HTTP/1.1\r\nHost: example.com\r\nExpect: 100-continue\r\nContent-Length: 5\r\nConnection: close\r\n\r\n",
    );
    expect(String(await readBytes(socket, 25))).toBe("HTTP/1.1 100 Continue\r\n\r\n");
    socket.write("hello");
    expect(String(await readAll(socket))).toContain("got POST /");
  });

  it("of one connection are decided one by one", async () => {
    await using test = await startGateway();
    const heard = await site(test);
    const box = await test.box();
    const answer = await box.talk(
      80,
      "GET /1 HTTP/1.1\r\nHost: example.com\r\n\r\n" +
        "GET /2 HTTP/1.1\r\nHost: evil.example\r\n\r\n" +
        "GET /3 HTTP/1.1\r\nHost: example.com\r\n\r\n" +
        "GET /4 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    );
    expect([...answer.matchAll(/HTTP\/1.1 (\d+)/g)].map(([, status]) => status)).toEqual(["200", "403", "200", "403"]);
    expect(heard.map(({ line }) => line)).toEqual(["GET /1", "GET /3"]);
    expect(await rulesOf(test, box)).toEqual(["not-listed", "not-listed"]);
  });

  it("of one connection are answered in their order, and a client that sends too many ahead is cut off", async () => {
    await using test = await startGateway();
    const heard = await site(test);
    const box = await test.box();
    const ahead = (howMany: number): string =>
      Array.from({ length: howMany }, (_, at) => `GET /${at} HTTP/1.1\r\nHost: example.com\r\n\r\n`).join("");
    const answer = await box.talk(80, ahead(10));
    expect([...answer.matchAll(/got GET \/(\d+)/g)].map(([, at]) => Number(at))).toEqual([
      0, 1, 2, 3, 4, 5, 6, 7, 8, 9,
    ]);
    heard.length = 0;
    await box.talk(80, ahead(1000));
    expect(heard.length).toBeLessThan(1000);
  });

  it("fields of this hop end here, and the host is written anew", async () => {
    await using test = await startGateway();
    const sent = await wire(test);
    const box = await test.box();
    await box.talk(
      3128,
      "GET http://example.com/ HTTP/1.1\r\nHost: EXAMPLE.com\r\nProxy-Authorization: Basic eA==\r\nConnection: close, X-Secret\r\nX-Secret: 1\r\nX-Kept: 2\r\n\r\n",
    );
    expect(sent()).toBe("GET / HTTP/1.1\r\nHost: example.com\r\nX-Kept: 2\r\nConnection: close\r\n\r\n");
  });

  it("the answer comes early, while the request goes on", async () => {
    await using test = await startGateway();
    await test.serve(SITE, 80, (socket) => {
      socket.once("data", () =>
        socket.write("HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig"),
      );
    });
    const box = await test.box();
    const socket = box.connect(80);
    socket.write("POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 100000000\r\n\r\n");
    socket.write(Buffer.alloc(8 * 1024 * 1024));
    const answer = String(await readAll(socket));
    expect(answer).toMatch(/^HTTP\/1.1 413 Too Large\r\n.*\r\n\r\nbig$/s);
  });

  it("an answer that breaks off does not look complete", async () => {
    await using test = await startGateway();
    await test.serve(SITE, 80, (socket) => {
      socket.once("data", () => {
        socket.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
        setTimeout(() => socket.destroy(), 50);
      });
    });
    const box = await test.box();
    const answer = await box.talk(80, "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n");
    expect(answer).toContain("hello");
    expect(answer).not.toContain("\r\n0\r\n");
  });

  it.each([
    ["nothing", ""],
    ["nonsense", "nonsense\r\n\r\n"],
    ["two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"],
    ["a length and chunks", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"],
    ["a head without end", `HTTP/1.1 200 OK\r\nX: ${"x".repeat(100_000)}`],
  ])("a server that answers with %s is an error of the server", async (_what, bytes) => {
    await using test = await startGateway();
    await test.serve(SITE, 80, (socket) => socket.once("data", () => socket.end(bytes)));
    const box = await test.box();
    expect(statusOf(await box.talk(80, "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n"))).toBe(502);
    expect(await rulesOf(test, box)).toEqual([]);
  });

  it("a name that turns to private ground is refused at the next request of the same connection", async () => {
    await using test = await startGateway();
    const heard = await site(test);
    test.names.set("example.com", [[SITE], ["127.0.0.1"]]);
    const box = await test.box();
    const answer = await box.talk(
      80,
      "GET /1 HTTP/1.1\r\nHost: example.com\r\n\r\nGET /2 HTTP/1.1\r\nHost: example.com\r\n\r\n",
    );
    expect([...answer.matchAll(/HTTP\/1.1 (\d+)/g)].map(([, status]) => status)).toEqual(["200", "403"]);
    expect(heard).toHaveLength(1);
    expect(test.dialled).toEqual([`${SITE}:80`]);
  });

  it("also come through CONNECT to port 80, for the tunnel's own host only", async () => {
    await using test = await startGateway();
    const heard = await site(test);
    const box = await test.box({ mode: "allowlist", hosts: ["example.com", "other.example"] });
    const socket = box.connect(3128);
    // The first request does not wait for the answer.
    socket.write("CONNECT example.com:80 HTTP/1.1\r\n\r\nGET /1 HTTP/1.1\r\nHost: example.com\r\n\r\n");
    await until(() => heard.length === 1);
    socket.write("GET /2 HTTP/1.1\r\nHost: example.com\r\n\r\n");
    await until(() => heard.length === 2);
    socket.end("GET /3 HTTP/1.1\r\nHost: other.example\r\n\r\n");
    const answer = String(await readAll(socket));
    expect([...answer.matchAll(/HTTP\/1.1 (\d+)/g)].map(([, status]) => status)).toEqual(["200", "200", "200", "403"]);
    expect(await rulesOf(test, box)).toEqual(["host-mismatch"]);
    expect(new Set(test.dialled)).toEqual(new Set([`${SITE}:80`]));
  });
});

describe("what could be read in two ways", () => {
  const start = "POST / HTTP/1.1\r\nHost: example.com\r\n";
  const hidden = "GET /hidden HTTP/1.1\r\nHost: evil.example\r\n\r\n";
  const rows: readonly (readonly [string, string])[] = [
    ["a length and chunks", `${start}Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${hidden}`],
    ["chunks and a length", `${start}Transfer-Encoding: chunked\r\nContent-Length: 60\r\n\r\n0\r\n\r\n${hidden}`],
    ["two lengths", `${start}Content-Length: 0\r\nContent-Length: ${hidden.length}\r\n\r\n${hidden}`],
    ["two equal lengths", `${start}Content-Length: 0\r\nContent-Length: 0\r\n\r\n${hidden}`],
    ["two lengths in one field", `${start}Content-Length: 0, ${hidden.length}\r\n\r\n${hidden}`],
    ["a length with a sign", `${start}Content-Length: +0\r\n\r\n${hidden}`],
    ["chunks twice", `${start}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${hidden}`],
    ["chunks under another name", `${start}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n${hidden}`],
    ["chunks with a tab before the colon", `${start}Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n${hidden}`],
    ["chunks with a vertical tab", `${start}Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n${hidden}`],
    ["chunks in a folded line", `${start}Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n${hidden}`],
    ["a folded line", `${start}X: a\r\n b\r\nContent-Length: 0\r\n\r\n${hidden}`],
    ["a folded host", `POST / HTTP/1.1\r\nHost: example.com\r\n evil.example\r\n\r\n${hidden}`],
    ["a blank before the colon", `${start}Content-Length : 0\r\n\r\n${hidden}`],
    ["a blank before the first field", `POST / HTTP/1.1\r\n Host: evil.example\r\nHost: example.com\r\n\r\n${hidden}`],
    ["two hosts", `POST / HTTP/1.1\r\nHost: example.com\r\nHost: evil.example\r\nContent-Length: 0\r\n\r\n${hidden}`],
    [
      "two equal hosts",
      `POST / HTTP/1.1\r\nHost: example.com\r\nHost: example.com\r\nContent-Length: 0\r\n\r\n${hidden}`,
    ],
    ["no host", `POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n${hidden}`],
    ["a host with a user", `POST / HTTP/1.1\r\nHost: example.com@evil.example\r\nContent-Length: 0\r\n\r\n${hidden}`],
    ["NUL in the host", `POST / HTTP/1.1\r\nHost: example.com\0evil.example\r\n\r\n${hidden}`],
    ["NUL in the address", `POST /\0 HTTP/1.1\r\nHost: example.com\r\n\r\n${hidden}`],
    [
      "another host in the address",
      `POST http://evil.example/ HTTP/1.1\r\nHost: example.com\r\nContent-Length: 0\r\n\r\n${hidden}`,
    ],
    ["lines that end with LF", `POST / HTTP/1.1\nHost: example.com\nContent-Length: 0\n\n${hidden}`],
    ["a field that ends with CR", `${start}X: a\rContent-Length: 5\r\n\r\n${hidden}`],
    ["a chunk with a bad length", `${start}Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n${hidden}`],
    ["a chunk that ends with LF", `${start}Transfer-Encoding: chunked\r\n\r\n1\na\n0\n\n${hidden}`],
    ["a chunk that is longer than it says", `${start}Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n${hidden}`],
    ["a chunk of an absurd length", `${start}Transfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\n\r\n${hidden}`],
    [
      "chunks in HTTP/1.0",
      `POST / HTTP/1.0\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${hidden}`,
    ],
    ["HTTP/2", `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n${hidden}`],
    ["HTTP/0.9", `GET /\r\n${hidden}`],
    ["another version", `GET / HTTP/1.9\r\nHost: example.com\r\n\r\n${hidden}`],
    ["no request at all", `\x16\x03\x01\x00\x05hello\r\n\r\n${hidden}`],
    ["70 KB of fields", `${start}X: ${"x".repeat(70_000)}\r\n\r\n${hidden}`],
    [
      "a WebSocket with a body",
      `${start}Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: ${hidden.length}\r\n\r\n${hidden}`,
    ],
  ];

  it.each(rows)("%s", async (_what, bytes) => {
    await using test = await startGateway();
    const sent = await wire(test);
    const box = await test.box();
    // What is clear does pass, and the server at the end would hear what is hidden in it if it were passed on.
    expect(statusOf(await box.talk(80, `${start}Content-Length: 0\r\n\r\n`))).toBe(200);
    expect(count(sent(), "POST /")).toBe(1);
    const answer = await box.talk(80, bytes);
    for (const [, status] of answer.matchAll(/HTTP\/1.1 (\d+)/g)) expect(Number(status)).toBeGreaterThanOrEqual(400);
    expect(sent()).not.toContain("hidden");
    expect(count(sent(), " HTTP/1.1")).toBeLessThanOrEqual(2);
    expect(test.dialled.every((address) => address === `${SITE}:80`)).toBe(true);
    const explicit = bytes.replace("POST / ", "POST http://example.com/ ");
    const viaProxy = await box.talk(3128, explicit);
    for (const [, status] of viaProxy.matchAll(/HTTP\/1.1 (\d+)/g)) expect(Number(status)).toBeGreaterThanOrEqual(400);
    expect(sent()).not.toContain("hidden");
  });

  it("a request that was hidden in a body stays a body", async () => {
    await using test = await startGateway();
    const heard = await site(test);
    const box = await test.box();
    const bodies = [
      `Content-Length: ${hidden.length}\r\n\r\n${hidden}`,
      `Transfer-Encoding: chunked\r\n\r\n${hidden.length.toString(16)}\r\n${hidden}\r\n0\r\n\r\n`,
    ];
    for (const body of bodies) await box.talk(80, `${start}${body}`);
    expect(heard).toMatchObject([
      { line: "POST /", body: hidden },
      { line: "POST /", body: hidden },
    ]);
  });

  it.each([
    ["GET /a HTTP/1.1\r\nHost: example.com\r\n\r\n", 403, "form"],
    ["GET https://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n", 403, "form"],
    ["GET ftp://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n", 403, "form"],
    ["OPTIONS * HTTP/1.1\r\nHost: example.com\r\n\r\n", 403, "form"],
    ["GET http://example.com:8080/ HTTP/1.1\r\nHost: example.com:8080\r\n\r\n", 403, "port"],
    ["GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403, "not-listed"],
    ["GET http://evil.example/ HTTP/1.1\r\nHost: example.com\r\n\r\n", 403, "host-mismatch"],
    ["GET http://169.254.169.254/latest/meta-data HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n", 403, "not-listed"],
    ["garbage\r\n\r\n", 400, "malformed"],
    [`GET http://example.com/ HTTP/1.1\r\nX: ${"x".repeat(70_000)}\r\n\r\n`, 431, "malformed"],
  ])("the proxy answers %j with %i, %s", async (bytes, status, rule) => {
    await using test = await startGateway();
    const box = await test.box();
    expect(statusOf(await box.talk(3128, bytes))).toBe(status);
    expect(await rulesOf(test, box)).toEqual([rule]);
    expect(test.dialled).toEqual([]);
  });

  it("port 80 is no proxy", async () => {
    await using test = await startGateway();
    const box = await test.box();
    expect(statusOf(await box.talk(80, "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n"))).toBe(403);
    expect(statusOf(await box.talk(80, "GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n"))).toBe(403);
    expect(test.dialled).toEqual([]);
  });
});

describe("other protocols", () => {
  const handshake = (port: number): string =>
    `GET ${port === 3128 ? "http://example.com" : ""}/chat HTTP/1.1\r\nHost: example.com\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n`;

  it.each([80, 3128] as const)("WebSockets pass both ways (port %i)", async (port) => {
    await using test = await startGateway();
    const server = createServer();
    server.on("upgrade", (incoming: IncomingMessage, socket: Socket) => {
      socket.write(
        `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: ${incoming.url}\r\n\r\nhello`,
      );
      socket.pipe(socket);
    });
    await test.serve(SITE, 80, server);
    const box = await test.box();
    const socket = box.connect(port);
    socket.write(`${handshake(port)}early`);
    const head =
      "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: /chat\r\n\r\n";
    expect(String(await readBytes(socket, head.length))).toBe(head);
    expect(String(await readBytes(socket, 10))).toBe("helloearly");
    socket.write("ping");
    expect(String(await readBytes(socket, 4))).toBe("ping");
    // And a change cuts it.
    expect(await test.control.setPolicy(box.name, { mode: "no-network" })).toEqual({ cut: 1 });
    expect(await readAll(socket)).toHaveLength(0);
  });

  it.each([80, 3128] as const)("a server that does not want to is heard (port %i)", async (port) => {
    await using test = await startGateway();
    await site(test);
    const box = await test.box();
    const answer = await box.talk(port, handshake(port), { end: false });
    expect(answer).toMatch(/^HTTP\/1.1 200 OK\r\n.*got GET \/chat/s);
  });

  it.each([
    ["to another host", handshake(80).replace("example.com", "evil.example"), 403],
    ["without a host", handshake(80).replace("Host: example.com\r\n", ""), 400],
  ])("a WebSocket %s is refused", async (_what, bytes, status) => {
    await using test = await startGateway();
    const box = await test.box();
    expect(statusOf(await box.talk(80, bytes, { end: false }))).toBe(status);
    expect(test.dialled).toEqual([]);
  });

  it.each([
    ["", "", ""],
    ["Content-Length: 5\r\n", "hello", "hello"],
    ["Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n", "hello"],
  ])("the wish for HTTP/2 in the clear is not passed on, and the request is (%j)", async (fields, bytes, body) => {
    await using test = await startGateway();
    const heard = await site(test);
    const box = await test.box();
    const wish = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n";
    const request = (host: string): string => `POST / HTTP/1.1\r\nHost: ${host}\r\n${wish}${fields}\r\n${bytes}`;
    expect(await box.talk(80, request("example.com"))).toMatch(/^HTTP\/1.1 200 OK/);
    expect(heard).toMatchObject([{ line: "POST /", body }]);
    expect(heard[0]?.headers).not.toHaveProperty("upgrade");
    expect(heard[0]?.headers).not.toHaveProperty("http2-settings");
    expect(statusOf(await box.talk(80, request("evil.example")))).toBe(403);
  });
});

describe("bounds", () => {
  it("what a client has sent ahead ends with it", async () => {
    await using test = await startGateway();
    const asked: Socket[] = [];
    await test.serve(SITE, 80, (socket) => socket.once("data", () => asked.push(socket)));
    const box = await test.box();
    for (const port of [80, 3128] as const) {
      const [before, dialled] = [asked.length, test.dialled.length];
      const socket = box.connect(port);
      socket.write("GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n".repeat(10));
      await until(() => asked.length > before);
      socket.destroy();
      // That nobody takes the answer is what shows that the client is gone.
      asked.at(-1)?.end(`HTTP/1.1 200 OK\r\n\r\n${"x".repeat(1000)}`);
      await until(async () => (await test.control.status()).connections === 0);
      await until(() => test.outgoing.every(({ closed }) => closed));
      await new Promise((resolve) => setTimeout(resolve, 200));
      expect(test.dialled.length).toBe(dialled + 1);
    }
    expect(await test.control.setPolicy(box.name, { mode: "no-network" })).toEqual({ cut: 0 });
  });

  it("a reader that does not read stops the server: memory stays flat", async () => {
    await using test = await startGateway();
    let sent = 0;
    const total = 48 * 1024 * 1024;
    const server = createServer((_incoming: IncomingMessage, response: ServerResponse) => {
      const push = (): void => {
        while (sent < total) {
          sent += 64 * 1024;
          if (!response.write(Buffer.alloc(64 * 1024))) return;
        }
        response.end();
      };
      response.on("drain", push);
      push();
    });
    await test.serve(SITE, 80, server);
    const box = await test.box();
    const socket = box.connect(80).pause();
    socket.write("GET / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n");
    let before = -1;
    await until(async () => {
      const unchanged = sent > 0 && sent === before;
      before = sent;
      await new Promise((resolve) => setTimeout(resolve, 300));
      return unchanged;
    });
    expect(sent).toBeLessThan(16 * 1024 * 1024);
    let received = 0;
    socket.on("data", (chunk: Buffer) => (received += chunk.length));
    await new Promise((resolve) => socket.once("end", resolve).resume());
    expect(received).toBeGreaterThan(total);
  });
});
