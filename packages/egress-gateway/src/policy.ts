import { type NetworkPolicy, parseAllowlistEntry, parseNetworkPolicy } from "@breakwater/runtime-api";
import { AddressRanges } from "./addresses.ts";
import type { Host } from "./hosts.ts";

/** A policy ready to be asked. */
export interface Policy {
  /** `direct`: the box has a network of its own, and only its name server is here. */
  readonly mode: NetworkPolicy["mode"] | "direct";
  /** The entry that allows this host, `*` where everything is allowed, or `null`. */
  allows(host: Host): string | null;
}

/** Where a box may go that nobody has said anything about: nowhere. */
export const DENY_ALL: Policy = { mode: "no-network", allows: () => null };

/** For a box that is on a network of its own for now. */
export const DIRECT: Policy = { mode: "direct", allows: () => null };

/** Throws a `TypeError` for a policy that is none. */
export function compilePolicy(policy: NetworkPolicy): Policy {
  const canonical = parseNetworkPolicy(policy);
  if (canonical.mode === "no-network") return DENY_ALL;
  if (canonical.mode === "public") return { mode: "public", allows: () => "*" };
  const exact = new Set<string>();
  const cidrs: string[] = [];
  for (const entry of canonical.hosts) {
    if (parseAllowlistEntry(entry).kind.endsWith("-cidr")) cidrs.push(entry);
    else exact.add(entry);
  }
  const ranges = new AddressRanges(cidrs);
  return {
    mode: "allowlist",
    allows({ kind, text }) {
      if (exact.has(text)) return text;
      if (kind === "address") return ranges.find(text);
      // *.x allows what is below x, at any depth, and not x.
      for (let dot = text.indexOf("."); dot !== -1; dot = text.indexOf(".", dot + 1)) {
        const wildcard = `*${text.slice(dot)}`;
        if (exact.has(wildcard)) return wildcard;
      }
      return null;
    },
  };
}
