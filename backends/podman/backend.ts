import { join } from "node:path";

import * as sealed from "../network/backend.ts";
import { backendFolders, bridgeName, type BackendFolders } from "../src/folders.ts";
import { silentSteps, type Steps } from "../src/steps.ts";

/** Podman as root, and as a user without privileges. */
export type PodmanName = "podman" | "podman-rootless";

/** What tests on Podman need, as environment variables. */
export interface PodmanEnvironment extends sealed.NetworkEnvironment {
  /** The fake internet is this engine's, not the network backend's. */
  readonly BREAKWATER_SEALED: PodmanName;
}

/** Both network plugins and runtime are named: what Debian recommends instead needs services, or refuses some machines. */
const packages = [
  "podman",
  "runc",
  "containernetworking-plugins",
  "iptables",
  "iproute2",
  "util-linux",
  "procps",
] as const;
/** Whoever is not root gets more ids than one, and a network, by these. */
const rootlessPackages = ["uidmap", "slirp4netns"] as const;

/**
 * Debian's Podman by its Docker API, in network, mount and process namespaces of its own, with the network backend's small fake
 * internet and no way out. Running it again takes no time.
 *
 * Errors: `NEEDS_ROOT`, `MISSING_TOOL`, `ENGINE_DIED`, `WAY_OUT`, `COMMAND_FAILED`, `TIMEOUT`.
 */
export async function up(
  name: PodmanName,
  steps: Steps = silentSteps,
  folders: BackendFolders = backendFolders(),
): Promise<PodmanEnvironment> {
  const ours = of(name, folders);
  const isRootless = name === "podman-rootless";
  const script = join(import.meta.dirname, isRootless ? "rootless.sh" : "podman.sh");
  const program = [script, sealed.runFolder(ours), sealed.sealedDataFolder(ours), bridgeName(ours, name)];
  // Podman gives its boxes the host's own name servers, and has no resolver that could ask others for them.
  const [nameServer] = sealed.fakeInternet.resolvers.v4;
  const all = [...packages, ...(isRootless ? rootlessPackages : [])];
  await sealed.startSealed({ packages: all, program, nameServer }, steps, ours);
  return await env(name, folders);
}

/** Ends everything in the namespaces and removes their state; images stay in the cache folder. */
export async function down(
  name: PodmanName,
  steps: Steps = silentSteps,
  folders: BackendFolders = backendFolders(),
): Promise<void> {
  await sealed.down(steps, of(name, folders));
}

/** The engine's name and socket, when it runs. */
export async function status(
  name: PodmanName,
  folders: BackendFolders = backendFolders(),
): Promise<{ readonly host: string; readonly version: string } | undefined> {
  return await sealed.status(of(name, folders));
}

/** Error: `NOT_RUNNING`. */
export async function env(name: PodmanName, folders: BackendFolders = backendFolders()): Promise<PodmanEnvironment> {
  return { ...(await sealed.env(of(name, folders))), BREAKWATER_SEALED: name };
}

/** Runs a program in the network of the engine's host; gives back its exit code. */
export async function runAttached(
  name: PodmanName,
  argv: readonly [string, ...string[]],
  folders: BackendFolders = backendFolders(),
): Promise<number> {
  return await sealed.runAttached(argv, of(name, folders));
}

function of(name: PodmanName, folders: BackendFolders): BackendFolders {
  return { ...folders, sealed: name };
}
