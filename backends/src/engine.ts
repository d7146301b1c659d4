import { spawn } from "node:child_process";
import { closeSync, openSync, readFileSync, readlinkSync } from "node:fs";
import { mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

import { lastLines, runCommand } from "./command.ts";
import { engineAnswers, engineApi } from "./engine-api.ts";
import { BackendError } from "./errors.ts";
import { freeSubnet, overlaps } from "./subnets.ts";
import { ended, identify, isAlive, listProcesses, signal, terminate, type ProcessIdentity } from "./processes.ts";

/** An engine of our own, by default containerd and dockerd, with its own socket, folders, bridge and control group. */
export interface PrivateEngineOptions {
  /** Socket, process ids, logs. */
  readonly runFolder: string;
  /** Images and boxes; outlives the engine. */
  readonly dataFolder: string;
  readonly bridge: string;
  /** The control group of all boxes, where it has not the bridge's name. */
  readonly controlGroup?: string;
  /**
   * A program that sets up a network of the engine's own and then becomes its arguments: it is run as the first process of new
   * network and process namespaces. Default: the engine lives in the machine's network, under the machine's processes.
   */
  readonly ownNetwork?: readonly string[];
  /** What runs another engine than Docker's until TERM. */
  readonly program?: readonly string[];
  /** Text files for the run folder, by name, that are there before anything starts. */
  readonly files?: Readonly<Record<string, string>>;
  /** More settings for daemon.json. */
  readonly settings?: Readonly<Record<string, unknown>>;
  /** Addresses for the bridge with their prefix; default: a free private /24 of this machine. */
  readonly bridgeAddresses?: readonly string[];
  /** Where networks made later get their addresses; default: a free private /16 of this machine. */
  readonly addressPool?: string;
}

interface EngineState {
  readonly supervisor: ProcessIdentity;
  readonly bridge: string;
  readonly addressPool: string;
  /** Absent when the engine has a network of its own. */
  readonly before?: HostSettings;
}

/** What dockerd changes on the machine's network, as it was before. */
interface HostSettings {
  /** The network namespace that they are about. */
  readonly network: string;
  readonly ipForward: string;
  /** Programs whose FORWARD policy was no longer the kernel's own, ACCEPT. */
  readonly forwardPolicies: readonly FirewallRule["program"][];
  /** Another engine's chains were there. */
  readonly hadEngine: boolean;
}

const networkNamespace = "/proc/self/ns/net";
const ipForwardFile = "/proc/sys/net/ipv4/ip_forward";
const startTimeoutMs = 60_000;
const busyTimeoutMs = 60_000;

export function engineSocket(runFolder: string): string {
  return join(runFolder, "docker.sock");
}

/** Starts the engine unless it already runs, and returns its `DOCKER_HOST`. Clears away what a killed one left first. */
export async function startPrivateEngine(options: PrivateEngineOptions): Promise<string> {
  const host = `unix://${engineSocket(options.runFolder)}`;
  const state = await readState(options.runFolder);
  // One that runs may be busy with somebody's boxes: it is given time before it counts as broken.
  const isUp = state !== undefined && isAlive(state.supervisor) && (await engineAnswers(host, busyTimeoutMs));
  if (isUp) return host;
  await stopPrivateEngine(options);

  await mkdir(options.runFolder, { recursive: true, mode: 0o755 });
  await mkdir(options.dataFolder, { recursive: true, mode: 0o711 });
  const before = options.ownNetwork === undefined ? { before: await hostSettings() } : {};
  const bridgeAddresses = options.bridgeAddresses ?? [(await freeSubnet(24, [])).gateway];
  const addressPool = options.addressPool ?? (await freeSubnet(16, bridgeAddresses)).subnet;
  for (const [name, text] of Object.entries(options.files ?? {})) await writeFile(join(options.runFolder, name), text);
  await writeConfiguration(options, addressPool);

  const log = openSync(join(options.runFolder, "engine.log"), "a");
  const namespaces = options.ownNetwork === undefined ? [] : ["--net", "--uts", "--pid", "--fork", "--kill-child"];
  const script = (name: string): string => join(import.meta.dirname, name);
  const args = [
    "--mount",
    "--propagation",
    "unchanged",
    ...namespaces,
    script("own-root.sh"),
    ownRootFolder(options.runFolder),
    ...(options.ownNetwork ?? []),
    ...(options.program ?? [script("engine.sh"), options.runFolder, options.bridge, ...bridgeAddresses]),
  ];
  const child = spawn("unshare", args, {
    detached: true,
    stdio: ["ignore", log, log],
    cwd: "/",
    env: {
      PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
      HOME: "/root",
      TMPDIR: options.runFolder,
      ...(options.ownNetwork === undefined ? proxySettings() : {}),
    },
  });
  closeSync(log);
  const spawned = await new Promise<number>((resolve, reject) => {
    child.once("spawn", () => resolve(child.pid ?? 0));
    child.once("error", reject);
  });
  child.unref();
  const supervisor = identify(spawned);
  if (supervisor === undefined) throw await engineDied(options.runFolder);
  await writeState(options.runFolder, { supervisor, bridge: options.bridge, addressPool, ...before });

  const deadline = Date.now() + startTimeoutMs;
  while (!(await engineAnswers(host, startTimeoutMs))) {
    if (!isAlive(supervisor) || Date.now() > deadline) {
      const died = await engineDied(options.runFolder);
      await stopPrivateEngine(options);
      throw died;
    }
    await sleep(100);
  }
  return host;
}

/** Ends the engine, its boxes and what they left on the machine; images stay in the data folder. */
export async function stopPrivateEngine(
  options: Pick<PrivateEngineOptions, "runFolder" | "bridge" | "controlGroup">,
): Promise<void> {
  const state = await readState(options.runFolder);
  if (state !== undefined) {
    if (isAlive(state.supervisor)) await removeBoxes(`unix://${engineSocket(options.runFolder)}`);
    // Where it has a process namespace, everything in it ends with its first process.
    if (!(await terminate(state.supervisor, state.before === undefined ? 0 : 30_000))) {
      throw new BackendError(
        "TIMEOUT",
        `process ${state.supervisor.pid} (the engine in ${options.runFolder}) does not end`,
      );
    }
  }
  await killLeftovers(options.runFolder);
  // A namespace that this process is not in has its own rules, and goes with its last process.
  if (state?.before?.network === readlinkSync(networkNamespace)) await restoreNetwork(state, state.before);
  await removeControlGroups(options.controlGroup ?? options.bridge);
  await removeRunFolder(options.runFolder);
}

/** The engine's supervisor when it runs. */
export async function privateEngine(runFolder: string): Promise<ProcessIdentity | undefined> {
  const state = await readState(runFolder);
  return state !== undefined && isAlive(state.supervisor) ? state.supervisor : undefined;
}

async function writeConfiguration(options: PrivateEngineOptions, addressPool: string): Promise<void> {
  const run = (name: string): string => join(options.runFolder, name);
  const daemon = {
    "data-root": options.dataFolder,
    "exec-root": run("exec"),
    pidfile: run("dockerd.pid"),
    hosts: [`unix://${engineSocket(options.runFolder)}`],
    containerd: run("containerd.sock"),
    bridge: options.bridge,
    "default-address-pools": [{ base: addressPool, size: 24 }],
    "exec-opts": ["native.cgroupdriver=cgroupfs"],
    "cgroup-parent": `/${options.bridge}`,
    "live-restore": false,
    "shutdown-timeout": 10,
    "log-level": "warn",
    ...options.settings,
  };
  await writeFile(run("daemon.json"), `${JSON.stringify(daemon, undefined, 2)}\n`);
  const containerd = [
    "version = 2",
    `root = ${JSON.stringify(join(options.dataFolder, "containerd"))}`,
    `state = ${JSON.stringify(run("containerd"))}`,
    `disabled_plugins = ["io.containerd.grpc.v1.cri"]`,
    "[grpc]",
    `  address = ${JSON.stringify(run("containerd.sock"))}`,
  ];
  await writeFile(run("containerd.toml"), `${containerd.join("\n")}\n`);
}

/** A registry may be reachable through a proxy only. */
function proxySettings(): Record<string, string> {
  const settings = Object.entries(process.env).filter(([name]) => /^(https?|no)_proxy$/i.test(name));
  return Object.fromEntries(settings) as Record<string, string>;
}

async function engineDied(runFolder: string): Promise<BackendError> {
  const logs = await Promise.all(
    ["engine.log", "containerd.log", "dockerd.log", "podman.log"].map(async (name) => {
      const text = await readFile(join(runFolder, name), "utf8").catch(() => "");
      return text.trim() === "" ? "" : `--- ${name}\n${lastLines(text, 10)}\n`;
    }),
  );
  return new BackendError("ENGINE_DIED", `the private engine in ${runFolder} did not come up:\n${logs.join("")}`, {
    advice: "start an engine by hand and set DOCKER_HOST to its socket",
  });
}

/** A box would be given ten seconds to think about its engine's end, and its remains would outlive it in the data folder. */
async function removeBoxes(host: string): Promise<void> {
  try {
    const api = engineApi(host);
    const boxes = (await api.json("GET", "/containers/json?all=1")) as readonly { readonly Id: string }[];
    for (const box of boxes) await api.json("DELETE", `/containers/${box.Id}?force=1&v=1`);
    const networks = (await api.json("GET", "/networks")) as readonly { readonly Id: string; readonly Name: string }[];
    const builtIn = new Set(["bridge", "host", "none", "podman"]);
    for (const network of networks) if (!builtIn.has(network.Name)) await api.json("DELETE", `/networks/${network.Id}`);
    const { Volumes: volumes } = (await api.json("GET", "/volumes")) as {
      readonly Volumes: readonly { readonly Name: string }[] | null;
    };
    for (const volume of volumes ?? []) await api.json("DELETE", `/volumes/${volume.Name}`);
  } catch (error) {
    // An engine that no longer answers is ended all the same, and its boxes by killLeftovers.
    if (!(error instanceof BackendError)) throw error;
  }
}

/** Processes of an engine that was killed outright: everything that was started with a path in its run folder, and what that has started. */
async function killLeftovers(runFolder: string): Promise<void> {
  const isOurs = (argument: string): boolean => argument === runFolder || argument.startsWith(`${runFolder}/`);
  for (let round = 0; round < 20; round += 1) {
    const all = listProcesses();
    const programs = new Set(["containerd", "dockerd", "containerd-shim-runc-v2", "docker-proxy"]);
    const doomed = new Map(
      all
        .filter((entry) => programs.has(entry.argv[0]?.split("/").at(-1) ?? "") && entry.argv.some(isOurs))
        .map((entry) => [entry.identity.pid, entry.identity]),
    );
    for (let before = -1; before !== doomed.size;) {
      before = doomed.size;
      for (const entry of all) if (doomed.has(entry.parentPid)) doomed.set(entry.identity.pid, entry.identity);
    }
    if (doomed.size === 0) return;
    for (const identity of doomed.values()) signal(identity, "SIGKILL");
    for (const identity of doomed.values()) await ended(identity, 2_000);
  }
}

async function hostSettings(): Promise<HostSettings> {
  const rules = await allRules();
  return {
    network: readlinkSync(networkNamespace),
    ipForward: readFileSync(ipForwardFile, "utf8").trim(),
    forwardPolicies: rules
      .filter(({ rule }) => rule.startsWith("-P FORWARD ") && rule !== "-P FORWARD ACCEPT")
      .map(({ program }) => program),
    hadEngine: rules.some(({ rule }) => rule.startsWith("-N DOCKER")),
  };
}

/** Takes back the bridges and the rules that name them; and, where no other engine had them before, dockerd's own chains and settings. */
async function restoreNetwork(state: EngineState, before: HostSettings): Promise<void> {
  const bridges = new Set([state.bridge]);
  for (const { rule } of await allRules()) {
    // Bridges of networks that were made through the engine and never removed: known by an address of our pool.
    const [, address, bridge] = /-s (\S+) ! -o (br-\w+) /.exec(rule) ?? [];
    if (address !== undefined && bridge !== undefined && overlaps(address, state.addressPool)) bridges.add(bridge);
  }
  const links = await runCommand(["ip", "-o", "link", "show", "type", "bridge"], { timeoutMs: 10_000 });
  for (const bridge of bridges) {
    if (links.stdout.includes(`: ${bridge}:`)) {
      await runCommand(["ip", "link", "delete", bridge], { timeoutMs: 10_000, okExitCodes: [0, 1] });
    }
  }
  for (const rule of await allRules()) {
    if (rule.rule.startsWith("-A ") && rule.rule.split(" ").some((word) => bridges.has(word))) await deleteRule(rule);
  }
  if (before.hadEngine) return;
  for (const rule of await allRules()) if (/ -j DOCKER\S*$/.test(rule.rule)) await deleteRule(rule);
  const chains = (await allRules()).flatMap((rule) => {
    const chain = /^-N (DOCKER\S*)$/.exec(rule.rule)?.[1];
    return chain === undefined ? [] : [{ ...rule, chain }];
  });
  for (const { program, table, chain } of chains) await iptables(program, table, "-F", chain);
  for (const { program, table, chain } of chains) await iptables(program, table, "-X", chain);
  for (const program of ["iptables", "ip6tables"] as const) {
    if (!before.forwardPolicies.includes(program)) await iptables(program, "filter", "-P", "FORWARD", "ACCEPT");
  }
  await writeFile(ipForwardFile, before.ipForward);
}

interface FirewallRule {
  readonly program: "iptables" | "ip6tables";
  readonly table: string;
  /** As `iptables -S` writes it. */
  readonly rule: string;
}

async function allRules(): Promise<FirewallRule[]> {
  const rules: FirewallRule[] = [];
  for (const program of ["iptables", "ip6tables"] as const) {
    for (const table of ["filter", "nat", "raw"]) {
      const listing = await iptables(program, table, "-S");
      rules.push(
        ...listing
          .split("\n")
          .filter((rule) => rule !== "")
          .map((rule) => ({ program, table, rule })),
      );
    }
  }
  return rules;
}

async function deleteRule({ program, table, rule }: FirewallRule): Promise<void> {
  await iptables(program, table, "-D", ...rule.split(" ").slice(1));
}

/** Empty where the kernel lacks the table. */
async function iptables(program: FirewallRule["program"], table: string, ...args: readonly string[]): Promise<string> {
  const result = await runCommand([program, "-w", "10", "-t", table, ...args], {
    timeoutMs: 20_000,
    okExitCodes: [0, 1, 2, 3, 4],
  });
  return result.stdout;
}

async function removeControlGroups(name: string): Promise<void> {
  const folders = [
    "/sys/fs/cgroup",
    ...(
      await runCommand(["find", "/sys/fs/cgroup", "-maxdepth", "1", "-type", "d"], {
        timeoutMs: 10_000,
        okExitCodes: [0, 1],
      })
    ).stdout.split("\n"),
  ];
  for (const folder of folders) {
    if (folder === "") continue;
    await runCommand(["find", join(folder, name), "-depth", "-type", "d", "-exec", "rmdir", "{}", "+"], {
      timeoutMs: 10_000,
      okExitCodes: [0, 1],
    });
  }
}

/** Never through a mount: what is mounted there is not ours to empty. */
async function removeRunFolder(runFolder: string): Promise<void> {
  const mounts = (): string[] => mountPoints().filter((path) => path === runFolder || path.startsWith(`${runFolder}/`));
  if (mounts().includes(ownRootFolder(runFolder)))
    await runCommand(["umount", ownRootFolder(runFolder)], { timeoutMs: 10_000 });
  if (mounts().length > 0) {
    throw new BackendError(
      "COMMAND_FAILED",
      `not removing ${runFolder}: something is mounted at ${mounts().join(", ")}`,
      {
        advice: "unmount it, then run `down` again",
      },
    );
  }
  await rm(runFolder, { recursive: true, force: true });
}

function mountPoints(): string[] {
  return readFileSync("/proc/self/mountinfo", "utf8")
    .split("\n")
    .flatMap((line) => line.split(" ")[4] ?? []);
}

function ownRootFolder(runFolder: string): string {
  return join(runFolder, "own-root");
}

async function readState(runFolder: string): Promise<EngineState | undefined> {
  const text = await readFile(join(runFolder, "state.json"), "utf8").catch(() => undefined);
  return text === undefined ? undefined : (JSON.parse(text) as EngineState);
}

async function writeState(runFolder: string, state: EngineState): Promise<void> {
  const path = join(runFolder, "state.json");
  await writeFile(`${path}.new`, `${JSON.stringify(state, undefined, 2)}\n`);
  await rename(`${path}.new`, path);
}
