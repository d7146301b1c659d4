import { existsSync } from "node:fs";
import { rmdir } from "node:fs/promises";
import { join } from "node:path";

import { engineVersion } from "../src/engine-api.ts";
import { BackendError } from "../src/errors.ts";
import { engineSocket, privateEngine, startPrivateEngine, stopPrivateEngine } from "../src/engine.ts";
import { backendFolders, bridgeName, type BackendFolders } from "../src/folders.ts";
import { withLock } from "../src/lock.ts";
import { ensurePackages, hasApt } from "../src/packages.ts";
import { silentSteps, type Steps } from "../src/steps.ts";
import { debian12, debian13, ensureBaseImages } from "./base-images.ts";

/** What tests on Docker need, as environment variables. */
export interface DockerEnvironment {
  readonly DOCKER_HOST: string;
  /** Debian 12 with Python 3.11, pytest and git. */
  readonly BREAKWATER_IMAGE: string;
  /** Debian 13 with Python 3.13, pytest and git. */
  readonly BREAKWATER_OTHER_IMAGE: string;
}

export interface FoundEngine {
  readonly host: string;
  readonly version: string;
  /** Started by {@link up}, ended by {@link down}. */
  readonly isPrivate: boolean;
}

export const enginePackages: readonly string[] = ["docker.io", "iptables", "iproute2", "util-linux", "procps"];

/**
 * An engine with both base images: the one that answers already, else a private one. Running it again takes no time.
 *
 * Errors: `NEEDS_ROOT`, `MISSING_TOOL`, `ENGINE_UNREACHABLE` (a `DOCKER_HOST` that does not answer), `ENGINE_DIED`, `COMMAND_FAILED`, `TIMEOUT`.
 */
export async function up(
  steps: Steps = silentSteps,
  folders: BackendFolders = backendFolders(),
): Promise<DockerEnvironment> {
  const engine = await withLock(
    `${folders.run}/docker`,
    600_000,
    async () => (await findEngine(folders)) ?? (await startEngine(folders, steps)),
  );
  steps.done(`${engine.version} answers on ${engine.host}${engine.isPrivate ? " (private)" : ""}`);
  await ensureBaseImages(engine.host, folders.cache, steps);
  return environment(engine.host);
}

/** Ends the private engine and removes its state; images and archives stay in the cache folder. An engine that was found running is left alone. */
export async function down(steps: Steps = silentSteps, folders: BackendFolders = backendFolders()): Promise<void> {
  await withLock(`${folders.run}/docker`, 600_000, async () => {
    if (!existsSync(runFolder(folders))) {
      steps.done("no private engine");
      return;
    }
    await stopPrivateEngine({ runFolder: runFolder(folders), bridge: bridgeName(folders, "docker") });
    await rmdir(folders.run).catch(() => {}); // another backend's folder may be in it
    steps.done("private engine ended");
  });
}

/** What {@link up} would use as it is. */
export async function status(folders: BackendFolders = backendFolders()): Promise<FoundEngine | undefined> {
  return await findEngine(folders);
}

/** Error: `NOT_RUNNING`. */
export async function env(folders: BackendFolders = backendFolders()): Promise<DockerEnvironment> {
  const engine = await findEngine(folders);
  if (engine === undefined) {
    throw new BackendError("NOT_RUNNING", "no engine answers", { advice: "run: npm run backends -- docker up" });
  }
  return environment(engine.host);
}

function environment(host: string): DockerEnvironment {
  return { DOCKER_HOST: host, BREAKWATER_IMAGE: debian12.image, BREAKWATER_OTHER_IMAGE: debian13.image };
}

async function findEngine(folders: BackendFolders): Promise<FoundEngine | undefined> {
  const ours = `unix://${engineSocket(runFolder(folders))}`;
  const chosen = process.env["DOCKER_HOST"];
  if (chosen !== undefined && chosen !== "" && chosen !== ours) {
    const version = await engineVersion(chosen, 10_000);
    if (version === undefined) {
      throw new BackendError("ENGINE_UNREACHABLE", `DOCKER_HOST is ${chosen}, but no engine answers there`, {
        advice: "start that engine, or unset DOCKER_HOST",
      });
    }
    return { host: chosen, version, isPrivate: false };
  }
  const runtimeFolder = process.env["XDG_RUNTIME_DIR"];
  const sockets = [
    "/var/run/docker.sock",
    "/run/podman/podman.sock",
    ...(runtimeFolder ? [join(runtimeFolder, "docker.sock"), join(runtimeFolder, "podman/podman.sock")] : []),
  ];
  for (const host of [...sockets.filter(existsSync).map((path) => `unix://${path}`), ours]) {
    const version = await engineVersion(host);
    if (version !== undefined) return { host, version, isPrivate: host === ours };
  }
  return undefined;
}

async function startEngine(folders: BackendFolders, steps: Steps): Promise<FoundEngine> {
  if (process.getuid?.() !== 0 || !(await hasApt())) {
    throw new BackendError(
      "NEEDS_ROOT",
      "no engine answers (DOCKER_HOST, /var/run/docker.sock, Podman's socket), and none can be installed here",
      {
        advice:
          "start Docker Engine 20.10 or later, or `podman system service`; or run this as root on Debian or Ubuntu",
      },
    );
  }
  await withLock("breakwater-apt", 600_000, () => ensurePackages(enginePackages, steps));
  const host = await startPrivateEngine({
    runFolder: runFolder(folders),
    dataFolder: join(folders.cache, "docker"),
    bridge: bridgeName(folders, "docker"),
  });
  const version = await engineVersion(host);
  if (version === undefined || (await privateEngine(runFolder(folders))) === undefined) {
    throw new BackendError("ENGINE_DIED", `the engine on ${host} ended right after its start`);
  }
  return { host, version, isPrivate: true };
}

function runFolder(folders: BackendFolders): string {
  return join(folders.run, "docker");
}
