export type NetworkMode = "public" | "no-network" | "allowlist";

/**
 * Where a box may connect to.
 *
 * - `public`: the internet; no other box and no service on the host's loopback.
 * - `no-network`: nothing but the box's own loopback; no name resolution.
 * - `allowlist`: only `hosts`, on ports 80 and 443 unless the capability `allowlistPorts` says otherwise.
 *   An empty list is `no-network`.
 */
export type NetworkPolicy =
  | { readonly mode: "public" }
  | { readonly mode: "no-network" }
  | { readonly mode: "allowlist"; readonly hosts: readonly string[] };

/** The kinds of entries that an allowlist may have. */
export type AllowlistEntryKind = "name" | "wildcard" | "ipv4" | "ipv6" | "ipv4-cidr" | "ipv6-cidr";

const LABEL = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;

/**
 * Canonical form of an allowlist entry: lower case, no trailing dots, no surrounding blanks, IPv6 addresses as RFC 5952 writes them.
 * Harbor's rules: no scheme, port or path; a wildcard only as the whole first label; CIDRs without host bits.
 * Throws `TypeError` with the reason.
 */
export function parseAllowlistEntry(entry: string): { readonly host: string; readonly kind: AllowlistEntryKind } {
  const host = entry.trim().toLowerCase().replace(/\.+$/, "");
  const refuse = (reason: string): never => {
    throw new TypeError(`allowlist entry ${JSON.stringify(entry)}: ${reason}`);
  };
  if (host === "") refuse("is empty");
  if (host.includes("://")) refuse("has a scheme; write the bare host name");
  const [address = "", prefix, ...rest] = host.split("/");
  if (prefix !== undefined) {
    const ip = parseIp(address);
    if (ip === undefined || rest.length > 0) refuse("has a path; write the bare host name");
    const parsed = ip as ParsedIp;
    const bits = /^\d{1,3}$/.test(prefix) ? Number(prefix) : Number.NaN;
    if (!(bits >= 0 && bits <= parsed.bits)) refuse(`has a prefix length outside 0-${parsed.bits}`);
    const hostBits = BigInt(parsed.bits - bits);
    if ((parsed.value & ((1n << hostBits) - 1n)) !== 0n) refuse("has host bits set; write the network's own address");
    return { host: `${formatIp(parsed)}/${bits}`, kind: parsed.bits === 32 ? "ipv4-cidr" : "ipv6-cidr" };
  }
  const ip = parseIp(host);
  if (ip !== undefined) return { host: formatIp(ip), kind: ip.bits === 32 ? "ipv4" : "ipv6" };
  if (host.includes(":")) refuse("has a port; the allowlist is about hosts");
  const wildcard = host.startsWith("*.");
  const name = wildcard ? host.slice(2) : host;
  if (name.includes("*")) refuse('has a wildcard that is not the whole first label ("*.example.com")');
  if (parseIp(name) !== undefined) refuse("has a wildcard before an address");
  if (name.length > 253) refuse("is longer than 253 characters");
  for (const label of name.split("."))
    if (!LABEL.test(label)) refuse(`has the label ${JSON.stringify(label)}, which no host name has`);
  // As URLs have it: resolvers take such a name for an address, in decimal, octal or hexadecimal.
  if (/^(?:\d+|0x[0-9a-f]*)$/.test(name.split(".").at(-1) ?? "")) {
    refuse("ends in a number and is not an IPv4 address");
  }
  return { host, kind: wildcard ? "wildcard" : "name" };
}

interface ParsedIp {
  readonly value: bigint;
  readonly bits: 32 | 128;
}

