import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, connect as dialHere, type AddressInfo } from "node:net";
import { networkInterfaces } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import type { NetworkPolicy, Runtime } from "@breakwater/runtime-api";
import {
  assertAnswers,
  dial,
  given,
  mistake,
  expectedError,
  rejection,
  resolves,
  shell,
  text,
  until,
} from "../box-tools.ts";
import type { CaseContext, ConformanceCase } from "../case.ts";
import { changesNetwork, cutsConnections, freezes, networkMode } from "../needs.ts";
import type { ForbiddenTarget } from "../options.ts";

const PUBLIC: NetworkPolicy = { mode: "public" };
const NONE: NetworkPolicy = { mode: "no-network" };

/** A server that sends back what it gets, in a box, on all its addresses. */
const ECHO_SERVER = `use Socket; $| = 1;
socket(my $s, AF_INET, SOCK_STREAM, 0) or die; setsockopt($s, SOL_SOCKET, SO_REUSEADDR, 1);
bind($s, sockaddr_in($ARGV[0], INADDR_ANY)) or die "bind: $!"; listen($s, 5); print "listening\\n";
while (accept(my $c, $s)) { while (sysread($c, my $data, 4096)) { syswrite($c, $data) } close $c }`;

/** Asks for an echo five times a second and prints every answer, until there is none. */
const ECHO_CLIENT = `use Socket qw(getaddrinfo SOCK_STREAM); $| = 1;
my ($error, $it) = getaddrinfo($ARGV[0], $ARGV[1], { socktype => SOCK_STREAM }); die $error if $error;
socket(my $s, $it->{family}, SOCK_STREAM, 0) or die; connect($s, $it->{addr}) or die "connect: $!";
for my $i (1..1000) { defined(syswrite($s, "tick\\n")) or last; sysread($s, my $answer, 100) or last; print "echo\\n"; select(undef, undef, undef, 0.2) }
print "lost\\n"; sleep 1000;`;

/** IPv4 addresses of the box's own interfaces, loopback left out. */
async function addressesOf(box: Runtime): Promise<readonly string[]> {
  const table = await shell(box, "cat /proc/net/fib_trie");
  const local = [...table.matchAll(/\|-- (\d+\.\d+\.\d+\.\d+)\n\s+\/32 host LOCAL/g)].map((match) => match[1] ?? "");
  return [...new Set(local)].filter((address) => !address.startsWith("127."));
}

