import { once } from "node:events";
import { readdir, stat } from "node:fs/promises";
import { encode } from "dns-packet";
import { join } from "node:path";
import type { Socket } from "node:net";
import { describe, expect, it } from "vitest";
import { clientHello, records, retryRequest, serverName } from "../test/client-hello.ts";
import {
  OTHER_SITE,
  readAll,
  readBytes,
  SITE,
  startGateway,
  type TestBox,
  type TestGateway,
  until,
} from "../test/gateway.ts";
import { echoOverTls, realHello, tlsSite } from "../test/tls-site.ts";
import { MAX_DENIALS, Records } from "./records.ts";
import { ServerHelloReader } from "./server-hello.ts";

const hello = (...names: readonly string[]): Buffer =>
  records(clientHello(names.length === 0 ? [] : [serverName(...names)]));
const echo = (socket: Socket): void => void socket.pipe(socket);
const rules = async ({ control }: TestGateway, box: TestBox): Promise<readonly string[]> =>
  (await control.records(box.name)).denials.map(({ host, port, rule, via }) => `${via} ${host} ${port} ${rule}`);

/** Opens a tunnel and gives its connection once the server has answered. */
async function openTunnel(box: TestBox, host = "example.com", greeting = hello("example.com")): Promise<Socket> {
  const socket = box.connect(3128);
  socket.write(`CONNECT ${host}:443 HTTP/1.1\r\nHost: ${host}:443\r\n\r\n`);
  expect(String(await readBytes(socket, 39))).toBe("HTTP/1.1 200 Connection Established\r\n\r\n");
  socket.write(greeting);
  expect(await readBytes(socket, greeting.length)).toEqual(greeting);
  return socket;
}

