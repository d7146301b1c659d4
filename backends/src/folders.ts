import { homedir } from "node:os";
import { join } from "node:path";

/** Where the backends keep things. Everything else on the machine belongs to somebody else. */
export interface BackendFolders {
  /** Outlives `git clean`, `down` and a restart of the machine: root file systems, the engine's images. */
  readonly cache: string;
  /** Sockets, process ids, logs; one folder per backend. Short, because a socket path has at most 107 bytes. */
  readonly run: string;
}

export const defaultRunFolder = "/run/breakwater";

/**
 * `BREAKWATER_CACHE_FOLDER` and `BREAKWATER_RUN_FOLDER` give a second, independent set of backends.
 */
export function backendFolders(env: NodeJS.ProcessEnv = process.env): BackendFolders {
  return {
    cache: env["BREAKWATER_CACHE_FOLDER"] ?? join(env["XDG_CACHE_HOME"] || join(homedir(), ".cache"), "breakwater"),
    run: env["BREAKWATER_RUN_FOLDER"] ?? defaultRunFolder,
  };
}
