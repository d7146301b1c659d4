import { isIPv4 } from "node:net";
import { type RuntimeDriver, withRuntime } from "@breakwater/runtime-api";

const RESOLV_CONF = "/etc/resolv.conf";
const MAX_BYTES = 64 * 1024;
const LIFETIME_MS = 5 * 60 * 1000;

/**
 * Which name servers the engine gives to containers outside its named networks: its own settings, else its host's without those on the host's loopback, else
 * public ones. A box that has no network is asked; any image serves.
 */
export async function askNameServers(driver: RuntimeDriver, image: string): Promise<readonly string[]> {
  const spec = {
    image,
    network: { initial: { mode: "no-network" } },
    entrypoint: false,
    lifetimeMs: LIFETIME_MS,
  } as const;
  const content = await withRuntime(driver, spec, (box) => box.readBounded(RESOLV_CONF, { maxBytes: MAX_BYTES }));
  return nameServersIn(Buffer.from(content ?? []).toString("utf8"));
}

/** Those that a box can ask: it has no IPv6 beyond its loopback. */
export function nameServersIn(resolvConf: string): readonly string[] {
  const found = resolvConf.split("\n").map((line) => /^\s*nameserver\s+(\S+)/.exec(line)?.[1] ?? "");
  return [...new Set(found.filter((address) => isIPv4(address) && !address.startsWith("127.")))];
}
