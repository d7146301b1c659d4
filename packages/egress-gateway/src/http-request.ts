import type { DenialRule } from "./decide.ts";
import { canonicalHost } from "./hosts.ts";

/** The head of a request as the parser saw it. */
export interface RequestHead {
  readonly method: string;
  readonly url: string;
  readonly httpVersion: string;
  /** Names and values in turn. */
  readonly rawHeaders: readonly string[];
}

/**
 * How a connection came: `proxy` to the explicit proxy's port, `direct` to port 80 of an allowed name, or `tunnel` through CONNECT to port 80
 * of the one host that it may speak of.
 */
export type Arrival =
  | { readonly kind: "proxy" }
  | { readonly kind: "direct" }
  | { readonly kind: "tunnel"; readonly host: string };

export type Asked =
  | {
      readonly outcome: "asked";
      readonly host: string;
      readonly port: number;
      /** What goes to the server. */ readonly path: string;
    }
  | {
      readonly outcome: "refused";
      readonly status: 400 | 403;
      readonly rule: DenialRule;
      readonly host: string | null;
      readonly port: number;
    };

const HTTP_PORT = 80;

/**
 * What a request asks for, if there is only one way to read it. The host comes from the address of the request where that is absolute, and
 * from the Host field else; where both are there they have to agree. Of two lengths, two hosts or another coding than `chunked` nothing is
 * guessed. Source: RFC 9112, sections 3.2 and 6.3.
 */
export function readRequest(head: RequestHead, arrival: Arrival): Asked {
  const fields = fieldsOf(head.rawHeaders);
  const hosts = fields("host");
  const named = hosts[0] ?? null;
  const refuse = (status: 400 | 403, rule: DenialRule, host: string | null = named, port = HTTP_PORT): Asked => ({
    outcome: "refused",
    status,
    rule,
    host,
    port,
  });
  if (!isFramedOnce(head, fields)) return refuse(400, "framing");
  // HTTP/1.0 knows no Host field.
  if (hosts.length > 1 || (hosts.length === 0 && head.httpVersion !== "1.0")) return refuse(400, "no-host");

  const absolute = /^([a-z][a-z0-9+.-]*):\/\/([^/?#]*)([^#]*)$/i.exec(head.url);
  if (absolute === null && !head.url.startsWith("/")) return refuse(403, "form");
  if (absolute === null && arrival.kind === "proxy") return refuse(403, "form");
  if (absolute !== null && absolute[1]?.toLowerCase() !== "http")
    return refuse(403, "form", absolute[2] ?? null, portOfScheme(absolute[1]));
  const authority = absolute?.[2] ?? named;
  if (authority === null || authority === "") return refuse(400, "no-host");

  const asked = splitAuthority(authority, HTTP_PORT);
  if (asked === null) return refuse(403, "host-invalid", authority);
  if (absolute !== null && named !== null) {
    const field = splitAuthority(named, HTTP_PORT);
    if (field === null || field.host !== asked.host || field.port !== asked.port)
      return refuse(403, "host-mismatch", asked.host, asked.port);
  }
  if (arrival.kind === "tunnel" && (asked.host !== arrival.host || asked.port !== HTTP_PORT)) {
    return refuse(403, "host-mismatch", asked.host, asked.port);
  }
  // In the clear there is one port; 443 is for TLS.
  if (asked.port !== HTTP_PORT) return refuse(403, "port", asked.host, asked.port);
  const path = absolute === null ? head.url : (absolute[3] ?? "");
  return { outcome: "asked", ...asked, path: path.startsWith("/") ? path : `/${path}` };
}

/** The host and the port of a CONNECT request, or why it is refused. */
export function readConnect(head: RequestHead): Asked {
  const hosts = fieldsOf(head.rawHeaders)("host");
  const asked = /:\d+$/.test(head.url) ? splitAuthority(head.url, 0) : null;
  const refuse = (status: 400 | 403, rule: DenialRule): Asked => ({
    outcome: "refused",
    status,
    rule,
    host: asked?.host ?? head.url,
    port: asked?.port ?? 0,
  });
  if (asked === null) return refuse(403, "host-invalid");
  if (hosts.length > 1) return refuse(400, "no-host");
  // Clients write the host with or without the port there.
  const field = hosts[0] === undefined ? asked : splitAuthority(hosts[0], asked.port);
  if (field === null || field.host !== asked.host || field.port !== asked.port) return refuse(403, "host-mismatch");
  return { outcome: "asked", ...asked, path: "" };
}

/** The host in canonical form, addresses of IPv6 in brackets, and the port; `null` if there are two ways to read it. */
export function splitAuthority(
  authority: string,
  defaultPort: number,
): { readonly host: string; readonly port: number } | null {
  const parts = /^(\[[^\]]*\]|[^:]*)(?::(\d{1,5}))?$/.exec(utf8(authority) ?? "");
  if (parts === null) return null;
  const host = canonicalHost(parts[1] ?? "");
  const port = parts[2] === undefined ? defaultPort : Number(parts[2]);
  if (host === null || port > 65535) return null;
  return { host: host.text.includes(":") ? `[${host.text}]` : host.text, port };
}

/** Fields that end at this hop (RFC 9110, 7.6.1), and those that only speak to a proxy. */
const HOP_BY_HOP: ReadonlySet<string> = new Set([
  "connection",
  "proxy-connection",
  "keep-alive",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
  "http2-settings",
  "proxy-authorization",
  "proxy-authenticate",
  "proxy-authentication-info",
]);

/** What of a message's fields goes on, names and values in turn. */
export function endToEnd(rawHeaders: readonly string[]): string[] {
  const named = new Set(
    fieldsOf(rawHeaders)("connection").flatMap((value) => value.split(",").map((token) => token.trim().toLowerCase())),
  );
  // Nobody may have the length of a body, or where it goes, taken away.
  named.delete("content-length");
  named.delete("host");
  const kept: string[] = [];
  for (const [name, value] of pairs(rawHeaders)) {
    if (!HOP_BY_HOP.has(name.toLowerCase()) && !named.has(name.toLowerCase())) kept.push(name, value);
  }
  return kept;
}

/** Every value of a field. */
export function fieldsOf(rawHeaders: readonly string[]): (name: string) => readonly string[] {
  const all = [...pairs(rawHeaders)];
  return (wanted) => all.filter(([name]) => name.toLowerCase() === wanted).map(([, value]) => value);
}

function isFramedOnce(head: RequestHead, fields: (name: string) => readonly string[]): boolean {
  const codings = fields("transfer-encoding");
  const lengths = fields("content-length");
  if (lengths.length > 1 || !lengths.every((length) => /^\d{1,15}$/.test(length))) return false;
  if (codings.length === 0) return true;
  return (
    codings.length === 1 &&
    codings[0]?.toLowerCase() === "chunked" &&
    lengths.length === 0 &&
    head.httpVersion === "1.1"
  );
}

/** Names and values of a head, as pairs. */
export function* pairs(rawHeaders: readonly string[]): Generator<readonly [name: string, value: string]> {
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) yield [rawHeaders[at] ?? "", rawHeaders[at + 1] ?? ""];
}

/** The parser gives bytes as Latin-1. */
function utf8(text: string): string | null {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(Buffer.from(text, "latin1"));
  } catch {
    return null;
  }
}

function portOfScheme(scheme: string | undefined): number {
  return scheme?.toLowerCase() === "https" ? 443 : HTTP_PORT;
}
