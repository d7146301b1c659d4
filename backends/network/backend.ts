import { spawn, type ChildProcess } from "node:child_process";
import { randomUUID } from "node:crypto";
import { existsSync, readlinkSync } from "node:fs";
import { mkdir, readFile, rm, rmdir, writeFile } from "node:fs/promises";
import { constants } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

import { debian12, debian13, ensureBaseImages } from "../docker/base-images.ts";
import { ensureNodeImage, nodeImage } from "../docker/node-image.ts";
import { enginePackages, type DockerEnvironment } from "../docker/backend.ts";
import { runCommand, type CommandOptions, type CommandResult } from "../src/command.ts";
import { engineSocket, privateEngine, startPrivateEngine, stopPrivateEngine } from "../src/engine.ts";
import { engineVersion } from "../src/engine-api.ts";
import { BackendError } from "../src/errors.ts";
import { backendFolders, bridgeName, type BackendFolders } from "../src/folders.ts";
import { withLock } from "../src/lock.ts";
import { ensurePackages, hasApt } from "../src/packages.ts";
import { listProcesses, type ProcessEntry, type ProcessIdentity } from "../src/processes.ts";
import { silentSteps, type Steps } from "../src/steps.ts";
import { fakeAddresses, fakeInternet, fakePorts, fakeRecords, tlsAddresses } from "./addresses.ts";
import { type Authority, ensureAuthority, ensureTrust } from "./authority.ts";
import type { Contact, Listener, ListenersSettings } from "./listeners.ts";
import { waysOut, type InterfaceTable, type Route } from "./sealed.ts";

export { fakeAddresses, fakeInternet, fakePorts } from "./addresses.ts";
export type { Contact, Listener } from "./listeners.ts";

/** What tests on the sealed engine need, as environment variables: the same as on any engine, and where to send something. */
export interface NetworkEnvironment extends DockerEnvironment {
  /** An address of "example.com" in the fake internet, with ports as in `fakePorts`. */
  readonly BREAKWATER_PUBLIC_ADDRESS: string;
  readonly BREAKWATER_PUBLIC_NAME: string;
  readonly BREAKWATER_METADATA_ADDRESS: string;
  /** The engine host's own address. */
  readonly BREAKWATER_HOST_ADDRESS: string;
  /** The Debian 12 image with Node and npm: a base for the egress gateway's image, and a box with clients. */
  readonly BREAKWATER_EGRESS_BASE_IMAGE: string;
}

/** Of the engine's bridge. */
export const boxAddresses: readonly string[] = ["10.213.0.1/24", "fd5b:213::1/64"];
const LOOPBACK = "127.0.0.1";
const boxPool = "10.214.0.0/16";
const boxPool6 = "fd5b:213::/64";

/**
 * An engine in network, mount and process namespaces of its own, with a small fake internet and no way out.
 * Running it again takes no time.
 *
 * Errors: `NEEDS_ROOT`, `MISSING_TOOL`, `ENGINE_DIED`, `WAY_OUT`, `COMMAND_FAILED`, `TIMEOUT`.
 */
export async function up(
  steps: Steps = silentSteps,
  folders: BackendFolders = backendFolders(),
): Promise<NetworkEnvironment> {
  await startSealed({ packages: enginePackages }, steps, folders);
  return environment(folders);
}

/** An engine for the namespaces. Default of `program`: Docker's. */
export interface SealedEngine {
  readonly packages: readonly string[];
  readonly program?: readonly string[];
  /** The host's name server. Default is the one on the host's own loopback. */
  readonly nameServer?: string;
}

/** What {@link up} does, for any engine. The folders say which backend it is. */
export async function startSealed(engine: SealedEngine, steps: Steps, folders: BackendFolders): Promise<void> {
  if (process.getuid?.() !== 0) {
    throw new BackendError("NEEDS_ROOT", `the ${folders.sealed} backend makes namespaces, which needs root`, {
      advice: "run it as root",
    });
  }
  const run = runFolder(folders);
  await withLock(run, 600_000, async () => {
    if (await hasApt())
      await withLock("breakwater-apt", 600_000, () => ensurePackages([...engine.packages, "openssl"], steps));
    await startPrivateEngine({
      runFolder: run,
      dataFolder: sealedDataFolder(folders),
      bridge: bridgeName(folders, folders.sealed),
      bridgeAddresses: boxAddresses,
      addressPool: boxPool,
      ownNetwork: [
        join(import.meta.dirname, "network.sh"),
        run,
        join(run, "network.config"),
        process.execPath,
        join(import.meta.dirname, "listeners.ts"),
      ],
      ...controlGroup(folders),
      ...(engine.program === undefined ? {} : { program: engine.program }),
      // Docker's resolver asks a server on the host's loopback from outside the box, whatever network the box has: the hardest case.
      files: await settingsFiles(run, folders, engine.nameServer ?? LOOPBACK),
      settings: { ipv6: true, "fixed-cidr-v6": boxPool6 },
    });
    steps.done("engine and fake internet run in namespaces of their own");
    await assertNoWayOut(folders);
    steps.done("no way out of them");
  });
  await ensureBaseImages(socket(folders), folders.cache, steps);
  await ensureTrust(socket(folders), await ensureAuthority(folders.cache), steps);
  await ensureNodeImage(socket(folders), steps);
}

