import type { NetworkMode, Runtime, RuntimeDriver } from "@breakwater/runtime-api";

export interface DescribeRuntimeOptions {
  /** Called several times; every call gives a driver of its own. */
  readonly driver: () => RuntimeDriver;
  /** Debian-like: `sh`, coreutils, findutils and perl (perl-base is enough). No ENTRYPOINT, root. */
  readonly image: string;
  readonly images?: FixtureImages | undefined;
  readonly network?: NetworkTargets | undefined;
  readonly sabotage?: Sabotage | undefined;
  /** For cases in which the owner of a box is another process, that dies. */
  readonly driverModule?: DriverModule | undefined;
  /** Cases that this driver is known not to pass, each with a link to the reason. A waived case that passes fails the run. */
  readonly waive?: Readonly<Record<string, string>> | undefined;
  /** In titles and in the summary. Default is the driver's name. */
  readonly name?: string | undefined;
}

/** A module that a Node process of its own imports; its default export makes a driver: `() => RuntimeDriver`. */
export interface DriverModule {
  readonly url: URL | string;
  /** Arguments of `node`, for instance conditions and loaders that the module needs. Default is none. */
  readonly nodeArguments?: readonly string[] | undefined;
}

/** Images for cases that one Debian-like image cannot show. A case without its image is not run. */
export interface FixtureImages {
  /** Its ENTRYPOINT writes its arguments to `evidence`, one a line, and then runs them. */
  readonly entrypoint?: { readonly image: string; readonly evidence: string } | undefined;
  /** Its ENTRYPOINT ends at once when it gets arguments that it does not know, for instance `["/bin/bash"]`. */
  readonly entrypointThatEnds?: string | undefined;
  /** Its USER is a numeric id, its WORKDIR a folder of that user. Debian-like. */
  readonly nonRoot?: { readonly image: string; readonly uid: number; readonly workdir: string } | undefined;
  /** Its ENV PATH has a folder of its own, with a program that ends with 0. Debian-like. */
  readonly path?: { readonly image: string; readonly program: string } | undefined;
  /** No shell, no tar: only a static program. `argv` ends with 0. */
  readonly noShell?: { readonly image: string; readonly argv: readonly string[] } | undefined;
}

/** Servers for the network cases, as a box sees them. Nothing is contacted that is not named here, but loopback, this host and other boxes. */
export interface NetworkTargets {
  /** On the internet of the boxes: a TCP server that sends back what it gets. */
  readonly reachable?: { readonly host: string; readonly port: number } | undefined;
  /** A host name that a `public` box can resolve. */
  readonly name?: string | undefined;
  /** Servers that some boxes must not reach: the host, a gateway, a metadata address. */
  readonly unreachable?: readonly ForbiddenTarget[] | undefined;
  /** On the internet of the boxes: a UDP server that sends back what it gets. */
  readonly datagrams?: { readonly host: string; readonly port: number } | undefined;
  /** A DNS server that the resolvers of public boxes ask, and that remembers. Needs `name`: names below it are asked for. */
  readonly resolver?: RecordingResolver | undefined;
  readonly allowlist?: AllowlistTargets | undefined;
}

export interface RecordingResolver {
  /** Where it can be asked directly, on port 53 by UDP and TCP. */
  readonly address: string;
  /** The names that it has been asked for, in lower case. */
  readonly queries: () => Promise<readonly string[]>;
}

/** Names on the internet of the boxes. Each answers a TLS hello with its name on port 443, and `GET /` with 200 on port 80; public boxes reach all of it. */
export interface AllowlistTargets {
  readonly allowed: string;
  readonly denied: string;
  /** An IPv4 address of `allowed`. */
  readonly address: string;
  /** A port of `allowed` that no allowlist opens: a TCP server that sends back what it gets. */
  readonly otherPort: number;
  readonly wildcard: {
    /** Without `*.`. */
    readonly suffix: string;
    /** One label below `suffix`. */
    readonly below: string;
    /** Two labels below it. */
    readonly deeper: string;
  };
  /** A name whose port 443 sends back what it gets, from the first byte on. */
  readonly echo: string;
  /** Names that lead to private, loopback, link-local or shared addresses, at which a server answers on port 80 where the box's host has one. */
  readonly misleading: readonly string[];
}

/** A server that sends back what it gets. */
export interface ForbiddenTarget {
  /** For messages: "the host's address on the bridge". */
  readonly what: string;
  readonly host: string;
  readonly port: number;
  /** Default is `tcp`. */
  readonly protocol?: "tcp" | "udp" | undefined;
  /** The modes that must not reach it. Default is `["no-network"]`; what is forbidden there is forbidden with an allowlist too. */
  readonly forbiddenIn?: readonly NetworkMode[] | undefined;
  /** Rejects unless the server answers now. Default: a `public` box is asked, which must be allowed to reach it. */
  readonly answers?: (() => Promise<void>) | undefined;
}

/** Faults that the driver is not told about, done with the backend's own tools. */
export interface Sabotage {
  /** Ends everything in the box, as a stranger on the backend would (a kill of its first process). The box itself is not removed. */
  readonly endBox?: ((box: Runtime) => Promise<void>) | undefined;
  /** The same to a service of the box. */
  readonly endService?: ((box: Runtime, name: string) => Promise<void>) | undefined;
  /** Makes a box that is not ours, with `image`. */
  readonly foreignBox?: ((image: string) => Promise<ForeignBox>) | undefined;
}

export interface ForeignBox {
  runs(): Promise<boolean>;
  remove(): Promise<void>;
}
