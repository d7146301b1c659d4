/**
 * The emulator's process: `node server.ts` with DOCKER_HOST, PRIME_EMULATOR_FOLDER and PRIME_EMULATOR_NETWORK. Writes `state.json` into its
 * folder once it listens; TERM ends it, with everything that it has made.
 */
import { randomBytes } from "node:crypto";
import { rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import Dockerode from "dockerode";
import Fastify, { type FastifyInstance } from "fastify";
import { admin } from "./admin.ts";
import { ensureNetwork, removeBoxes, removeNetwork } from "./box.ts";
import { controlPlane } from "./control-plane.ts";
import { Emulator, observe } from "./emulator.ts";
import { gateway } from "./gateway.ts";

const MAX_JSON_BYTES = 4 * 1024 * 1024;

function required(name: string): string {
  const value = process.env[name];
  if (value === undefined || value === "") throw new Error(`${name} is not set`);
  return value;
}

const folder = required("PRIME_EMULATOR_FOLDER");
const network = required("PRIME_EMULATOR_NETWORK");
required("DOCKER_HOST");
const engine = new Dockerode();

// What an emulator of the same folder has left.
await removeBoxes(engine, folder);
await ensureNetwork(engine, folder, network);

const emulator = new Emulator({ apiKey: `pit_${randomBytes(24).toString("hex")}`, engine, emulator: folder, network });

function server(): FastifyInstance {
  return Fastify({ bodyLimit: MAX_JSON_BYTES, forceCloseConnections: true, keepAliveTimeout: 60_000 });
}

const control = server();
observe(control, emulator, "control", ({ headers }) => headers.authorization === `Bearer ${emulator.apiKey}`);
void control.register(async (app) => controlPlane(app, emulator), { prefix: "/api/v1" });
void control.register(async (app) => admin(app, emulator));

const data = server();
observe(data, emulator, "gateway", ({ headers }) => {
  const token = headers.authorization?.replace(/^Bearer /, "") ?? "";
  return emulator.sandboxes.all.some(({ tokens }) => (tokens.get(token) ?? 0) > Date.now());
});
void data.register(async (app) => gateway(app, emulator));

emulator.gatewayUrl = await data.listen({ host: "127.0.0.1", port: 0 });
const url = await control.listen({ host: "127.0.0.1", port: 0 });

const state = { pid: process.pid, url, gatewayUrl: emulator.gatewayUrl, apiKey: emulator.apiKey };
await writeFile(join(folder, "state.json.new"), JSON.stringify(state), { mode: 0o600 });
await rename(join(folder, "state.json.new"), join(folder, "state.json"));

let isEnding = false;
async function end(): Promise<void> {
  if (isEnding) return;
  isEnding = true;
  await emulator.sandboxes.close();
  await removeBoxes(engine, folder);
  await removeNetwork(engine, network);
  process.exit(0);
}
process.on("SIGTERM", () => void end());
process.on("SIGINT", () => void end());
