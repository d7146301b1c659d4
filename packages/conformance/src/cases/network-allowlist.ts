import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import type { NetworkPolicy, Runtime } from "@breakwater/runtime-api";
import { assertAnswers, dial, given, perl, resolves, shell, until } from "../box-tools.ts";
import type { CaseContext, ConformanceCase } from "../case.ts";
import { allowlistEntry, allowlistsByPort, networkMode } from "../needs.ts";
import { get, hello, proxiedGet, proxiedHello } from "../network-tools.ts";
import { assertUnreachable, NONE, PUBLIC } from "./network.ts";

export const listOf = (...hosts: readonly string[]): NetworkPolicy => ({ mode: "allowlist", hosts });

const PROXY_VARIABLES = `env | grep -i '^[a-z]*_proxy=' | sort`;

/** A public box reaches all of it: then a box with a list that does not proves something. */
async function assertReachable(context: CaseContext, hosts: readonly string[]): Promise<void> {
  const box = await context.ownBox({ network: { initial: PUBLIC } });
  for (const host of hosts) {
    assert.equal(await hello(box, { host }), "reached", `${host} does not answer a public box: it proves nothing`);
    assert.equal(await get(box, host), "reached", `${host} does not answer a public box on port 80: it proves nothing`);
  }
}

export async function hasProxy(box: Runtime): Promise<boolean> {
  return (await shell(box, `${PROXY_VARIABLES} || true`)) !== "";
}

/** Neither way leads there: not the direct one, and not the proxy where there is one. */
async function assertRefused(box: Runtime, host: string, why: string): Promise<void> {
  assert.notEqual(await hello(box, { host }), "reached", `${why}: TLS`);
  assert.notEqual(await get(box, host), "reached", `${why}: HTTP`);
  if (!(await hasProxy(box))) return;
  assert.notEqual(await proxiedHello(box, { host }), "reached", `${why}: TLS through the proxy`);
  assert.notEqual(await proxiedGet(box, host), "reached", `${why}: HTTP through the proxy`);
}

const needsAllowlist = [networkMode("allowlist"), networkMode("public")] as const;

