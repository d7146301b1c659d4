import { once } from "node:events";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { afterEach, expect, it } from "vitest";
import { until } from "../test/gateway.ts";
import { relayDns } from "./network.ts";

const servers: Server[] = [];
const sockets: Socket[] = [];
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
  for (const server of servers.splice(0)) server.close();
});

/** A name server, as `resolver.getServers()` names it. */
async function nameServer(serve: (socket: Socket) => void): Promise<string> {
  const server = createServer((socket) => {
    sockets.push(socket.on("error", () => undefined));
    serve(socket);
  });
  servers.push(server);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const answering = (socket: Socket): void =>
  void socket.on("data", (chunk: Buffer) => socket.write(Buffer.concat([Buffer.from([0, 3]), chunk.subarray(2, 5)])));

it("a question goes to the first name server that answers", async () => {
  const broken = await nameServer((socket) => socket.destroy());
  const working = await nameServer(answering);
  const answer = await relayDns(Buffer.from("question"), [broken, working], AbortSignal.timeout(5000));
  expect(String(answer)).toBe("que");
  await expect(relayDns(Buffer.from("question"), [broken], AbortSignal.timeout(5000))).rejects.toThrow("ended");
});

it("an end ends it at once, and no other name server is asked", async () => {
  let asked = 0;
  const mute = await nameServer((socket) => socket.on("data", () => asked++));
  const other = await nameServer(answering);
  const end = new AbortController();
  const relayed = Promise.allSettled([relayDns(Buffer.from("question"), [mute, other], end.signal)]);
  await until(() => asked === 1);
  end.abort(new Error("over"));
  expect(await relayed).toMatchObject([{ status: "rejected", reason: { message: "over" } }]);
  await until(() => sockets.every(({ closed }) => closed));
  expect(sockets).toHaveLength(1);
});
