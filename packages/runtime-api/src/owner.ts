import { randomBytes } from "node:crypto";
import { readFileSync, readlinkSync } from "node:fs";
import { hostname } from "node:os";

/** The process that created something. Written on every object, so that `sweep` can tell a dead owner's from a live one's. */
export interface Owner {
  readonly host: string;
  /** The kernel's boot id; empty where there is none. */
  readonly boot: string;
  /** For instance `pid:[4026531836]`; empty where there is none. */
  readonly pidNamespace: string;
  readonly pid: number;
  /** Clock ticks from boot to the start of the process; empty where it cannot be known. */
  readonly startedAt: string;
  /** Random, one per process: tells owners apart where nothing else does. */
  readonly session: string;
}

let self: Owner | undefined;

/** This process. */
export function currentOwner(): Owner {
  self ??= {
    host: hostname(),
    boot: attempt(() => readFileSync("/proc/sys/kernel/random/boot_id", "latin1").trim()),
    pidNamespace: attempt(() => readlinkSync("/proc/self/ns/pid")),
    pid: process.pid,
    startedAt: processState(process.pid)?.startedAt ?? "",
    session: randomBytes(8).toString("hex"),
  };
  return self;
}

/** The value of the label `breakwater.owner`: JSON. */
export function ownerLabel(owner: Owner = currentOwner()): string {
  return JSON.stringify(owner);
}

/** The owner that a label names, or `null` if the text is not one of ours. */
export function parseOwner(label: string): Owner | null {
  let value: unknown;
  try {
    value = JSON.parse(label);
  } catch {
    return null;
  }
  if (typeof value !== "object" || value === null) return null;
  const { host, boot, pidNamespace, pid, startedAt, session } = value as Record<keyof Owner, unknown>;
  const texts = [host, boot, pidNamespace, startedAt, session];
  if (!texts.every((text) => typeof text === "string") || !Number.isSafeInteger(pid)) return null;
  return value as Owner;
}

/**
 * `unknown`: the owner is of another host, boot or pid namespace, or the system does not tell. Such an owner counts as dead only once
 * its objects have expired.
 */
export function isOwnerAlive(owner: Owner): "alive" | "dead" | "unknown" {
  const here = currentOwner();
  if (owner.session === here.session) return "alive";
  const comparable = here.boot !== "" && here.pidNamespace !== "";
  if (!comparable || owner.host !== here.host || owner.boot !== here.boot || owner.pidNamespace !== here.pidNamespace) {
    return "unknown";
  }
  try {
    process.kill(owner.pid, 0);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ESRCH") return "dead";
  }
  const state = processState(owner.pid);
  if (state === undefined) return "alive";
  return state.ended || state.startedAt !== owner.startedAt ? "dead" : "alive";
}

function processState(pid: number): { readonly ended: boolean; readonly startedAt: string } | undefined {
  // The program's name, in parentheses, may hold blanks and parentheses itself.
  const stat = attempt(() => readFileSync(`/proc/${pid}/stat`, "latin1"));
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const state = fields[0] ?? "";
  const startedAt = fields[19];
  return startedAt === undefined ? undefined : { ended: state === "Z" || state === "X", startedAt };
}

function attempt(read: () => string): string {
  try {
    return read();
  } catch {
    return "";
  }
}
