import { domainToASCII } from "node:url";
import { isIPv4, isIPv6 } from "node:net";
import { parseAllowlistEntry } from "@breakwater/runtime-api";

/** Where a connection is meant to go, in the one form that is compared, resolved and dialled. */
export interface Host {
  readonly kind: "name" | "address";
  /** A name in lower case without a trailing dot, as IDNA has it on the wire, or an address without brackets. */
  readonly text: string;
}

/** Names of machines may have underscores, though those of sites may not. */
const LABEL = /^[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?$/;
/** A last label that resolvers take for a part of an address, in decimal, octal or hexadecimal. */
const NUMBER = /^(?:\d+|0x[0-9a-f]*)$/;

/**
 * The canonical form of a host as a client wrote it, or `null` for anything that two readers could take for different hosts: user
 * information, ports, percent signs, control characters, empty labels, addresses in other than their usual notation.
 */
export function canonicalHost(written: string): Host | null {
  if (written === "" || written.length > 1024) return null;
  if (written.startsWith("[") && written.endsWith("]")) {
    const inner = written.slice(1, -1);
    // An address with a zone is one of this machine.
    if (!isIPv6(inner) || inner.includes("%")) return null;
    return { kind: "address", text: parseAllowlistEntry(inner).host };
  }
  if (isIPv4(written)) return { kind: "address", text: written };
  const ascii = /^[!-~]+$/.test(written) ? written.toLowerCase() : idna(written);
  const name = ascii.endsWith(".") ? ascii.slice(0, -1) : ascii;
  if (name.length > 253) return null;
  const labels = name.split(".");
  if (!labels.every((label) => LABEL.test(label)) || NUMBER.test(labels.at(-1) ?? "")) return null;
  return { kind: "name", text: name };
}

/** The ASCII form of a name with other letters; empty if it has none. Plain ASCII never comes here: the rules of URLs would read addresses into it. */
function idna(written: string): string {
  // eslint-disable-next-line no-control-regex -- exactly these must not be mapped away
  return /[\u0000-\u0020%@/\\?#:[\]\u007f]/.test(written) ? "" : domainToASCII(written);
}
