import { access, rm, writeFile } from "node:fs/promises";

import { runCommand } from "./command.ts";
import { BackendError } from "./errors.ts";
import type { Steps } from "./steps.ts";

/** What these packages enable for the next boot. */
const unitsOf: Readonly<Record<string, readonly string[]>> = {
  "docker.io": ["docker.service", "docker.socket", "containerd.service"],
  containerd: ["containerd.service"],
  podman: [
    "podman.service",
    "podman.socket",
    "podman-auto-update.service",
    "podman-auto-update.timer",
    "podman-restart.service",
  ],
};
const policyFile = "/usr/sbin/policy-rc.d";

/**
 * Installs what is missing of `names` by apt, without recommended packages, and without starting or enabling any service.
 *
 * Errors: `MISSING_TOOL` on a machine without apt, `NEEDS_ROOT`, `COMMAND_FAILED`, `TIMEOUT`.
 */
export async function ensurePackages(names: readonly string[], steps: Steps): Promise<void> {
  if (!(await hasApt())) {
    throw new BackendError(
      "MISSING_TOOL",
      "this machine has no apt: packages can be installed on Debian and Ubuntu only",
      {
        advice: `install and start Docker Engine 20.10 or later, or Podman's API service, and set DOCKER_HOST (wanted: ${names.join(", ")})`,
      },
    );
  }
  const missing = await missingPackages(names);
  if (missing.length === 0) return;
  if (process.getuid?.() !== 0) {
    throw new BackendError("NEEDS_ROOT", `missing packages: ${missing.join(", ")}`, {
      advice: `run this as root, or let an administrator run: apt-get install ${missing.join(" ")}`,
    });
  }
  const apt = (...args: readonly string[]): Promise<unknown> =>
    runCommand(["apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=300", ...args], {
      timeoutMs: 900_000,
      env: { DEBIAN_FRONTEND: "noninteractive", NEEDRESTART_SUSPEND: "1" },
    });
  const install = ["install", "--no-install-recommends", ...missing];
  await withoutServices(async () => {
    try {
      await apt(...install);
    } catch {
      // The package lists of a fresh machine are empty or name versions that are gone.
      await apt("update");
      await apt(...install);
    }
  });
  for (const name of missing) await disableServices(unitsOf[name] ?? []);
  steps.done(`installed ${missing.join(" ")}`);
}

export async function hasApt(): Promise<boolean> {
  return await exists("/usr/bin/apt-get");
}

async function missingPackages(names: readonly string[]): Promise<string[]> {
  const listing = await runCommand(["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", ...names], {
    timeoutMs: 30_000,
    okExitCodes: [0, 1],
  });
  const installed = new Set(
    listing.stdout
      .split("\n")
      .filter((line) => line.endsWith(" installed"))
      .map((line) => line.split(" ")[0]),
  );
  return names.filter((name) => !installed.has(name));
}

/** Debian starts services of a fresh package unless policy-rc.d says 101. One that is already there is the administrator's word. */
async function withoutServices<T>(work: () => Promise<T>): Promise<T> {
  const ours = !(await exists(policyFile));
  if (ours) await writeFile(policyFile, "#!/bin/sh\nexit 101\n", { mode: 0o755, flag: "wx" });
  try {
    return await work();
  } finally {
    if (ours) await rm(policyFile, { force: true });
  }
}

/** The private engine is none of the units that a package enables. */
async function disableServices(units: readonly string[]): Promise<void> {
  if (units.length > 0 && (await exists("/usr/bin/systemctl"))) {
    await runCommand(["systemctl", "--root=/", "--quiet", "disable", ...units], {
      timeoutMs: 30_000,
      okExitCodes: [0, 1],
    });
  }
}

export async function exists(path: string): Promise<boolean> {
  return await access(path).then(
    () => true,
    () => false,
  );
}
