import { mkdir, rm } from "node:fs/promises";
import type { Server as HttpServer } from "node:http";
import { createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import { checkServerName, type DenialRule, hostOfGreeting, locate, permit } from "./decide.ts";
import { answerDns } from "./dns.ts";
import { destroy, Flow } from "./flow.ts";
import { createHttpServer } from "./http-proxy.ts";
import type { Host } from "./hosts.ts";
import { dial, IDLE_TIMEOUT_MS, type Network, STREAM_BYTES } from "./network.ts";
import type { Policy } from "./policy.ts";
import { type Denial, Records } from "./records.ts";
import { joinTls, readGreeting, refuseTls } from "./tls.ts";

/** What the forwarder of a box says once it listens. */
export interface ForwarderReport {
  /** For instance `tcp:127.0.0.1:443`. */
  readonly listening: readonly string[];
  /** What the box itself had taken before. It is left to it. */
  readonly inUse: readonly string[];
}

/** A connection to an allowed host, or why there is none. */
export type Reached =
  | { readonly outcome: "reached"; readonly host: Host; readonly server: Socket; readonly flow: Flow }
  | { readonly outcome: "refused"; readonly rule: DenialRule }
  | { readonly outcome: "unresolved" | "unreachable" };

const MAX_DNS_MESSAGE_BYTES = 4096;
const DNS_IDLE_TIMEOUT_MS = 30_000;
/** Twice as many as a forwarder has open for datagrams. */
const MAX_DNS_CONNECTIONS = 128;
const MAX_REPORT_BYTES = 4096;

/** One box as the gateway sees it: a folder with a socket for each port, a policy, and what is under way. */
export class GatewayBox {
  readonly records: Records = new Records();
  readonly #folder: string;
  readonly #network: Network;
  readonly #admit: () => boolean;
  #policy: Policy | null = null;
  readonly #servers: (Server | HttpServer)[] = [];
  readonly #clients = new Set<Socket>();
  readonly #flows = new Set<Flow>();
  /** Connections of the box's forwarder that last as long as it does. */
  readonly #lifelines = new Set<Socket>();
  readonly #forwarder: Promise<ForwarderReport>;
  #settleForwarder: { resolve(report: ForwarderReport): void; reject(error: Error): void } | undefined;

  constructor(folder: string, network: Network, admit: () => boolean) {
    this.#folder = folder;
    this.#network = network;
    this.#admit = admit;
    this.#forwarder = new Promise((resolve, reject) => (this.#settleForwarder = { resolve, reject }));
    this.#forwarder.catch(() => undefined);
  }

  get connections(): number {
    return this.#clients.size;
  }

  /** Ends the connection that came last: those that have lasted are more likely to be missed. */
  giveUpNewest(): void {
    const newest = [...this.#clients].at(-1);
    if (newest === undefined) return;
    this.#clients.delete(newest);
    destroy(newest);
  }

  /** Settles when the box's forwarder listens; rejects when the box is closed before. */
  get forwarder(): Promise<ForwarderReport> {
    return this.#forwarder;
  }

  /** Makes the folder and its sockets. The socket that a connection comes to says which port of the box it is, and which box. */
  async open(): Promise<void> {
    // Only who knows the folder's name finds its sockets: forwarders see all folders of the volume.
    await mkdir(this.#folder, { mode: 0o711 });
    const stream = (handle: (socket: Socket) => void | Promise<void>): Server =>
      createServer({ allowHalfOpen: true, highWaterMark: STREAM_BYTES }, (socket) => this.#accept(socket, handle));
    const http = (arrival: "proxy" | "direct"): HttpServer => {
      const server = createHttpServer(this, arrival);
      // Before the server's own listener, so that it never sees what is refused.
      server.prependListener("connection", (socket: Socket) => this.#accept(socket, () => undefined));
      return server;
    };
    const names = stream((socket) => this.#serveDns(socket));
    names.maxConnections = MAX_DNS_CONNECTIONS;
    await this.#listen("53", names);
    await this.#listen("80", http("direct"));
    await this.#listen(
      "443",
      stream((socket) => this.#serveTls(socket)),
    );
    await this.#listen("3128", http("proxy"));
    await this.#listen(
      "status",
      createServer((socket) => this.#serveStatus(socket)),
    );
  }

  async #listen(name: string, server: Server | HttpServer): Promise<void> {
    this.#servers.push(server);
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen({ path: join(this.#folder, name), readableAll: true, writableAll: true }, () => {
        server.off("error", reject).on("error", () => undefined);
        resolve();
      });
    });
  }

  /** From now on nothing else is allowed. Resolves with the number of flows that had to be cut, when they are closed; rejects if one is not closed within 5 s. */
  async setPolicy(policy: Policy): Promise<number> {
    this.#policy = policy;
    const cut = [...this.#flows].filter((flow) => !flow.isAllowedBy(policy));
    await Promise.all(cut.map((flow) => flow.cut()));
    return cut.length;
  }

  /** Ends everything of the box, its forwarder included. */
  async close(): Promise<void> {
    this.#policy = null;
    this.#settleForwarder?.reject(new Error("the box was removed"));
    const closing = this.#servers.map((server) => new Promise<void>((resolve) => server.close(() => resolve())));
    const cut = [...this.#flows].map((flow) => flow.cut());
    for (const socket of [...this.#clients, ...this.#lifelines]) destroy(socket);
    await rm(this.#folder, { recursive: true, force: true });
    await Promise.all([...cut, ...closing]);
  }

  deny(via: Denial["via"], host: string | null, port: number, rule: DenialRule): void {
    this.records.deny(via, host, port, rule);
  }

  /** Decides on a host and connects to it, on behalf of a client of the box: the flow ends with either, and when the policy changes. */
  async reach(via: Denial["via"], port: number, written: string, client: Socket): Promise<Reached> {
    const permission = permit(this.#policy, port, written);
    if (permission.outcome === "refused") {
      this.deny(via, written, port, permission.rule);
      return permission;
    }
    // A request that was sent ahead outlives its client.
    if (client.destroyed) return { outcome: "unreachable" };
    const { host, entry } = permission;
    const flow = new Flow((policy) => policy.allows(host) !== null);
    this.#flows.add(flow);
    flow.add(client);
    const onClose = (): void => void flow.cut().catch(() => undefined);
    client.once("close", onClose);
    const finish = (): void => {
      this.#flows.delete(flow);
      client.off("close", onClose);
    };
    try {
      const decision = await locate(permission, (name) => untilCut(this.#network.resolve(name), flow.signal));
      if (decision.outcome !== "allowed") {
        finish();
        if (decision.outcome === "refused") this.deny(via, host.text, port, decision.rule);
        return decision;
      }
      const server = await dial(this.#network, decision.addresses, port, flow.signal);
      server
        .on("error", () => undefined)
        .once("close", finish)
        .setTimeout(IDLE_TIMEOUT_MS, () => server.destroy());
      flow.add(server);
      this.records.allow(entry);
      return { outcome: "reached", host, server, flow };
    } catch {
      finish();
      return { outcome: "unreachable" };
    }
  }

  #accept(socket: Socket, handle: (socket: Socket) => void | Promise<void>): void {
    // One that came back from a tunnel is known.
    if (this.#clients.has(socket)) return;
    socket.on("error", () => undefined);
    if (!this.#admit()) {
      socket.destroy();
      return;
    }
    this.#clients.add(socket);
    socket.once("close", () => this.#clients.delete(socket));
    // What goes wrong with a connection ends that connection.
    Promise.resolve(handle(socket)).catch(() => socket.destroy());
  }

  /** Port 443: the greeting says where to. */
  async #serveTls(socket: Socket): Promise<void> {
    const greeting = await readGreeting(socket);
    if (greeting === null) {
      // Nothing at all was sent: no attempt to get anywhere.
      if (socket.bytesRead > 0) this.deny("tls", null, 443, "malformed");
      refuseTls(socket);
      return;
    }
    const { hello, bytes } = greeting;
    const named = hostOfGreeting(hello);
    if (named.outcome === "refused") {
      this.deny("tls", hello.serverName, 443, named.rule);
      refuseTls(socket);
      return;
    }
    const reached = await this.reach("tls", 443, named.host, socket);
    if (reached.outcome !== "reached") {
      refuseTls(socket);
      return;
    }
    const rule = await joinTls(socket, reached.server, bytes, (second) => checkServerName(reached.host, second));
    if (rule !== null) this.deny("tls", named.host, 443, rule);
  }

  /** Port 53, over TCP and (in the same form, one question for each connection) over UDP. */
  #serveDns(socket: Socket): void {
    let received = Buffer.alloc(0);
    let answered = Promise.resolve();
    socket.setTimeout(DNS_IDLE_TIMEOUT_MS, () => socket.destroy());
    // One question after the other, and only when the answer to the one before is on its way: what comes meanwhile waits with the sender.
    const answerAll = async (): Promise<void> => {
      while (received.length >= 2 && !socket.destroyed) {
        const length = received.readUInt16BE(0);
        if (length > MAX_DNS_MESSAGE_BYTES) throw new RangeError("a message that is too long");
        if (received.length < 2 + length) return;
        const question = received.subarray(2, 2 + length);
        received = received.subarray(2 + length);
        const answer = await this.#answerDns(question, socket);
        const framed = Buffer.alloc(2 + answer.length);
        framed.writeUInt16BE(answer.length);
        framed.set(answer, 2);
        await new Promise<void>((resolve, reject) =>
          socket.write(framed, (error) => (error ? reject(error) : resolve())),
        );
      }
    };
    socket.on("data", (chunk: Buffer) => {
      received = Buffer.concat([received, chunk]);
      socket.pause();
      answered = answerAll().then(
        () => void socket.resume(),
        () => void socket.destroy(),
      );
    });
    socket.on("end", () => void answered.then(() => socket.end()));
  }

  /** Rejects where there is no answer: what was asked is no question, or the name servers are mute, or must not be asked any more. */
  async #answerDns(question: Uint8Array, client: Socket): Promise<Uint8Array> {
    if (this.#policy?.mode === "direct") return this.#relayDns(question, client);
    const answer = answerDns(question, this.#policy);
    if (answer === null) throw new TypeError("no question");
    if (answer.refused !== null) {
      const permission = permit(this.#policy, 443, answer.refused);
      this.deny("dns", answer.refused, 53, permission.outcome === "refused" ? permission.rule : "host-invalid");
    }
    return answer.message;
  }

  async #relayDns(question: Uint8Array, client: Socket): Promise<Uint8Array> {
    const flow = new Flow((policy) => policy.mode === "direct");
    this.#flows.add(flow);
    flow.add(client);
    try {
      return await this.#network.relayDns(question, flow.signal);
    } finally {
      flow.release(client);
      this.#flows.delete(flow);
    }
  }

  /** The forwarder's own connection: its report, and its life. It ends when we close the connection. */
  #serveStatus(socket: Socket): void {
    let text = "";
    socket.on("error", () => undefined);
    this.#lifelines.add(socket);
    socket.once("close", () => this.#lifelines.delete(socket));
    socket.setEncoding("utf8").on("data", (chunk: string) => {
      text += chunk;
      const report = text.includes("\n") ? parseReport(text.slice(0, text.indexOf("\n"))) : undefined;
      if (report === null || text.length > MAX_REPORT_BYTES) socket.destroy();
      else if (report !== undefined) this.#settleForwarder?.resolve(report);
    });
  }
}

function parseReport(line: string): ForwarderReport | null {
  try {
    const { listening, inUse } = JSON.parse(line) as ForwarderReport;
    return [listening, inUse].every((list) => Array.isArray(list) && list.every((name) => typeof name === "string"))
      ? { listening, inUse }
      : null;
  } catch {
    return null;
  }
}

function untilCut<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(new Error("no longer allowed"));
    if (signal.aborted) onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}
