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

/** Whether an address is within a range of an allowlist, both in canonical form. */
export function isWithin(address: string, range: string): boolean {
  const parsed = ipaddr.parse(address);
  const [network, bits] = ipaddr.parseCIDR(range);
  return parsed.kind() === network.kind() && parsed.match(network, bits);
}
