import { contacts, fakePorts, startListeners } from "@breakwater/backends/network";
import type { NetworkPolicy, Runtime } from "@breakwater/runtime-api";
import { dockerDriver } from "@breakwater/runtime-docker";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { dockerHost, image } from "./support/backend.ts";
import { Stranger } from "./support/engine.ts";
import {
  assertNoWayOut,
  bridgeAddresses,
  fakeInternet,
  newToken,
  notSealed,
  type Probe,
  tryFrom,
  tryFromStranger,
} from "./support/sealed.ts";

/*
 * Every way out of a box that we know of, tried by root in it: under `no-network` and under an allowlist none of them leads anywhere. That a try proves something
 * is shown first: by a public box, or where not even that may come through, by the target itself or by a container that is not ours.
 */

vi.setConfig({ testTimeout: 240_000, hookTimeout: 240_000 });

const { host, metadata, neighbours, resolvers, sites } = fakeInternet;
const SIBLING_PORT = 8124;
const HOST_PORT = 7900;
const RESTRICTED: readonly NetworkPolicy[] = [
  { mode: "no-network" },
  { mode: "allowlist", hosts: ["example.com"] },
  { mode: "allowlist", hosts: ["*.example.net", "10.77.7.7", "169.254.169.254"] },
];
/** Podman's boxes have no resolver of the engine's, and may not ping. */
const IS_PODMAN = process.env["CONFORMANCE"] === "podman";
const engineResolver: readonly Probe[] = [
  { kind: "dns", host: "127.0.0.11", name: "example.org" },
  { kind: "dns", host: "127.0.0.11", name: "example.org", tcp: true },
];
const ECHO_SERVER = `
import socket, threading
def serve(s):
    while True:
        c, _ = s.accept()
        threading.Thread(target=lambda: c.sendall(c.recv(100)), daemon=True).start()
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("0.0.0.0", ${SIBLING_PORT})); s.listen(50)
print("listening", flush=True); serve(s)`;

