import { once } from "node:events";
import { createReadStream } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { pipeline } from "node:stream/promises";

import { writeReport } from "./write-report.ts";

/** Serves a job's report on loopback until Ctrl-C or SIGTERM, written anew at each visit. `port` 0 = a free one. */
export async function serveReport(directory: string, port: number): Promise<void> {
  let written: Promise<string> | undefined;
  // Visits at the same time share what is being written.
  const write = (): Promise<string> =>
    (written ??= writeReport(directory)
      .then(({ html }) => html)
      .finally(() => (written = undefined)));
  const server = createServer((request, response) => {
    answer(request, response, write).catch((error: unknown) => response.destroy(error as Error));
  });
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  process.stdout.write(`http://127.0.0.1:${(server.address() as AddressInfo).port}/  (Ctrl-C ends it)\n`);
  const ended = new AbortController();
  const { signal } = ended;
  await Promise.race([once(process, "SIGINT", { signal }), once(process, "SIGTERM", { signal })]);
  ended.abort();
  server.close();
  server.closeAllConnections();
}

async function answer(
  { method, url, headers }: IncomingMessage,
  response: ServerResponse,
  write: () => Promise<string>,
): Promise<void> {
  // A site that gives its own name this address must not read the report.
  if (!/^(?:127\.0\.0\.1|localhost)(?::\d+)?$/.test(headers.host ?? "")) return refuse(response, 421);
  if (url !== "/") return refuse(response, 404);
  if (method !== "GET" && method !== "HEAD") return refuse(response, 405);
  const html = await write();
  response.writeHead(200, {
    "content-type": "text/html; charset=utf-8",
    "cache-control": "no-store",
    "content-security-policy": "frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "x-content-type-options": "nosniff",
  });
  if (method === "HEAD") response.end();
  else await pipeline(createReadStream(html), response);
}

function refuse(response: ServerResponse, status: number): void {
  response.writeHead(status).end();
}
