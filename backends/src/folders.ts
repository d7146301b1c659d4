import { createHash } from "node:crypto";
import { homedir } from "node:os";
import { join } from "node:path";

/** Where the backends keep things. Everything else on the machine belongs to somebody else. */
export interface BackendFolders {
  /** Outlives `git clean`, `down` and a restart of the machine: root file systems, the engine's images. */
  readonly cache: string;
  /** Sockets, process ids, logs; one folder per backend. Short, because a socket path has at most 107 bytes. */
  readonly run: string;
}

const defaultRunFolder = "/run/breakwater";

/**
 * `BREAKWATER_CACHE_FOLDER` and `BREAKWATER_RUN_FOLDER` give a second, independent set of backends.
 */
export function backendFolders(env: NodeJS.ProcessEnv = process.env): BackendFolders {
  return {
    cache: env["BREAKWATER_CACHE_FOLDER"] ?? join(env["XDG_CACHE_HOME"] || join(homedir(), ".cache"), "breakwater"),
    run: env["BREAKWATER_RUN_FOLDER"] ?? defaultRunFolder,
  };
}

/** The name of a backend's bridge and control group: another one for each set of folders, at most 15 characters. */
export function bridgeName(folders: BackendFolders, backend: "docker" | "network"): string {
  if (folders.run === defaultRunFolder) return backend === "docker" ? "breakwater0" : "breakwater1";
  return `bw-${createHash("sha256").update(`${folders.run} ${backend}`).digest("hex").slice(0, 8)}`;
}