describe.skipIf(notSealed !== null)("[network.probes] ways out of a box", () => {
  const driver = dockerDriver();
  const stranger = new Stranger(dockerHost);
  const boxes: Runtime[] = [];
  const start = async (initial: NetworkPolicy, later: readonly NetworkPolicy[] = []): Promise<Runtime> => {
    const box = driver.create({ image, network: { initial, later }, trial: "network-probes" });
    boxes.push(box);
    await box.start();
    return box;
  };
  let open: Runtime;
  let sibling: Runtime;
  let siblingAddress: string;
  let gatewayAddress: string;
  let ownBridge: string;
  let bridges: readonly string[];

  beforeAll(async () => {
    await assertNoWayOut();
    [open, sibling] = [await start({ mode: "public" }), await start({ mode: "public" })];
    // A box with a list brings the gateway up, which is on the bridge too.
    await start({ mode: "allowlist", hosts: ["example.org"] });
    let listening = false;
    const serving = sibling.exec(["python3", "-c", ECHO_SERVER], { onOutput: () => void (listening = true) });
    serving.catch(() => undefined);
    await vi.waitUntil(() => listening, { timeout: 60_000 });
    const addressOf = async (container: string): Promise<readonly [string, string]> => {
      const found = (await stranger.call("GET", `/containers/${container}/json`)) as {
        NetworkSettings: { Networks: Record<string, { IPAddress: string; Gateway: string }> };
      };
      const network = Object.values(found.NetworkSettings.Networks).find(({ IPAddress }) => IPAddress !== "");
      if (network === undefined) throw new Error(`${container} has no address`);
      return [network.IPAddress, network.Gateway];
    };
    [siblingAddress] = await addressOf(sibling.id);
    [, ownBridge] = await addressOf(open.id);
    const filters = encodeURIComponent(JSON.stringify({ label: ["breakwater.role=gateway"] }));
    const [gateway] = (await stranger.call("GET", `/containers/json?filters=${filters}`)) as { Id: string }[];
    [gatewayAddress] = await addressOf(gateway?.Id ?? "");
    bridges = await bridgeAddresses();
  });
  afterAll(async () => {
    await Promise.all(boxes.map((box) => box[Symbol.asyncDispose]()));
    await driver[Symbol.asyncDispose]();
  });

  const hostAddresses = (): readonly string[] => [...bridges, host.v4].filter((address) => !address.includes(":"));
  const pings = (): readonly Probe[] =>
    [...hostAddresses(), sites["example.com"].v4].map((address) => ({ kind: "icmp", host: address }));

  /** What a public box reaches and a restricted one does not. */
  const fromPublic = (): readonly Probe[] => [
    { kind: "tcp", host: sites["example.com"].v4, port: fakePorts.echo },
    { kind: "udp", host: sites["example.com"].v4, port: fakePorts.echo },
    { kind: "http", host: sites["example.org"].v4 },
    { kind: "tcp", host: sites["example.com"].v4, port: fakePorts.ssh },
    { kind: "tcp", host: metadata.v4, port: fakePorts.echo },
    { kind: "http", host: metadata.v4 },
    ...neighbours.v4.map((address): Probe => ({ kind: "tcp", host: address, port: fakePorts.echo })),
    ...hostAddresses().flatMap((address): readonly Probe[] => [
      { kind: "tcp", host: address, port: HOST_PORT },
      { kind: "udp", host: address, port: HOST_PORT },
    ]),
    { kind: "tcp", host: sites["example.com"].v4, port: fakePorts.echo, device: "eth0" },
    { kind: "udp", host: sites["example.com"].v4, port: fakePorts.echo, device: "eth0" },
    { kind: "udp", host: ownBridge, port: HOST_PORT, dontRoute: true },
    ...(IS_PODMAN ? [] : [...engineResolver, ...pings()]),
    ...resolvers.v4.flatMap((address): readonly Probe[] => [
      { kind: "dns", host: address, name: "example.org" },
      { kind: "dns", host: address, name: "example.org", tcp: true },
    ]),
    { kind: "resolve", name: "example.org" },
  ];

  /** What not even a public box reaches. */
  const fromNobody = (): readonly Probe[] => [
    { kind: "tcp", host: siblingAddress, port: SIBLING_PORT },
    { kind: "tcp", host: siblingAddress, port: SIBLING_PORT, device: "eth0" },
    ...[53, 80, 443, 3128].map((port): Probe => ({ kind: "connect", host: gatewayAddress, port })),
    ...(IS_PODMAN ? [...engineResolver, ...pings()] : []),
    { kind: "tcp", host: "127.0.0.1", port: fakePorts.hostLoopback },
    { kind: "resolve", name: "host.docker.internal" },
    { kind: "raw", host: ownBridge },
    { kind: "frame", host: ownBridge, device: "eth0" },
    { kind: "configure" },
    { kind: "tcp", host: sites["example.com"].v6, port: fakePorts.echo },
    { kind: "tcp", host: metadata.v6, port: fakePorts.echo },
    { kind: "tcp", host: host.v6, port: fakePorts.echo },
    { kind: "udp", host: sites["example.com"].v6, port: fakePorts.echo },
    { kind: "dns", host: resolvers.v6[0], name: "example.com" },
  ];

  /** Questions for a name that nobody else asks for. No list has it, and no server an answer: what counts is who was asked. */
  const names = (token: string): readonly Probe[] => {
    const name = `${token}.example.org`;
    const servers = ["127.0.0.1", "127.0.0.11", ...resolvers.v4];
    const asked = servers.flatMap((address): readonly Probe[] => [
      { kind: "dns", host: address, name },
      { kind: "dns", host: address, name, tcp: true },
      // Also past the routes of the box.
      { kind: "dns", host: address, name, device: "lo" },
    ]);
    return [...asked, { kind: "resolve", name }];
  };

  /** Of those that are still there: the bridge of another test may have gone since all bridges were listed, and its address with it. */
  async function expectAllReached(probes: readonly Probe[], results: readonly string[]): Promise<void> {
    expect(results).toHaveLength(probes.length);
    const now = await bridgeAddresses();
    expect(now).toContain(ownBridge);
    const hasGone = ({ host: to = "" }: Probe): boolean => bridges.includes(to) && !now.includes(to);
    const there = [...probes.entries()].filter(([, probe]) => !hasGone(probe));
    const seen = there.map(([index]) => results[index] ?? "");
    const left = there.map(([, probe]) => probe);
    expect(outcomes(left, seen)).toEqual(everyone(left));
  }

  /** Whether any name server has heard of it, that of the engine's host included. */
  async function wasAskedFor(token: string): Promise<boolean> {
    const all = await Promise.all([contacts("internet"), contacts("host")]);
    return all.flat().some(({ protocol, text }) => protocol === "dns" && text?.includes(token) === true);
  }

  it("lead where they should, where nothing is in the way", async () => {
    await using listeners = await hostListeners();
    const token = newToken();
    await tryFrom(open, names(token), token);
    expect(await wasAskedFor(token)).toBe(true);
    await expectAllReached(fromPublic(), await tryFrom(open, fromPublic(), newToken()));
    expect(await listeners.contacts()).not.toEqual([]);

    const atHome: readonly Probe[] = [{ kind: "tcp", host: siblingAddress, port: SIBLING_PORT }];
    expect(await tryFrom(sibling, atHome, newToken())).toEqual(["reached"]);
    const past: readonly Probe[] = [
      { kind: "raw", host: "10.213.0.1" },
      { kind: "frame", host: "10.213.0.1", device: "eth0" },
    ];
    expect(outcomes(past, await tryFromStranger(past, newToken()))).toEqual(everyone(past));
    const v6: readonly Probe[] = [
      { kind: "tcp", host: sites["example.com"].v6, port: fakePorts.echo },
      { kind: "tcp", host: metadata.v6, port: fakePorts.echo },
      { kind: "tcp", host: host.v6, port: fakePorts.echo },
      { kind: "udp", host: sites["example.com"].v6, port: fakePorts.echo },
      { kind: "dns", host: resolvers.v6[0], name: "example.com" },
    ];
    // Podman's default network has none.
    const withV6 = IS_PODMAN ? { NetworkMode: "host" } : {};
    expect(outcomes(v6, await tryFromStranger(v6, newToken(), withV6))).toEqual(everyone(v6));
    const mayPing = { Sysctls: { "net.ipv4.ping_group_range": "0 2147483647" } };
    await expectAllReached(pings(), await tryFromStranger(pings(), newToken(), mayPing));
    const configure: readonly Probe[] = [{ kind: "configure" }];
    expect(await tryFromStranger(configure, newToken(), { CapAdd: ["NET_ADMIN"] })).toEqual(["reached"]);
  });

  it("lead a public box to no other box, to nothing on the host's loopback, and not past its own stack", async () => {
    expect(reached(fromNobody(), await tryFrom(open, fromNobody(), newToken()))).toEqual([]);
  });

  it.each(
    RESTRICTED.flatMap((policy) =>
      (["from the start", "after a phase in public"] as const).map(
        (since) => [JSON.stringify(policy), since, policy] as const,
      ),
    ),
  )("lead nowhere under %s %s", async (_, since, policy) => {
    await using listeners = await hostListeners();
    const box = since === "from the start" ? await start(policy) : await start({ mode: "public" }, [policy]);
    if (since !== "from the start") {
      const before = newToken();
      await tryFrom(box, names(before), before);
      if (!(await wasAskedFor(before))) throw new Error("no name server was asked by a box that is public");
      await box.setNetwork(policy);
    }
    const probes = [
      ...fromPublic(),
      ...fromNobody(),
      ...fromPublic().map((probe): Probe => ({ ...probe, device: "lo" })),
      ...fromPublic().map((probe): Probe => ({ ...probe, source: "127.0.0.1" })),
      ...fromPublic()
        .filter(({ kind }) => kind === "udp")
        .map((probe): Probe => ({ ...probe, dontRoute: true })),
    ];
    const token = newToken();
    expect(reached(probes, await tryFrom(box, probes, token))).toEqual([]);
    await tryFrom(box, names(token), token);
    // A datagram that arrives and is not answered is a way out all the same. The same ones of a public box have arrived.
    const heard = async (of: string): Promise<number> =>
      (await listeners.contacts()).filter(({ text }) => text?.includes(of) === true).length;
    const after = newToken();
    await tryFrom(open, [...fromPublic(), ...names(after)], after);
    await vi.waitUntil(async () => (await heard(after)) > 0 && (await wasAskedFor(after)), { timeout: 30_000 });
    expect([await heard(token), await wasAskedFor(token)]).toEqual([0, false]);
    const { exitCode } = await box.exec(["true"]);
    expect(exitCode).toBe(0);
  });

  function hostListeners(): ReturnType<typeof startListeners> {
    return startListeners("host", [
      { protocol: "tcp", address: "0.0.0.0", port: HOST_PORT },
      { protocol: "udp", address: "0.0.0.0", port: HOST_PORT },
    ]);
  }
});

/** In words, for messages. */
function describeProbe({ kind, host: to, port, name, device, source, tcp, dontRoute }: Probe): string {
  const more = [device, source, tcp === true ? "tcp" : undefined, dontRoute === true ? "SO_DONTROUTE" : undefined];
  return [kind, to, port, name, ...more].filter((part) => part !== undefined).join(" ");
}

function outcomes(probes: readonly Probe[], results: readonly string[]): Readonly<Record<string, string | undefined>> {
  return Object.fromEntries(probes.map((probe, index) => [describeProbe(probe), results[index]]));
}

function everyone(probes: readonly Probe[]): Readonly<Record<string, string>> {
  return Object.fromEntries(probes.map((probe) => [describeProbe(probe), "reached"]));
}

function reached(probes: readonly Probe[], results: readonly string[]): readonly string[] {
  expect(results).toHaveLength(probes.length);
  return probes.filter((_, index) => results[index] === "reached").map(describeProbe);
}
