import { randomBytes } from "node:crypto";
import { rm } from "node:fs/promises";
import { request, type ClientRequest, type IncomingMessage } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import {
  privateEngine,
  type PrivateEngineOptions,
  startPrivateEngine,
  stopPrivateEngine,
} from "@breakwater/backends/engine";
import { until } from "./engine.ts";

const LOAD_TIMEOUT_MS = 120_000;

/** An engine of one test's own, in namespaces of its own, with little room: it may be filled up and killed. */
export class SmallEngine implements AsyncDisposable {
  readonly host: string;
  readonly #options: PrivateEngineOptions;

  /** Why there can be none here; `null` = there can. */
  static unavailable(): string | null {
    return process.platform === "linux" && process.getuid?.() === 0 ? null : "not run: an engine of its own needs root";
  }

  /** With one image of another engine. */
  static async start(
    diskMb: number,
    imageFrom: { readonly host: string; readonly image: string },
  ): Promise<SmallEngine> {
    const name = `bw-${randomBytes(4).toString("hex")}`;
    // Short: a socket's path has at most 107 bytes.
    const runFolder = join(tmpdir(), name);
    const dataFolder = join(runFolder, "data");
    const options: PrivateEngineOptions = {
      runFolder,
      dataFolder,
      bridge: name,
      // The disk and the network are the namespaces' own and go with them.
      ownNetwork: [
        "/bin/sh",
        "-c",
        `mount -t proc proc /proc && ip link set lo up && mount -t tmpfs -o size=${diskMb}m disk "$0" && exec "$@"`,
        dataFolder,
      ],
      bridgeAddresses: ["10.214.0.1/24"],
      addressPool: "10.215.0.0/16",
    };
    const engine = new SmallEngine(await startPrivateEngine(options), options);
    try {
      await copyImage(imageFrom, engine.host);
    } catch (error) {
      await engine[Symbol.asyncDispose]();
      throw error;
    }
    return engine;
  }

  private constructor(host: string, options: PrivateEngineOptions) {
    this.host = host;
    this.#options = options;
  }

  /** Outright, boxes included: what happens when a machine loses its power. */
  async kill(): Promise<void> {
    const supervisor = await privateEngine(this.#options.runFolder);
    if (supervisor === undefined) throw new Error("the engine does not run");
    process.kill(supervisor.pid, "SIGKILL");
    await until("the engine's end", async () => (await privateEngine(this.#options.runFolder)) === undefined);
  }

  /** With an empty disk. */
  async restart(): Promise<void> {
    await startPrivateEngine(this.#options);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await stopPrivateEngine(this.#options);
    await rm(this.#options.runFolder, { recursive: true, force: true });
  }
}

/** One image from one engine to another. */
async function copyImage(from: { readonly host: string; readonly image: string }, to: string): Promise<void> {
  const source = await answer(call(from.host, "GET", `/images/${from.image}/get`, (it) => it.end()));
  const loaded = await answer(call(to, "POST", "/images/load?quiet=1", (it) => void pipeline(source, it)));
  let text = "";
  for await (const chunk of loaded.setEncoding("utf8")) text += String(chunk);
  if (/"error"/.test(text)) throw new Error(`loading ${from.image}: ${text.slice(-500)}`);
}

function call(
  host: string,
  method: string,
  path: string,
  send: (request: ClientRequest) => void,
): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const it = request({
      socketPath: new URL(host).pathname,
      method,
      path,
      headers: { Host: "docker", "Content-Type": "application/x-tar" },
      timeout: LOAD_TIMEOUT_MS,
    });
    it.on("response", resolve);
    it.on("timeout", () => it.destroy(new Error(`${method} ${path}: nothing within ${LOAD_TIMEOUT_MS} ms`)));
    it.on("error", reject);
    send(it);
  });
}

async function answer(pending: Promise<IncomingMessage>): Promise<IncomingMessage> {
  const response = await pending;
  if (response.statusCode !== 200) throw new Error(`the engine answered ${response.statusCode}`);
  return response;
}