describe("control", () => {
  it("a box without a policy reaches nothing, one with a policy does", async () => {
    await using test = await startGateway();
    await test.serve(SITE, 443, echo);
    const box = await test.box(null);
    expect(await box.talk(3128, "CONNECT example.com:443 HTTP/1.1\r\n\r\n", { end: false })).toMatch(
      /^HTTP\/1.1 403 .*no-policy/s,
    );
    expect((await box.talk(443, hello("example.com"))).charCodeAt(0)).toBe(21);
    expect(await box.talk(80, "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n")).toMatch(/^HTTP\/1.1 403 .*no-policy/s);
    expect(test.dialled).toEqual([]);
    expect(test.resolved).toEqual([]);
    await box.allow("example.com");
    (await openTunnel(box)).destroy();
    expect(test.dialled).toEqual([`${SITE}:443`]);
  });

  it("refuses what makes no sense, with a reason", async () => {
    await using test = await startGateway();
    await test.box(undefined, "known");
    const { control } = test;
    const reason = (promise: Promise<unknown>): Promise<unknown> =>
      promise.then(
        () => "accepted",
        (error: unknown) => (error as { reason: unknown }).reason,
      );
    expect(await reason(control.addBox("known"))).toBe("box-exists");
    expect(await reason(control.addBox("../escape"))).toBe("box-name");
    expect(await reason(control.addBox(""))).toBe("box-name");
    expect(await reason(control.setPolicy("unknown", { mode: "public" }))).toBe("unknown-box");
    expect(await reason(control.setPolicy("known", { mode: "allowlist", hosts: ["https://example.com"] }))).toBe(
      "policy",
    );
    expect(await reason(control.setPolicy("known", { mode: "everything" } as never))).toBe("policy");
    expect(
      await reason(control.setPolicy("known", { mode: "allowlist", hosts: ["a.example"] }, { direct: true })),
    ).toBe("policy");
    expect(await reason(control.records("unknown"))).toBe("unknown-box");
    expect(await reason(control.awaitForwarder("unknown"))).toBe("unknown-box");
    expect(await control.removeBox("unknown")).toEqual({ existed: false });
  });

  it("a refused policy leaves the one that was", async () => {
    await using test = await startGateway();
    await test.serve(SITE, 443, echo);
    const box = await test.box();
    await expect(test.control.setPolicy(box.name, { mode: "allowlist", hosts: ["*"] })).rejects.toThrow("wildcard");
    (await openTunnel(box)).destroy();
  });

  it("folders of boxes cannot be listed or guessed, and go with their box", async () => {
    await using test = await startGateway();
    const box = await test.box();
    const boxes = join(test.folder, "boxes");
    expect((await stat(boxes)).mode & 0o777).toBe(0o711);
    expect((await stat(box.folder)).mode & 0o777).toBe(0o711);
    expect(box.folder).toMatch(/\/[0-9a-f]{32}$/);
    expect((await readdir(box.folder)).toSorted()).toEqual(["3128", "443", "53", "80", "status"]);
    expect(await test.control.removeBox(box.name)).toEqual({ existed: true });
    expect(await readdir(boxes)).toEqual([]);
  });

  it("says when a box's forwarder listens, and ends it with its box", async () => {
    await using test = await startGateway();
    const box = await test.box();
    const report = { listening: ["tcp:127.0.0.1:443"], inUse: ["tcp:127.0.0.1:80"] };
    const waiting = test.control.awaitForwarder(box.name);
    const lifeline = box.connect("status");
    lifeline.write(`${JSON.stringify(report)}\n`);
    expect(await waiting).toEqual(report);
    const ended = once(lifeline, "end");
    const other = await test.box();
    const [never] = await Promise.allSettled([
      test.control.awaitForwarder(other.name),
      test.control.removeBox(other.name),
    ]);
    expect(never).toMatchObject({ status: "rejected", reason: { reason: "box-removed" } });
    await test.control.removeBox(box.name);
    await ended;
  });

  it("several sessions speak of the same boxes; a session's end changes nothing", async () => {
    await using test = await startGateway();
    await test.serve(SITE, 443, echo);
    const box = await test.box();
    const tunnel = await openTunnel(box);
    const second = await test.session();
    expect(second.instance).toBe(test.control.instance);
    test.control.close();
    await test.control.closed;
    await expect(test.control.status()).rejects.toMatchObject({ code: "ERR_GATEWAY_LOST" });
    tunnel.write("still there");
    expect(String(await readBytes(tunnel, 11))).toBe("still there");
    expect(await second.status()).toMatchObject({ boxes: 1, connections: 1 });
    expect(await second.setPolicy(box.name, { mode: "no-network" })).toEqual({ cut: 1 });
  });

  it("knows that it is alone", async () => {
    await using test = await startGateway();
    expect(test.gateway.orphanedForMs).toBe(0);
    test.control.close();
    await until(() => test.gateway.orphanedForMs > 0);
    await test.session();
    await until(() => test.gateway.orphanedForMs === 0);
  });

  it("survives sessions that speak nonsense", async () => {
    await using test = await startGateway();
    const { connect } = await import("node:net");
    for (const nonsense of [
      "not json\n",
      "null\n",
      "[]\n",
      '{"id":1}\n',
      '{"id":1,"op":"set-policy"}\n',
      "x".repeat(2_000_000),
    ]) {
      const socket = connect(join(test.folder, "control/control")).on("error", () => undefined);
      socket.write(nonsense);
      socket.end();
      await readAll(socket);
    }
    expect(await test.control.status()).toMatchObject({ boxes: 0 });
  });
});