/** Ends everything in the namespaces and removes their state; images stay in the cache folder. */
export async function down(steps: Steps = silentSteps, folders: BackendFolders = backendFolders()): Promise<void> {
  await withLock(runFolder(folders), 600_000, async () => {
    if (!existsSync(runFolder(folders))) {
      steps.done("nothing to end");
      return;
    }
    await stopPrivateEngine({
      runFolder: runFolder(folders),
      bridge: bridgeName(folders, folders.sealed),
      ...controlGroup(folders),
    });
    await rmdir(folders.run).catch(() => {}); // another backend's folder may be in it
    steps.done("engine and fake internet ended");
  });
}

/** The engine's name and socket, when it runs. */
export async function status(
  folders: BackendFolders = backendFolders(),
): Promise<{ readonly host: string; readonly version: string } | undefined> {
  // One that does not run has no socket and costs no time; one that runs may be busy.
  const version = await engineVersion(socket(folders), 30_000);
  return version === undefined ? undefined : { host: socket(folders), version };
}

/** Error: `NOT_RUNNING`. */
export async function env(folders: BackendFolders = backendFolders()): Promise<NetworkEnvironment> {
  if ((await status(folders)) === undefined) throw notRunning();
  return environment(folders);
}

/**
 * Proves that no packet can leave the backend's namespaces: call it before anything is sent.
 *
 * Errors: `WAY_OUT` with every reason, `NOT_RUNNING`.
 */
export async function assertNoWayOut(folders: BackendFolders = backendFolders()): Promise<void> {
  const first = await firstProcess(folders);
  const deadline = Date.now() + 5_000;
  // A box that starts or ends right now has one end of its wire in no process' namespace, and there may be such a box at any moment;
  // a wire that leads out stays. So each of those found at first must be accounted for, or gone, at some later look.
  let open = await findWaysOut(first);
  while (open.length > 0) {
    if (Date.now() > deadline) throw new BackendError("WAY_OUT", `the backend is not sealed: ${open.join("; ")}`);
    await sleep(200);
    const now = new Set(await findWaysOut(first));
    open = open.filter((reason) => now.has(reason));
  }
}

/**
 * Runs a program in the network of "the host", with this process' terminal, files and processes, and gives back its exit code:
 * for a whole test run whose own listeners are to be the host's.
 */
export async function runAttached(
  argv: readonly [string, ...string[]],
  folders: BackendFolders = backendFolders(),
): Promise<number> {
  await assertNoWayOut(folders);
  const first = await firstProcess(folders);
  const [program, ...args] = [...networkOnly(first.pid), ...argv] as [string, ...string[]];
  const child = spawn(program, args, { stdio: "inherit" });
  // A terminal sends these to the program as well; this process only waits for it.
  for (const name of ["SIGINT", "SIGTERM"] as const) process.on(name, () => child.kill(name));
  return await new Promise<number>((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code, killedBy) =>
      resolve(killedBy === null ? (code ?? 1) : 128 + constants.signals[killedBy]),
    );
  });
}

/** Runs a program in the network of "the host" or of the fake internet, and waits for it. */
export async function runInside(
  argv: readonly [string, ...string[]],
  options: CommandOptions & { readonly where?: "host" | "internet" },
  folders: BackendFolders = backendFolders(),
): Promise<CommandResult> {
  const { where = "host", ...rest } = options;
  const [enter, ...entering] = await enterCommand(where, folders);
  return await runCommand([enter, ...entering, ...argv], rest);
}

/** Services inside the namespaces, for as long as a test needs them. */
export interface Listening extends AsyncDisposable {
  /** Everything that has come in so far. */
  contacts(): Promise<readonly Contact[]>;
}

/**
 * Starts services on "the host" (for example on 0.0.0.0 and on 127.0.0.1) or in the fake internet. They listen when it returns.
 *
 * Errors: `NOT_RUNNING`, `COMMAND_FAILED` (the address is taken or not there).
 */
