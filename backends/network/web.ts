import { createHash } from "node:crypto";
import { existsSync, readFileSync, statSync } from "node:fs";
import { createServer, type IncomingMessage, type RequestListener, type Server, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { join } from "node:path";
import type { Duplex } from "node:stream";

export interface WebOptions {
  /** A folder with one folder for each host; what is in neither is answered by {@link respond}. */
  readonly sitesFolder: string;
  /** PEM; then the server speaks TLS. */
  readonly tls?: { readonly certificate: Buffer; readonly key: Buffer };
  readonly onRequest: (request: IncomingMessage) => void;
}

const maxSlowSeconds = 900;
const maxBytes = 1024 * 1024 * 1024;

/** A web server of the fake internet. */
export function webServer({ sitesFolder, tls, onRequest }: WebOptions): Server {
  const listener: RequestListener = (request, response) => {
    onRequest(request);
    respond(request, response, sitesFolder);
  };
  const server =
    tls === undefined ? createServer(listener) : createTlsServer({ cert: tls.certificate, key: tls.key }, listener);
  // Slow answers are part of what is tried.
  server.requestTimeout = 0;
  server.on("upgrade", (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    onRequest(request);
    upgrade(request, socket, head);
  });
  return server;
}

/**
 * - a file of the host's folder, of a folder its `index.html` or `index.json`; where the host has a folder, only `/` needs no file;
 * - `/slow?seconds=N`: the headers at once, the rest after that time;
 * - `/large?bytes=N`: so many bytes;
 * - `/early`: an answer before the body of the request is read, and then the end of the connection;
 * - `/count`: reads the body and says how many bytes it had;
 * - else JSON `{host, path, method, local, remote}`.
 */
function respond(request: IncomingMessage, response: ServerResponse, sitesFolder: string): void {
  const { host = "" } = request.headers;
  const url = URL.canParse(request.url ?? "", "http://site") ? new URL(request.url ?? "", "http://site") : undefined;
  const number = (name: string, most: number): number => Math.min(Number(url?.searchParams.get(name) ?? 0) || 0, most);
  switch (url?.pathname ?? "") {
    case "/slow": {
      response.writeHead(200, { "Content-Type": "text/plain" });
      response.flushHeaders();
      request.resume();
      const timer = setTimeout(() => response.end("at last\n"), number("seconds", maxSlowSeconds) * 1000);
      response.once("close", () => clearTimeout(timer));
      return;
    }
    case "/large": {
      const bytes = number("bytes", maxBytes);
      response.writeHead(200, { "Content-Type": "application/octet-stream", "Content-Length": bytes });
      request.resume();
      sendBytes(response, bytes);
      return;
    }
    case "/early":
      response.writeHead(413, { Connection: "close", "Content-Type": "text/plain" });
      response.end("too much\n");
      response.once("finish", () => request.socket.destroySoon());
      return;
    case "/count": {
      let bytes = 0;
      request.on("data", (chunk: Buffer) => (bytes += chunk.length));
      request.on("end", () => response.end(`${bytes}\n`));
      return;
    }
    default: {
      request.resume();
      const site = siteFolder(sitesFolder, host);
      const file = site === undefined || url === undefined ? undefined : siteFile(site, url.pathname);
      if (file !== undefined) {
        response.writeHead(200, { "Content-Type": typeOf(file.path), "Content-Length": file.content.length });
        response.end(request.method === "HEAD" ? undefined : file.content);
        return;
      }
      if (site !== undefined && url?.pathname !== "/") {
        response.writeHead(404).end();
        return;
      }
      response.writeHead(200, { "Content-Type": "application/json" });
      response.end(
        JSON.stringify({
          host,
          path: request.url,
          method: request.method,
          local: request.socket.localAddress,
          remote: request.socket.remoteAddress,
        }),
      );
    }
  }
}

/** Any protocol that is asked for: from then on it sends back what it gets. */
function upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
  socket.on("error", () => socket.destroy());
  const key = request.headers["sec-websocket-key"];
  // RFC 6455, section 1.3.
  const accept = createHash("sha1").update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
  const lines = [
    "HTTP/1.1 101 Switching Protocols",
    "Connection: Upgrade",
    `Upgrade: ${request.headers.upgrade ?? ""}`,
    ...(key === undefined ? [] : [`Sec-WebSocket-Accept: ${accept}`]),
  ];
  socket.write(`${lines.join("\r\n")}\r\n\r\n`);
  socket.write(head);
  socket.pipe(socket);
}

function sendBytes(response: ServerResponse, bytes: number): void {
  const piece = Buffer.alloc(64 * 1024, "breakwater ");
  let left = bytes;
  const send = (): void => {
    while (left > 0) {
      const chunk = piece.subarray(0, Math.min(piece.length, left));
      left -= chunk.length;
      if (!response.write(chunk)) {
        response.once("drain", send);
        return;
      }
    }
    response.end();
  };
  send();
}

function siteFolder(sitesFolder: string, host: string): string | undefined {
  const name = host.replace(/:\d+$/, "").toLowerCase();
  const folder = join(sitesFolder, name);
  return /^[a-z0-9-]+(?:\.[a-z0-9-]+)+$/.test(name) && existsSync(folder) ? folder : undefined;
}

function siteFile(site: string, pathname: string): { readonly path: string; readonly content: Buffer } | undefined {
  const asked = join(site, pathname);
  if (!`${asked}/`.startsWith(`${site}/`)) return undefined;
  for (const path of [asked, join(asked, "index.html"), join(asked, "index.json")]) {
    if (statSync(path, { throwIfNoEntry: false })?.isFile() === true) return { path, content: readFileSync(path) };
  }
  return undefined;
}

function typeOf(path: string): string {
  if (path.endsWith(".html")) return "text/html";
  if (path.endsWith(".json")) return "application/json";
  return "application/octet-stream";
}
