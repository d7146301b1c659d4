/**
 * `node listeners.ts SETTINGS.json`: answers on given addresses until it is ended, and keeps a record of who came.
 * Run inside the network backend's namespaces, as the fake internet and as services of "the host".
 */
import { createSocket } from "node:dgram";
import { appendFileSync, readFileSync, writeFileSync } from "node:fs";
import type { IncomingMessage } from "node:http";
import { createServer as createTcpServer, type Server } from "node:net";
import { join } from "node:path";

import { answerQuery, type NameRecord, type NameTable, type Rebinding, rebindingTable } from "./dns.ts";
import { webServer } from "./web.ts";

export interface ListenersSettings {
  readonly listeners: readonly Listener[];
  /** Name to addresses, for `dns`. */
  readonly records: Readonly<Record<string, NameRecord>>;
  readonly rebinding: Rebinding;
  /** PEM files, for `https`. */
  readonly certificateFile: string;
  readonly keyFile: string;
  /** One JSON line per connection, datagram or query; see {@link Contact}. */
  readonly contactsFile: string;
  /** Written once everything listens. */
  readonly readyFile: string;
  /** Ends with its standard input, and so with the process that has started it. */
  readonly endsWithInput?: boolean;
}

export interface Listener {
  readonly protocol: "tcp" | "udp" | "http" | "https" | "dns";
  readonly address: string;
  readonly port: number;
}

export interface Contact {
  readonly protocol: Listener["protocol"];
  readonly local: string;
  readonly remote: string;
  /** The first bytes of a datagram or the name of a query, at most 200 characters. */
  readonly text?: string;
}

const maxContactBytes = 8 * 1024 * 1024;
const idleTimeoutMs = 60_000;

async function main(settingsFile: string): Promise<void> {
  const settings = JSON.parse(readFileSync(settingsFile, "utf8")) as ListenersSettings;
  if (settings.endsWithInput) process.stdin.resume().once("close", () => process.exit());
  const records = rebindingTable(new Map(Object.entries(settings.records)), settings.rebinding);
  const tls = { certificate: readFileSync(settings.certificateFile), key: readFileSync(settings.keyFile) };
  let written = 0;
  const contact = (entry: Contact): void => {
    const line = `${JSON.stringify({ ...entry, ...(entry.text === undefined ? {} : { text: entry.text.slice(0, 200) }) })}\n`;
    written += line.length;
    if (written <= maxContactBytes) appendFileSync(settings.contactsFile, line);
  };
  await Promise.all(settings.listeners.map((listener) => listen(listener, records, tls, contact)));
  writeFileSync(settings.readyFile, "");
}

const sitesFolder = join(import.meta.dirname, "www");

async function listen(
  listener: Listener,
  records: NameTable,
  tls: { readonly certificate: Buffer; readonly key: Buffer },
  contact: (entry: Contact) => void,
): Promise<void> {
  const local = `${listener.address} ${listener.port}`;
  switch (listener.protocol) {
    case "tcp":
      return await bound(
        createTcpServer({ allowHalfOpen: true }, (socket) => {
          contact({ protocol: "tcp", local, remote: socket.remoteAddress ?? "" });
          socket.setTimeout(idleTimeoutMs, () => socket.destroy());
          socket.on("error", () => {});
          socket.pipe(socket);
        }),
        listener,
      );
    case "http":
    case "https": {
      const onRequest = ({ method, url, headers, socket }: IncomingMessage): void =>
        contact({
          protocol: listener.protocol,
          local,
          remote: socket.remoteAddress ?? "",
          text: `${method} ${headers.host} ${url}`,
        });
      const server = webServer({ sitesFolder, onRequest, ...(listener.protocol === "https" ? { tls } : {}) });
      return await bound(server, listener);
    }
    case "udp":
      return await datagrams(listener, (message, remote) => {
        contact({ protocol: "udp", local, remote, text: message.toString("latin1") });
        return message;
      });
    case "dns": {
      const answer = (query: Buffer, remote: string): Buffer | undefined => {
        const answered = answerQuery(query, records);
        if (answered !== undefined) contact({ protocol: "dns", local, remote, text: answered.name });
        return answered?.message;
      };
      await bound(dnsOverTcp(answer), listener);
      return await datagrams(listener, answer);
    }
  }
}

function bound(server: Server, { address, port }: Listener): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen({ host: address, port, ipv6Only: address.includes(":") }, resolve);
  });
}

function datagrams(
  { address, port }: Listener,
  answer: (message: Buffer, remote: string) => Buffer | undefined,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = createSocket({ type: address.includes(":") ? "udp6" : "udp4", ipv6Only: address.includes(":") });
    socket.once("error", reject);
    socket.on("message", (message, remote) => {
      const reply = answer(message, remote.address);
      if (reply !== undefined) socket.send(reply, remote.port, remote.address, () => {});
    });
    socket.bind({ address, port }, resolve);
  });
}

/** Two bytes of length before each message. */
function dnsOverTcp(answer: (query: Buffer, remote: string) => Buffer | undefined): Server {
  return createTcpServer((socket) => {
    let received = Buffer.alloc(0);
    socket.setTimeout(idleTimeoutMs, () => socket.destroy());
    socket.on("error", () => {});
    socket.on("data", (chunk) => {
      received = Buffer.concat([received, chunk]);
      while (received.length >= 2 && received.length >= 2 + received.readUInt16BE(0)) {
        const length = received.readUInt16BE(0);
        const reply = answer(received.subarray(2, 2 + length), socket.remoteAddress ?? "");
        received = received.subarray(2 + length);
        if (reply === undefined) return socket.destroy();
        const prefix = Buffer.alloc(2);
        prefix.writeUInt16BE(reply.length);
        socket.write(Buffer.concat([prefix, reply]));
      }
      return undefined;
    });
  });
}

if (process.argv[2] !== undefined && import.meta.main) await main(process.argv[2]);
