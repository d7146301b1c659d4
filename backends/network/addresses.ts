import type { NameRecord } from "./dns.ts";

/**
 * The fake internet of the network backend. All of these addresses exist only inside its namespaces; a packet to them cannot leave.
 */
export const fakeInternet = {
  /** The engine's host on the way out: "the host's own address". */
  host: { v4: "198.51.100.1", v6: "fd5b:51::1" },
  /** The next hop; everything below lies behind it. */
  router: { v4: "198.51.100.2", v6: "fd5b:51::2" },
  /** Web servers by the name that the fake resolvers know. */
  sites: {
    "example.com": { v4: "93.184.215.14", v6: "2606:2800:21f:cb07:6820:80da:af6b:8b2c" },
    "www.example.com": { v4: "93.184.215.14", v6: "2606:2800:21f:cb07:6820:80da:af6b:8b2c" },
    "api.example.com": { v4: "93.184.215.15", v6: "2606:2800:21f:cb07::15" },
    "deep.api.example.com": { v4: "93.184.215.15", v6: "2606:2800:21f:cb07::15" },
    "example.org": { v4: "93.184.216.34", v6: "2606:2800:220:1::34" },
    "example.net": { v4: "93.184.217.34" },
    "iana.org": { v4: "192.0.43.8", v6: "2001:500:88:200::8" },
    "www.iana.org": { v4: "192.0.33.8", v6: "2620:0:2d0:200::8" },
    "github.com": { v4: "140.82.121.4" },
    "s3.amazonaws.com": { v4: "52.216.10.10" },
    "noaa-goes16.s3.amazonaws.com": { v4: "52.216.10.11" },
    // What package managers and git talk to; `www/` has what they get.
    "pypi.org": { v4: "151.101.0.223" },
    "files.pythonhosted.org": { v4: "151.101.0.224" },
    "registry.npmjs.org": { v4: "104.16.0.35" },
    "deb.debian.org": { v4: "151.101.2.132" },
  },
  /** A name with a bare echo in place of TLS on port 443: what a tunnel carries can be seen without cryptography. */
  echo: { name: "echo.example.com", v4: "93.184.215.16" },
  /** Names that a hostile zone would answer with ground that is not the internet. */
  hostileNames: {
    "private.example.org": { v4: "10.77.7.7" },
    "loopback.example.org": { v4: "127.0.0.1", v6: "::1" },
    "metadata.example.org": { v4: "169.254.169.254", v6: "fd00:ec2::254" },
    "mapped.example.org": { v6: "::ffff:10.77.7.7" },
    "nat64.example.org": { v6: "64:ff9b::a4d:707" },
    "shared.example.org": { v4: "100.64.7.7" },
    "unique-local.example.org": { v6: "fd77::7" },
    "mixed.example.org": { v4: "93.184.216.34", v6: "fd00:ec2::254" },
  },
  /** Every name below it has the first address until it has been asked for, and the second one from then on. */
  rebinding: { below: "rebind.example.org", first: { v4: "93.184.216.34" }, later: { v4: "10.77.7.7" } },
  /** Public resolvers: UDP and TCP port 53. */
  resolvers: { v4: ["1.1.1.1", "8.8.8.8", "9.9.9.9"], v6: ["2606:4700:4700::1111"] },
  /** Cloud metadata services. */
  metadata: { v4: "169.254.169.254", v6: "fd00:ec2::254" },
  /** Machines of the host's own site: private, carrier-grade NAT, unique local. */
  neighbours: { v4: ["10.77.7.7", "192.168.77.7", "100.64.7.7"], v6: ["fd77::7"] },
} as const;

/** Ports that every address of the fake internet answers on; "the host" answers on `echo` and `hostLoopback`. */
export const fakePorts = {
  /** TCP and UDP: sends back what it gets. */
  echo: 7,
  /** TCP echo, where a remote shell would be. */
  ssh: 22,
  /** TCP echo on 127.0.0.1 of "the host" only. */
  hostLoopback: 7007,
  /** HTTP; see `web.ts`. */
  http: 80,
  /** The same with TLS by the test authority at sites and resolvers, TCP echo elsewhere. */
  https: 443,
  /** TCP echo on a port that no allowlist has. */
  other: 9000,
} as const;

/** What the fake resolvers answer, by lower-case name. */
export function fakeRecords(): Readonly<Record<string, NameRecord>> {
  const { echo, hostileNames, sites } = fakeInternet;
  return { ...sites, ...hostileNames, [echo.name]: { v4: echo.v4 } };
}

/** Every address that is answered for behind the router. */
export function fakeAddresses(): { readonly v4: readonly string[]; readonly v6: readonly string[] } {
  const sites = siteAddresses();
  const { echo, resolvers, metadata, neighbours } = fakeInternet;
  return {
    v4: [...new Set([...sites.v4, echo.v4, ...resolvers.v4, metadata.v4, ...neighbours.v4])],
    v6: [...new Set([...sites.v6, ...resolvers.v6, metadata.v6, ...neighbours.v6])],
  };
}

/** Names and addresses that answer with a certificate. */
export function certified(): { readonly names: readonly string[]; readonly addresses: readonly string[] } {
  const { hostileNames, rebinding, resolvers, sites } = fakeInternet;
  return {
    names: [...Object.keys(sites), ...Object.keys(hostileNames), `*.${rebinding.below}`],
    addresses: [...resolvers.v4, ...resolvers.v6],
  };
}

/** Addresses with TLS on port 443. */
export function tlsAddresses(): readonly string[] {
  const { v4, v6 } = siteAddresses();
  const { resolvers } = fakeInternet;
  return [...v4, ...v6, ...resolvers.v4, ...resolvers.v6];
}

function siteAddresses(): { readonly v4: readonly string[]; readonly v6: readonly string[] } {
  const sites: readonly { readonly v4: string; readonly v6?: string }[] = Object.values(fakeInternet.sites);
  return {
    v4: [...new Set(sites.map((site) => site.v4))],
    v6: [...new Set(sites.flatMap((site) => site.v6 ?? []))],
  };
}