export async function startListeners(
  where: "host" | "internet",
  listeners: readonly Listener[],
  folders: BackendFolders = backendFolders(),
): Promise<Listening> {
  await assertNoWayOut(folders);
  const folder = join(runFolder(folders), `listeners-${randomUUID()}`);
  await mkdir(folder);
  const authority = await ensureAuthority(folders.cache);
  const settings: ListenersSettings = {
    ...listenersSettings(folder, "listeners", listeners, authority),
    endsWithInput: true,
  };
  await writeFile(join(folder, "listeners.json"), JSON.stringify(settings));
  const [program, ...entering] = await enterCommand(where, folders);
  const node = [process.execPath, "--conditions=@breakwater/source", join(import.meta.dirname, "listeners.ts")];
  const child = spawn(program, [...entering, ...node, join(folder, "listeners.json")], {
    stdio: ["pipe", "ignore", "pipe"],
  });
  let errors = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => (errors = (errors + text).slice(-4000)));
  const close = async (): Promise<void> => {
    await endChild(child);
    await rm(folder, { recursive: true, force: true });
  };
  const deadline = Date.now() + 60_000;
  while (!existsSync(settings.readyFile)) {
    if (child.exitCode !== null || Date.now() > deadline) {
      await close();
      throw new BackendError("COMMAND_FAILED", `listeners did not start: ${errors}`);
    }
    await sleep(20);
  }
  return { contacts: () => readContacts(settings.contactsFile), [Symbol.asyncDispose]: close };
}

/** Who has reached the fake internet, or the standing services of "the host", since `up`; oldest first. */
export async function contacts(
  where: "host" | "internet",
  folders: BackendFolders = backendFolders(),
): Promise<readonly Contact[]> {
  return await readContacts(join(runFolder(folders), `${where}.contacts`));
}

function environment(folders: BackendFolders): NetworkEnvironment {
  return {
    DOCKER_HOST: socket(folders),
    BREAKWATER_IMAGE: debian12.image,
    BREAKWATER_OTHER_IMAGE: debian13.image,
    BREAKWATER_PUBLIC_ADDRESS: fakeInternet.sites["example.com"].v4,
    BREAKWATER_PUBLIC_NAME: "example.com",
    BREAKWATER_METADATA_ADDRESS: fakeInternet.metadata.v4,
    BREAKWATER_HOST_ADDRESS: fakeInternet.host.v4,
    BREAKWATER_EGRESS_BASE_IMAGE: nodeImage,
  };
}

/** The files that network.sh and its services read, by name. */
export async function settingsFiles(
  run: string,
  folders: BackendFolders = backendFolders(),
  nameServer: string = fakeInternet.resolvers.v4[0],
): Promise<Record<string, string>> {
  const authority = await ensureAuthority(folders.cache);
  const { host, router, resolvers } = fakeInternet;
  const { v4, v6 } = fakeAddresses();
  const config = {
    HOST4: host.v4,
    HOST6: host.v6,
    ROUTER4: router.v4,
    ROUTER6: router.v6,
    ADDRESSES4: v4.join(" "),
    ADDRESSES6: v6.join(" "),
    BOXES6: boxPool6,
    RESOLVER4: nameServer,
  };
  const lines = Object.entries(config).map(([name, value]) => `${name}='${value}'\n`);
  // One socket per address: a datagram must be answered from the address that it was sent to.
  const withTls = new Set(tlsAddresses());
  const listeners = [...v4, ...v6, router.v4, router.v6].flatMap((address): Listener[] => [
    { protocol: "tcp", address, port: fakePorts.echo },
    { protocol: "udp", address, port: fakePorts.echo },
    { protocol: "tcp", address, port: fakePorts.ssh },
    { protocol: "http", address, port: fakePorts.http },
    { protocol: withTls.has(address) ? "https" : "tcp", address, port: fakePorts.https },
    { protocol: "tcp", address, port: fakePorts.other },
  ]);
  const names = [...resolvers.v4, ...resolvers.v6].map((address): Listener => ({ protocol: "dns", address, port: 53 }));
  const ofHost: readonly Listener[] = [
    { protocol: "tcp", address: "0.0.0.0", port: fakePorts.echo },
    { protocol: "tcp", address: "::", port: fakePorts.echo },
    { protocol: "udp", address: host.v4, port: fakePorts.echo },
    { protocol: "udp", address: host.v6, port: fakePorts.echo },
    { protocol: "tcp", address: LOOPBACK, port: fakePorts.hostLoopback },
    { protocol: "dns", address: LOOPBACK, port: 53 },
  ];
  return {
    "network.config": lines.join(""),
    "host.json": JSON.stringify(listenersSettings(run, "host", ofHost, authority)),
    "internet.json": JSON.stringify(listenersSettings(run, "internet", [...listeners, ...names], authority)),
  };
}

