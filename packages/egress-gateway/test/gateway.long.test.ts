import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { connect, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { GatewayControl } from "../src/control-client.ts";
import { controlSocket } from "../src/gateway.ts";
import { clientHello, records, serverName } from "./client-hello.ts";
import { readBytes, socketTransport, until } from "./gateway.ts";

const TUNNELS = 1000;
const MB = 1024 * 1024;
const hello = records(clientHello([serverName("example.com")]));

interface ServedGateway extends AsyncDisposable {
  readonly control: GatewayControl;
  tunnel(): Promise<Socket>;
  memoryMb(): Promise<number>;
}

async function served(server: Server): Promise<ServedGateway> {
  const folder = await mkdtemp(join(tmpdir(), "breakwater-gateway-"));
  const [boxes, controls] = [join(folder, "boxes"), join(folder, "control")];
  await mkdir(boxes);
  await mkdir(controls);
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => sockets.add(socket.on("error", () => undefined)));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { readonly port: number };
  const program = join(import.meta.dirname, "served-gateway.ts");
  const child = spawn(process.execPath, ["--conditions=@breakwater/source", program, boxes, controls, String(port)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  await once(child.stdout, "data");
  const control = await GatewayControl.open(socketTransport(connect(controlSocket(controls))));
  const { folder: box } = await control.addBox("box");
  await control.setPolicy("box", { mode: "allowlist", hosts: ["example.com"] });
  return {
    control,
    async tunnel() {
      const socket = connect({ path: join(boxes, box, "3128"), allowHalfOpen: true });
      sockets.add(socket.on("error", () => undefined));
      socket.write("CONNECT example.com:443 HTTP/1.1\r\n\r\n");
      await readBytes(socket, 39);
      socket.write(hello);
      await readBytes(socket, hello.length);
      return socket;
    },
    async memoryMb() {
      // What is no longer needed may still be there for a moment.
      await sleep(1000);
      return Math.round((await control.status()).memoryBytes / MB);
    },
    async [Symbol.asyncDispose]() {
      control.close();
      for (const socket of sockets) socket.destroy();
      server.close();
      child.kill("SIGKILL");
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** Greets back, and reads on only when it is told to. */
function stubborn(): { readonly server: Server; readonly received: () => number; release(): void } {
  const waiting: Socket[] = [];
  let received = 0;
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    void readBytes(socket, hello.length).then((bytes) => {
      socket.write(bytes);
      waiting.push(socket);
    });
  });
  return {
    server,
    received: () => received,
    release() {
      for (const socket of waiting) socket.on("data", (chunk: Buffer) => (received += chunk.length));
    },
  };
}

describe("a gateway", () => {
  it(
    `has room for ${TUNNELS} tunnels at once, and its memory does not depend on what they carry`,
    { timeout: 300_000 },
    async () => {
      const site = stubborn();
      await using gateway = await served(site.server);
      const before = await gateway.memoryMb();
      const tunnels: Socket[] = [];
      while (tunnels.length < TUNNELS)
        tunnels.push(...(await Promise.all(Array.from({ length: 50 }, () => gateway.tunnel()))));
      const idle = await gateway.memoryMb();
      expect(await gateway.control.status()).toMatchObject({ connections: TUNNELS });

      // The site does not read: each tunnel takes what its buffers hold.
      const each = 2 * MB;
      for (const tunnel of tunnels) tunnel.write(Buffer.alloc(each));
      const stalled: number[] = [];
      for (let at = 0; at < 10; at++) stalled.push(await gateway.memoryMb());

      site.release();
      await until(() => site.received() === TUNNELS * each);
      const after = await gateway.memoryMb();
      console.log(
        `gateway: ${before} MB; ${TUNNELS} tunnels: idle ${idle} MB, stalled ${Math.max(...stalled)} MB, after ${after} MB`,
      );
      // 2000 MB were under way.
      expect(Math.max(...stalled) - before).toBeLessThan(400);
      expect(idle - before).toBeLessThan(100);
    },
  );

  it("carries bytes", { timeout: 300_000 }, async () => {
    const total = 256 * MB;
    const rate = async (socket: Socket, received: () => number): Promise<number> => {
      const startedAt = performance.now();
      const start = received();
      for (let sent = 0; sent < total; sent += MB) {
        if (!socket.write(Buffer.alloc(MB))) await once(socket, "drain");
      }
      await until(() => received() - start === total);
      return Math.round(total / MB / ((performance.now() - startedAt) / 1000));
    };
    const site = stubborn();
    await using gateway = await served(site.server);
    const tunnel = await gateway.tunnel();
    const direct = connect((site.server.address() as { readonly port: number }).port, "127.0.0.1");
    direct.write(hello);
    await readBytes(direct, hello.length);
    site.release();
    const [through, beside] = [await rate(tunnel, site.received), await rate(direct, site.received)];
    direct.destroy();
    console.log(`one tunnel: ${through} MB/s; beside the gateway: ${beside} MB/s`);
    expect(site.received()).toBe(2 * total);
  });

  it("leaves a tunnel open that is silent for ten minutes", { timeout: 720_000 }, async () => {
    const site = stubborn();
    await using gateway = await served(site.server);
    const tunnel = await gateway.tunnel();
    await sleep(610_000);
    site.release();
    tunnel.write("still there");
    await until(() => site.received() === 11);
    expect(tunnel.destroyed).toBe(false);
  });
});
