// A gateway in this process, with servers on loopback in place of the internet: only how names get addresses and where an address is
// dialled differ from the real one.

import { once } from "node:events";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { connect, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { NetworkPolicy } from "@breakwater/runtime-api";
import { GatewayControl, type ControlTransport } from "../src/control-client.ts";
import { controlSocket, Gateway, type GatewayOptions } from "../src/gateway.ts";

export const SITE = "93.184.215.14";
export const OTHER_SITE = "93.184.216.34";

export interface TestGateway extends AsyncDisposable {
  readonly gateway: Gateway;
  readonly control: GatewayControl;
  readonly folder: string;
  /** Every address and port that was dialled, in order. */
  readonly dialled: string[];
  /** Every name that was resolved. */
  readonly resolved: string[];
  /** What names have as addresses. A list of lists is used up, one for each time. */
  readonly names: Map<string, readonly string[] | (readonly string[])[]>;
  /** Every connection to a server, in order. */
  readonly outgoing: Socket[];
  /** Makes the name servers mute; gives the signals of the questions that wait for them. */
  holdRelay(): readonly AbortSignal[];
  /** Lets no name be resolved until what it gives back is called. */
  holdNames(): () => void;
  /** Puts a server at an address of the test's internet. */
  serve(address: string, port: number, server: Server | ((socket: Socket) => void)): Promise<void>;
  /** A box with a policy. */
  box(policy?: NetworkPolicy | null, name?: string): Promise<TestBox>;
  /** One more control session. */
  session(): Promise<GatewayControl>;
}

export interface TestBox {
  readonly name: string;
  readonly folder: string;
  /** A connection of the box to a port, as its forwarder makes it. */
  connect(port: 53 | 80 | 443 | 3128 | "status"): Socket;
  /** Sends bytes and gives back all that comes until the other side ends. */
  talk(port: 80 | 443 | 3128, bytes: string | Uint8Array, options?: { readonly end?: boolean }): Promise<string>;
  allow(...hosts: readonly string[]): Promise<{ readonly cut: number }>;
}

export async function startGateway(limits: Pick<GatewayOptions, "maxConnections"> = {}): Promise<TestGateway> {
  const folder = await mkdtemp(join(tmpdir(), "breakwater-gateway-"));
  const directories = { boxesDirectory: join(folder, "boxes"), controlDirectory: join(folder, "control") };
  await mkdir(directories.boxesDirectory);
  await mkdir(directories.controlDirectory);
  const dialled: string[] = [];
  const resolved: string[] = [];
  const outgoing: Socket[] = [];
  let heldRelay: AbortSignal[] | undefined;
  const names: TestGateway["names"] = new Map([
    ["example.com", [SITE]],
    ["other.example", [OTHER_SITE]],
  ]);
  const ports = new Map<string, number>();
  const servers: Server[] = [];
  const sockets = new Set<Socket>();
  const sessions: GatewayControl[] = [];
  let mayResolve = Promise.resolve();
  const gateway = new Gateway({
    ...directories,
    ...limits,
    network: {
      async resolve(name) {
        resolved.push(name);
        await mayResolve;
        const known = names.get(name) ?? [];
        const next = Array.isArray(known[0]) ? (known as (readonly string[])[]).shift() : known;
        return (next ?? []) as readonly string[];
      },
      connect(address, port) {
        dialled.push(`${address}:${port}`);
        // Port 1 of loopback has no server: the connection is refused.
        const socket = connect({ host: "127.0.0.1", port: ports.get(`${address}:${port}`) ?? 1, allowHalfOpen: true });
        outgoing.push(socket);
        return socket;
      },
      relayDns(question, signal) {
        if (heldRelay === undefined) return Promise.resolve(Buffer.concat([Buffer.from("relayed:"), question]));
        heldRelay.push(signal);
        return new Promise((_resolve, reject) =>
          signal.addEventListener("abort", () => reject(signal.reason as Error)),
        );
      },
    },
  });
  await gateway.open();
  const session = async (): Promise<GatewayControl> => {
    const control = await GatewayControl.open(socketTransport(connect(controlSocket(directories.controlDirectory))));
    sessions.push(control);
    return control;
  };
  const control = await session();
  let boxes = 0;
  return {
    gateway,
    control,
    folder,
    dialled,
    resolved,
    names,
    outgoing,
    session,
    holdRelay: () => (heldRelay = []),
    holdNames() {
      let release = (): void => undefined;
      mayResolve = new Promise((resolve) => (release = resolve));
      return () => release();
    },
    async serve(address, port, given) {
      const server = typeof given === "function" ? createServer({ allowHalfOpen: true }, given) : given;
      server.on("connection", (socket: Socket) => {
        sockets.add(socket);
        socket.on("error", () => undefined);
      });
      servers.push(server);
      server.listen(0, "127.0.0.1");
      await once(server, "listening");
      ports.set(`${address}:${port}`, (server.address() as { readonly port: number }).port);
    },
    async box(policy = { mode: "allowlist", hosts: ["example.com"] }, name = `box-${++boxes}`) {
      const added = await control.addBox(name);
      if (policy !== null) await control.setPolicy(name, policy);
      const boxFolder = join(directories.boxesDirectory, added.folder);
      const open: TestBox["connect"] = (port) => {
        const socket = connect({ path: join(boxFolder, String(port)), allowHalfOpen: true });
        sockets.add(socket);
        return socket.on("error", () => undefined);
      };
      return {
        name,
        folder: boxFolder,
        connect: open,
        async talk(port, bytes, { end = true } = {}) {
          const socket = open(port);
          socket.write(bytes);
          if (end) socket.end();
          return (await readAll(socket)).toString("latin1");
        },
        allow: (...hosts) => control.setPolicy(name, { mode: "allowlist", hosts }),
      };
    },
    async [Symbol.asyncDispose]() {
      for (const each of sessions) each.close();
      for (const socket of sockets) socket.destroy();
      for (const server of servers) server.close();
      await gateway.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** A connection as the transport of a control session. */
export function socketTransport(socket: Socket): ControlTransport {
  socket.on("error", () => undefined);
  return {
    write: (bytes) =>
      new Promise((resolve, reject) => socket.write(bytes, (error) => (error ? reject(error) : resolve()))),
    output: socket,
    close: () => socket.destroy(),
  };
}

/** Everything until the end. Cut connections end as well. */
export async function readAll(socket: Socket): Promise<Buffer> {
  const chunks: Buffer[] = [];
  socket.on("data", (chunk: Buffer) => chunks.push(chunk));
  if (!socket.closed && !socket.readableEnded) {
    await new Promise<void>((resolve) => socket.once("end", resolve).once("close", resolve));
  }
  return Buffer.concat(chunks);
}

/** Waits for so many bytes. Rejects if the connection ends before. */
export function readBytes(socket: Socket, count: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const take = (): void => {
      const bytes = socket.read(count) as Buffer | null;
      if (bytes !== null && bytes.length === count) settle(() => resolve(bytes));
      else if (bytes !== null || socket.readableEnded || socket.destroyed)
        settle(() => reject(new Error("ended too early")));
    };
    const settle = (done: () => void): void => {
      socket.off("readable", take).off("end", take).off("close", take);
      done();
    };
    socket.on("readable", take).on("end", take).on("close", take);
    take();
  });
}

/** Waits until something is so. The test's own deadline ends the wait. */
export async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 5));
}
