import { createServer, type IncomingMessage, request, type Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { GatewayBox, Reached } from "./box.ts";
import { checkServerName } from "./decide.ts";
import { canonicalHost } from "./hosts.ts";
import { type Arrival, type Asked, endToEnd, fieldsOf, pairs, readConnect, readRequest } from "./http-request.ts";
import { IDLE_TIMEOUT_MS, STREAM_BYTES } from "./network.ts";
import { discard, join, joinTls, readGreeting, refuseTls } from "./tls.ts";

const MAX_HEADER_BYTES = 16 * 1024;
/** How long the head of a request may take, from the connection or its first byte on. */
const HEADERS_TIMEOUT_MS = 30_000;
const CHECK_INTERVAL_MS = 5000;
/** How long a connection may wait for its next request. */
const KEEP_ALIVE_TIMEOUT_MS = 65_000;
/** Requests that a client may send ahead of the answers. apt sends ten. */
const MAX_PIPELINED = 16;

/** What a connection is, where it is not simply one to this port, and the requests that wait on it. */
interface ConnectionState {
  readonly arrival: Arrival;
  pending: number;
  tail: Promise<void>;
}

/**
 * HTTP for one port of one box. Each request of a connection is decided by itself and goes to a server over a connection of its own, written anew
 * from what the parser understood. Nothing of one request is ever read as a part of another.
 */
export function createHttpServer(box: GatewayBox, kind: "proxy" | "direct"): Server {
  const states = new WeakMap<Socket, ConnectionState>();
  const broken = new WeakSet<Socket>();
  const stateOf = (socket: Socket, arrival: Arrival = { kind }): ConnectionState => {
    const state = states.get(socket) ?? { arrival, pending: 0, tail: Promise.resolve() };
    states.set(socket, state);
    return state;
  };
  const options = {
    insecureHTTPParser: false,
    requireHostHeader: false, // said by ourselves, with its rule
    maxHeaderSize: MAX_HEADER_BYTES,
    headersTimeout: HEADERS_TIMEOUT_MS,
    requestTimeout: 0, // an upload may take long; silence may not
    connectionsCheckingInterval: CHECK_INTERVAL_MS,
    keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
    noDelay: true,
    highWaterMark: STREAM_BYTES,
    // Whoever asks for another protocol may also be answered in this one.
    shouldUpgradeCallback: wantsWebSocket,
  };
  const server = createServer(options);
  server.timeout = IDLE_TIMEOUT_MS;
  // A client that has said everything may end its direction and wait for the answer. (Node has this, and does not document it.)
  Object.assign(server, { httpAllowHalfOpen: true });

  const onRequest = (incoming: IncomingMessage, response: ServerResponse): void => {
    const state = stateOf(incoming.socket);
    if (++state.pending > MAX_PIPELINED) {
      incoming.socket.destroy();
      return;
    }
    // What goes wrong with a connection ends that connection.
    state.tail = state.tail
      .then(() => exchange(box, incoming, response, state.arrival))
      .catch(() => void incoming.socket.destroy())
      .finally(() => state.pending--);
  };
  server.on("request", onRequest).on("checkContinue", onRequest);

  server.on("connect", (incoming: IncomingMessage, socket: Socket, head: Buffer) => {
    // Nobody reads it until the way is free.
    socket.pause();
    if (head.length > 0) socket.unshift(head);
    const state = stateOf(socket);
    if (state.pending > 0 || state.arrival.kind !== "proxy") {
      box.deny("http", null, 80, "form");
      refuse(socket, 403, "CONNECT is for the proxy on port 3128");
      return;
    }
    tunnel(box, incoming, socket, (host) => {
      states.set(socket, { arrival: { kind: "tunnel", host }, pending: 0, tail: Promise.resolve() });
      server.emit("connection", socket);
      socket.resume();
    }).catch(() => socket.destroy());
  });

  server.on("upgrade", (incoming: IncomingMessage, socket: Socket, head: Buffer) => {
    const state = stateOf(socket);
    if (state.pending > 0) {
      socket.destroy();
    } else if (wantsWebSocket(incoming)) {
      socket.pause();
      if (head.length > 0) socket.unshift(head);
      upgrade(box, incoming, socket, state.arrival).catch(() => socket.destroy());
    } else {
      // Only where Node does not ask us before (22.20 and earlier): the same request again, without the wish.
      socket.unshift(Buffer.concat([withoutUpgrade(incoming), head]));
      server.emit("connection", socket);
    }
  });

  server.on("clientError", (error: NodeJS.ErrnoException, socket: Socket) => {
    if (broken.has(socket)) return;
    broken.add(socket);
    const isParserError = error.code?.startsWith("HPE_") ?? false;
    if (isParserError) box.deny(kind === "proxy" ? "proxy" : "http", null, kind === "proxy" ? 3128 : 80, "malformed");
    if (!socket.writable || socket.bytesWritten > 0) {
      socket.destroy();
      return;
    }
    const status = error.code === "HPE_HEADER_OVERFLOW" ? 431 : error.code === "ERR_HTTP_REQUEST_TIMEOUT" ? 408 : 400;
    refuse(socket, status, "not a request that can be read in one way only");
  });
  return server;
}

/** One request and its answer. Resolves when the answer is through or the connection has ended. */
async function exchange(
  box: GatewayBox,
  incoming: IncomingMessage,
  response: ServerResponse,
  arrival: Arrival,
): Promise<void> {
  const { socket } = incoming;
  // What was sent ahead by a client that is gone is not done any more.
  if (socket.destroyed) return;
  const finished = new Promise<void>((resolve) => {
    const onClose = (): void => {
      socket.off("close", onClose);
      resolve();
    };
    response.once("close", onClose);
    socket.once("close", onClose);
  });
  response.sendDate = false;
  const asked = readRequest(headOf(incoming), arrival);
  if (asked.outcome === "refused") {
    box.deny(viaOf(arrival), asked.host, asked.port, asked.rule);
    answer(response, incoming, asked.status, refusalText(asked.rule, asked.host, asked.port));
    return finished;
  }
  const reached = await box.reach(viaOf(arrival), asked.port, asked.host, socket);
  if (reached.outcome !== "reached") {
    answer(response, incoming, reached.outcome === "refused" ? 403 : 502, failureText(reached, asked));
    return finished;
  }

  const outgoing = send(incoming, reached.server, asked, ["Connection", "close"]);
  if (outgoing === null) {
    answer(response, incoming, 400, "the request cannot be passed on");
    return finished;
  }
  outgoing.on("continue", () => response.writeContinue());
  outgoing.on("error", () => {
    if (response.headersSent) response.destroy();
    else answer(response, incoming, 502, `${asked.host} broke the connection`);
  });
  outgoing.on("response", (reply) => relay(reply, response, incoming));
  incoming.pipe(outgoing);
  response.once("close", () => {
    outgoing.destroy();
    reached.server.destroy();
  });
  return finished;
}

/** CONNECT: a tunnel for TLS to port 443, or for requests to port 80, each of which is decided again. */
async function tunnel(
  box: GatewayBox,
  incoming: IncomingMessage,
  socket: Socket,
  serveRequests: (host: string) => void,
): Promise<void> {
  const asked = readConnect(headOf(incoming));
  if (asked.outcome === "refused") {
    box.deny("proxy", asked.host, asked.port, asked.rule);
    refuse(socket, asked.status, refusalText(asked.rule, asked.host, asked.port));
    return;
  }
  const reached = await box.reach("proxy", asked.port, asked.host, socket);
  if (reached.outcome !== "reached") {
    refuse(socket, reached.outcome === "refused" ? 403 : 502, failureText(reached, asked));
    return;
  }
  const { host, server, flow } = reached;
  socket.write("HTTP/1.1 200 Connection Established\r\n\r\n");
  if (asked.port === 80) {
    // That the host answers is known now. Each request gets a connection of its own.
    flow.release(socket);
    server.destroy();
    serveRequests(asked.host);
    return;
  }
  const greeting = await readGreeting(socket);
  let rule = greeting === null ? "malformed" : checkServerName(host, greeting.hello);
  if (greeting !== null && rule === null) {
    rule = await joinTls(socket, server, greeting.bytes, (second) => checkServerName(host, second));
  } else {
    server.destroy();
    refuseTls(socket);
  }
  if (rule !== null) box.deny("proxy", asked.host, asked.port, rule);
}

/** A WebSocket: what follows the server's own consent is passed on as it is. */
async function upgrade(box: GatewayBox, incoming: IncomingMessage, socket: Socket, arrival: Arrival): Promise<void> {
  const response = new ServerResponse(incoming);
  response.shouldKeepAlive = false;
  const asked = readRequest(headOf(incoming), arrival);
  const hasBody = ["content-length", "transfer-encoding"].some(
    (name) => fieldsOf(incoming.rawHeaders)(name).length > 0,
  );
  if (asked.outcome === "refused" || hasBody) {
    const [status, rule] = asked.outcome === "refused" ? [asked.status, asked.rule] : ([400, "framing"] as const);
    box.deny(viaOf(arrival), asked.host, asked.port, rule);
    refuse(socket, status, refusalText(rule, asked.host, asked.port));
    return;
  }
  const reached = await box.reach(viaOf(arrival), asked.port, asked.host, socket);
  if (reached.outcome !== "reached") {
    refuse(socket, reached.outcome === "refused" ? 403 : 502, failureText(reached, asked));
    return;
  }
  const { server } = reached;
  const outgoing = send(incoming, server, asked, ["Connection", "Upgrade", "Upgrade", "websocket"]);
  if (outgoing === null) {
    server.destroy();
    refuse(socket, 400, "the request cannot be passed on");
    return;
  }
  outgoing.on("error", () => {
    if (socket.bytesWritten === 0) refuse(socket, 502, `${asked.host} broke the connection`);
    else socket.destroy();
  });
  outgoing.on("response", (reply) => {
    response.assignSocket(socket);
    response.sendDate = false;
    response.once("finish", () => {
      response.detachSocket(socket);
      socket.end();
      discard(socket);
    });
    relay(reply, response, incoming);
  });
  outgoing.on("upgrade", (reply: IncomingMessage, upstream: Socket, head: Buffer) => {
    const lines = [`HTTP/1.1 101 ${reply.statusMessage ?? ""}`, "Connection: Upgrade", "Upgrade: websocket"];
    for (const [name, value] of pairs(endToEnd(reply.rawHeaders))) lines.push(`${name}: ${value}`);
    socket.write(Buffer.from(`${lines.join("\r\n")}\r\n\r\n`, "latin1"));
    if (head.length > 0) upstream.unshift(head);
    join(socket, upstream);
  });
  outgoing.end();
}

/** The request as the parser understood it, on its way to the server. `null` if it cannot be written. */
function send(
  incoming: IncomingMessage,
  server: Socket,
  asked: Extract<Asked, { readonly outcome: "asked" }>,
  hop: readonly string[],
): ReturnType<typeof request> | null {
  const headers: string[] = ["Host", asked.host];
  for (const [name, value] of pairs(endToEnd(incoming.rawHeaders))) {
    if (name.toLowerCase() !== "host") headers.push(name, value);
  }
  const isChunked = fieldsOf(incoming.rawHeaders)("transfer-encoding").length > 0;
  try {
    const outgoing = request({
      createConnection: () => server,
      method: incoming.method,
      path: asked.path,
      headers: [...headers, ...(isChunked ? ["Transfer-Encoding", "chunked"] : []), ...hop],
      insecureHTTPParser: false,
      maxHeaderSize: 4 * MAX_HEADER_BYTES,
    });
    outgoing.flushHeaders();
    return outgoing;
  } catch {
    return null;
  }
}

/** The server's answer on its way to the box. */
function relay(reply: IncomingMessage, response: ServerResponse, incoming: IncomingMessage): void {
  // An early answer is the last one of its connection: nobody will read the rest of the request.
  if (!incoming.complete) response.shouldKeepAlive = false;
  try {
    response.writeHead(reply.statusCode ?? 502, reply.statusMessage, endToEnd(reply.rawHeaders));
  } catch {
    response.destroy();
    return;
  }
  response.flushHeaders();
  reply.on("error", () => response.destroy()).pipe(response);
  // Cut short, it must not look complete.
  reply.once("close", () => {
    if (!reply.complete) response.destroy();
  });
}

function answer(response: ServerResponse, incoming: IncomingMessage, status: number, text: string): void {
  if (response.destroyed || response.headersSent) return;
  if (!incoming.complete) response.shouldKeepAlive = false;
  const body = `${text}\n`;
  response.writeHead(status, ["Content-Type", "text/plain", "Content-Length", String(Buffer.byteLength(body))]);
  response.end(body);
  incoming.resume();
}

/** An answer on a connection that no parser reads any more, and its end. */
function refuse(socket: Socket, status: number, text: string): void {
  const reasons: Readonly<Record<number, string>> = {
    400: "Bad Request",
    403: "Forbidden",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    502: "Bad Gateway",
  };
  const body = `${text}\n`;
  const fields = ["Content-Type: text/plain", `Content-Length: ${Buffer.byteLength(body)}`, "Connection: close"];
  socket.end(`HTTP/1.1 ${status} ${reasons[status] ?? "Refused"}\r\n${fields.join("\r\n")}\r\n\r\n${body}`);
  discard(socket);
}

function wantsWebSocket({ rawHeaders }: IncomingMessage): boolean {
  const wishes = fieldsOf(rawHeaders)("upgrade");
  return wishes.length === 1 && wishes[0]?.toLowerCase() === "websocket";
}

function withoutUpgrade(incoming: IncomingMessage): Buffer {
  const lines = [`${incoming.method} ${incoming.url} HTTP/${incoming.httpVersion}`];
  const isWish = (name: string): boolean => ["upgrade", "http2-settings"].includes(name.toLowerCase());
  for (const [name, value] of pairs(incoming.rawHeaders)) {
    if (isWish(name)) continue;
    const tokens = value.split(",").map((token) => token.trim());
    const kept = name.toLowerCase() === "connection" ? tokens.filter((token) => !isWish(token)).join(", ") : value;
    if (kept !== "") lines.push(`${name}: ${kept}`);
  }
  return Buffer.from(`${lines.join("\r\n")}\r\n\r\n`, "latin1");
}

function headOf(incoming: IncomingMessage): Parameters<typeof readRequest>[0] {
  const { method = "", url = "", httpVersion, rawHeaders } = incoming;
  return { method, url, httpVersion, rawHeaders };
}

function viaOf(arrival: Arrival): "proxy" | "http" {
  return arrival.kind === "direct" ? "http" : "proxy";
}

function refusalText(rule: string, host: string | null, port: number): string {
  const known = host === null ? null : canonicalHost(host);
  return `refused by the network policy: ${rule}${known === null ? "" : ` (${known.text}:${port})`}`;
}

function failureText(
  reached: Exclude<Reached, { readonly outcome: "reached" }>,
  asked: { readonly host: string; readonly port: number },
): string {
  return reached.outcome === "refused"
    ? refusalText(reached.rule, asked.host, asked.port)
    : `${asked.host} ${reached.outcome === "unresolved" ? "has no address" : "does not answer"}`;
}
