import { type ChildProcess, execFile, spawn, type StdioOptions } from "node:child_process";
import { once } from "node:events";
import { readFile, writeFile } from "node:fs/promises";
import type { Duplex } from "node:stream";
import { promisify } from "node:util";
import type { Deadline } from "@breakwater/driver-kit";

/** Which ids of the host the ids of a box are. Root in a box is never the host's root. */
export interface Ids {
  /** The host's id of the box's root. */
  readonly root: number;
  /** Gives them to a process that has just made a user namespace. */
  readonly write: (pid: number) => Promise<void>;
}

/**
 * Host root gives its boxes a range of its own, everybody else what `/etc/subuid` and `/etc/subgid` say, by way of Debian's package `uidmap`. Throws an
 * `Error` for a user who has none.
 */
export async function findIds(firstHostId: number): Promise<Ids> {
  const [uid, gid] = [process.getuid?.() ?? 0, process.getgid?.() ?? 0];
  if (uid === 0) {
    const write = async (pid: number): Promise<void> => {
      for (const file of ["uid_map", "gid_map"]) await writeFile(`/proc/${pid}/${file}`, `0 ${firstHostId} 65536`);
    };
    return { root: firstHostId, write };
  }
  const [users, groups] = [await subordinate("/etc/subuid", uid), await subordinate("/etc/subgid", uid)];
  if (users === null || groups === null) {
    throw new Error("this user has no ids for boxes; add it to /etc/subuid and /etc/subgid, and install uidmap");
  }
  const write = async (pid: number): Promise<void> => {
    await run("newuidmap", [String(pid), "0", String(uid), "1", "1", ...users]);
    await run("newgidmap", [String(pid), "0", String(gid), "1", "1", ...groups]);
  };
  return { root: uid, write };
}

const run = promisify(execFile);

/** The first line of the file about this user: first id and count. */
async function subordinate(file: string, uid: number): Promise<readonly [string, string] | null> {
  const users = (await readFile("/etc/passwd", "utf8").catch(() => "")).split("\n").map((line) => line.split(":"));
  const name = users.find((fields) => fields[2] === String(uid))?.[0];
  for (const line of (await readFile(file, "utf8").catch(() => "")).split("\n")) {
    const [who, first, count] = line.split(":");
    if ((who === name || who === String(uid)) && first !== undefined && count !== undefined) return [first, count];
  }
  return null;
}

const GATE_FD = 3;
/** Says that it is there, waits until its ids are written, becomes root of the namespace. */
const BECOME_ROOT =
  'echo >&3; read -r _ <&3 || exit 125; exec 3>&-; exec setpriv --reuid=0 --regid=0 --clear-groups -- "$@"';

/**
 * Starts a command as root of a new user and mount namespace. Descriptor 3 is ours; further ones of the command are 4 and up. The command goes when
 * this process does.
 */
export async function spawnAsRoot(
  ids: Ids,
  command: readonly string[],
  stdio: StdioOptions & unknown[],
): Promise<ChildProcess> {
  const [input, output, errors, ...more] = stdio;
  const unshare = ["--user", "--mount", "--keep-caps", "sh", "-c", BECOME_ROOT, "sh"];
  const child = spawn("unshare", [...unshare, ...command], {
    stdio: [input, output, errors, "pipe", ...more] as StdioOptions,
    detached: true,
    // Ours may be closed to others.
    cwd: "/",
  });
  await once(child, "spawn");
  const gate = child.stdio[GATE_FD] as Duplex;
  gate.on("error", () => undefined);
  try {
    await Promise.race([once(gate, "data"), once(gate, "end")]);
    await ids.write(child.pid as number);
    gate.end("\n");
  } catch (error) {
    gate.destroy();
    throw error;
  }
  return child;
}

const MAX_SAID_BYTES = 64 * 1024;

/** Waits for the end of a command. Gives its exit code (128 + signal) and the end of what it wrote to stderr. */
export async function ended(
  child: ChildProcess,
  clock: Deadline,
): Promise<{ readonly exitCode: number; readonly said: string }> {
  let said = "";
  child.stderr?.setEncoding("utf8").on("data", (text: string) => (said = (said + text).slice(-MAX_SAID_BYTES)));
  try {
    const [code, signal] =
      child.exitCode === null && child.signalCode === null
        ? await clock.race(once(child, "close"))
        : [child.exitCode, child.signalCode];
    return { exitCode: (code as number | null) ?? (signal === null ? 255 : 137), said: said.trim() };
  } catch (error) {
    child.kill("SIGKILL");
    throw error;
  }
}

/** Runs a command as `spawnAsRoot` to its end. Throws an `Error` with what it said unless it ended with 0. */
export async function runAsRoot(
  ids: Ids,
  command: readonly string[],
  clock: Deadline,
  input: number | "ignore" = "ignore",
): Promise<void> {
  const child = await spawnAsRoot(ids, command, [input, "ignore", "pipe"]);
  const { exitCode, said } = await ended(child, clock);
  if (exitCode !== 0) throw new Error(`${command[0]} ended with ${exitCode}: ${said}`);
}
