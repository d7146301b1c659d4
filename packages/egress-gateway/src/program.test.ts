import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { boxHelperPath } from "@breakwater/box-helper";
import { describe, expect, it } from "vitest";
import { readAll, SITE, startGateway } from "../test/gateway.ts";
import { gatewayBundle } from "./bundle.ts";
import { GatewayControl } from "./control-client.ts";

interface Program extends AsyncDisposable {
  readonly boxes: string;
  /** Starts the gateway, and another one when the first has ended. */
  serve(options?: { readonly lifetimeMs?: number; readonly orphanMs?: number }): ChildProcess;
  session(): Promise<GatewayControl>;
}

/** The real program, as it is in its container. Its boxes have policies here that let nothing out. */
async function program(): Promise<Program> {
  const folder = await mkdtemp(join(tmpdir(), "breakwater-gateway-"));
  const [bundle, boxes, control] = [join(folder, "gateway.mjs"), join(folder, "boxes"), join(folder, "control")];
  await mkdir(boxes);
  await mkdir(control);
  await writeFile(bundle, await gatewayBundle());
  const children: ChildProcess[] = [];
  const start = (...args: readonly string[]): ChildProcess => {
    const child = spawn(process.execPath, [bundle, ...args], { stdio: ["pipe", "pipe", "ignore"] });
    children.push(child);
    return child;
  };
  return {
    boxes,
    serve: ({ lifetimeMs = 600_000, orphanMs = 600_000 } = {}) =>
      start(
        "serve",
        "--lifetime-ms",
        `${lifetimeMs}`,
        "--orphan-ms",
        `${orphanMs}`,
        "--boxes",
        boxes,
        "--control",
        control,
      ),
    async session() {
      const { stdin, stdout } = start("control", "--control", control);
      if (stdin === null || stdout === null) throw new Error("no pipes");
      stdin.on("error", () => undefined);
      return GatewayControl.open({
        write: (bytes) =>
          new Promise((resolve, reject) => stdin.write(bytes, (error) => (error ? reject(error) : resolve()))),
        output: stdout as AsyncIterable<Uint8Array>,
        close: () => stdin.end(),
      });
    },
    async [Symbol.asyncDispose]() {
      for (const child of children) child.kill("SIGKILL");
      await rm(folder, { recursive: true, force: true });
    },
  };
}

async function ask(path: string): Promise<string> {
  const socket = connect({ path, allowHalfOpen: true }).on("error", () => undefined);
  socket.write("CONNECT example.com:443 HTTP/1.1\r\n\r\n");
  return String(await readAll(socket));
}

describe("the program", () => {
  it("serves boxes, and ends on TERM with everything that it made", async () => {
    await using test = await program();
    const served = test.serve();
    const control = await test.session();
    const { folder } = await control.addBox("box");
    const socket = join(test.boxes, folder, "3128");
    expect(await ask(socket)).toContain("no-policy");
    await control.setPolicy("box", { mode: "allowlist", hosts: ["other.example"] });
    expect(await ask(socket)).toContain("not-listed");
    const lifeline = connect(join(test.boxes, folder, "status"));
    await once(lifeline, "connect");
    served.kill("SIGTERM");
    expect(await once(served, "exit")).toEqual([0, null]);
    await control.closed;
    expect(await readAll(lifeline)).toHaveLength(0);
    expect(await readdir(test.boxes)).toEqual([]);
  });

  it("knows nothing after it was killed and started again: everything is denied", async () => {
    await using test = await program();
    const first = test.serve();
    const before = await test.session();
    const { folder } = await before.addBox("box");
    await before.setPolicy("box", { mode: "public" });
    first.kill("SIGKILL");
    await once(first, "exit");
    await before.closed;
    expect(await readdir(test.boxes)).toEqual([folder]);
    test.serve();
    const after = await test.session();
    expect(after.instance).not.toBe(before.instance);
    await expect(after.setPolicy("box", { mode: "public" })).rejects.toMatchObject({ reason: "unknown-box" });
    expect(await readdir(test.boxes)).toEqual([]);
    expect(await ask(join(test.boxes, folder, "3128"))).toBe("");
  });

  it("ends when its lifetime is over, whoever is there", async () => {
    await using test = await program();
    const served = test.serve({ lifetimeMs: 2000 });
    const control = await test.session();
    expect(await once(served, "exit")).toEqual([73, null]);
    await control.closed;
  });

  it("ends when its owner is gone", async () => {
    await using test = await program();
    const served = test.serve({ orphanMs: 5000 });
    const control = await test.session();
    await control.addBox("box");
    control.close();
    expect(await once(served, "exit")).toEqual([73, null]);
  });

  it("refuses what it does not know", async () => {
    await using test = await program();
    const calls = [
      [],
      ["serve"],
      ["serve", "--lifetime-ms", "0", "--orphan-ms", "1"],
      ["serve", "--unknown"],
      ["dance"],
    ];
    const exits = calls.map((args) =>
      once(spawn(process.execPath, [join(test.boxes, "../gateway.mjs"), ...args], { stdio: "ignore" }), "exit"),
    );
    expect(await Promise.all(exits)).toEqual(calls.map(() => [64, null]));
  });
});

