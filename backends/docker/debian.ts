import { join } from "node:path";

import { runCommand } from "../src/command.ts";
import { BackendError } from "../src/errors.ts";
import { withLock } from "../src/lock.ts";
import { ensurePackages, hasApt } from "../src/packages.ts";
import type { Steps } from "../src/steps.ts";

/** A small Debian: its required packages, and these. */
export interface DebianRecipe {
  readonly suite: "bookworm" | "trixie" | "forky";
  readonly packages: readonly string[];
}

const path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/**
 * Makes a root file system from Debian's packages, by the machine's own mirror, as a tar archive at this path.
 *
 * Errors: `NEEDS_ROOT`, `MISSING_TOOL` (a machine without apt), `COMMAND_FAILED`, `TIMEOUT`.
 */
export async function bootstrapDebian(recipe: DebianRecipe, archive: string, steps: Steps): Promise<void> {
  const { suite, packages } = recipe;
  if (process.getuid?.() !== 0)
    throw new BackendError("NEEDS_ROOT", `making ${suite} from Debian's packages needs root`, {
      advice: "run it as root",
    });
  if (!(await hasApt()))
    throw new BackendError("MISSING_TOOL", `this machine has no apt to make ${suite} with`, {
      advice: "run it on Debian or Ubuntu",
    });
  await withLock("breakwater-apt", 600_000, () => ensurePackages(["debootstrap", "debian-archive-keyring"], steps));
  const mirrors = await debianMirrors();
  const script = join(import.meta.dirname, "rootfs.sh");
  const folder = `${archive}.${process.pid}.d`;
  // A mount namespace of its own: what debootstrap mounts is gone with it, also when it is killed.
  const isolate = ["unshare", "--mount", "--propagation", "unchanged"] as const;
  await runCommand(
    [...isolate, "bash", script, suite, mirrors.main, mirrors.security, packages.join(","), folder, archive],
    {
      timeoutMs: 900_000,
      env: { ...(await aptProxy()), PATH: path },
    },
  );
}

/** From where this machine gets its own packages; empty where it is not a Debian. */
async function debianMirrors(): Promise<{ readonly main: string; readonly security: string }> {
  const listing = await runCommand(
    ["apt-get", "indextargets", "--format", "$(ORIGIN)|$(CODENAME)|$(REPO_URI)", "Created-By: Packages"],
    {
      timeoutMs: 30_000,
    },
  );
  return parseMirrors(listing.stdout);
}

export function parseMirrors(listing: string): { readonly main: string; readonly security: string } {
  const sources = listing
    .split("\n")
    .map((line) => line.split("|"))
    .flatMap(([origin, codename, uri]) => (origin === "Debian" && codename && uri ? [{ codename, uri }] : []));
  return {
    main: sources.find((source) => !source.codename.includes("-"))?.uri ?? "",
    security: sources.find((source) => source.codename.endsWith("-security"))?.uri ?? "",
  };
}

/** debootstrap does not read apt's settings. */
async function aptProxy(): Promise<Record<string, string>> {
  const settings = await runCommand(["apt-config", "shell", "proxy", "Acquire::http::Proxy"], { timeoutMs: 30_000 });
  const proxy = /^proxy='(.*)'$/m.exec(settings.stdout)?.[1];
  return proxy === undefined || proxy === "DIRECT" ? {} : { http_proxy: proxy };
}
