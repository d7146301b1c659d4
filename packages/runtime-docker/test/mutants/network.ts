import type { NetworkPolicy } from "@breakwater/runtime-api";
import { type Mutant, onExec, onResult } from "./mutant.ts";

const PUBLIC: NetworkPolicy = { mode: "public" };

/** A box that was to have no network, and is a public one. */
const opened: Mutant["spec"] = (spec) =>
  spec.network?.initial.mode === "no-network" && spec.network.later === undefined
    ? { ...spec, network: { initial: PUBLIC } }
    : spec;

/** Every dial of a box says that it came through, where the box or the target is of this kind. */
function reaches(target: RegExp, mode: NetworkPolicy["mode"]): Mutant["box"] & object {
  return onExec(async (run, argv, _options, box) => {
    const result = await run();
    const dials = argv[1] === "-e" && argv[2]?.includes("getaddrinfo") === true && target.test(argv.slice(3).join(" "));
    return dials && box.spec.network.initial.mode === mode ? { ...result, stdout: Buffer.from("reached") } : result;
  });
}

/** A box keeps the policy that it had. */
const keepsItsPolicy: Mutant["box"] = (box) => ({ setNetwork: async () => box.setNetwork(box.spec.network.initial) });

export const networkMutants: readonly Mutant[] = [
  {
    id: "network.own-loopback",
    does: "takes the loopback away as well",
    says: /reached/,
    box: onResult((_result, argv) =>
      argv.includes("127.0.0.1") && argv.includes("8123") ? { stdout: Buffer.from("failed") } : undefined,
    ),
  },
  {
    id: "network.host-loopback",
    does: "lets boxes reach the host's loopback",
    says: /reaches the host's loopback/,
    box: reaches(/host\.docker\.internal/, "public"),
  },
  {
    id: "network.host-addresses",
    does: "gives a box without network a way to the host",
    says: /reaches this host/,
    box: reaches(/\d+\.\d+\.\d+\.\d+/, "no-network"),
  },
  {
    id: "network.siblings-public",
    does: "lets public boxes reach each other",
    says: /a public box reaches another box|reached/,
    box: onExec(async (run, argv) => {
      const result = await run();
      return argv.includes("8124") && argv.includes("tcp") ? { ...result, stdout: Buffer.from("reached") } : result;
    }),
  },
  {
    id: "network.siblings-none",
    does: "lets a box without network reach a public one",
    says: /a box without network reaches another box/,
    box: reaches(/8125/, "no-network"),
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
    says: /a no-network box reaches/,
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
    says: /the open connection goes on/,
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
