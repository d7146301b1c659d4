import { createHash } from "node:crypto";
import { homedir } from "node:os";
import { join } from "node:path";

/** Where the backends keep things. Everything else on the machine belongs to somebody else. */
export interface BackendFolders {
  /** Outlives `git clean`, `down` and a restart of the machine: root file systems, the engine's images. */
  readonly cache: string;
  /** Sockets, process ids, logs; one folder per backend. Short, because a socket path has at most 107 bytes. */
  readonly run: string;
  /** Which sealed engine is meant where there are several. */
  readonly sealed: SealedName;
}

/** The backends whose engine lives in namespaces of its own, with the fake internet. */
export type SealedName = (typeof sealedNames)[number];

const sealedNames = [
  "network",
  "podman",
  "kubernetes",
  "kubernetes-open",
  "docker-26",
  "docker-28",
  "podman-rootless",
] as const;

const defaultRunFolder = "/run/breakwater";

/**
 * `BREAKWATER_CACHE_FOLDER` and `BREAKWATER_RUN_FOLDER` give a second, independent set of backends; `BREAKWATER_SEALED` is part of
 * what the `env` of sealed backends prints.
 */
export function backendFolders(env: NodeJS.ProcessEnv = process.env): BackendFolders {
  return {
    cache: env["BREAKWATER_CACHE_FOLDER"] ?? join(env["XDG_CACHE_HOME"] || join(homedir(), ".cache"), "breakwater"),
    run: env["BREAKWATER_RUN_FOLDER"] ?? defaultRunFolder,
    sealed: sealedNames.find((name) => name === env["BREAKWATER_SEALED"]) ?? "network",
  };
}

/** The name of a backend's bridge and control group: another one for each set of folders, at most 15 characters. */
export function bridgeName(folders: BackendFolders, backend: "docker" | SealedName): string {
  if (folders.run === defaultRunFolder) return `breakwater${["docker", ...sealedNames].indexOf(backend)}`;
  return `bw-${createHash("sha256").update(`${folders.run} ${backend}`).digest("hex").slice(0, 8)}`;
}
