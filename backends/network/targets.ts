import { backendFolders, type BackendFolders } from "../src/folders.ts";
import { fakeInternet, fakePorts } from "./addresses.ts";
import { contacts, runInside } from "./backend.ts";

/** A server that sends back what it gets. */
export interface NetworkTarget {
  /** For messages. */
  readonly what: string;
  readonly host: string;
  readonly port: number;
  readonly protocol?: "tcp" | "udp";
  readonly forbiddenIn?: readonly ("public" | "no-network")[];
  /** Rejects unless the server answers now. Where absent, a box on the public network can ask it. */
  readonly answers?: () => Promise<void>;
}

/** Where boxes on this backend can try to send something, in the shape that the conformance suite takes. */
export interface NetworkTargets {
  readonly reachable: { readonly host: string; readonly port: number };
  readonly name: string;
  /** What a box without a network must not reach. */
  readonly unreachable: readonly NetworkTarget[];
  readonly datagrams: { readonly host: string; readonly port: number };
  readonly resolver: { readonly address: string; readonly queries: () => Promise<readonly string[]> };
  readonly allowlist: {
    readonly allowed: string;
    readonly denied: string;
    readonly address: string;
    readonly otherPort: number;
    readonly wildcard: { readonly suffix: string; readonly below: string; readonly deeper: string };
    readonly echo: string;
    readonly misleading: readonly string[];
  };
}

export function networkTargets(folders: BackendFolders = backendFolders()): NetworkTargets {
  const { echo, host, hostileNames, metadata, neighbours, resolvers, sites } = fakeInternet;
  const port = fakePorts.echo;
  const connectsFromHost = async (address: string, to: number): Promise<void> => {
    await runInside(["bash", "-c", `exec 3<>/dev/tcp/${address}/${to}`], { timeoutMs: 30_000 }, folders);
  };
  // Not every public network has IPv6: these are asked from the engine's host.
  const v6 = (what: string, address: string): NetworkTarget => ({
    what,
    host: address,
    port,
    answers: () => connectsFromHost(address, port),
  });
  return {
    reachable: { host: "example.com", port },
    name: "example.com",
    unreachable: [
      { what: "an address of the internet", host: sites["example.com"].v4, port },
      { what: "an address of the internet by UDP", host: sites["example.com"].v4, port, protocol: "udp" },
      { what: "a public resolver", host: resolvers.v4[0], port, protocol: "udp" },
      { what: "the metadata address", host: metadata.v4, port },
      { what: "the engine host's own address", host: host.v4, port },
      { what: "the engine host's own address by UDP", host: host.v4, port, protocol: "udp" },
      { what: "a private neighbour of the engine's host", host: neighbours.v4[0], port },
      v6("an address of the internet (IPv6)", sites["example.com"].v6),
      v6("the metadata address (IPv6)", metadata.v6),
      v6("the engine host's own address (IPv6)", host.v6),
      {
        what: "a service on the loopback of the engine's host",
        host: "127.0.0.1",
        port: fakePorts.hostLoopback,
        forbiddenIn: ["public", "no-network"],
        answers: () => connectsFromHost("127.0.0.1", fakePorts.hostLoopback),
      },
    ],
    datagrams: { host: "example.com", port },
    resolver: {
      address: resolvers.v4[0],
      queries: async () => {
        // One of them is on the loopback of the engine's host.
        const all = await Promise.all([contacts("internet", folders), contacts("host", folders)]);
        return all.flat().flatMap((it) => (it.protocol === "dns" ? (it.text ?? []) : []));
      },
    },
    allowlist: {
      allowed: "example.com",
      denied: "example.org",
      address: sites["example.com"].v4,
      otherPort: fakePorts.other,
      wildcard: { suffix: "example.com", below: "api.example.com", deeper: "deep.api.example.com" },
      echo: echo.name,
      misleading: Object.keys(hostileNames),
    },
  };
}