export const networkAllowlistCases: readonly ConformanceCase[] = [
  {
    id: "network.allowlist",
    level: "MUST",
    title: "reach the listed host and no other",
    promise: "allowlist: only the listed hosts.",
    needs: needsAllowlist,
    prerequisites: ["network.allowlist"],
    covers: ["B65"],
    timeoutMs: 240_000,
    async run(context) {
      const { allowed, denied } = given(context.network.allowlist);
      await assertReachable(context, [allowed, denied]);
      const box = await context.ownBox({ network: { initial: listOf(allowed) } });
      assert.equal(await hello(box, { host: allowed }), "reached", "the listed host by TLS");
      assert.equal(await get(box, allowed), "reached", "the listed host by HTTP");
      assert.equal(await resolves(box, denied), false, "a name that is not listed is resolved");
      await assertRefused(box, denied, "a host that is not listed");
      // Its name on the way to a listed one.
      assert.notEqual(await get(box, allowed, denied), "reached", "a host that is not listed, named in a request");
      await assertAnswers(box);
    },
  },
  {
    id: "network.allowlist-several",
    level: "MUST",
    title: "reach every listed host, whatever the case it is written in",
    promise: "allowlist: only the listed hosts; names are compared as DNS does.",
    needs: needsAllowlist,
    prerequisites: ["network.allowlist"],
    timeoutMs: 240_000,
    async run({ ownBox, network }) {
      const { allowed, denied } = given(network.allowlist);
      const box = await ownBox({ network: { initial: listOf(allowed, ` ${denied.toUpperCase()}. `) } });
      for (const host of [allowed, denied]) {
        assert.equal(await hello(box, { host }), "reached", host);
        assert.equal(await hello(box, { host: `${host}.`, name: host }), "reached", `${host} with a dot`);
        assert.equal(await get(box, host, host.toUpperCase()), "reached", host.toUpperCase());
      }
    },
  },
  {
    id: "network.allowlist-wildcard",
    level: "MUST",
    title: "take a wildcard for one or more labels below a name, and not for the name",
    promise: "allowlist: *.x = one or more labels below x, not x.",
    needs: [...needsAllowlist, allowlistEntry("wildcard")],
    prerequisites: ["network.allowlist"],
    timeoutMs: 240_000,
    async run(context) {
      const { suffix, below, deeper } = given(context.network.allowlist).wildcard;
      await assertReachable(context, [suffix]);
      const box = await context.ownBox({ network: { initial: listOf(`*.${suffix}`) } });
      assert.equal(await hello(box, { host: below }), "reached", below);
      assert.equal(await hello(box, { host: deeper }), "reached", deeper);
      assert.equal(await get(box, deeper), "reached", deeper);
      await assertRefused(box, suffix, "the name itself");
    },
  },
  {
    id: "network.allowlist-exact",
    level: "MUST",
    title: "take a name for itself and for nothing below it",
    promise: "allowlist: exact names.",
    needs: needsAllowlist,
    prerequisites: ["network.allowlist"],
    timeoutMs: 240_000,
    async run(context) {
      const { suffix, below } = given(context.network.allowlist).wildcard;
      await assertReachable(context, [below]);
      const box = await context.ownBox({ network: { initial: listOf(suffix) } });
      assert.equal(await hello(box, { host: suffix }), "reached", suffix);
      await assertRefused(box, below, "a name below the listed one");
    },
  },
  {
    id: "network.allowlist-literal",
    level: "MUST",
    title: "reach no address by its digits where only its name is listed",
    promise: "allowlist: only the listed hosts; IPs only where they are listed.",
    needs: needsAllowlist,
    prerequisites: ["network.allowlist"],
    covers: ["B65"],
    timeoutMs: 240_000,
    async run({ ownBox, network }) {
      const { allowed, address } = given(network.allowlist);
      const open = await ownBox({ network: { initial: PUBLIC } });
      assert.equal(await hello(open, { host: address, name: allowed }), "reached", "the address does not answer");
      const box = await ownBox({ network: { initial: listOf(allowed) } });
      assert.equal(await hello(box, { host: allowed }), "reached");
      assert.notEqual(await hello(box, { host: address, name: allowed }), "reached", "the address by TLS");
      assert.notEqual(await get(box, address, allowed), "reached", "the address by HTTP");
      if (await hasProxy(box)) {
        assert.notEqual(await proxiedHello(box, { host: address, name: allowed }), "reached", "through the proxy");
        assert.notEqual(await proxiedGet(box, address), "reached", "through the proxy by HTTP");
      }
    },
  },
  {
    id: "network.allowlist-ports",
    level: "MUST",
    title: "reach only ports 80 and 443 of a listed host",
    promise: "allowlist: ports 80 and 443 unless the capability allowlistPorts says otherwise.",
    needs: [...needsAllowlist, allowlistsByPort],
    prerequisites: ["network.allowlist"],
    timeoutMs: 240_000,
    async run({ ownBox, network }) {
      const { allowed, otherPort } = given(network.allowlist);
      const open = await ownBox({ network: { initial: PUBLIC } });
      assert.equal(await dial(open, { host: allowed, port: otherPort }), "reached", "the port does not answer");
      const box = await ownBox({ network: { initial: listOf(allowed) } });
      assert.equal(await hello(box, { host: allowed }), "reached");
      assert.notEqual(await dial(box, { host: allowed, port: otherPort }), "reached", "another port is open");
      if (await hasProxy(box)) {
        const answer = await proxiedHello(box, { host: allowed, port: otherPort });
        assert.match(answer, /^refused 4/, "another port is open through the proxy");
      }
    },
  },
  {
    id: "network.allowlist-address",
    level: "MUST",
    title: "reach a listed address through the proxy, and a listed range",
    promise: "allowlist: IPs and CIDRs where claimed.",
    needs: [...needsAllowlist, allowlistEntry("ipv4"), allowlistEntry("ipv4-cidr")],
    prerequisites: ["network.allowlist"],
    timeoutMs: 240_000,
    async run({ ownBox, network }) {
      const { address } = given(network.allowlist);
      const range = `${address.split(".").slice(0, 3).join(".")}.0/24`;
      const [first = ""] = address.split(".");
      const elsewhere = `${first === "1" ? 2 : 1}.0.0.0/8`;
      const reached = async (entry: string): Promise<string> => {
        const box = await ownBox({ network: { initial: listOf(entry) } });
        // A client that was given digits names no host.
        const target = { host: address, name: "" };
        return (await hasProxy(box)) ? proxiedHello(box, target) : hello(box, target);
      };
      assert.equal(await reached(address), "reached", address);
      assert.equal(await reached(range), "reached", range);
      assert.notEqual(await reached(elsewhere), "reached", `${address} is not in ${elsewhere}`);
    },
  },
  {
    id: "network.allowlist-nothing-else",
    level: "MUST",
    title: "reach nothing from a box with a list that one without network does not reach either",
    promise: "allowlist: everything else as in no-network.",
    needs: needsAllowlist,
    prerequisites: ["network.allowlist", "network.unreachable"],
    covers: ["B62", "B66"],
    timeoutMs: 240_000,
    async run(context) {
      await assertUnreachable(context, listOf(given(context.network.allowlist).allowed));
    },
  },
  {
    id: "network.allowlist-misleading",
    level: "MUST",
    title: "reach nothing private behind a listed name",
    promise: "allowlist: private, loopback, link-local and metadata addresses are refused, whatever leads there.",
    needs: needsAllowlist,
    prerequisites: ["network.allowlist"],
    timeoutMs: 240_000,
    async run({ ownBox, network }) {
      const { allowed, misleading } = given(network.allowlist);
      const open = await ownBox({ network: { initial: PUBLIC } });
      let answering = 0;
      for (const host of misleading) if ((await get(open, host)) === "reached") answering += 1;
      assert.ok(answering > 0, "none of the names leads to a server: they prove nothing");
      const box = await ownBox({ network: { initial: listOf(allowed, ...misleading) } });
      assert.equal(await hello(box, { host: allowed }), "reached");
      for (const host of misleading) await assertRefused(box, host, host);
    },
  },
  {
    id: "network.allowlist-siblings",
    level: "MUST",
    title: "keep the lists of boxes apart, and the boxes",
    promise: "allowlist: only the listed hosts of this box; no other box.",
    needs: needsAllowlist,
    prerequisites: ["network.allowlist"],
    timeoutMs: 240_000,
    async run({ ownBox, network }) {
      const { allowed, denied } = given(network.allowlist);
      const [one, other] = await Promise.all([
        ownBox({ network: { initial: listOf(allowed) } }),
        ownBox({ network: { initial: listOf(denied) } }),
      ]);
      const [mine, theirs] = [
        [one, allowed, denied],
        [other, denied, allowed],
      ] as const;
      for (const [box, own, notOwn] of [mine, theirs]) {
        assert.equal(await hello(box, { host: own }), "reached");
        await assertRefused(box, notOwn, "a host of another box's list");
      }
      await one.teardownConfirmed();
      assert.equal(
        await hello(other, { host: denied }),
        "reached",
        "the end of another box takes this one's list away",
      );
    },
  },
  {
    id: "network.allowlist-for-root",
    level: "MUST",
    title: "give root in a box with a list no way past it",
    promise: "allowlist: root in the box cannot undo it.",
    needs: needsAllowlist,
    prerequisites: ["network.allowlist", "network.reachable"],
    timeoutMs: 240_000,
    async run(context) {
      const { allowed, denied, address } = given(context.network.allowlist);
      await assertReachable(context, [denied]);
      const { ownBox, network } = context;
      const box = await ownBox({ network: { initial: listOf(allowed) } });
      assert.equal(await hello(box, { host: allowed }), "reached");
      const attempts = [
        "for link in $(ls /sys/class/net); do ip link set $link up; ip route add default dev $link; done",
        `ip address add ${address}/32 dev lo`,
        "for ns in /proc/[0-9]*/ns/net; do nsenter --net=$ns ip link add x type dummy; done",
        "unshare --net true",
        "iptables -F; iptables -t nat -F; nft flush ruleset",
        "echo 1 >/proc/sys/net/ipv4/ip_forward",
        `echo "${address} ${denied}" >>/etc/hosts`,
        "kill -9 -1",
      ];
      for (const attempt of attempts) await shell(box, `(${attempt}) >/dev/null 2>&1; true`).catch(() => undefined);
      assert.notEqual(await hello(box, { host: denied }), "reached", "by name");
      assert.notEqual(await get(box, allowed, denied), "reached", "by the name in a request");
      assert.notEqual(await dial(box, given(network.reachable)), "reached", "directly");
      await assertAnswers(box);
    },
  },
  {
    id: "network.allowlist-proxy",
    level: "MUST",
    title: "set proxy variables with a list only, for every program, and have a proxy that keeps to the list",
    promise: "Proxy variables are set only in allowlist mode and come with every exec.",
    needs: [...needsAllowlist, networkMode("no-network")],
    prerequisites: ["network.allowlist"],
    timeoutMs: 240_000,
    async run(context) {
      const { allowed, denied } = given(context.network.allowlist);
      await assertReachable(context, [allowed, denied]);
      const { ownBox } = context;
      for (const initial of [PUBLIC, NONE]) {
        const box = await ownBox({ network: { initial } });
        assert.equal(await hasProxy(box), false, `a ${initial.mode} box has proxy variables`);
      }
      const box = await ownBox({ network: { initial: listOf(allowed) } });
      // A driver may do without a proxy; then nothing must name one.
      if (!(await hasProxy(box))) return;
      const expected = await shell(box, PROXY_VARIABLES);
      for (const options of [{ env: { A: "b" } }, { cwd: "/tmp" }, { user: "nobody" }]) {
        assert.equal(await shell(box, PROXY_VARIABLES, options), expected, JSON.stringify(options));
      }
      const ofCall = await shell(box, "echo $https_proxy", { env: { https_proxy: "http://mine:1" } });
      assert.equal(ofCall, "http://mine:1\n", "what the caller sets is not what the program gets");
      assert.equal(await proxiedHello(box, { host: allowed }), "reached", "the listed host by CONNECT");
      assert.equal(await proxiedGet(box, allowed), "reached", "the listed host by an absolute URL");
      assert.match(await proxiedHello(box, { host: denied }), /^refused 4/, "another host by CONNECT");
      assert.match(await proxiedGet(box, denied), /^refused 4/, "another host by an absolute URL");
      assert.notEqual(await proxiedGet(box, allowed, denied), "reached", "a Host header that is not that of the URL");
    },
  },
  {
    id: "network.allowlist-report",
    level: "SHOULD",
    title: "report what a list refused",
    promise: "Denials are recorded in the trial.",
    needs: needsAllowlist,
    prerequisites: ["network.allowlist"],
    timeoutMs: 240_000,
    async run({ ownBox, network }) {
      const { allowed, denied } = given(network.allowlist);
      const box = await ownBox({ network: { initial: listOf(allowed) } });
      assert.equal(await hello(box, { host: allowed }), "reached");
      assert.equal((await box.report()).egress?.deniedCount, 0, "something is refused that the box did not ask for");
      await assertRefused(box, denied, "a host that is not listed");
      await until("the refusal in the report", async () => ((await box.report()).egress?.deniedCount ?? 0) > 0);
      await box.stopConfirmed();
      await box.teardownConfirmed();
      const { egress } = await box.report();
      assert.ok(egress, "the report of a box that is gone says nothing");
      assert.ok(
        egress.denials.some(({ host }) => host === denied),
        `the report does not name ${denied}: ${JSON.stringify(egress)}`,
      );
      assert.ok(egress.deniedCount >= egress.denials.length);
    },
  },
  {
    id: "network.allowlist-dns",
    level: "MUST",
    title: "let no question for a name out of a box with a list, but for those on it",
    promise: "allowlist: the gateway resolves names itself; everything else as in no-network.",
    needs: needsAllowlist,
    prerequisites: ["network.allowlist", "network.name", "network.resolver"],
    covers: ["B65", "B68"],
    timeoutMs: 240_000,
    async run(context) {
      await assertAsksNobody(context, listOf(given(context.network.allowlist).allowed));
    },
  },
  {
    id: "network.none-dns",
    level: "MUST",
    title: "let no question for a name out of a box without network",
    promise: "no-network: no name resolution.",
    needs: [networkMode("no-network"), networkMode("public")],
    prerequisites: ["network.name", "network.resolver"],
    covers: ["B65", "B68"],
    timeoutMs: 240_000,
    run: (context) => assertAsksNobody(context, NONE),
  },
];

