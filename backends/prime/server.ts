/**
 * The emulator's process: `node server.ts` with DOCKER_HOST, PRIME_EMULATOR_FOLDER and PRIME_EMULATOR_NETWORK, or in its place PRIME_EMULATOR_IMAGES, a
 * folder for unpacked images: boxes are then processes of this machine and no containers. Writes `state.json` into its
 * folder once it listens; TERM ends it, with everything that it has made.
 */
import { randomBytes } from "node:crypto";
import { rename, rm, writeFile } from "node:fs/promises";
import { type AddressInfo, createServer } from "node:net";
import { join } from "node:path";
import Dockerode from "dockerode";
import { type Boxes, ContainerBoxes, ensureNetwork, removeBoxes, removeNetwork } from "./box.ts";
import { Emulator } from "./emulator.ts";
import { ProcessBoxes } from "./process-boxes.ts";
import { servers } from "./servers.ts";

function required(name: string): string {
  const value = process.env[name];
  if (value === undefined || value === "") throw new Error(`${name} is not set`);
  return value;
}

const folder = required("PRIME_EMULATOR_FOLDER");
const images = process.env["PRIME_EMULATOR_IMAGES"];
required("DOCKER_HOST");
const engine = new Dockerode();

interface Machine {
  readonly boxes: Boxes;
  /** A server that open boxes reach and closed ones do not: it sends back what it gets. `null`: boxes reach nothing. */
  readonly reachable: string | null;
  readonly end: () => Promise<void>;
}

/** The boxes' internet is this one port of their bridge. On an engine elsewhere there is none. */
async function listen(host: string): Promise<string | null> {
  const echo = createServer((socket) => {
    socket.on("error", () => undefined);
    socket.pipe(socket);
  });
  const listening = new Promise<boolean>((resolve) => {
    echo.once("error", () => resolve(false));
    echo.listen({ host, port: 0 }, () => resolve(true));
  });
  return (await listening) ? `${host}:${(echo.address() as AddressInfo).port}` : null;
}

async function containers(): Promise<Machine> {
  const network = required("PRIME_EMULATOR_NETWORK");
  // What an emulator of the same folder has left.
  await removeBoxes(engine, folder);
  const reachable = await listen(await ensureNetwork(engine, folder, network));
  const end = async (): Promise<void> => {
    await removeBoxes(engine, folder);
    await removeNetwork(engine, network);
  };
  return { boxes: new ContainerBoxes(engine, folder, network), reachable, end };
}

const machine: Machine =
  images === undefined
    ? await containers()
    : { boxes: new ProcessBoxes(engine, folder, images), reachable: null, end: async () => undefined };
const emulator = new Emulator(`pit_${randomBytes(24).toString("hex")}`, machine.boxes);

const { control, data } = servers(emulator);

emulator.gatewayUrl = await data.listen({ host: "127.0.0.1", port: 0 });
const url = await control.listen({ host: "127.0.0.1", port: 0 });

const state = {
  pid: process.pid,
  url,
  gatewayUrl: emulator.gatewayUrl,
  apiKey: emulator.apiKey,
  reachable: machine.reachable,
};
await writeFile(join(folder, "state.json.new"), JSON.stringify(state), { mode: 0o600 });
await rename(join(folder, "state.json.new"), join(folder, "state.json"));

let isEnding = false;
async function end(): Promise<void> {
  if (isEnding) return;
  isEnding = true;
  await emulator.sandboxes.close();
  await machine.end();
  if (process.env["PRIME_EMULATOR_OWNED"] === "1") await rm(folder, { recursive: true, force: true });
  process.exit(0);
}
if (process.env["PRIME_EMULATOR_OWNED"] === "1") process.stdin.resume().once("close", () => void end());
process.on("SIGTERM", () => void end());
process.on("SIGINT", () => void end());
