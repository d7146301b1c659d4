import { execFile } from "node:child_process";
import { promisify } from "node:util";
import type { NetworkPolicy, Runtime } from "@breakwater/runtime-api";
import Dockerode from "dockerode";
import { type Mutant, onExec, onHostNetwork } from "./mutant.ts";

const PUBLIC: NetworkPolicy = { mode: "public" };

/** A box that was to have no network, and is a public one. */
const opened: Mutant["spec"] = (spec) =>
  spec.network?.initial.mode === "no-network" && spec.network.later === undefined
    ? { ...spec, network: { initial: PUBLIC } }
    : spec;

const withMode =
  (mode: NetworkPolicy["mode"], ...words: readonly string[]) =>
  (box: Runtime, argv: readonly string[]): boolean =>
    box.spec.network.initial.mode === mode && words.every((word) => argv.includes(word));

/** A box keeps the policy that it had. */
const keepsItsPolicy: Mutant["box"] = (box) => ({ setNetwork: async () => box.setNetwork(box.spec.network.initial) });

export const networkMutants: readonly Mutant[] = [
  {
    id: "network.own-loopback",
    does: "takes the loopback away as well",
    says: /reached/,
    box: (box) => ({
      start: async (options) => {
        await box.start(options);
        await takeLoopbackDown(box);
      },
    }),
  },
  {
    id: "network.host-loopback",
    does: "puts public boxes on the host's network",
    says: /reaches the host's loopback/,
    box: onHostNetwork(withMode("public")),
  },
  {
    id: "network.host-addresses",
    does: "puts boxes without a network on the host's",
    says: /reaches this host/,
    box: onHostNetwork(withMode("no-network")),
  },
  {
    id: "network.siblings-public",
    does: "puts public boxes on the host's network, which has a way to all of them",
    says: /a public box reaches another box/,
    box: onHostNetwork(withMode("public", "8124")),
  },
  {
    id: "network.siblings-none",
    does: "puts boxes without a network on the host's, which has a way to public ones",
    says: /a box without network reaches another box/,
    box: onHostNetwork(withMode("no-network", "8125")),
  },
  {
    id: "network.public-forbidden",
    does: "puts public boxes on the host's network",
    says: /a box with public reaches/,
    box: onHostNetwork(withMode("public")),
  },
  {
    id: "network.public",
    does: "gives no network where it is asked for",
    says: /reached/,
    spec: (spec) => ({ ...spec, network: { initial: { mode: "no-network" } } }),
  },
  {
    id: "network.public-names",
    does: "gives a public box no resolver",
    says: /strictly equal/,
    spec: (spec) => ({ ...spec, network: { initial: { mode: "no-network" } } }),
  },
  {
    id: "network.none",
    does: "opens a box that was to have no network",
    says: /a box with no-network reaches/,
    spec: opened,
  },
  {
    id: "network.none-internet",
    does: "opens a box that was to have no network",
    says: /reached/,
    spec: opened,
  },
  {
    id: "network.none-names",
    does: "opens a box that was to have no network",
    says: /strictly equal/,
    spec: opened,
  },
  {
    id: "network.none-dns",
    does: "opens a box that was to have no network",
    says: /has reached a resolver/,
    spec: opened,
  },
  {
    id: "network.none-for-root",
    does: "lets root in the box bring the network up",
    says: /reached/,
    spec: (spec) =>
      spec.network?.initial.mode === "no-network" ? { ...spec, network: { ...spec.network, later: [PUBLIC] } } : spec,
    box: onExec(async (run, argv, _options, box) => {
      if (argv.at(-1)?.includes("ip link set") === true) await box.setNetwork(PUBLIC);
      return run();
    }),
  },
  {
    id: "network.change-tightens",
    does: "only says that it has changed the policy",
    says: /the open connection: it (?:goes|went) on/,
    box: keepsItsPolicy,
  },
  {
    id: "network.change-cuts-datagrams",
    does: "only says that it has changed the policy",
    says: /the flow of datagrams: it (?:goes|went) on/,
    box: keepsItsPolicy,
  },
  {
    id: "network.change-widens",
    does: "only says that it has changed the policy",
    says: /reached/,
    box: keepsItsPolicy,
  },
  {
    id: "network.change-there-and-back",
    does: "changes the policy once",
    says: /round 1/,
    box: (box) => {
      let changes = 0;
      return {
        setNetwork: async (policy, options) => {
          changes += 1;
          if (changes <= 2) return box.setNetwork(policy, options);
          return undefined;
        },
      };
    },
  },
  {
    id: "network.change-keeps-the-box",
    does: "ends programs when the policy changes",
    says: /its own loopback is gone/,
    box: (box) => ({
      setNetwork: async (policy, options) => {
        await box.setNetwork(policy, options);
        await box.killProcesses();
      },
    }),
  },
  {
    id: "network.change-announced",
    does: "ignores a policy that was not announced",
    says: /expected a TypeError, but it succeeded/,
    box: (box) => ({
      setNetwork: async (policy, options) => {
        await box.setNetwork(policy, options).catch((error: unknown) => {
          if (!(error instanceof TypeError)) throw error;
        });
      },
    }),
  },
  {
    id: "network.change-state",
    does: "ignores a change before start",
    says: /but it succeeded/,
    box: (box) => ({
      setNetwork: async (policy, options) => (box.state === "new" ? undefined : box.setNetwork(policy, options)),
    }),
  },
  {
    id: "network.allowlist-empty",
    does: "takes an empty allowlist for public",
    says: /deep-equal/,
    spec: (spec) => (spec.network?.initial.mode === "allowlist" ? { ...spec, network: { initial: PUBLIC } } : spec),
  },
  {
    id: "network.default",
    does: "takes no network as the default",
    says: /deep-equal/,
    spec: (spec) => ({ network: { initial: { mode: "no-network" } }, ...spec }),
  },
];

/** From the host: no program of a box may. */
async function takeLoopbackDown(box: Runtime): Promise<void> {
  const { State } = await new Dockerode().getContainer(box.id).inspect();
  const setFlags = `use Socket; socket(my $s, AF_INET, SOCK_DGRAM, 0) or die; my $flags = pack("a16 s x22", "lo", 0); ioctl($s, 0x8914, $flags) or die $!`;
  await promisify(execFile)("nsenter", ["--target", String(State.Pid), "--net", "perl", "-e", setFlags]);
}