function parseIp(text: string): ParsedIp | undefined {
  const four = parseIpv4(text);
  if (four !== undefined) return { value: four, bits: 32 };
  if (!text.includes(":") || !/^[0-9a-f:.]+$/.test(text)) return undefined;
  let groupsText = text;
  const lastColon = text.lastIndexOf(":");
  const tail = text.slice(lastColon + 1);
  if (tail.includes(".")) {
    const embedded = parseIpv4(tail);
    if (embedded === undefined) return undefined;
    groupsText = `${text.slice(0, lastColon + 1)}${(embedded >> 16n).toString(16)}:${(embedded & 0xffffn).toString(16)}`;
  }
  const halves = groupsText.split("::");
  if (halves.length > 2) return undefined;
  const groups = (half: string | undefined): string[] => (half === undefined || half === "" ? [] : half.split(":"));
  const head = groups(halves[0]);
  const rest = groups(halves[1]);
  const missing = 8 - head.length - rest.length;
  if (halves.length === 1 ? missing !== 0 : missing < 1) return undefined;
  const all = [...head, ...Array.from({ length: halves.length === 1 ? 0 : missing }, () => "0"), ...rest];
  let value = 0n;
  for (const group of all) {
    if (!/^[0-9a-f]{1,4}$/.test(group)) return undefined;
    value = (value << 16n) | BigInt(`0x${group}`);
  }
  return { value, bits: 128 };
}

function formatIp({ value, bits }: ParsedIp): string {
  const parts = (count: bigint, width: bigint): bigint[] =>
    Array.from(
      { length: Number(count) },
      (_, at) => (value >> ((count - 1n - BigInt(at)) * width)) & ((1n << width) - 1n),
    );
  if (bits === 32) return parts(4n, 8n).join(".");
  const groups = parts(8n, 16n).map((group) => group.toString(16));
  // The longest run of zeros, two at least, the first of several.
  const zeros = [...groups.join(":").matchAll(/\b0(?::0)+\b/g)].map(([run]) => run);
  const longest = zeros.reduce((best, run) => (run.length > best.length ? run : best), "");
  return longest === "" ? groups.join(":") : groups.join(":").replace(new RegExp(`:?\\b${longest}\\b:?`), "::");
}

function parseIpv4(text: string): bigint | undefined {
  const parts = text.split(".");
  if (parts.length !== 4) return undefined;
  let value = 0n;
  for (const part of parts) {
    if (!/^(?:0|[1-9]\d{0,2})$/.test(part) || Number(part) > 255) return undefined;
    value = (value << 8n) | BigInt(part);
  }
  return value;
}

/** Canonical, frozen form of a policy. An allowlist without hosts becomes `no-network`. Throws `TypeError` for anything else. */
export function parseNetworkPolicy(policy: NetworkPolicy): NetworkPolicy {
  switch (policy.mode) {
    case "public":
    case "no-network":
      if ("hosts" in policy) throw new TypeError(`network mode "${policy.mode}" takes no hosts`);
      return Object.freeze({ mode: policy.mode });
    case "allowlist": {
      const hosts = [...new Set(policy.hosts.map((entry) => parseAllowlistEntry(entry).host))];
      return hosts.length === 0
        ? Object.freeze({ mode: "no-network" })
        : Object.freeze({ mode: "allowlist", hosts: Object.freeze(hosts) });
    }
    default:
      throw new TypeError(
        `unknown network mode ${JSON.stringify((policy as { mode: unknown }).mode)}; use "public", "no-network" or "allowlist"`,
      );
  }
}

/** True if both policies allow the same hosts. Both must be in canonical form; order does not matter. */
export function sameNetworkPolicy(a: NetworkPolicy, b: NetworkPolicy): boolean {
  if (a.mode !== "allowlist" || b.mode !== "allowlist") return a.mode === b.mode;
  return a.hosts.length === b.hosts.length && a.hosts.every((host) => b.hosts.includes(host));
}

/** True if `to` allows nothing that `from` does not allow. Judged by entry, not by what wildcards and ranges cover. */
export function widensNothing(from: NetworkPolicy, to: NetworkPolicy): boolean {
  if (from.mode === "public" || to.mode === "no-network") return true;
  if (from.mode === "no-network" || to.mode === "public") return false;
  return to.hosts.every((host) => from.hosts.includes(host));
}
