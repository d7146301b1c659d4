import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type WebSocket, WebSocketServer } from "ws";

/** An API server that does to an exec what a real one cannot be made to do. */
export interface FakeApiServer extends AsyncDisposable {
  readonly kubeconfig: string;
  /** The query of each upgrade that was asked for, refused ones included. */
  readonly asked: readonly URLSearchParams[];
}

export interface FakeExec {
  /** Statuses to answer the first upgrades with. */
  readonly refuse?: readonly number[];
  readonly connected: (socket: WebSocket) => void;
}

/** Sends a message on a channel. */
export function send(socket: WebSocket, channel: number, content: string | Uint8Array = ""): void {
  socket.send(Buffer.concat([Buffer.from([channel]), Buffer.from(content)]));
}

export async function fakeApiServer({ refuse = [], connected }: FakeExec): Promise<FakeApiServer> {
  const asked: URLSearchParams[] = [];
  const refusals = [...refuse];
  const http = createServer();
  const sockets = new WebSocketServer({
    noServer: true,
    handleProtocols: (offered) => [...offered][0] ?? false,
    perMessageDeflate: false,
  });
  http.on("upgrade", (request: IncomingMessage, connection, head) => {
    asked.push(new URL(request.url ?? "", "http://fake").searchParams);
    const status = refusals.shift();
    if (status === undefined) {
      sockets.handleUpgrade(request, connection, head, connected);
      return;
    }
    const body = JSON.stringify({
      kind: "Status",
      code: status,
      reason: "Refused",
      message: `the fake says ${status}`,
    });
    connection.end(`HTTP/1.1 ${status} No\r\nContent-Length: ${body.length}\r\nConnection: close\r\n\r\n${body}`);
  });
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  const folder = await mkdtemp(join(tmpdir(), "breakwater-fake-api-"));
  const kubeconfig = join(folder, "kubeconfig");
  const server = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
  const config = {
    apiVersion: "v1",
    kind: "Config",
    clusters: [{ name: "fake", cluster: { server, "insecure-skip-tls-verify": true } }],
    users: [{ name: "fake", user: { token: "fake" } }],
    contexts: [{ name: "fake", context: { cluster: "fake", user: "fake" } }],
    "current-context": "fake",
  };
  await writeFile(kubeconfig, JSON.stringify(config));
  return {
    kubeconfig,
    asked,
    [Symbol.asyncDispose]: async () => {
      for (const socket of sockets.clients) socket.terminate();
      http.closeAllConnections();
      await new Promise((resolve) => http.close(resolve));
      await rm(folder, { recursive: true });
    },
  };
}
