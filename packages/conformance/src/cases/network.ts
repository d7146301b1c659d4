import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, connect as dialHere, type AddressInfo } from "node:net";
import { networkInterfaces } from "node:os";
import type { NetworkPolicy, Runtime } from "@breakwater/runtime-api";
import { dial, given, resolves, shell, text, until } from "../box-tools.ts";
import type { CaseContext, ConformanceCase } from "../case.ts";
import { changesNetwork, networkMode } from "../needs.ts";
import type { ForbiddenTarget } from "../options.ts";

export const PUBLIC: NetworkPolicy = { mode: "public" };
export const NONE: NetworkPolicy = { mode: "no-network" };

/** A server that sends back what it gets, in a box, on all its addresses. */
const ECHO_SERVER = `use Socket; $| = 1;
socket(my $s, AF_INET, SOCK_STREAM, 0) or die; setsockopt($s, SOL_SOCKET, SO_REUSEADDR, 1);
bind($s, sockaddr_in($ARGV[0], INADDR_ANY)) or die "bind: $!"; listen($s, 5); print "listening\\n";
while (accept(my $c, $s)) { while (sysread($c, my $data, 4096)) { syswrite($c, $data) } close $c }`;

/** IPv4 addresses of the box's own interfaces, loopback left out. */
export async function addressesOf(box: Runtime): Promise<readonly string[]> {
  const table = await shell(box, "cat /proc/net/fib_trie");
  const local = [...table.matchAll(/\|-- (\d+\.\d+\.\d+\.\d+)\n\s+\/32 host LOCAL/g)].map((match) => match[1] ?? "");
  return [...new Set(local)].filter((address) => !address.startsWith("127."));
}

export async function startEchoServer(box: Runtime, port: number): Promise<void> {
  let listening = false;
  const running = box.exec(["perl", "-e", ECHO_SERVER, String(port)], {
    timeoutMs: 300_000,
    onOutput: (_stream, chunk) => {
      listening ||= text(chunk).includes("listening");
    },
  });
  // The server ends with the box; by then the case is over.
  running.catch(() => undefined);
  await until("the server listening", () => listening);
}

/** An echo server in this process, for as long as `use` takes. */
async function withServerHere(host: string, use: (port: number) => Promise<void>): Promise<void> {
  const server = createServer((socket) => {
    socket.on("error", () => socket.destroy());
    socket.pipe(socket);
  });
  server.listen(0, host);
  await once(server, "listening");
  try {
    await use((server.address() as AddressInfo).port);
  } finally {
    server.close();
  }
}

