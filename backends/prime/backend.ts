import { spawn } from "node:child_process";
import { openSync } from "node:fs";
import { createHash } from "node:crypto";
import { mkdir, mkdtemp, readFile, rm } from "node:fs/promises";
import type { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import Dockerode from "dockerode";
import * as docker from "../docker/backend.ts";
import { BackendError } from "../src/errors.ts";
import { backendFolders, type BackendFolders } from "../src/folders.ts";
import { withLock } from "../src/lock.ts";
import { identify, isAlive, type ProcessIdentity, terminate } from "../src/processes.ts";
import { silentSteps, type Steps } from "../src/steps.ts";
import { removeBoxes, removeNetwork } from "./box.ts";

/** What tests on the emulator need. */
export interface PrimeEnvironment extends docker.DockerEnvironment {
  readonly PRIME_API_KEY: string;
  readonly PRIME_API_BASE_URL: string;
  /** The emulator's own endpoint, for knobs, faults and the request log. */
  readonly BREAKWATER_PRIME_ADMIN: string;
  /** `host:port` of a TCP server that boxes reach if they may, and that sends back what it gets; empty if the engine is on another machine. */
  readonly BREAKWATER_PRIME_REACHABLE: string;
}

interface State {
  readonly pid: number;
  readonly url: string;
  readonly gatewayUrl: string;
  readonly apiKey: string;
  readonly reachable: string | null;
  readonly identity?: ProcessIdentity;
}

const START_TIMEOUT_MS = 120_000;
const END_TIMEOUT_MS = 60_000;

/**
 * The emulator, over the docker backend. Running it again takes no time.
 *
 * Errors: those of the docker backend, `COMMAND_FAILED` with the log's last lines.
 */
export async function up(
  steps: Steps = silentSteps,
  folders: BackendFolders = backendFolders(),
): Promise<PrimeEnvironment> {
  const engine = await docker.up(steps, folders);
  const folder = runFolder(folders);
  return await withLock(folder, 600_000, async () => {
    let state = await running(folder);
    if (state === undefined) {
      await mkdir(folder, { recursive: true, mode: 0o700 });
      state = await start(folder, engine.DOCKER_HOST);
      steps.done(`started the emulator (process ${state.pid})`);
    }
    steps.done(`control plane ${state.url}, gateway ${state.gatewayUrl}`);
    return environment(state, engine);
  });
}

/** Ends the emulator with every container that it has made. The engine is left running. */
export async function down(steps: Steps = silentSteps, folders: BackendFolders = backendFolders()): Promise<void> {
  const folder = runFolder(folders);
  await withLock(folder, 600_000, async () => {
    const state = await running(folder);
    const identity = state === undefined ? undefined : identify(state.pid);
    if (identity !== undefined) await terminate(identity, END_TIMEOUT_MS);
    const found = await docker.status(folders);
    if (found !== undefined) {
      const engine = new Dockerode(dockerOptions(found.host));
      const count = await removeBoxes(engine, folder);
      if (count > 0) steps.done(`removed ${count} containers`);
      await removeNetwork(engine, networkName(folder));
    }
    await rm(folder, { recursive: true, force: true });
    steps.done(state === undefined ? "no emulator" : "emulator ended");
  });
}

export async function status(folders: BackendFolders = backendFolders()): Promise<readonly string[]> {
  const state = await running(runFolder(folders));
  return state === undefined ? [] : [`control plane ${state.url}`, `gateway ${state.gatewayUrl}`];
}

/** An emulator for one test, whose faults and knobs nobody else meets. Disposing it removes all that it has made. */
export interface OwnEmulator extends AsyncDisposable {
  readonly apiKey: string;
  readonly url: string;
  /** A call to its own endpoint. */
  admin(method: "GET" | "POST" | "PATCH" | "DELETE", path: string, body?: unknown): Promise<unknown>;
}

export interface OwnEmulatorOptions {
  /**
   * `processes`: a tenth of the price, but nothing holds root in them, no limit is enforced and they have no network: for tests that trust what runs in
   * their boxes. Needs root. Default is `containers`.
   */
  readonly boxes?: "containers" | "processes";
}

export async function startEmulator(dockerHost: string, options: OwnEmulatorOptions = {}): Promise<OwnEmulator> {
  const folder = await mkdtemp(join(tmpdir(), "prime-emulator-"));
  const { pid, url, apiKey } = await start(folder, dockerHost, { ...options, isOwned: true });
  const identity = identify(pid);
  return {
    apiKey,
    url,
    async admin(method, path, body): Promise<unknown> {
      const response = await fetch(`${url}/admin${path}`, {
        method,
        ...(body === undefined ? {} : { headers: { "content-type": "application/json" }, body: JSON.stringify(body) }),
      });
      if (!response.ok) throw new Error(`${method} ${path} answered ${response.status}: ${await response.text()}`);
      return response.json();
    },
    async [Symbol.asyncDispose](): Promise<void> {
      if (identity !== undefined) await terminate(identity, END_TIMEOUT_MS);
      const engine = new Dockerode(dockerOptions(dockerHost));
      await removeBoxes(engine, folder);
      await removeNetwork(engine, networkName(folder));
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** Error: `NOT_RUNNING`. */
export async function env(folders: BackendFolders = backendFolders()): Promise<PrimeEnvironment> {
  const state = await running(runFolder(folders));
  if (state === undefined) {
    throw new BackendError("NOT_RUNNING", "the emulator does not run", { advice: "run: npm run backends -- prime up" });
  }
  return environment(state, await docker.env(folders));
}

function environment(state: State, engine: docker.DockerEnvironment): PrimeEnvironment {
  return {
    ...engine,
    PRIME_API_KEY: state.apiKey,
    PRIME_API_BASE_URL: state.url,
    BREAKWATER_PRIME_ADMIN: `${state.url}/admin`,
    BREAKWATER_PRIME_REACHABLE: state.reachable ?? "",
  };
}

async function start(
  folder: string,
  dockerHost: string,
  options: OwnEmulatorOptions & { readonly isOwned?: true } = {},
): Promise<State> {
  const { boxes, isOwned = false } = options;
  await rm(join(folder, "state.json"), { force: true });
  const log = openSync(join(folder, "log"), "a", 0o600);
  const server = fileURLToPath(new URL("server.ts", import.meta.url));
  const child = spawn(process.execPath, ["--conditions=@breakwater/source", server], {
    env: {
      ...process.env,
      DOCKER_HOST: dockerHost,
      PRIME_EMULATOR_FOLDER: folder,
      PRIME_EMULATOR_NETWORK: networkName(folder),
      ...(isOwned && { PRIME_EMULATOR_OWNED: "1" }),
      ...(boxes === "processes" && { PRIME_EMULATOR_IMAGES: join(backendFolders().cache, "prime-images") }),
    },
    // It ends when we do, however that is.
    stdio: [isOwned ? "pipe" : "ignore", log, log],
    detached: true,
    cwd: "/",
  });
  child.unref();
  (child.stdin as Socket | null)?.unref();
  const until = Date.now() + START_TIMEOUT_MS;
  for (;;) {
    const state = await running(folder);
    if (state !== undefined) return state;
    if (child.exitCode !== null || Date.now() > until) {
      const text = await readFile(join(folder, "log"), "utf8").catch(() => "");
      child.kill("SIGKILL");
      throw new BackendError("COMMAND_FAILED", `the emulator did not start:\n${text.slice(-2000)}`);
    }
    await sleep(50);
  }
}

/** The emulator of this folder, if it is one and lives. */
async function running(folder: string): Promise<State | undefined> {
  const text = await readFile(join(folder, "state.json"), "utf8").catch(() => undefined);
  if (text === undefined) return undefined;
  const state = JSON.parse(text) as State;
  const identity = identify(state.pid);
  if (identity === undefined || !isAlive(identity)) return undefined;
  const answers = await fetch(`${state.url}/admin/knobs`, { signal: AbortSignal.timeout(5000) }).then(
    ({ ok }) => ok,
    () => false,
  );
  return answers ? state : undefined;
}

function dockerOptions(host: string): Dockerode.DockerOptions {
  const url = new URL(host);
  return url.protocol === "unix:"
    ? { socketPath: url.pathname }
    : { host: url.hostname, port: Number(url.port || 2375), protocol: "http" };
}

function networkName(folder: string): string {
  return `breakwater-prime-${createHash("sha256").update(folder).digest("hex").slice(0, 8)}`;
}

function runFolder(folders: BackendFolders): string {
  return join(folders.run, "prime");
}