describe("tunnels", () => {
  it.each([3128, 443] as const)("pass bytes both ways, and each end by itself (port %i)", async (port) => {
    await using test = await startGateway();
    const heard: Buffer[] = [];
    await test.serve(SITE, 443, (socket) => {
      socket.once("data", () => socket.write("an answer"));
      socket.on("data", (chunk: Buffer) => heard.push(chunk));
      // Goes on only when the box has ended its direction.
      socket.once("end", () => socket.end(", the whole of it"));
    });
    const box = await test.box();
    const socket = box.connect(port);
    if (port === 3128) {
      socket.write("CONNECT example.com:443 HTTP/1.1\r\n\r\n");
      await readBytes(socket, 39);
    }
    const greeting = hello("example.com");
    for (const byte of greeting) socket.write(Buffer.from([byte]));
    socket.end("and more");
    expect(String(await readAll(socket))).toBe("an answer, the whole of it");
    expect(Buffer.concat(heard)).toEqual(Buffer.concat([greeting, Buffer.from("and more")]));
    expect(await test.control.records(box.name)).toMatchObject({
      allowed: 1,
      allowedBy: { "example.com": 1 },
      denied: 0,
    });
    await until(async () => (await test.control.status()).connections === 0);
  });

  it("the server's end leaves the box's direction open", async () => {
    await using test = await startGateway();
    const late = new Promise<string>((resolve) => {
      void test.serve(SITE, 443, (socket) => {
        socket.end("early");
        void readAll(socket).then((bytes) => resolve(bytes.subarray(hello("example.com").length).toString()));
      });
    });
    await until(() => true);
    const box = await test.box();
    const socket = box.connect(443);
    socket.write(hello("example.com"));
    expect(String(await readAll(socket))).toBe("early");
    socket.end("late");
    expect(await late).toBe("late");
  });

  it("a server that breaks off ends the tunnel", async () => {
    await using test = await startGateway();
    await test.serve(SITE, 443, (socket) => socket.once("data", () => socket.resetAndDestroy()));
    const box = await test.box();
    const socket = box.connect(443);
    socket.write(hello("example.com"));
    expect(await readAll(socket)).toHaveLength(0);
    await until(async () => (await test.control.status()).connections === 0);
  });

  const literal = { mode: "allowlist", hosts: [SITE] } as const;
  it.each([
    ["CONNECT", "example.com", "www.example.com", "sni-mismatch"],
    ["CONNECT", "example.com", "evil.example", "sni-mismatch"],
    ["CONNECT", "example.com", null, "sni-missing"],
    ["CONNECT", SITE, "evil.example", "sni-mismatch"],
  ] as const)("%s to %s with a greeting for %s: %s", async (_method, host, name, rule) => {
    await using test = await startGateway();
    const heard: Buffer[] = [];
    await test.serve(SITE, 443, (socket) => socket.on("data", (chunk: Buffer) => heard.push(chunk)).pipe(socket));
    const box = await test.box(host === SITE ? literal : undefined);
    // The right greeting passes.
    (await openTunnel(box, host, host === SITE ? hello() : hello(host))).destroy();
    heard.length = 0;
    const answer = await box.talk(
      3128,
      Buffer.concat([Buffer.from(`CONNECT ${host}:443 HTTP/1.1\r\n\r\n`), name === null ? hello() : hello(name)]),
      {
        end: false,
      },
    );
    expect(answer.slice(39)).toBe("\x15\x03\x03\x00\x02\x02\x31");
    expect(await rules(test, box)).toEqual([`proxy ${host} 443 ${rule}`]);
    expect(heard).toEqual([]);
  });

  it("anything but TLS does not get through a tunnel", async () => {
    await using test = await startGateway();
    const heard: Buffer[] = [];
    await test.serve(SITE, 443, (socket) => socket.on("data", (chunk: Buffer) => heard.push(chunk)));
    const box = await test.box();
    for (const bytes of [
      "SSH-2.0-OpenSSH_9\r\n",
      "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
      "\x80\x2e\x01\x03\x01",
      "",
    ]) {
      const answer = await box.talk(3128, `CONNECT example.com:443 HTTP/1.1\r\n\r\n${bytes}`);
      expect(answer.slice(39)).toBe("\x15\x03\x03\x00\x02\x02\x31");
      expect((await box.talk(443, bytes)).charCodeAt(0)).toBe(21);
    }
    expect(heard).toEqual([]);
  });

  it.each([
    ["example.com:22", "403", "port"],
    ["example.com:25", "403", "port"],
    ["example.com:0", "403", "port"],
    ["evil.example:443", "403", "not-listed"],
    [`${SITE}:443`, "403", "not-listed"],
    ["user@example.com:443", "403", "host-invalid"],
    ["example.com", "403", "host-invalid"],
    ["127.0.0.1:443", "403", "not-listed"],
    ["localhost:443", "403", "not-listed"],
    ["[::1]:443", "403", "not-listed"],
    ["2130706433:443", "403", "host-invalid"],
    ["nowhere.example.com:443", "403", "not-listed"],
  ])("CONNECT %s: %s %s", async (target, status, rule) => {
    await using test = await startGateway();
    const box = await test.box();
    const answer = await box.talk(3128, `CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n\r\n`, { end: false });
    expect(answer.slice(9, 12)).toBe(status);
    expect(answer).toContain(rule);
    expect((await rules(test, box))[0]).toContain(rule);
    expect(test.dialled).toEqual([]);
    expect(test.resolved).toEqual([]);
  });

  it("an allowed name with a private address is not dialled, whichever answer has it", async () => {
    await using test = await startGateway();
    await test.serve(SITE, 443, echo);
    const box = await test.box();
    test.names.set("example.com", [
      [SITE],
      ["169.254.169.254"],
      [SITE, "10.0.0.1"],
      ["::ffff:127.0.0.1"],
      ["fd00:ec2::254"],
      [],
    ]);
    (await openTunnel(box)).destroy();
    for (let i = 0; i < 4; i++) {
      expect(await box.talk(3128, "CONNECT example.com:443 HTTP/1.1\r\n\r\n", { end: false })).toMatch(
        /^HTTP\/1.1 403 .*not-public/s,
      );
    }
    expect(await box.talk(3128, "CONNECT example.com:443 HTTP/1.1\r\n\r\n", { end: false })).toMatch(
      /^HTTP\/1.1 502 .*no address/s,
    );
    expect(test.dialled).toEqual([`${SITE}:443`]);
    expect(await rules(test, box)).toEqual(Array.from({ length: 4 }, () => "proxy example.com 443 not-public"));
  });

  it("the next address is dialled where one does not answer; none is an error of the server, not of the policy", async () => {
    await using test = await startGateway();
    await test.serve(OTHER_SITE, 443, echo);
    const box = await test.box();
    test.names.set("example.com", [SITE, OTHER_SITE]);
    (await openTunnel(box)).destroy();
    expect(test.dialled).toEqual([`${SITE}:443`, `${OTHER_SITE}:443`]);
    test.names.set("example.com", [SITE]);
    expect(await box.talk(3128, "CONNECT example.com:443 HTTP/1.1\r\n\r\n", { end: false })).toMatch(/^HTTP\/1.1 502/);
    expect(await rules(test, box)).toEqual([]);
  });
});

