import { join } from "node:path";

import * as sealed from "../network/backend.ts";
import { backendFolders, type BackendFolders } from "../src/folders.ts";
import { silentSteps, type Steps } from "../src/steps.ts";

/** What tests on Podman need, as environment variables. */
export interface PodmanEnvironment extends sealed.NetworkEnvironment {
  /** The fake internet is this engine's, not the network backend's. */
  readonly BREAKWATER_SEALED: "podman";
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

/**
 * Debian's Podman as root, by its Docker API, in network, mount and process namespaces of its own, with the network backend's small fake
 * internet and no way out. Running it again takes no time.
 *
 * Errors: `NEEDS_ROOT`, `MISSING_TOOL`, `ENGINE_DIED`, `WAY_OUT`, `COMMAND_FAILED`, `TIMEOUT`.
 */
export async function up(
  steps: Steps = silentSteps,
  folders: BackendFolders = backendFolders(),
): Promise<PodmanEnvironment> {
  const ours = ofPodman(folders);
  const script = join(import.meta.dirname, "podman.sh");
  const program = [script, sealed.runFolder(ours), sealed.sealedDataFolder(ours)];
  await sealed.startSealed({ packages, program }, steps, ours);
  return await env(folders);
}

/** Ends everything in the namespaces and removes their state; images stay in the cache folder. */
export async function down(steps: Steps = silentSteps, folders: BackendFolders = backendFolders()): Promise<void> {
  await sealed.down(steps, ofPodman(folders));
}

/** The engine's name and socket, when it runs. */
export async function status(
  folders: BackendFolders = backendFolders(),
): Promise<{ readonly host: string; readonly version: string } | undefined> {
  return await sealed.status(ofPodman(folders));
}

/** Error: `NOT_RUNNING`. */
export async function env(folders: BackendFolders = backendFolders()): Promise<PodmanEnvironment> {
  return { ...(await sealed.env(ofPodman(folders))), BREAKWATER_SEALED: "podman" };
}

/** Runs a program in the network of the engine's host; gives back its exit code. */
export async function runAttached(
  argv: readonly [string, ...string[]],
  folders: BackendFolders = backendFolders(),
): Promise<number> {
  return await sealed.runAttached(argv, ofPodman(folders));
}

function ofPodman(folders: BackendFolders): BackendFolders {
  return { ...folders, sealed: "podman" };
}
