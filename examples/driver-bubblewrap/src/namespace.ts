import { type ChildProcess, spawn, type SpawnOptions } from "node:child_process";
import { once } from "node:events";
import type { Deadline } from "@breakwater/driver-kit";

const IS_ROOT = process.getuid?.() === 0;

/**
 * Starts a command as root of a new user and mount namespace, whose ids are those that `/etc/subuid` and `/etc/subgid` give this user; of everybody but root the
 * user is the namespace's root. Root in a box is never the host's. The command goes when this process does.
 */
export function spawnAsRoot(command: readonly string[], options: SpawnOptions): ChildProcess {
  const ids = IS_ROOT ? ["--map-auto"] : ["--map-auto", "--map-root-user"];
  const become = ["--user", "--mount", ...ids, "--setuid=0", "--setgid=0", "--", "setpriv", "--pdeathsig=KILL", "--"];
  // Our working directory may be closed to others.
  return spawn("unshare", [...become, ...command], { ...options, detached: true, cwd: "/" });
}

/** Runs a command as `spawnAsRoot` to its end. Gives the end of what it wrote; throws an `Error` with it unless it ended with 0. */
export async function runAsRoot(
  command: readonly string[],
  { signal }: Deadline,
  input: number | "ignore" = "ignore",
): Promise<string> {
  const child = spawnAsRoot(command, { stdio: [input, "pipe", "pipe"], signal, killSignal: "SIGKILL" });
  let said = "";
  for (const stream of [child.stdout, child.stderr])
    stream?.setEncoding("utf8").on("data", (text: string) => (said = (said + text).slice(-4096)));
  await once(child, "close");
  if (child.exitCode === 0) return said;
  throw new Error(`${command[0]} ended with ${child.exitCode}: ${said.trim()}`);
}
