import { createHash } from "node:crypto";
import { mkdir, rename, rm } from "node:fs/promises";
import { join } from "node:path";

import { bootstrapDebian, type DebianRecipe } from "../docker/debian.ts";
import * as sealed from "../network/backend.ts";
import { runCommand } from "../src/command.ts";
import { BackendError } from "../src/errors.ts";
import { backendFolders, bridgeName, type BackendFolders } from "../src/folders.ts";
import { withLock } from "../src/lock.ts";
import { exists } from "../src/packages.ts";
import { silentSteps, type Steps } from "../src/steps.ts";

export type EngineName = "docker-26" | "docker-28";

/** What tests on a newer engine need, as environment variables. */
export interface EngineEnvironment extends sealed.NetworkEnvironment {
  /** The fake internet is this engine's, not the network backend's. */
  readonly BREAKWATER_SEALED: EngineName;
}

/** Debian 13 has engine 26, also in its updates, security and backports; the first Debian with engine 28 is 14, which is being made. */
const systems: Readonly<Record<EngineName, DebianRecipe>> = {
  "docker-26": { suite: "trixie", packages: ["docker.io", "iproute2", "procps"] },
  "docker-28": { suite: "forky", packages: ["docker.io", "iproute2", "procps"] },
};

/** What this machine itself needs: the engine brings everything else. */
const packages = ["iproute2", "util-linux", "procps"] as const;

/**
 * A newer Docker Engine than this machine's, with the containerd, runc and libraries of its own Debian, in network, mount and process namespaces of its own, with
 * the network backend's small fake internet and no way out. Running it again takes no time.
 *
 * Errors: `NEEDS_ROOT`, `MISSING_TOOL`, `ENGINE_DIED`, `ENGINE_REFUSED` (that Debian has another version by now), `WAY_OUT`, `COMMAND_FAILED`, `TIMEOUT`.
 */
export async function up(
  name: EngineName,
  steps: Steps = silentSteps,
  folders: BackendFolders = backendFolders(),
): Promise<EngineEnvironment> {
  const ours = of(name, folders);
  const system = await ensureSystem(systems[name], folders.cache, steps);
  const bridge = bridgeName(ours, name);
  const script = join(import.meta.dirname, "own-system.sh");
  const program = [
    script,
    system,
    sealed.runFolder(ours),
    sealed.sealedDataFolder(ours),
    bridge,
    ...sealed.boxAddresses,
  ];
  await sealed.startSealed({ packages, program }, steps, ours);
  const { version = "nothing" } = (await sealed.status(ours)) ?? {};
  const [, major] = name.split("-");
  if (!version.includes(` ${major}.`)) {
    throw new BackendError("ENGINE_REFUSED", `${systems[name].suite} has ${version}, not engine ${major}`, {
      advice: "name the Debian that has this engine in backends/engines/backend.ts",
    });
  }
  return await env(name, folders);
}

/** Ends everything in the namespaces and removes their state; images and the system stay in the cache folder. */
export async function down(
  name: EngineName,
  steps: Steps = silentSteps,
  folders: BackendFolders = backendFolders(),
): Promise<void> {
  await sealed.down(steps, of(name, folders));
}

/** The engine's name and socket, when it runs. */
export async function status(
  name: EngineName,
  folders: BackendFolders = backendFolders(),
): Promise<{ readonly host: string; readonly version: string } | undefined> {
  return await sealed.status(of(name, folders));
}

/** Error: `NOT_RUNNING`. */
export async function env(name: EngineName, folders: BackendFolders = backendFolders()): Promise<EngineEnvironment> {
  return { ...(await sealed.env(of(name, folders))), BREAKWATER_SEALED: name };
}

/** Runs a program in the network of the engine's host; gives back its exit code. */
export async function runAttached(
  name: EngineName,
  argv: readonly [string, ...string[]],
  folders: BackendFolders = backendFolders(),
): Promise<number> {
  return await sealed.runAttached(argv, of(name, folders));
}

/** The folder with the system, made when it is not there. */
async function ensureSystem(recipe: DebianRecipe, cacheFolder: string, steps: Steps): Promise<string> {
  const key = createHash("sha256")
    .update(JSON.stringify([recipe, process.arch]))
    .digest("hex")
    .slice(0, 16);
  const folder = join(cacheFolder, "systems");
  const system = join(folder, `${recipe.suite}-${key}`);
  await withLock(system, 1_200_000, async () => {
    if (await exists(system)) return;
    await mkdir(folder, { recursive: true });
    const [archive, unpacked] = [`${system}.tar`, `${system}.new`];
    try {
      await bootstrapDebian(recipe, archive, steps);
      await rm(unpacked, { recursive: true, force: true });
      await mkdir(unpacked);
      await runCommand(["tar", "--numeric-owner", "-C", unpacked, "-xf", archive], { timeoutMs: 300_000 });
      await rename(unpacked, system);
    } finally {
      await rm(archive, { force: true });
    }
    steps.done(`${recipe.suite} with ${recipe.packages.join(", ")} made from Debian's packages`);
  });
  return system;
}

function of(name: EngineName, folders: BackendFolders): BackendFolders {
  return { ...folders, sealed: name };
}
