import ipaddr from "ipaddr.js";

/**
 * Ground that the registries call public and that no box may reach: the metadata service of one cloud (168.63.129.16), relays that
 * lead back into private ground.
 */
const NOT_PUBLIC = ["168.63.129.16/32", "192.88.99.0/24"].map((range) => ipaddr.parseCIDR(range));
/** Everything that is given out to networks of the internet. */
const GLOBAL_V6 = ipaddr.parseCIDR("2000::/3");

/**
 * Whether an address belongs to the public internet. Refused are private, shared (CGNAT), loopback, link-local, multicast, broadcast
 * and reserved addresses, documentation and benchmark ranges, and IPv6 addresses that carry an IPv4 one (mapped, NAT64, 6to4, Teredo).
 * Source: IANA's registries of special-purpose addresses, as ipaddr.js has them; of IPv6 only 2000::/3.
 */
export function isPublicAddress(address: string): boolean {
  if (!ipaddr.IPv4.isValidFourPartDecimal(address) && !(address.includes(":") && ipaddr.IPv6.isValid(address)))
    return false;
  const parsed = ipaddr.parse(address);
  if (parsed.range() !== "unicast") return false;
  if (parsed.kind() === "ipv6") return parsed.match(GLOBAL_V6);
  return !NOT_PUBLIC.some((range) => parsed.match(range));
}

/** Ranges of addresses, read once: a question costs one look-up for each length of prefix among them. */
export class AddressRanges {
  /** By family, length and prefix. */
  readonly #ranges = new Map<string, string>();
  readonly #lengths = { ipv4: new Set<number>(), ipv6: new Set<number>() };

  /** In canonical form, with `/` and the length. */
  constructor(ranges: Iterable<string>) {
    for (const range of ranges) {
      const [network, bits] = ipaddr.parseCIDR(range);
      this.#lengths[network.kind()].add(bits);
      this.#ranges.set(prefixOf(network.toByteArray(), bits), range);
    }
    for (const kind of ["ipv4", "ipv6"] as const) {
      this.#lengths[kind] = new Set([...this.#lengths[kind]].toSorted((a, b) => b - a));
    }
  }

  /** The narrowest range that has an address, or `null`. */
  find(address: string): string | null {
    const parsed = ipaddr.parse(address);
    const bytes = parsed.toByteArray();
    for (const bits of this.#lengths[parsed.kind()]) {
      const range = this.#ranges.get(prefixOf(bytes, bits));
      if (range !== undefined) return range;
    }
    return null;
  }
}

function prefixOf(bytes: readonly number[], bits: number): string {
  const kept = bytes.map((byte, at) => byte & (0xff00 >> Math.min(8, Math.max(0, bits - 8 * at))));
  return `${kept.join(".")}/${bits}`;
}
