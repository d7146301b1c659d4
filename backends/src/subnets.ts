import { runCommand } from "./command.ts";
import { BackendError } from "./errors.ts";

export interface Subnet {
  /** For example `10.213.0.0/24`. */
  readonly subnet: string;
  /** Its first address with the prefix, for example `10.213.0.1/24`. */
  readonly gateway: string;
}

/** A private IPv4 range that no route or address of this machine overlaps, nor any of `taken`. */
export async function freeSubnet(prefix: 16 | 24, taken: readonly string[]): Promise<Subnet> {
  const routes = await runCommand(["ip", "-4", "-o", "route", "show", "table", "all"], { timeoutMs: 10_000 });
  const addresses = await runCommand(["ip", "-4", "-o", "address", "show"], { timeoutMs: 10_000 });
  return pickSubnet(prefix, [...usedRanges(`${routes.stdout}\n${addresses.stdout}`), ...taken]);
}

/** Every IPv4 address or range in the text of `ip`, without the default route. */
export function usedRanges(text: string): string[] {
  return [...text.matchAll(/\b\d+\.\d+\.\d+\.\d+(?:\/\d+)?/g)]
    .map((match) => match[0])
    .filter((range) => !range.startsWith("0.0.0.0"));
}

export function pickSubnet(prefix: 16 | 24, used: readonly string[]): Subnet {
  // Away from what engines, clusters and home routers take by default (172.17-31, 10.0, 10.88, 10.96, 10.244, 192.168).
  for (let second = 213; second < 240; second += 1) {
    const base = `10.${second}.0.0`;
    if (!used.some((range) => overlaps(`${base}/${prefix}`, range)))
      return { subnet: `${base}/${prefix}`, gateway: `10.${second}.0.1/${prefix}` };
  }
  throw new BackendError("COMMAND_FAILED", "no free private address range between 10.213.0.0 and 10.239.0.0", {
    advice: "remove a stale route or network (see `ip route`)",
  });
}

export function overlaps(first: string, second: string): boolean {
  const a = parseRange(first);
  const b = parseRange(second);
  const size = 2 ** (32 - Math.min(a.prefix, b.prefix));
  return Math.floor(a.address / size) === Math.floor(b.address / size);
}

function parseRange(range: string): { address: number; prefix: number } {
  const [address = "", prefix = "32"] = range.split("/");
  return { address: address.split(".").reduce((sum, part) => sum * 256 + Number(part), 0), prefix: Number(prefix) };
}