async function reachableFromHere(host: string, port: number): Promise<boolean> {
  const socket = dialHere({ host, port, timeout: 2000 });
  try {
    await once(socket, "connect");
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}

const addressesOfThisHost = (): readonly string[] =>
  Object.values(networkInterfaces())
    .flat()
    .filter((it) => it !== undefined && !it.internal && !it.address.startsWith("fe80:"))
    .map((it) => it?.address ?? "");

/** The target answers now, seen from where it may be seen. */
async function assertAlive(target: ForbiddenTarget, publicBox: Runtime | undefined): Promise<void> {
  if (target.answers !== undefined) return target.answers();
  assert.ok(publicBox !== undefined, `${target.what}: no public box can show that it answers; give "answers"`);
  assert.equal(
    await dial(publicBox, target),
    "reached",
    `${target.what} does not answer a public box: it proves nothing`,
  );
}

export async function assertUnreachable(context: CaseContext, policy: NetworkPolicy): Promise<void> {
  const as = policy.mode === "allowlist" ? "no-network" : policy.mode;
  const targets = given(context.network.unreachable).filter((it) => (it.forbiddenIn ?? ["no-network"]).includes(as));
  const publicBox = networkMode("public").claimed(context.capabilities)
    ? await context.ownBox({ network: { initial: PUBLIC } })
    : undefined;
  const box = await context.ownBox({ network: { initial: policy } });
  for (const target of targets) {
    await assertAlive(target, publicBox);
    assert.notEqual(await dial(box, target), "reached", `a box with ${policy.mode} reaches ${target.what}`);
  }
}

export const networkCases: readonly ConformanceCase[] = [
  {
    id: "network.own-loopback",
    level: "MUST",
    title: "leave a box without network its own loopback",
    promise: "no-network: nothing but the box's own loopback.",
    needs: [networkMode("no-network")],
    async run({ ownBox, capabilities }) {
      // A box that gets another network later may be made in another way.
      const isWidened = changesNetwork.claimed(capabilities) && networkMode("public").claimed(capabilities);
      for (const later of isWidened ? [[], [PUBLIC]] : [[]]) {
        const box = await ownBox({ network: { initial: NONE, later } });
        await startEchoServer(box, 8123);
        assert.equal(await dial(box, { host: "127.0.0.1", port: 8123 }), "reached");
      }
    },
  },
  {
    id: "network.host-loopback",
    level: "MUST",
    title: "reach no service on the host's loopback",
    promise: "public: the internet; no service on the host's loopback.",
    covers: ["B61", "B68"],
    async run({ ownBox, capabilities }) {
      await withServerHere("127.0.0.1", async (port) => {
        assert.ok(await reachableFromHere("127.0.0.1", port));
        for (const mode of ["public", "no-network"] as const) {
          if (!networkMode(mode).claimed(capabilities)) continue;
          const box = await ownBox({ network: { initial: { mode } } });
          for (const host of ["127.0.0.1", "localhost", "host.docker.internal"]) {
            assert.notEqual(
              await dial(box, { host, port }),
              "reached",
              `a ${mode} box reaches the host's loopback as ${host}`,
            );
          }
        }
      });
    },
  },
  {
    id: "network.host-addresses",
    level: "MUST",
    title: "reach no address of this host from a box without network",
    promise: "no-network: no host, no gateway.",
    needs: [networkMode("no-network")],
    covers: ["B62"],
    async run({ ownBox }) {
      const box = await ownBox({ network: { initial: NONE } });
      await withServerHere("0.0.0.0", async (port) => {
        const addresses = addressesOfThisHost().filter((it) => !it.includes(":"));
        for (const host of ["127.0.0.1", ...addresses]) {
          const isReached = await reachableFromHere(host, port);
          // The bridge of another box may have gone meanwhile, and its address with it.
          if (!isReached && host !== "127.0.0.1" && !addressesOfThisHost().includes(host)) continue;
          assert.ok(isReached, `this process does not reach itself at ${host}: it proves nothing`);
          assert.notEqual(await dial(box, { host, port }, 2), "reached", `the box reaches this host at ${host}`);
        }
      });
    },
  },
  {
    id: "network.siblings-public",
    level: "MUST",
    title: "reach no other box from a public one",
    promise: "public: the internet; no other box.",
    needs: [networkMode("public")],
    covers: ["B62"],
    async run({ ownBox }) {
      const [server, client] = [
        await ownBox({ network: { initial: PUBLIC } }),
        await ownBox({ network: { initial: PUBLIC } }),
      ];
      await startEchoServer(server, 8124);
      const addresses = await addressesOf(server);
      assert.ok(addresses.length > 0, "the public box has no address");
      for (const host of addresses) {
        assert.equal(
          await dial(server, { host, port: 8124 }),
          "reached",
          "the server does not answer at its own address",
        );
        assert.notEqual(await dial(client, { host, port: 8124 }), "reached", "a public box reaches another box");
      }
    },
  },
  {
    id: "network.siblings-none",
    level: "MUST",
    title: "reach no other box from one without network",
    promise: "no-network: no sibling.",
    needs: [networkMode("no-network"), networkMode("public")],
    covers: ["B62"],
    async run({ ownBox }) {
      const [server, client] = [
        await ownBox({ network: { initial: PUBLIC } }),
        await ownBox({ network: { initial: NONE } }),
      ];
      await startEchoServer(server, 8125);
      for (const host of await addressesOf(server)) {
        assert.equal(await dial(server, { host, port: 8125 }), "reached");
        assert.notEqual(
          await dial(client, { host, port: 8125 }),
          "reached",
          "a box without network reaches another box",
        );
      }
    },
  },
  {
    id: "network.public",
    level: "MUST",
    title: "reach the internet from a public box",
    promise: "public: the internet.",
    needs: [networkMode("public")],
    prerequisites: ["network.reachable"],
    async run({ ownBox, network }) {
      const box = await ownBox({ network: { initial: PUBLIC } });
      assert.equal(await dial(box, given(network.reachable)), "reached");
    },
  },
  {
    id: "network.public-names",
    level: "MUST",
    title: "resolve names in a public box",
    promise: "public: the internet.",
    needs: [networkMode("public")],
    prerequisites: ["network.name"],
    async run({ ownBox, network }) {
      assert.equal(await resolves(await ownBox({ network: { initial: PUBLIC } }), given(network.name)), true);
    },
  },
  {
    id: "network.public-forbidden",
    level: "MUST",
    title: "reach nothing from a public box that is forbidden to it",
    promise: "public: no other box; no service on the host's loopback.",
    needs: [networkMode("public")],
    prerequisites: ["network.unreachable for public boxes"],
    covers: ["B61", "B66"],
    run: (context) => assertUnreachable(context, PUBLIC),
  },
  {
    id: "network.none",
    level: "MUST",
    title: "reach nothing from a box without network: no internet, host, gateway or metadata address",
    promise: "no-network: no host, no gateway, no sibling, no metadata address, IPv4 and IPv6.",
    needs: [networkMode("no-network")],
    prerequisites: ["network.unreachable"],
    covers: ["B62", "B66", "B70"],
    run: (context) => assertUnreachable(context, NONE),
  },
  {
    id: "network.none-internet",
    level: "MUST",
    title: "reach no internet from a box without network",
    promise: "no-network: nothing but the box's own loopback.",
    needs: [networkMode("no-network"), networkMode("public")],
    prerequisites: ["network.reachable"],
    covers: ["B70"],
    async run({ ownBox, network }) {
      const target = given(network.reachable);
      assert.equal(await dial(await ownBox({ network: { initial: PUBLIC } }), target), "reached");
      assert.notEqual(await dial(await ownBox({ network: { initial: NONE } }), target), "reached");
    },
  },
  {
    id: "network.none-names",
    level: "MUST",
    title: "resolve no name in a box without network",
    promise: "no-network: no name resolution.",
    needs: [networkMode("no-network"), networkMode("public")],
    prerequisites: ["network.name"],
    covers: ["B65", "B68"],
    async run({ ownBox, network }) {
      const name = given(network.name);
      assert.equal(await resolves(await ownBox({ network: { initial: PUBLIC } }), name), true);
      assert.equal(await resolves(await ownBox({ network: { initial: NONE } }), name), false);
    },
  },
  {
    id: "network.none-for-root",
    level: "MUST",
    title: "give root in a box without network no way to undo that",
    promise: "A driver enforces a policy exactly.",
    needs: [networkMode("no-network"), networkMode("public")],
    prerequisites: ["network.reachable"],
    async run({ ownBox, network }) {
      const target = given(network.reachable);
      assert.equal(await dial(await ownBox({ network: { initial: PUBLIC } }), target), "reached");
      const box = await ownBox({ network: { initial: NONE } });
      await shell(
        box,
        `for link in $(ls /sys/class/net); do ip link set $link up; ip route add default dev $link; done; for ns in /proc/[0-9]*/ns/net; do nsenter --net=$ns true; done; unshare --net true; true`,
      ).catch(() => undefined);
      assert.notEqual(await dial(box, target), "reached");
    },
  },
  {
    id: "network.allowlist-empty",
    level: "MUST",
    title: "take an empty allowlist for no network",
    promise: "Empty list = no-network.",
    needs: [networkMode("no-network")],
    async run({ ownBox }) {
      const box = await ownBox({ network: { initial: { mode: "allowlist", hosts: [] } } });
      assert.deepEqual(box.spec.network.initial, NONE);
      // Where boxes are cut off by filters, each has an address of its own.
      const none = await ownBox({ network: { initial: NONE } });
      assert.equal((await addressesOf(box)).length, (await addressesOf(none)).length);
    },
  },
  {
    id: "network.default",
    level: "MUST",
    title: "take public as the default, and only because the spec says nothing",
    promise: "The default of network is public with no later policies.",
    needs: [networkMode("public")],
    async run({ driver, image }) {
      assert.deepEqual(driver.create({ image }).spec.network, { initial: PUBLIC, later: [] });
    },
  },
];
