import { isPublicAddress } from "./addresses.ts";
import type { ClientHello } from "./client-hello.ts";
import { canonicalHost, type Host } from "./hosts.ts";
import type { Policy } from "./policy.ts";

/**
 * What refused a connection, in the order in which it is asked.
 *
 * - `no-policy`: nobody has said what this box may reach. `no-network`: nothing. `direct`: it has a way of its own, which is not this one.
 * - `malformed`: not HTTP as we read it, or not a TLS greeting. `form`: a request that is none for a proxy (or only for one), or another scheme than http.
 * - `framing`: two readers could see different ends of the request. `no-host`, `host-invalid`: no host, or none that is read in one way only.
 * - `host-mismatch`: the Host field, the address of the request and the tunnel do not name the same host. `port`: another one than 80 or 443.
 * - `not-listed`: no entry of the allowlist has this host.
 * - `not-public`: one of the name's addresses is not of the public internet.
 * - `sni-missing`, `sni-mismatch`, `ech`: the TLS greeting names no host, another one than was asked for, or hides it.
 */
export type DenialRule =
  | "no-policy"
  | "no-network"
  | "direct"
  | "malformed"
  | "form"
  | "framing"
  | "no-host"
  | "host-invalid"
  | "host-mismatch"
  | "port"
  | "not-listed"
  | "not-public"
  | "sni-missing"
  | "sni-mismatch"
  | "ech";

/** The ports that may be reached at all. */
export const ALLOWED_PORTS: ReadonlySet<number> = new Set([80, 443]);

export interface Refused {
  readonly outcome: "refused";
  readonly rule: DenialRule;
}

/** Allowed by name; its addresses are still to be looked at. */
export interface Permitted {
  readonly outcome: "permitted";
  readonly host: Host;
  readonly port: number;
  /** The entry of the allowlist. */
  readonly entry: string;
}

/** The decision on a connection: dial one of these addresses and no other. */
export type Decision =
  | Refused
  | (Omit<Permitted, "outcome"> & { readonly outcome: "allowed"; readonly addresses: readonly string[] })
  /** Allowed, and the name cannot be resolved. */
  | { readonly outcome: "unresolved" };

/** Every address of a name, IPv4 and IPv6. Empty where there is none; rejects where nobody answers. */
export type Resolve = (name: string) => Promise<readonly string[]>;

/** The part of the decision that needs nothing but what the box said. `policy` is `null` for a box that nobody has said anything about. */
export function permit(policy: Policy | null, port: number, written: string): Refused | Permitted {
  if (policy === null) return refused("no-policy");
  if (policy.mode === "no-network" || policy.mode === "direct") return refused(policy.mode);
  if (!ALLOWED_PORTS.has(port)) return refused("port");
  const host = canonicalHost(written);
  if (host === null) return refused("host-invalid");
  const entry = policy.allows(host);
  if (entry === null) return refused("not-listed");
  return { outcome: "permitted", host, port, entry };
}

/** The whole decision on a connection of a box to a host and a port. Pure but for `resolve`. */
export async function decide(
  policy: Policy | null,
  port: number,
  written: string,
  resolve: Resolve,
): Promise<Decision> {
  const permission = permit(policy, port, written);
  return permission.outcome === "refused" ? permission : locate(permission, resolve);
}

/**
 * The second half of the decision: every address of the host has to be public, or none is dialled. A listed address as well: an entry is no way
 * into the ground around the gateway.
 */
export async function locate(permission: Permitted, resolve: Resolve): Promise<Decision> {
  const { host } = permission;
  let addresses: readonly string[];
  try {
    addresses = host.kind === "address" ? [host.text] : await resolve(host.text);
  } catch {
    return { outcome: "unresolved" };
  }
  if (addresses.length === 0) return { outcome: "unresolved" };
  if (!addresses.every(isPublicAddress)) return refused("not-public");
  return { ...permission, outcome: "allowed", addresses };
}

/** The host that a TLS greeting asks for, where nothing else says it. It has to be a name: an address would stand there against TLS's own rules. */
export function hostOfGreeting(hello: ClientHello): Refused | { readonly outcome: "named"; readonly host: string } {
  if (hello.encryptedClientHello) return refused("ech");
  if (hello.serverName === null) return refused("sni-missing");
  const host = canonicalHost(hello.serverName);
  // The server has to read the same name: no dot at its end.
  if (host?.kind !== "name" || host.text !== hello.serverName.toLowerCase()) return refused("host-invalid");
  return { outcome: "named", host: host.text };
}

/** Whether a TLS greeting is for the host that was decided on: `null` if it is. A listed address needs to be named by nobody. */
export function checkServerName(host: Host, hello: ClientHello): DenialRule | null {
  if (hello.encryptedClientHello) return "ech";
  if (hello.serverName === null) return host.kind === "address" ? null : "sni-missing";
  return hello.serverName.toLowerCase() === host.text ? null : "sni-mismatch";
}

function refused(rule: DenialRule): Refused {
  return { outcome: "refused", rule };
}
