import { lookup } from "node:dns/promises";
import { runCommand } from "../src/command.ts";
import type { Box } from "./box.ts";
import type { EgressPolicy } from "./validation.ts";

const TIMEOUT_MS = 20_000;

/**
 * Puts a policy in force inside the box's network namespace, by the firewall of this machine, which has to be the engine's own and ours as
 * root. New connections follow it; established ones go on. Names are the addresses that they have now, any port. Gives whether it is in force.
 */
export async function enforceEgress(box: Box, policy: EgressPolicy): Promise<boolean> {
  try {
    const namespace = await box.hostPid();
    for (const program of ["iptables-restore", "ip6tables-restore"] as const) {
      await runCommand(["nsenter", "--target", String(namespace), "--net", program], {
        timeoutMs: TIMEOUT_MS,
        input: await rules(policy, program === "iptables-restore" ? 4 : 6),
      });
    }
    return true;
  } catch (error) {
    process.stderr.write(`egress of ${box.name}: ${(error as Error).message}\n`);
    return false;
  }
}

async function rules({ allowlist, denylist }: EgressPolicy, family: 4 | 6): Promise<string> {
  const isOpen = allowlist === null && (denylist === null || denylist.length === 0);
  const listed = await addresses(allowlist ?? denylist ?? []);
  const target = allowlist === null ? "DROP" : "ACCEPT";
  const lines = isOpen
    ? []
    : [
        "-A OUTPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT",
        // The engine's resolver is on loopback, and what it is asked leaves the machine.
        ...(listed.length === 0 || listed.includes("0.0.0.0/0") ? ["-A OUTPUT -d 127.0.0.11 -j DROP"] : []),
        "-A OUTPUT -o lo -j ACCEPT",
        ...listed.map((address) => `-A OUTPUT -d ${address} -j ${target}`),
        ...(allowlist === null ? [] : ["-A OUTPUT -j DROP"]),
      ].filter((line) => family === 4 || !/-d \d/.test(line));
  return `*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n${lines.join("\n")}\nCOMMIT\n`;
}

/** Wildcards have no addresses: the firewall of this machine cannot follow them, so they open nothing. */
async function addresses(entries: readonly string[]): Promise<readonly string[]> {
  const found: string[] = [];
  for (const entry of entries) {
    if (entry.startsWith("*.")) continue;
    if (/^[\d.]+\/\d+$/.test(entry)) found.push(entry);
    else {
      const all = await lookup(entry, { all: true, family: 4 }).catch(() => []);
      found.push(...all.map(({ address }) => `${address}/32`));
    }
  }
  return found;
}