const isLinuxRoot = process.platform === "linux" && process.getuid?.() === 0;

describe.runIf(isLinuxRoot)("with the real forwarder in a network that is only a loopback", () => {
  it("a client that knows nothing of proxies reaches an allowed name, and no other", async () => {
    await using test = await startGateway();
    await test.serve(
      SITE,
      80,
      createServer((incoming, response) => void response.end(`${incoming.headers.host}${incoming.url}`)),
    );
    const box = await test.box();
    const resolver = join(test.folder, "resolv.conf");
    await writeFile(resolver, "nameserver 127.0.0.1\noptions timeout:2 attempts:1\n");
    const helper = boxHelperPath(process.arch === "arm64" ? "arm64" : "amd64");
    // Its own network and mounts: nothing of it can leave, and it has its own name server.
    const client = `
      const get = (url) => fetch(url).then((r) => r.text(), (e) => e.cause?.code ?? e.message);
      const all = await Promise.all([get("http://example.com/a"), get("http://evil.example/"), get("http://93.184.216.34/")]);
      console.log(JSON.stringify(all));`;
    const script = `
      ip link set lo up
      mount --bind "$1" /etc/resolv.conf
      "$2" forward --sockets "$3" --lifetime-ms 60000 >/dev/null &
      read -r ready
      "$4" --input-type=module -e "$5"
      "$2" probe tcp ::1 443 >/dev/null && echo ::1
      kill $!
      wait $!
      echo $?`;
    const child = spawn(
      "unshare",
      ["--net", "--mount", "sh", "-c", script, "sh", resolver, helper, box.folder, process.execPath, client],
      { stdio: ["pipe", "pipe", "inherit"] },
    );
    const report = await test.control.awaitForwarder(box.name);
    expect(report.inUse).toEqual([]);
    expect(report.listening).toEqual(
      expect.arrayContaining([
        "udp:127.0.0.1:53",
        "tcp:127.0.0.1:53",
        "tcp:127.0.0.1:80",
        "tcp:127.0.0.1:443",
        "tcp:127.0.0.1:3128",
      ]),
    );
    child.stdin.end("ready\n");
    const chunks: Buffer[] = [];
    child.stdout.on("data", (chunk: Buffer) => chunks.push(chunk));
    await once(child, "close");
    const [answers = "", ...rest] = String(Buffer.concat(chunks)).trim().split("\n");
    expect(JSON.parse(answers)).toEqual(["example.com/a", "ENOTFOUND", "ENETUNREACH"]);
    expect(rest).toEqual(["::1", "0"]);
    const { denials, allowed } = await test.control.records(box.name);
    expect(allowed).toBe(1);
    expect(new Set(denials.map(({ via, host, rule }) => `${via} ${host} ${rule}`))).toEqual(
      new Set(["dns evil.example not-listed"]),
    );
  });

  it("the forwarder ends with its box", async () => {
    await using test = await startGateway();
    const box = await test.box();
    const helper = boxHelperPath(process.arch === "arm64" ? "arm64" : "amd64");
    const child = spawn("unshare", ["--net", helper, "forward", "--sockets", box.folder, "--lifetime-ms", "60000"], {
      stdio: "ignore",
    });
    const exit = once(child, "exit");
    // Without a device that is up nothing can be listened on but the loopback's address, which is there all the same.
    await test.control.awaitForwarder(box.name);
    await test.control.removeBox(box.name);
    expect(await exit).toEqual([0, null]);
  });
});