function listenersSettings(
  folder: string,
  name: string,
  listeners: readonly Listener[],
  { certificateFile, keyFile }: Authority,
): ListenersSettings {
  return {
    listeners,
    records: fakeRecords(),
    rebinding: fakeInternet.rebinding,
    certificateFile,
    keyFile,
    contactsFile: join(folder, `${name}.contacts`),
    readyFile: join(folder, `${name}.ready`),
  };
}

async function readContacts(path: string): Promise<readonly Contact[]> {
  const text = await readFile(path, "utf8").catch(() => "");
  // The last line may be in the middle of being written.
  return text
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line) as Contact);
}

async function findWaysOut(first: ProcessIdentity): Promise<string[]> {
  const enter = networkOnly(first.pid);
  const host = await interfaces(enter);
  // Every network namespace that a process of the backend lives in, but the host's.
  const others = new Map<string, number>();
  for (const { identity } of descendants(first)) {
    const network = networkOf(identity.pid);
    if (network !== undefined && network !== networkOf(first.pid)) others.set(network, identity.pid);
  }
  const tables = await Promise.all(
    [...others.values()].map(async (pid): Promise<InterfaceTable> => {
      // Its process may have ended since; then the namespace proves nothing.
      return await interfaces(networkOnly(pid)).catch(() => []);
    }),
  );
  const routes = await Promise.all(
    ["-4", "-6"].map(async (family) => {
      const listing = await runCommand([...enter, "ip", "-json", family, "route", "show", "default"], {
        timeoutMs: 10_000,
      });
      return JSON.parse(listing.stdout || "[]") as Route[];
    }),
  );
  return waysOut(host, tables, routes.flat());
}

async function interfaces(enter: readonly [string, ...string[]]): Promise<InterfaceTable> {
  const listing = await runCommand([...enter, "ip", "-json", "-details", "link", "show"], { timeoutMs: 10_000 });
  return JSON.parse(listing.stdout) as InterfaceTable;
}

/** All processes of the backend's process namespace, for they are all below its first one. */
function descendants(first: ProcessIdentity): ProcessEntry[] {
  const all = listProcesses();
  const found = new Map<number, ProcessEntry>();
  for (let before = -1; before !== found.size;) {
    before = found.size;
    for (const entry of all) {
      if (entry.parentPid === first.pid || found.has(entry.parentPid)) found.set(entry.identity.pid, entry);
    }
  }
  return [...found.values()];
}

function networkOf(pid: number): string | undefined {
  try {
    return readlinkSync(`/proc/${pid}/ns/net`);
  } catch {
    return undefined; // ended meanwhile
  }
}

async function firstProcess(folders: BackendFolders): Promise<ProcessIdentity> {
  const supervisor = await privateEngine(runFolder(folders));
  const first = listProcesses().find((entry) => entry.parentPid === supervisor?.pid);
  if (first === undefined) throw notRunning();
  return first.identity;
}

/** The internet's namespace is held by a sleeper, started by the first process itself. */
async function enterCommand(where: "host" | "internet", folders: BackendFolders): Promise<[string, ...string[]]> {
  const first = await firstProcess(folders);
  const enterHost: [string, ...string[]] = [
    "nsenter",
    "--target",
    String(first.pid),
    "--mount",
    "--net",
    "--root",
    "--wd",
  ];
  if (where === "host") return enterHost;
  const sleeper = listProcesses().find(
    (entry) => entry.parentPid === first.pid && entry.argv.join(" ") === "sleep infinity",
  );
  if (sleeper === undefined) throw notRunning();
  return ["nsenter", "--target", String(sleeper.identity.pid), "--mount", "--net", "--root", "--wd"];
}

/** Leaves files and processes as they are here. */
function networkOnly(pid: number): [string, ...string[]] {
  return ["nsenter", "--target", String(pid), "--net"];
}

async function endChild(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGKILL");
  await exited;
}

function notRunning(): BackendError {
  return new BackendError("NOT_RUNNING", "the backend with the fake internet is not running", {
    advice: "run: npm run backends -- network up, or podman up",
  });
}

export function runFolder(folders: BackendFolders): string {
  return join(folders.run, folders.sealed);
}

/** Podman takes the group only from whoever makes a box. */
function controlGroup(folders: BackendFolders): { readonly controlGroup?: string } {
  return folders.sealed === "podman" ? { controlGroup: "libpod_parent" } : {};
}

export function sealedDataFolder(folders: BackendFolders): string {
  return join(folders.cache, folders.sealed);
}

function socket(folders: BackendFolders): string {
  return `unix://${engineSocket(runFolder(folders))}`;
}