async function startEchoServer(box: Runtime, port: number): Promise<void> {
  let listening = false;
  const running = box.exec(["perl", "-e", ECHO_SERVER, String(port)], {
    timeoutMs: 120_000,
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

async function assertUnreachable(context: CaseContext, mode: "public" | "no-network"): Promise<void> {
  const targets = given(context.network.unreachable).filter((it) => (it.forbiddenIn ?? ["no-network"]).includes(mode));
  const publicBox = networkMode("public").claimed(context.capabilities)
    ? await context.ownBox({ network: { initial: PUBLIC } })
    : undefined;
  const box = await context.ownBox({ network: { initial: { mode } } });
  for (const target of targets) {
    await assertAlive(target, publicBox);
    assert.notEqual(await dial(box, target), "reached", `a ${mode} box reaches ${target.what}`);
  }
}

export const networkCases: readonly ConformanceCase[] = [
  {
    id: "network.own-loopback",
    level: "MUST",
    title: "leave a box without network its own loopback",
    promise: "no-network: nothing but the box's own loopback.",
    needs: [networkMode("no-network")],
    async run({ ownBox }) {
      const box = await ownBox({ network: { initial: NONE } });
      await startEchoServer(box, 8123);
      assert.equal(await dial(box, { host: "127.0.0.1", port: 8123 }), "reached");
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
          assert.ok(
            await reachableFromHere(host, port),
            `this process does not reach itself at ${host}: it proves nothing`,
          );
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
    run: (context) => assertUnreachable(context, "public"),
  },
  {
    id: "network.none",
    level: "MUST",
    title: "reach nothing from a box without network: no internet, host, gateway or metadata address",
    promise: "no-network: no host, no gateway, no sibling, no metadata address, IPv4 and IPv6.",
    needs: [networkMode("no-network")],
    prerequisites: ["network.unreachable"],
    covers: ["B62", "B66", "B70"],
    run: (context) => assertUnreachable(context, "no-network"),
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
    id: "network.change-tightens",
    level: "MUST",
    title: "cut open connections when the policy becomes tighter",
    promise: "networkChange cuts: no open connection that the new policy forbids survives.",
    needs: [cutsConnections, networkMode("public"), networkMode("no-network")],
    prerequisites: ["network.reachable"],
    covers: ["B63", "B64"],
    async run({ ownBox, network }) {
      const { host, port } = given(network.reachable);
      const box = await ownBox({ network: { initial: PUBLIC, later: [NONE] } });
      let echoes = 0;
      const client = box.exec(["perl", "-e", ECHO_CLIENT, host, String(port)], {
        timeoutMs: 45_000,
        onOutput: (_stream, chunk) => {
          echoes += text(chunk).split("echo").length - 1;
        },
      });
      client.catch(() => undefined);
      await until("echoes over the open connection", () => echoes >= 5);
      await box.setNetwork(NONE);
      await sleep(500);
      const atTheCut = echoes;
      await sleep(2000);
      assert.equal(echoes, atTheCut, "the open connection goes on");
      assert.notEqual(await dial(box, { host, port }), "reached", "a new connection is possible");
      await assertAnswers(box);
    },
  },
  {
    id: "network.change-widens",
    level: "MUST",
    title: "give a box the network that was announced, when it is asked for",
    promise: "setNetwork: when it returns the new policy holds.",
    needs: [changesNetwork, networkMode("public"), networkMode("no-network")],
    prerequisites: ["network.reachable"],
    async run({ ownBox, network }) {
      const target = given(network.reachable);
      const box = await ownBox({ network: { initial: NONE, later: [PUBLIC] } });
      assert.notEqual(await dial(box, target), "reached");
      await box.setNetwork(PUBLIC);
      assert.equal(await dial(box, target), "reached");
      await assertAnswers(box);
    },
  },
  {
    id: "network.change-there-and-back",
    level: "MUST",
    title: "change the policy several times, each time in full",
    promise: "setNetwork: never half applied.",
    needs: [cutsConnections, networkMode("public"), networkMode("no-network")],
    prerequisites: ["network.reachable"],
    covers: ["B64"],
    async run({ ownBox, network }) {
      const target = given(network.reachable);
      const box = await ownBox({ network: { initial: PUBLIC, later: [NONE] } });
      for (let round = 0; round < 3; round += 1) {
        assert.equal(await dial(box, target), "reached", `round ${round}`);
        await box.setNetwork(NONE);
        assert.notEqual(await dial(box, target), "reached", `round ${round}`);
        await box.setNetwork(PUBLIC);
      }
    },
  },
  {
    id: "network.change-keeps-the-box",
    level: "MUST",
    title: "change the policy without disturbing what runs in the box",
    promise: "When setNetwork returns the policy holds; the box goes on.",
    needs: [cutsConnections, networkMode("public"), networkMode("no-network")],
    async run({ ownBox }) {
      const box = await ownBox({ network: { initial: PUBLIC, later: [NONE] } });
      const running = box.exec(["sh", "-c", "sleep 5; echo undisturbed"], { timeoutMs: 30_000 });
      running.catch(() => undefined);
      await startEchoServer(box, 8126);
      await box.setNetwork(NONE);
      assert.equal(await dial(box, { host: "127.0.0.1", port: 8126 }), "reached", "its own loopback is gone");
      await box.setNetwork(PUBLIC);
      await box.setNetwork(PUBLIC);
      assert.ok((await addressesOf(box)).length > 0, "the box has no address again");
      assert.equal(text((await running).stdout), "undisturbed\n");
      assert.equal(box.state, "running");
    },
  },
  {
    id: "network.change-announced",
    level: "MUST",
    title: "refuse a policy that the spec did not announce as a mistake, and change nothing",
    promise: "setNetwork: to a policy that the spec announced; another one is a TypeError.",
    async run({ ownBox, capabilities }) {
      const initial: NetworkPolicy = networkMode("no-network").claimed(capabilities) ? NONE : PUBLIC;
      const box = await ownBox({ network: { initial } });
      const before = await shell(box, "cat /proc/net/dev | cut -d: -f1; cat /proc/net/route");
      await mistake(() => box.setNetwork(initial === NONE ? PUBLIC : NONE));
      await mistake(() => box.setNetwork({ mode: "allowlist", hosts: ["example.com"] }));
      assert.equal(await shell(box, "cat /proc/net/dev | cut -d: -f1; cat /proc/net/route"), before);
      assert.equal(box.state, "running");
    },
  },
  {
    id: "network.change-state",
    level: "MUST",
    title: "reject a change before start and after teardown",
    promise: "ERR_BOX_STATE: the operation does not fit the box's state.",
    needs: [cutsConnections, networkMode("public"), networkMode("no-network")],
    async run({ newBox }) {
      const box = newBox({ network: { initial: PUBLIC, later: [NONE] } });
      await rejection(box.setNetwork(NONE), "ERR_BOX_STATE");
      await box.start();
      await box.teardownConfirmed();
      await rejection(box.setNetwork(NONE), "ERR_BOX_STATE");
    },
  },
  {
    id: "network.change-while-frozen",
    level: "SHOULD",
    title: "change the policy of a frozen box, or say that it cannot",
    promise: "When setNetwork returns the policy holds, or it rejects.",
    needs: [freezes, cutsConnections, networkMode("public"), networkMode("no-network")],
    prerequisites: ["network.reachable"],
    async run({ ownBox, network }) {
      const target = given(network.reachable);
      const box = await ownBox({ network: { initial: PUBLIC, later: [NONE] } });
      assert.equal(await dial(box, target), "reached");
      await box.freeze();
      const changed = await box.setNetwork(NONE).then(
        () => true,
        async (error: unknown) => {
          expectedError(error, "ERR_BOX_STATE");
          return false;
        },
      );
      await box.thaw();
      assert.equal((await dial(box, target)) === "reached", !changed);
    },
  },
  {
    id: "network.allowlist",
    level: "MUST",
    title: "reach the listed host and no other",
    promise: "allowlist: only the listed hosts.",
    needs: [networkMode("allowlist"), networkMode("public")],
    prerequisites: ["network.allowlist"],
    covers: ["B65"],
    async run({ ownBox, network }) {
      const { allowed, denied, port } = given(network.allowlist);
      const open = await ownBox({ network: { initial: PUBLIC } });
      for (const host of [allowed, denied])
        assert.equal(
          await dial(open, { host, port, protocol: "connect" }),
          "reached",
          `${host} does not answer a public box`,
        );
      const box = await ownBox({ network: { initial: { mode: "allowlist", hosts: [allowed] } } });
      assert.equal(await dial(box, { host: allowed, port, protocol: "connect" }), "reached");
      assert.equal(await resolves(box, denied), false, "a name that is not listed is resolved");
      assert.notEqual(await dial(box, { host: denied, port, protocol: "connect" }), "reached");
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
      assert.deepEqual(await addressesOf(box), await addressesOf(await ownBox({ network: { initial: NONE } })));
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