describe("a server that asks for a second greeting", () => {
  // The client begins with a key exchange that the server does not have.
  const retrying = { ecdhCurve: "X25519:P-256" };
  const proceed = async (box: TestBox, port: 443 | 3128): Promise<Socket> => {
    const socket = box.connect(port);
    if (port === 443) return socket;
    socket.write("CONNECT example.com:443 HTTP/1.1\r\n\r\n");
    await readBytes(socket, 39);
    return socket;
  };

  it.each([443, 3128] as const)("gets one for the same host (port %i)", async (port) => {
    await using test = await startGateway();
    const asked: string[] = [];
    await test.serve(SITE, 443, tlsSite(asked));
    const box = await test.box();
    expect(await echoOverTls(await proceed(box, port), { ecdhCurve: "P-256" })).toBe("ping");
    expect(await echoOverTls(await proceed(box, port), retrying)).toBe("ping");
    expect(asked).toEqual(["example.com", "example.com"]);
    expect(await rules(test, box)).toEqual([]);
    const socket = await proceed(box, port);
    socket.write(await realHello("example.com", retrying));
    const answer = await readBytes(socket, 60);
    expect(new ServerHelloReader().push(answer)).toBe("retry");
    socket.destroy();
  });

  const cases = ([443, 3128] as const).flatMap((port) =>
    ([true, false] as const).map((atOnce) => [port, atOnce ? "at once" : "when it is asked for"] as const),
  );
  it.each(cases)("gets none for another host (port %i, sent %s)", async (port, when) => {
    await using test = await startGateway();
    // Goes by the second greeting, whoever it is for.
    let heard: string[] = [];
    await test.serve(SITE, 443, (socket) => {
      socket.on("data", (chunk: Buffer) => {
        heard.push(chunk.includes("evil.example") ? "evil.example" : "example.com");
        if (heard.length === 1) socket.write(retryRequest());
        else socket.end("reached");
      });
    });
    const box = await test.box({ mode: "allowlist", hosts: ["example.com", "evil.example"] });
    const conversation = async (second: Buffer): Promise<Buffer> => {
      heard = [];
      const socket = await proceed(box, port);
      const first = hello("example.com");
      socket.write(when === "at once" ? Buffer.concat([first, second]) : first);
      expect(new ServerHelloReader().push(await readBytes(socket, retryRequest().length))).toBe("retry");
      if (when !== "at once") socket.write(second);
      return readAll(socket);
    };
    const sign = Buffer.from([20, 3, 3, 0, 1, 1]);
    expect(String(await conversation(Buffer.concat([sign, hello("example.com")])))).toBe("reached");
    expect(heard).toEqual(["example.com", "example.com"]);
    expect(await rules(test, box)).toEqual([]);

    const hidden = records(clientHello([serverName("example.com"), { type: 0xfe0d, body: Buffer.alloc(200) }]));
    for (const [second, rule] of [
      [hello("evil.example"), "sni-mismatch"],
      [Buffer.concat([sign, hello("evil.example")]), "sni-mismatch"],
      [hello(), "sni-missing"],
      [hidden, "ech"],
      [Buffer.from("SSH-2.0-OpenSSH_9\r\n"), "malformed"],
    ] as const) {
      const before = (await rules(test, box)).length;
      expect(await conversation(second)).toEqual(Buffer.from([21, 3, 3, 0, 2, 2, 49]));
      expect(heard).toEqual(["example.com"]);
      expect((await rules(test, box)).slice(before)).toEqual([
        `${port === 443 ? "tls" : "proxy"} example.com 443 ${rule}`,
      ]);
    }
  });
});