/** Asks by every way that a resolver may be listening at. Says nothing: what counts is what arrives. */
const ASK_EVERYBODY = String.raw`
use Socket; my ($name, $server) = @ARGV;
my $query = pack("n6", 4660, 256, 1, 0, 0, 0) . join("", map { pack("C/a*", $_) } split /\./, $name) . pack("C n n", 0, 1, 1);
for my $address ($server, "127.0.0.11", "127.0.0.1", "127.0.0.53") {
  if (socket(my $udp, AF_INET, SOCK_DGRAM, 0)) {
    send($udp, $query, 0, sockaddr_in(53, inet_aton($address)));
    my $ready = ""; vec($ready, fileno $udp, 1) = 1; select($ready, undef, undef, 2);
  }
  eval {
    local $SIG{ALRM} = sub { die }; local $SIG{PIPE} = "IGNORE"; alarm 3;
    socket(my $tcp, AF_INET, SOCK_STREAM, 0); connect($tcp, sockaddr_in(53, inet_aton($address))) or die;
    syswrite($tcp, pack("n/a*", $query)); sysread($tcp, my $answer, 100);
  };
  alarm 0;
}
getaddrinfo($name);
sub getaddrinfo { eval { local $SIG{ALRM} = sub { die }; alarm 10; Socket::getaddrinfo($_[0], 80) }; alarm 0 }
`;

async function assertAsksNobody({ ownBox, network }: CaseContext, policy: NetworkPolicy): Promise<void> {
  const { address, queries } = given(network.resolver);
  const ask = async (box: Runtime, name: string): Promise<void> => {
    await perl(box, ASK_EVERYBODY, [name, address], { timeoutMs: 120_000 });
  };
  const askedFor = async (label: string): Promise<boolean> => (await queries()).some((name) => name.includes(label));
  const name = (label: string): string => `${label}.${given(network.name)}`;

  const [positive, negative] = [`asked-${randomUUID()}`, `silent-${randomUUID()}`];
  await ask(await ownBox({ network: { initial: PUBLIC } }), name(positive));
  await until("the question of a public box", () => askedFor(positive));
  await ask(await ownBox({ network: { initial: policy } }), name(negative));
  // A question that was asked after it has arrived: so would have it.
  const after = `after-${randomUUID()}`;
  await ask(await ownBox({ network: { initial: PUBLIC } }), name(after));
  await until("the question of another public box", () => askedFor(after));
  assert.equal(await askedFor(negative), false, `a question of a box with ${policy.mode} has reached a resolver`);
}
