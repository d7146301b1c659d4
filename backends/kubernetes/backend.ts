import { spawn } from "node:child_process";
import { closeSync, existsSync, openSync } from "node:fs";
import { mkdir, readdir, readFile, rename, rm, rmdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

import * as docker from "../docker/backend.ts";
import { ensureFixtureImages } from "../docker/fixtures.ts";
import { fakeInternet } from "../network/addresses.ts";
import { assertNoWayOut, runAttached, settingsFiles } from "../network/backend.ts";
import { lastLines, runCommand, type CommandResult } from "../src/command.ts";
import { BackendError } from "../src/errors.ts";
import { backendFolders, bridgeName, type BackendFolders } from "../src/folders.ts";
import { withLock } from "../src/lock.ts";
import { ensurePackages, exists, hasApt } from "../src/packages.ts";
import { ended, identify, isAlive, listProcesses, signal, type ProcessIdentity } from "../src/processes.ts";
import { silentSteps, type Steps } from "../src/steps.ts";
import { type ClusterSettings, componentNames, PAUSE_IMAGE, startComponent, writeConfiguration } from "./components.ts";
import { ensureHyperkube } from "./hyperkube.ts";
import { helperImage, type ImageArchive, saveImages } from "./images.ts";
import { writePki } from "./pki.ts";

/** `kubernetes`: network policies are enforced. `kubernetes-open`: they are accepted and nothing happens, as on many clusters. */
export type ClusterName = "kubernetes" | "kubernetes-open";

/** What tests on Kubernetes need, as environment variables. */
export interface KubernetesEnvironment {
  /** Of the restricted user that the driver's tests run as: nothing outside one namespace. */
  readonly KUBECONFIG: string;
  /** Of an administrator, for what tests do behind the driver's back. */
  readonly BREAKWATER_ADMIN_KUBECONFIG: string;
  readonly BREAKWATER_HELPER_IMAGE: string;
  readonly BREAKWATER_IMAGE: string;
  readonly BREAKWATER_OTHER_IMAGE: string;
  /** JSON: the fixture images by name. */
  readonly BREAKWATER_FIXTURE_IMAGES: string;
  readonly BREAKWATER_HOST_ADDRESS: string;
  /** Whose fake internet is meant. */
  readonly BREAKWATER_SEALED: ClusterName;
}

interface ClusterState {
  readonly supervisor: ProcessIdentity;
  readonly environment?: KubernetesEnvironment;
}

const packages = [
  "containerd",
  "runc",
  "containernetworking-plugins",
  "ipset",
  "iptables",
  "iproute2",
  "util-linux",
  "procps",
  "openssl",
] as const;

const nodeName = "breakwater-node";
/** Made by the manifest that users apply as well. */
export const boxNamespace = "breakwater";
const manifests = [
  join(import.meta.dirname, "../../packages/runtime-k8s/deploy/breakwater.yaml"),
  join(import.meta.dirname, "test-users.yaml"),
] as const;
const fixtures = ["entrypoint", "entrypoint-recording", "non-root", "path", "no-shell"] as const;
const startTimeoutMs = 120_000;

/**
 * A real Kubernetes of one node in namespaces of its own, with the network backend's small fake internet and no way out. Running it again takes no
 * time. The first time Kubernetes is built from its published modules, which takes minutes.
 *
 * Errors: `NEEDS_ROOT`, `MISSING_TOOL`, `ENGINE_DIED`, `WAY_OUT`, `COMMAND_FAILED`, `TIMEOUT`.
 */
export async function up(
  name: ClusterName,
  steps: Steps = silentSteps,
  folders: BackendFolders = backendFolders(),
): Promise<KubernetesEnvironment> {
  const existing = existingCluster(name);
  if (existing !== undefined) return existing;
  if (process.getuid?.() !== 0) {
    throw new BackendError("NEEDS_ROOT", "the kubernetes backend makes namespaces, which needs root", {
      advice: "run it as root, or name a cluster that runs already with BREAKWATER_KUBECONFIG",
    });
  }
  const run = runFolder(name, folders);
  return await withLock(run, 3_600_000, async () => {
    if (await hasApt()) await withLock("breakwater-apt", 600_000, () => ensurePackages(packages, steps));
    const cache = join(folders.cache, "kubernetes");
    const program = await ensureHyperkube(cache, steps);
    const { archive, images } = await testImages(cache, steps, folders);
    if (!(await isReady(name, folders))) {
      await end(name, folders);
      await start(name, folders, program, steps);
    }
    const settings = await clusterSettings(name, folders);
    const helper = await helperImage(run, PAUSE_IMAGE);
    for (const each of [helper, archive]) await importImages(settings, each, steps);
    await applyManifests(settings, steps);
    await assertNoWayOut(sealed(name, folders));
    const environment: KubernetesEnvironment = {
      ...images,
      KUBECONFIG: join(run, "pki/driver.kubeconfig"),
      BREAKWATER_ADMIN_KUBECONFIG: join(run, "pki/admin.kubeconfig"),
      BREAKWATER_HELPER_IMAGE: helper.image,
      BREAKWATER_HOST_ADDRESS: fakeInternet.host.v4,
      BREAKWATER_SEALED: name,
    };
    const state = await readState(run);
    if (state !== undefined) await writeState(run, { ...state, environment });
    return environment;
  });
}

/** Ends the cluster with all of its boxes and removes its state; the built program and the images stay in the cache folder. */
export async function down(
  name: ClusterName,
  steps: Steps = silentSteps,
  folders: BackendFolders = backendFolders(),
): Promise<void> {
  const run = runFolder(name, folders);
  await withLock(run, 600_000, async () => {
    if (!existsSync(run)) {
      steps.done("nothing to end");
      return;
    }
    await end(name, folders);
    await rmdir(folders.run).catch(() => {}); // another backend's folder may be in it
    steps.done("cluster ended");
  });
}

/** Lines for people; empty when it does not run. */
export async function status(
  name: ClusterName,
  folders: BackendFolders = backendFolders(),
): Promise<readonly string[]> {
  const existing = existingCluster(name);
  if (existing !== undefined) return [`an existing cluster, ${existing.KUBECONFIG}`];
  if (!(await isReady(name, folders))) return [];
  const settings = await clusterSettings(name, folders);
  const nodes = await kubectl(settings, ["get", "nodes", "--no-headers"]);
  return [nodes.stdout.trim(), join(settings.runFolder, "pki/driver.kubeconfig")];
}

/** Error: `NOT_RUNNING`. */
export async function env(
  name: ClusterName,
  folders: BackendFolders = backendFolders(),
): Promise<KubernetesEnvironment> {
  const existing = existingCluster(name);
  if (existing !== undefined) return existing;
  const state = await readState(runFolder(name, folders));
  if (state?.environment === undefined || !isAlive(state.supervisor)) throw notRunning(name);
  return state.environment;
}

/** Runs a program in the network of the node, with this process' terminal, files and processes; gives back its exit code. */
export async function runInside(
  name: ClusterName,
  argv: readonly [string, ...string[]],
  folders: BackendFolders = backendFolders(),
): Promise<number> {
  return await runAttached(argv, sealed(name, folders));
}

/** What the manifest of users makes is called the same everywhere; all else of a cluster that is not ours is named by variables. */
function existingCluster(name: ClusterName): KubernetesEnvironment | undefined {
  const kubeconfig = process.env["BREAKWATER_KUBECONFIG"];
  if (kubeconfig === undefined || kubeconfig === "" || name !== "kubernetes") return undefined;
  const variable = (key: string): string => process.env[key] ?? "";
  return {
    KUBECONFIG: kubeconfig,
    BREAKWATER_ADMIN_KUBECONFIG: variable("BREAKWATER_ADMIN_KUBECONFIG"),
    BREAKWATER_HELPER_IMAGE: variable("BREAKWATER_HELPER_IMAGE"),
    BREAKWATER_IMAGE: variable("BREAKWATER_IMAGE"),
    BREAKWATER_OTHER_IMAGE: variable("BREAKWATER_OTHER_IMAGE"),
    BREAKWATER_FIXTURE_IMAGES: variable("BREAKWATER_FIXTURE_IMAGES"),
    BREAKWATER_HOST_ADDRESS: "",
    BREAKWATER_SEALED: name,
  };
}

async function testImages(
  cacheFolder: string,
  steps: Steps,
  folders: BackendFolders,
): Promise<{
  readonly archive: ImageArchive;
  readonly images: Pick<
    KubernetesEnvironment,
    "BREAKWATER_IMAGE" | "BREAKWATER_OTHER_IMAGE" | "BREAKWATER_FIXTURE_IMAGES"
  >;
}> {
  const engine = await docker.up(silentSteps, folders);
  const built = await ensureFixtureImages(engine.DOCKER_HOST, fixtures);
  const { BREAKWATER_IMAGE, BREAKWATER_OTHER_IMAGE } = engine;
  const names = [BREAKWATER_IMAGE, BREAKWATER_OTHER_IMAGE, ...Object.values(built)];
  const archive = await withLock(cacheFolder, 600_000, () => saveImages(engine.DOCKER_HOST, names, cacheFolder, steps));
  return {
    archive,
    images: { BREAKWATER_IMAGE, BREAKWATER_OTHER_IMAGE, BREAKWATER_FIXTURE_IMAGES: JSON.stringify(built) },
  };
}

async function start(name: ClusterName, folders: BackendFolders, program: string, steps: Steps): Promise<void> {
  const run = runFolder(name, folders);
  await mkdir(join(run, "bin"), { recursive: true, mode: 0o755 });
  for (const each of [...componentNames, "kubectl"]) {
    await symlink(each === "containerd" ? "/usr/bin/containerd" : program, join(run, "bin", each));
  }
  for (const [file, text] of Object.entries(await settingsFiles(run, sealed(name, folders))))
    await writeFile(join(run, file), text);
  const nodeAddress = fakeInternet.host.v4;
  await writePki(join(run, "pki"), {
    // From within the node's network only: there is no other way to it.
    server: "https://127.0.0.1:6443",
    nodeName,
    nodeAddress,
    namespace: boxNamespace,
  });
  await startNamespaces(name, folders);
  steps.done("namespaces and fake internet are there");

  const settings = await clusterSettings(name, folders);
  await writeConfiguration(settings);
  for (const component of ["etcd", "containerd", "kube-apiserver"] as const) startComponent(settings, component);
  await until(settings, "containerd answers", () => ctr(settings, ["version"]));
  await importImages(settings, await helperImage(run, PAUSE_IMAGE), silentSteps);
  await until(settings, "the API server is ready", () => kubectl(settings, ["get", "--raw", "/readyz"]));
  for (const component of ["kube-controller-manager", "kube-scheduler", "kubelet"] as const) {
    startComponent(settings, component);
  }
  await applyManifests(settings, silentSteps);
  await until(settings, "the node is ready", () =>
    kubectl(settings, ["wait", "--for=condition=Ready", `node/${nodeName}`, "--timeout=5s"]),
  );
  await until(settings, "pods can be made", () =>
    kubectl(settings, ["get", "serviceaccount", "default", "--namespace", boxNamespace]),
  );
  if (name === "kubernetes") {
    startComponent(settings, "netpol");
    await until(settings, "network policies are enforced", () =>
      inside(settings, ["iptables", "-w", "-S", "KUBE-ROUTER-FORWARD"]),
    );
  }
  steps.done("Kubernetes runs");
}

async function startNamespaces(name: ClusterName, folders: BackendFolders): Promise<void> {
  const run = runFolder(name, folders);
  const log = openSync(join(run, "cluster.log"), "a");
  const script = (path: string): string => join(import.meta.dirname, path);
  const namespaces = [
    "--mount",
    "--propagation",
    "unchanged",
    "--net",
    "--uts",
    "--ipc",
    "--pid",
    "--fork",
    "--kill-child",
  ];
  const ownRoot = [script("../src/own-root.sh"), join(run, "own-root")];
  const listeners = [process.execPath, script("../network/listeners.ts")];
  const network = [script("../network/network.sh"), run, join(run, "network.config"), ...listeners];
  const cluster = [script("cluster.sh"), run, nodeName, controlGroup(name, folders), "4g"];
  const child = spawn("unshare", [...namespaces, ...ownRoot, ...network, ...cluster], {
    detached: true,
    stdio: ["ignore", log, log],
    cwd: "/",
    env: { PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", HOME: "/root" },
  });
  closeSync(log);
  const pid = await new Promise<number>((resolve, reject) => {
    child.once("spawn", () => resolve(child.pid ?? 0));
    child.once("error", reject);
  });
  child.unref();
  const supervisor = identify(pid);
  if (supervisor === undefined) throw await clusterDied(run);
  await writeState(run, { supervisor });
  const deadline = Date.now() + startTimeoutMs;
  while (!existsSync(join(run, "ready"))) {
    if (!isAlive(supervisor) || Date.now() > deadline) throw await clusterDied(run);
    await sleep(50);
  }
}

async function end(name: ClusterName, folders: BackendFolders): Promise<void> {
  const run = runFolder(name, folders);
  const state = await readState(run);
  if (state !== undefined) {
    // Everything of the cluster lives below the first process of its process namespace, and ends with it.
    const first = firstProcess(state.supervisor);
    for (const identity of [first, state.supervisor]) {
      if (identity === undefined) continue;
      signal(identity, "SIGKILL");
      if (!(await ended(identity, 30_000)))
        throw new BackendError("TIMEOUT", `process ${identity.pid} (the cluster in ${run}) does not end`);
    }
  }
  await removeControlGroups(controlGroup(name, folders));
  await removeRunFolder(run);
}

async function removeControlGroups(group: string): Promise<void> {
  const root = "/sys/fs/cgroup";
  const parents = [root, ...(await readdir(root)).map((entry) => join(root, entry))];
  for (const parent of parents) {
    const folder = join(parent, group);
    // Processes that were just killed hold their groups for a moment.
    for (let round = 0; round < 100 && existsSync(folder); round += 1) {
      if (round > 0) await sleep(50);
      await runCommand(["find", folder, "-depth", "-type", "d", "-exec", "rmdir", "{}", "+"], {
        timeoutMs: 10_000,
        okExitCodes: [0, 1],
      });
    }
  }
}

/** Never through a mount: what is mounted there is not ours to empty. */
async function removeRunFolder(run: string): Promise<void> {
  const mounts = (await readFile("/proc/self/mountinfo", "utf8"))
    .split("\n")
    .flatMap((line) => line.split(" ")[4] ?? []);
  const inIt = mounts.filter((path) => path === run || path.startsWith(`${run}/`));
  if (inIt.length > 0) {
    throw new BackendError("COMMAND_FAILED", `not removing ${run}: something is mounted at ${inIt.join(", ")}`, {
      advice: "unmount it, then run `down` again",
    });
  }
  await rm(run, { recursive: true, force: true });
}

async function isReady(name: ClusterName, folders: BackendFolders): Promise<boolean> {
  const state = await readState(runFolder(name, folders));
  if (state === undefined || firstProcess(state.supervisor) === undefined) return false;
  const settings = await clusterSettings(name, folders);
  const ready = await kubectl(settings, ["wait", "--for=condition=Ready", `node/${nodeName}`, "--timeout=60s"]).catch(
    () => undefined,
  );
  return ready !== undefined;
}

async function importImages(settings: ClusterSettings, archive: ImageArchive, steps: Steps): Promise<void> {
  const there = (await ctr(settings, ["--namespace", "k8s.io", "images", "list", "--quiet"])).stdout.split("\n");
  const marker = join(settings.runFolder, `imported-${archive.file.split("/").at(-1)}`);
  const isThere = (image: string): boolean => there.some((name) => name === image || name === `docker.io/${image}`);
  // Another image of the same name is another archive, or has another name.
  if (archive.images.every(isThere) && (archive.file.startsWith(settings.runFolder) || (await exists(marker)))) return;
  await ctr(settings, ["--namespace", "k8s.io", "images", "import", archive.file], 600_000);
  await writeFile(marker, "");
  steps.done(`${archive.images.length} images imported`);
}

async function applyManifests(settings: ClusterSettings, steps: Steps): Promise<void> {
  for (const file of manifests) await kubectl(settings, ["apply", "--filename", file]);
  steps.done("namespace and rights are there");
}

async function kubectl(settings: ClusterSettings, args: readonly string[]): Promise<CommandResult> {
  const { runFolder } = settings;
  const program = [join(runFolder, "bin/kubectl"), "--kubeconfig", join(runFolder, "pki/admin.kubeconfig")];
  return await inside(settings, [...program, ...args]);
}

async function ctr(settings: ClusterSettings, args: readonly string[], timeoutMs?: number): Promise<CommandResult> {
  return await inside(settings, ["ctr", "--address", join(settings.runFolder, "containerd.sock"), ...args], timeoutMs);
}

async function inside(settings: ClusterSettings, argv: readonly string[], timeoutMs = 90_000): Promise<CommandResult> {
  const [program, ...entering] = settings.enter;
  return await runCommand([program, ...entering, ...argv], { timeoutMs });
}

async function until(settings: ClusterSettings, what: string, attempt: () => Promise<unknown>): Promise<void> {
  const deadline = Date.now() + startTimeoutMs;
  for (;;) {
    try {
      await attempt();
      return;
    } catch (error) {
      if (!(error instanceof BackendError)) throw error;
      if (Date.now() > deadline) throw await clusterDied(settings.runFolder, `${what}: ${error.message}`);
      await sleep(100);
    }
  }
}

async function clusterDied(run: string, reason = "its namespaces could not be made"): Promise<BackendError> {
  const names = ["cluster.log", ...componentNames.map((name) => `logs/${name}.log`)];
  const logs = await Promise.all(
    names.map(async (name) => {
      const text = await readFile(join(run, name), "utf8").catch(() => "");
      return text.trim() === "" ? "" : `--- ${name}\n${lastLines(text, 5)}\n`;
    }),
  );
  return new BackendError("ENGINE_DIED", `the cluster in ${run} did not come up: ${reason}\n${logs.join("")}`);
}

async function clusterSettings(name: ClusterName, folders: BackendFolders): Promise<ClusterSettings> {
  const run = runFolder(name, folders);
  const state = await readState(run);
  const first = state === undefined ? undefined : firstProcess(state.supervisor);
  if (first === undefined) throw notRunning(name);
  const namespaces = ["--mount", "--net", "--uts", "--ipc", "--pid", "--root", "--wd"];
  return {
    runFolder: run,
    nodeName,
    nodeAddress: fakeInternet.host.v4,
    controlGroup: controlGroup(name, folders),
    enter: ["nsenter", "--target", String(first.pid), ...namespaces, "--"],
  };
}

function firstProcess(supervisor: ProcessIdentity): ProcessIdentity | undefined {
  if (!isAlive(supervisor)) return undefined;
  return listProcesses().find((entry) => entry.parentPid === supervisor.pid)?.identity;
}

async function readState(run: string): Promise<ClusterState | undefined> {
  const text = await readFile(join(run, "state.json"), "utf8").catch(() => undefined);
  return text === undefined ? undefined : (JSON.parse(text) as ClusterState);
}

async function writeState(run: string, state: ClusterState): Promise<void> {
  const path = join(run, "state.json");
  await writeFile(`${path}.new`, `${JSON.stringify(state, undefined, 2)}\n`);
  await rename(`${path}.new`, path);
}

function sealed(name: ClusterName, folders: BackendFolders): BackendFolders {
  return { ...folders, sealed: name };
}

function controlGroup(name: ClusterName, folders: BackendFolders): string {
  return bridgeName(folders, name);
}

function runFolder(name: ClusterName, folders: BackendFolders): string {
  return join(folders.run, name);
}

function notRunning(name: ClusterName): BackendError {
  return new BackendError("NOT_RUNNING", "the cluster is not running", {
    advice: `run: npm run backends -- ${name} up`,
  });
}