describe("a change", () => {
  it("cuts what is no longer allowed before it is acknowledged, and nothing else", async () => {
    await using test = await startGateway();
    let alive = 0;
    const count = (socket: Socket): void => {
      alive++;
      socket.once("close", () => alive--);
      echo(socket);
    };
    await test.serve(SITE, 443, count);
    await test.serve(OTHER_SITE, 443, echo);
    const box = await test.box({ mode: "allowlist", hosts: ["example.com", "other.example"] });
    const neighbour = await test.box();
    const [cutOne, cutTwo] = [await openTunnel(box), await openTunnel(box)];
    const kept = await openTunnel(box, "other.example", hello("other.example"));
    const foreign = await openTunnel(neighbour);
    let late = 0;
    cutOne.on("data", () => late++);
    expect(await box.allow("other.example")).toEqual({ cut: 2 });
    cutOne.write("echo");
    cutTwo.write("echo");
    for (const tunnel of [kept, foreign]) {
      tunnel.write("ping");
      expect(String(await readBytes(tunnel, 4))).toBe("ping");
    }
    await until(() => alive === 1);
    expect(late).toBe(0);
    // And back: opening again works.
    await box.allow("example.com", "other.example");
    (await openTunnel(box)).destroy();
  });

  it("to the same hosts cuts nothing; wider ones neither", async () => {
    await using test = await startGateway();
    await test.serve(SITE, 443, echo);
    const box = await test.box();
    const tunnel = await openTunnel(box);
    expect(await box.allow("example.com")).toEqual({ cut: 0 });
    expect(await box.allow("*.com")).toEqual({ cut: 0 });
    expect(await test.control.setPolicy(box.name, { mode: "public" })).toEqual({ cut: 0 });
    tunnel.write("ping");
    expect(String(await readBytes(tunnel, 4))).toBe("ping");
    expect(await test.control.setPolicy(box.name, { mode: "no-network" })).toEqual({ cut: 1 });
  });

  it("counts for connections that have not said yet where to, and for those that are being made", async () => {
    await using test = await startGateway();
    await test.serve(SITE, 443, echo);
    await test.serve(SITE, 80, () => undefined); // takes requests and never answers
    const box = await test.box();
    const undecided = box.connect(443);
    undecided.write(hello("example.com").subarray(0, 20));
    const waiting = box.connect(80);
    waiting.write("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n");
    await until(() => test.dialled.includes(`${SITE}:80`));
    expect(await test.control.setPolicy(box.name, { mode: "no-network" })).toEqual({ cut: 1 });
    expect(await readAll(waiting)).toHaveLength(0);
    undecided.write(hello("example.com").subarray(20));
    expect((await readAll(undecided))[0]).toBe(21);
    expect(test.dialled).toEqual([`${SITE}:80`]);
  });

  it("counts for what is being resolved: it is not dialled any more", async () => {
    await using test = await startGateway();
    await test.serve(SITE, 443, echo);
    const box = await test.box();
    const release = test.holdNames();
    const asking = [
      box.talk(443, hello("example.com")),
      box.talk(3128, "CONNECT example.com:443 HTTP/1.1\r\n\r\n", { end: false }),
    ];
    await until(() => test.resolved.length === 2);
    expect(await test.control.setPolicy(box.name, { mode: "no-network" })).toEqual({ cut: 2 });
    expect(await Promise.all(asking)).toEqual(["", ""]);
    // Allowed again, and too late for those.
    await box.allow("example.com");
    release();
    (await openTunnel(box)).destroy();
    expect(test.dialled).toEqual([`${SITE}:443`]);
  });

  it("removing a box ends everything of it", async () => {
    await using test = await startGateway();
    await test.serve(SITE, 443, echo);
    const box = await test.box();
    const tunnel = await openTunnel(box);
    const idle = box.connect(3128);
    await until(async () => (await test.control.status()).connections === 2);
    await test.control.removeBox(box.name);
    expect(await readAll(tunnel)).toHaveLength(0);
    expect(await readAll(idle)).toHaveLength(0);
    expect(await test.control.status()).toMatchObject({ boxes: 0, connections: 0 });
  });
});

