import { readFileSync, readdirSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

/** A process for good: a number alone may by now belong to somebody else. */
export interface ProcessIdentity {
  readonly pid: number;
  /** Field 22 of /proc/PID/stat: clock ticks since boot. */
  readonly startTicks: number;
  readonly bootId: string;
}

export function bootId(): string {
  return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
}

/** `undefined` when there is no such process, or only its unreaped rest. */
export function identify(pid: number): ProcessIdentity | undefined {
  const stat = readStat(pid);
  return stat === undefined || stat.state === "Z" ? undefined : { pid, startTicks: stat.startTicks, bootId: bootId() };
}

export function isAlive(identity: ProcessIdentity): boolean {
  const now = identify(identity.pid);
  return now !== undefined && now.startTicks === identity.startTicks && now.bootId === identity.bootId;
}

/** Sends a signal to exactly this process. False when it is already gone. */
export function signal(identity: ProcessIdentity, name: NodeJS.Signals): boolean {
  if (!isAlive(identity)) return false;
  try {
    return process.kill(identity.pid, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ESRCH") return false;
    throw error;
  }
}

/** True when the process has ended within `timeoutMs`. */
export async function ended(identity: ProcessIdentity, timeoutMs: number): Promise<boolean> {
  const deadline = Date.now() + timeoutMs;
  while (isAlive(identity)) {
    if (Date.now() > deadline) return false;
    await sleep(25);
  }
  return true;
}

/** Asks it to end, and makes it end when it has not done so within `graceMs`. */
export async function terminate(identity: ProcessIdentity, graceMs: number): Promise<boolean> {
  if (!signal(identity, "SIGTERM") || (await ended(identity, graceMs))) return true;
  signal(identity, "SIGKILL");
  return await ended(identity, 10_000);
}

export interface ProcessEntry {
  readonly identity: ProcessIdentity;
  readonly parentPid: number;
  readonly argv: readonly string[];
}

/** Every process that can be seen from here. */
export function listProcesses(): ProcessEntry[] {
  const boot = bootId();
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      const pid = Number(name);
      const stat = readStat(pid);
      if (stat === undefined || stat.state === "Z") return [];
      const argv = readText(`/proc/${pid}/cmdline`).split("\0").slice(0, -1);
      return [{ identity: { pid, startTicks: stat.startTicks, bootId: boot }, parentPid: stat.parentPid, argv }];
    });
}

function readStat(pid: number): { state: string; parentPid: number; startTicks: number } | undefined {
  const text = readText(`/proc/${pid}/stat`);
  // The name in brackets may itself hold blanks and brackets; the fields are counted from behind it.
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  const [state, parentPid] = fields;
  const startTicks = fields[19];
  if (state === undefined || parentPid === undefined || startTicks === undefined) return undefined;
  return { state, parentPid: Number(parentPid), startTicks: Number(startTicks) };
}

function readText(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
