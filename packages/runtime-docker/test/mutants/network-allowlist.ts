import type { NetworkPolicy, RuntimeSpecInput } from "@breakwater/runtime-api";
import { targets } from "../backend.ts";
import type { Mutant } from "./mutant.ts";

/** The mutant keeps another list than the one that it is asked for. */
function listing(
  change: (hosts: readonly string[]) => readonly string[],
): (asked: RuntimeSpecInput) => RuntimeSpecInput {
  const changed = (policy: NetworkPolicy): NetworkPolicy =>
    policy.mode === "allowlist" ? { mode: "allowlist", hosts: change(policy.hosts) } : policy;
  return (spec) =>
    spec.network === undefined
      ? spec
      : { ...spec, network: { ...spec.network, initial: changed(spec.network.initial) } };
}

/** A box that was to reach a list reaches everything. */
function opened(spec: RuntimeSpecInput): RuntimeSpecInput {
  return spec.network?.initial.mode === "allowlist" ? { ...spec, network: { initial: { mode: "public" } } } : spec;
}

const keepsItsPolicy: Mutant["box"] = (box) => ({ setNetwork: async () => box.setNetwork(box.spec.network.initial) });

/** Hosts of every box so far. */
const everyHost = new Set<string>();

export const networkAllowlistMutants: readonly Mutant[] = [
  {
    id: "network.allowlist",
    does: "opens a box that was to reach a list only",
    says: /not listed/,
    spec: opened,
  },
  {
    id: "network.allowlist-several",
    does: "drops entries that are not in lower case",
    says: /example\.org/,
    spec: listing((hosts) => hosts.filter((host) => host === host.toLowerCase())),
  },
  {
    id: "network.allowlist-wildcard",
    does: "takes a wildcard for the name itself too",
    says: /the name itself/,
    spec: listing((hosts) => hosts.flatMap((host) => [host, host.replace(/^\*\./, "")])),
  },
  {
    id: "network.allowlist-exact",
    does: "takes a name for all names below it",
    says: /a name below the listed one/,
    spec: listing((hosts) => hosts.flatMap((host) => [host, `*.${host}`])),
  },
  {
    id: "network.allowlist-literal",
    does: "lists the addresses of listed names",
    says: /through the proxy|the address/,
    spec: listing((hosts) => [...hosts, targets?.allowlist?.address ?? ""]),
  },
  {
    id: "network.allowlist-ports",
    does: "opens every port",
    says: /another port is open/,
    spec: opened,
  },
  {
    id: "network.allowlist-address",
    does: "takes every range for one that has the address",
    says: /is not in/,
    spec: listing((hosts) => hosts.map((host) => (host.endsWith("/8") ? (targets?.allowlist?.address ?? "") : host))),
  },
  {
    id: "network.allowlist-nothing-else",
    does: "opens a box that was to reach a list only",
    says: /a box with allowlist reaches/,
    spec: opened,
  },
  {
    id: "network.allowlist-misleading",
    does: "goes wherever a name leads",
    says: /: (?:TLS|HTTP)/,
    spec: opened,
  },
  {
    id: "network.allowlist-siblings",
    does: "has one list for all boxes",
    says: /a host of another box's list/,
    spec: listing((hosts) => {
      for (const host of hosts) everyHost.add(host);
      return [...everyHost];
    }),
  },
  {
    id: "network.allowlist-for-root",
    does: "lets root go where it likes",
    says: /by name/,
    spec: opened,
  },
  {
    id: "network.allowlist-proxy",
    does: "names a proxy where there is none",
    says: /a no-network box has proxy variables/,
    spec: (spec) =>
      spec.network?.initial.mode === "no-network"
        ? { ...spec, env: { ...spec.env, https_proxy: "http://127.0.0.1:3128" } }
        : spec,
  },
  {
    id: "network.allowlist-dns",
    does: "lets a box with a list ask every resolver",
    says: /has reached a resolver/,
    spec: opened,
  },
  {
    id: "network.change-public-to-allowlist",
    does: "only says that it has changed the policy",
    says: /the open connection: it (?:goes|went) on/,
    box: keepsItsPolicy,
  },
  {
    id: "network.change-cuts-tunnels",
    does: "only says that it has changed the policy",
    says: /the open tunnel: it (?:goes|went) on/,
    box: keepsItsPolicy,
  },
  {
    id: "network.change-every-transition",
    does: "changes the policy six times at most",
    says: /from .* to /,
    box: (box) => {
      let changes = 0;
      return {
        setNetwork: async (policy, options) => {
          changes += 1;
          if (changes <= 6) await box.setNetwork(policy, options);
        },
      };
    },
  },
  {
    id: "network.change-from-every-start",
    does: "only says that it has changed the policy",
    says: /from .* to /,
    box: keepsItsPolicy,
  },
];