describe("names over the stream", () => {
  const framed = (message: Uint8Array): Buffer =>
    Buffer.concat([Buffer.from([message.length >> 8, message.length & 255]), message]);
  const question = (name: string): Buffer => framed(encode({ type: "query", id: 7, questions: [{ name, type: "A" }] }));

  it("several questions of a connection are answered in turn, and refused ones recorded", async () => {
    await using test = await startGateway();
    const box = await test.box();
    const socket = box.connect(53);
    const bytes = Buffer.concat([question("example.com"), question("secret.evil.example"), question("example.com")]);
    for (const byte of bytes) socket.write(Buffer.from([byte]));
    socket.end();
    const answers = await readAll(socket);
    expect(answers.toString("latin1").split("\x7f\x00\x00\x01")).toHaveLength(3);
    expect(await rules(test, box)).toEqual(["dns secret.evil.example 53 not-listed"]);
    expect(test.resolved).toEqual([]);
  });

  it("of a box on a network of its own are passed on, and connections refused", async () => {
    await using test = await startGateway();
    const box = await test.box(null);
    await test.control.setPolicy(box.name, { mode: "public" }, { direct: true });
    const socket = box.connect(53);
    socket.end(framed(Buffer.from("anything")));
    expect((await readAll(socket)).subarray(2).toString()).toBe("relayed:anything");
    expect(await box.talk(3128, "CONNECT example.com:443 HTTP/1.1\r\n\r\n", { end: false })).toMatch(
      /^HTTP\/1.1 403 .*direct/s,
    );
  });

  it("are not asked for any more when a change of policy is acknowledged", async () => {
    await using test = await startGateway();
    const box = await test.box(null);
    const asking = test.holdRelay();
    for (const end of [
      () => test.control.setPolicy(box.name, { mode: "no-network" }),
      () => test.control.removeBox(box.name),
    ]) {
      await test.control.setPolicy(box.name, { mode: "public" }, { direct: true });
      const [before, socket] = [asking.length, box.connect(53)];
      socket.write(framed(Buffer.from("anything")));
      await until(() => asking.length > before);
      const answer = readAll(socket);
      // Another policy of the same kind changes nothing.
      await test.control.setPolicy(box.name, { mode: "public" }, { direct: true });
      expect(asking.at(-1)?.aborted).toBe(false);
      await end();
      expect(asking.at(-1)?.aborted).toBe(true);
      expect(await answer).toHaveLength(0);
    }
  });

  it("are answered no faster than the answers are taken, and on so many connections at most", async () => {
    await using test = await startGateway();
    const box = await test.box();
    const asked = 10_000;
    const socket = box.connect(53);
    for (let at = 0; at < asked; at++) socket.write(question(`${at}.evil.example`));
    const denied = async (): Promise<number> => (await test.control.records(box.name)).denied;
    for (let before = -1; before !== (await denied()) || before === 0;) {
      before = await denied();
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
    // What the kernel holds of a socket that nobody reads.
    expect(await denied()).toBeLessThan(5000);
    const answers = readAll(socket);
    socket.end();
    expect((await answers).length).toBeGreaterThan(asked * 30);
    expect(await denied()).toBe(asked);

    const many = Array.from({ length: 200 }, () => box.connect(53).resume());
    let ended = 0;
    for (const each of many) each.once("end", () => ended++);
    await until(async () => ended === 72 && (await test.control.status()).connections === 128);
    for (const each of many) each.destroy();
  });

  it("messages that are too long end the connection", async () => {
    await using test = await startGateway();
    const box = await test.box();
    const socket = box.connect(53);
    socket.write(Buffer.from([0xff, 0xff]));
    expect(await readAll(socket)).toHaveLength(0);
  });
});

describe("bounds", () => {
  it("a flood of silent connections is bounded, and passes", { timeout: 60_000 }, async () => {
    await using test = await startGateway();
    await test.serve(SITE, 443, echo);
    const [box, neighbour] = [await test.box(), await test.box()];
    let ended = 0;
    const flood: Socket[] = [];
    for (let at = 0; at < 1500; at++) {
      const socket = box
        .connect(443)
        .once("end", () => ended++)
        .resume();
      flood.push(socket);
      // A full queue refuses at once; the forwarder waits for room in it.
      await once(socket, "connect");
    }
    await until(async () => ended === 476 && (await test.control.status()).connections === 1024);
    (await openTunnel(neighbour)).destroy();
    for (const socket of flood) socket.destroy();
    await until(async () => (await test.control.status()).connections === 0);
    (await openTunnel(box)).destroy();
    expect(test.dialled).toHaveLength(2);
  });

  it("where there is no room, the box with the most gives up its newest connections, until all have the same", async () => {
    await using test = await startGateway({ maxConnections: 12 });
    await test.serve(SITE, 443, echo);
    const boxes = [await test.box(), await test.box(), await test.box()] as const;
    const tunnels = new Map<TestBox, Socket[]>();
    const held = (): readonly number[] =>
      boxes.map((box) => (tunnels.get(box) ?? []).filter((tunnel) => !tunnel.readableEnded && !tunnel.closed).length);
    const take = async (box: TestBox, count: number): Promise<void> => {
      for (let at = 0; at < count; at++) {
        const tunnel = await openTunnel(box);
        tunnels.set(box, [...(tunnels.get(box) ?? []), tunnel.resume()]);
      }
    };
    const [flood, second, third] = boxes;
    await take(flood, 12);
    await expect(take(flood, 1)).rejects.toThrow("ended too early");
    expect(held()).toEqual([12, 0, 0]);
    await take(second, 6);
    await until(() => held()[0] === 6);
    await expect(take(second, 1)).rejects.toThrow("ended too early");
    await take(third, 4);
    await until(() => held().join() === "4,4,4");
    for (const box of boxes) await expect(take(box, 1)).rejects.toThrow("ended too early");
    // What has lasted is left.
    expect(tunnels.get(flood)?.map(({ readableEnded }) => readableEnded)).toEqual([
      ...Array.from({ length: 4 }, () => false),
      ...Array.from({ length: 8 }, () => true),
    ]);
    expect(await test.control.status()).toMatchObject({ connections: 12 });
  });

  it("a server that is silent for an hour is left", async () => {
    await using test = await startGateway();
    await test.serve(SITE, 443, echo);
    const box = await test.box();
    (await openTunnel(box)).destroy();
    expect(test.outgoing.map(({ timeout }) => timeout)).toEqual([3_600_000]);
  });

  it("denials are kept until somebody has them", async () => {
    await using test = await startGateway();
    const box = await test.box();
    await box.talk(80, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n".repeat(10));
    const first = await test.control.records(box.name);
    expect(first).toMatchObject({ denied: 10, dropped: 0, allowed: 0 });
    expect(first.denials.map(({ seq }) => seq)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    expect(first.denials[0]).toMatchObject({ via: "http", host: "evil.example", port: 80, rule: "not-listed" });
    expect(Date.parse(first.denials[0]?.at ?? "")).not.toBeNaN();
    const rest = await test.control.records(box.name, { after: 9 });
    expect(rest.denials.map(({ seq }) => seq)).toEqual([10]);
    expect((await test.control.records(box.name)).denials).toHaveLength(1);
  });

  it("denials are as many as are kept, and the others are counted", () => {
    const records = new Records();
    for (let at = 0; at < MAX_DENIALS + 5; at++) records.deny("dns", `\u0007${"x".repeat(300)}`, 53, "host-invalid");
    const { denials, dropped, denied } = records.read(0);
    expect([denials.length, dropped, denied]).toEqual([MAX_DENIALS, 5, MAX_DENIALS + 5]);
    expect(denials[0]?.host).toBe(`?${"x".repeat(254)}`);
    expect(records.read(MAX_DENIALS).denials).toEqual([]);
    records.deny("dns", null, 53, "host-invalid");
    expect(records.read(MAX_DENIALS).denials.map(({ seq }) => seq)).toEqual([MAX_DENIALS + 6]);
  });
});
