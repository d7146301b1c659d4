import { readFile, rm } from "node:fs/promises";
import { userInfo } from "node:os";

import { archivePath, debian12, debian13, ensureArchive } from "../docker/base-images.ts";
import { runCommand } from "../src/command.ts";
import { BackendError } from "../src/errors.ts";
import { backendFolders, type BackendFolders } from "../src/folders.ts";
import { withLock } from "../src/lock.ts";
import { ensurePackages, exists } from "../src/packages.ts";
import { silentSteps, type Steps } from "../src/steps.ts";

/** What tests of the bubblewrap driver need, as environment variables: paths of tar archives of root file systems. */
export interface BubblewrapEnvironment {
  readonly BREAKWATER_IMAGE: string;
  readonly BREAKWATER_OTHER_IMAGE: string;
}

const packages = ["bubblewrap", "uidmap", "util-linux"];
/** Where the driver keeps images and boxes of root. */
const stateFolder = "/var/lib/breakwater/bubblewrap";
/** Ids of the host that nobody has by default. */
const rootRange = "2013265920-2013331455";

/**
 * The programs that the driver uses, ids for boxes of this user, and two root file systems. There is nothing that runs.
 *
 * Errors: `NEEDS_ROOT`, `MISSING_TOOL`, `COMMAND_FAILED`, `TIMEOUT`.
 */
export async function up(
  steps: Steps = silentSteps,
  folders: BackendFolders = backendFolders(),
): Promise<BubblewrapEnvironment> {
  await withLock("breakwater-apt", 600_000, async () => {
    await ensurePackages(packages, steps);
    await ensureIds(steps);
  });
  for (const base of [debian12, debian13]) await ensureArchive(base, folders.cache, steps);
  return environment(folders);
}

/** Removes root's unpacked images, and its ids if they are those that {@link up} gave it. Packages and archives stay. */
export async function down(steps: Steps = silentSteps): Promise<void> {
  await rm(stateFolder, { recursive: true, force: true });
  if (process.getuid?.() === 0 && (await rangesOf("root")).includes(rootRange)) {
    // usermod takes nothing away from a user who has processes.
    const [first = 0, last = 0] = rootRange.split("-").map(Number);
    const line = `/^root:${first}:${last - first + 1}$/d`;
    await runCommand(["sed", "-i", line, "/etc/subuid", "/etc/subgid"], { timeoutMs: 60_000 });
  }
  steps.done("unpacked images removed");
}

/** Lines for people; an empty list when something is missing. */
export async function status(folders: BackendFolders = backendFolders()): Promise<readonly string[]> {
  const archives = Object.values(environment(folders)) as readonly string[];
  const isThere = await Promise.all(["/usr/bin/bwrap", "/usr/bin/newuidmap", ...archives].map(exists));
  return isThere.every(Boolean) && (await rangesOf(userInfo().username)).length > 0 ? archives : [];
}

/** Error: `NOT_RUNNING`. */
export async function env(folders: BackendFolders = backendFolders()): Promise<BubblewrapEnvironment> {
  if ((await status(folders)).length > 0) return environment(folders);
  throw new BackendError("NOT_RUNNING", "bubblewrap, ids for boxes or a root file system is missing", {
    advice: "run: npm run backends -- bubblewrap up",
  });
}

function environment({ cache }: BackendFolders): BubblewrapEnvironment {
  return { BREAKWATER_IMAGE: archivePath(debian12, cache), BREAKWATER_OTHER_IMAGE: archivePath(debian13, cache) };
}

async function ensureIds(steps: Steps): Promise<void> {
  const user = userInfo().username;
  if ((await rangesOf(user)).length > 0) return;
  const argv = ["usermod", "--add-subuids", rootRange, "--add-subgids", rootRange, "root"] as const;
  if (process.getuid?.() !== 0) {
    throw new BackendError("NEEDS_ROOT", `${user} has no ids for boxes in /etc/subuid and /etc/subgid`, {
      advice: "let an administrator give it some: usermod --add-subuids FIRST-LAST --add-subgids FIRST-LAST USER",
    });
  }
  await runCommand(argv, { timeoutMs: 60_000 });
  steps.done("gave root's boxes ids in /etc/subuid and /etc/subgid");
}

/** Those that `/etc/subuid` gives a user, as `first-last`. */
async function rangesOf(user: string): Promise<readonly string[]> {
  const lines = (await readFile("/etc/subuid", "utf8").catch(() => "")).split("\n").map((line) => line.split(":"));
  return lines
    .filter(([name]) => name === user)
    .map(([, first = "", count = ""]) => `${first}-${Number(first) + Number(count) - 1}`);
}
