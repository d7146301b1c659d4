import { contacts } from "@breakwater/backends/network";
import type { NetworkPolicy, Runtime } from "@breakwater/runtime-api";
import { dockerDriver } from "@breakwater/runtime-docker";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { dockerHost, image } from "./support/backend.ts";
import { Stranger, until } from "./support/engine.ts";
import { EngineProxy } from "./support/engine-proxy.ts";
import { assertNoWayOut, fakeInternet, newToken, notSealed, type Probe, tryFrom } from "./support/sealed.ts";
import { Workbench } from "./support/trials.ts";

/*
 * The driver's side of the egress gateway: boxes whose `public` leads through it, a session that is lost, what is left when something goes away, and what a trial
 * has of all that was refused.
 */

vi.setConfig({ testTimeout: 240_000, hookTimeout: 240_000 });

const { host, metadata, neighbours, sites } = fakeInternet;
const PUBLIC: NetworkPolicy = { mode: "public" };
const NONE: NetworkPolicy = { mode: "no-network" };
const LIST: NetworkPolicy = { mode: "allowlist", hosts: ["example.com"] };
const OTHER_LIST: NetworkPolicy = { mode: "allowlist", hosts: ["example.org"] };
const OTHER_PORT = 9000;

/** A GET by a client that knows nothing of proxies; says the status, or how it failed. */
const GET = `import sys, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
for url in sys.argv[1:]:
    try: print(opener.open(url, timeout=20).status, flush=True)
    except Exception as error: print(getattr(error, "code", type(error).__name__), flush=True)`;

/** One TLS connection to example.com, a request every fifth of a second; says "answer" for each, and "over" when it can no more. */
const TUNNEL = `import socket, ssl, time
it = ssl.create_default_context().wrap_socket(socket.create_connection(("example.com", 443), 20), server_hostname="example.com")
it.settimeout(10)
try:
    while True:
        it.sendall(b"GET / HTTP/1.1\\r\\nHost: example.com\\r\\n\\r\\n")
        if not it.recv(65536): break
        print("answer", flush=True)
        time.sleep(0.2)
except OSError: pass
print("over", flush=True)`;

const stranger = new Stranger(dockerHost);

async function get(box: Runtime, ...urls: readonly string[]): Promise<readonly string[]> {
  const { stdout } = await box.exec(["python3", "-c", GET, ...urls], { timeoutMs: 120_000 });
  return Buffer.from(stdout).toString("utf8").trim().split("\n");
}

interface Inspection {
  readonly Mounts: readonly { readonly Name: string }[];
  readonly NetworkSettings: { readonly Networks: Readonly<Record<string, { readonly IPAddress: string }>> };
}

async function inspect(container: string): Promise<Inspection> {
  return (await stranger.call("GET", `/containers/${container}/json`)) as Inspection;
}

/** The gateway of a box: the one whose volume its forwarder has. */
async function gatewayOf(box: Runtime): Promise<string> {
  return (await inspect(`${box.id}-forwarder`)).Mounts[0]?.Name ?? "";
}

/** What runs in a container: process ids and arguments. */
async function programsIn(container: string): Promise<readonly string[]> {
  const { Processes } = (await stranger.call("GET", `/containers/${container}/top?ps_args=-eo%20pid,args`)) as {
    readonly Processes: readonly (readonly string[])[];
  };
  return Processes.map((fields) => fields.join(" "));
}

describe.skipIf(notSealed !== null)("[network.gateway] public through the gateway", () => {
  const driver = dockerDriver({ publicVia: "gateway" });
  const boxes: Runtime[] = [];
  const start = async (initial: NetworkPolicy, ...later: readonly NetworkPolicy[]): Promise<Runtime> => {
    const box = driver.create({ image, network: { initial, later }, trial: "network-gateway" });
    boxes.push(box);
    await box.start();
    return box;
  };
  beforeAll(() => assertNoWayOut());
  afterEach(async () => {
    await Promise.all(boxes.splice(0).map((box) => box.teardownConfirmed()));
  });
  afterAll(() => driver[Symbol.asyncDispose]());

  it("reaches the internet's web with nothing but a loopback", async () => {
    const box = await start(PUBLIC);
    const path = newToken();
    expect(await get(box, `http://example.org/${path}`, `https://example.com/`)).toEqual(["200", "200"]);
    expect((await contacts("internet")).some(({ text }) => text?.includes(path))).toBe(true);
    const own = Object.values((await inspect(box.id)).NetworkSettings.Networks).filter((it) => it.IPAddress !== "");
    expect(own).toEqual([]);
    const { stdout } = await box.exec(["ls", "/sys/class/net"]);
    expect(Buffer.from(stdout).toString("utf8").trim()).toBe("lo");
  });

  it("reaches no private address by any name or number, no other port, and nothing past the gateway", async () => {
    const box = await start(PUBLIC);
    const numbers = [metadata.v4, host.v4, ...neighbours.v4].map((address) => `http://${address}/`);
    const named = ["private", "loopback", "metadata", "shared", "mixed"].map((it) => `http://${it}.example.org/`);
    const refused = await get(box, ...named, ...numbers);
    expect(refused.filter((it) => it === "200")).toEqual([]);
    expect(await get(box, "http://example.org/")).toEqual(["200"]);
    const probes: readonly Probe[] = [
      { kind: "tcp", host: sites["example.com"].v4, port: OTHER_PORT },
      { kind: "udp", host: sites["example.com"].v4, port: 7 },
      { kind: "http", host: sites["example.com"].v4 },
      { kind: "tcp", host: host.v4, port: 7 },
      { kind: "dns", host: "127.0.0.11", name: "example.com" },
    ];
    expect((await tryFrom(box, probes, newToken())).filter((it) => it === "reached")).toEqual([]);
    const { egress } = await box.report();
    expect(new Set(egress?.denials.map(({ rule }) => rule))).toEqual(new Set(["not-public"]));
  });

  it.each([
    ["no network", NONE, ["URLError", "URLError"]],
    ["a list without it", OTHER_LIST, ["URLError", "200"]],
  ] as const)("is cut by a change to %s, open tunnels too, and given back", async (_, policy, then) => {
    const box = await start(PUBLIC, policy);
    const urls = ["http://example.com/", "http://example.org/"] as const;
    expect(await get(box, ...urls)).toEqual(["200", "200"]);
    const lines: string[] = [];
    const tunnel = box.exec(["python3", "-c", TUNNEL], {
      onOutput: (_stream, chunk) => void lines.push(...Buffer.from(chunk).toString("utf8").trim().split("\n")),
    });
    tunnel.catch(() => undefined);
    await until("answers through the tunnel", () => lines.length >= 3);
    await box.setNetwork(policy);
    const before = lines.length;
    expect((await tunnel).exitCode).toBe(0);
    expect(lines.slice(before).filter((line) => line === "answer").length).toBeLessThanOrEqual(1);
    expect(lines.at(-1)).toBe("over");
    expect(await get(box, ...urls)).toEqual(then);
    await box.setNetwork(PUBLIC);
    expect(await get(box, ...urls)).toEqual(["200", "200"]);
  });
});

describe.skipIf(notSealed !== null)("[network.gateway] what keeps a gateway", () => {
  it("opens a lost session again while a box may need it, though nobody asks for anything", async () => {
    await using driver = dockerDriver();
    const box = driver.create({ image, network: { initial: LIST }, trial: "network-gateway" });
    await using _ = box;
    await box.start();
    const gateway = await gatewayOf(box);
    const sessions = async (): Promise<readonly string[]> =>
      (await programsIn(gateway)).filter((it) => it.includes("control"));
    const [first] = await sessions();
    expect(first).toBeDefined();
    const killer = (await stranger.call("POST", `/containers/${gateway}/exec`, {
      Cmd: ["sh", "-c", 'for it in /proc/[0-9]*; do grep -qs control "$it/cmdline" && kill -9 "${it#/proc/}"; done'],
    })) as { readonly Id: string };
    await stranger.call("POST", `/exec/${killer.Id}/start`, { Detach: true });
    await until("another session", async () => {
      const open = await sessions();
      return open.length === 1 && open[0] !== first;
    });
    expect(await get(box, "https://example.com/")).toEqual(["200"]);
    await box.teardownConfirmed();
  });

  it("gives a volume that the engine makes by itself an owner and an expiry", async () => {
    await using proxy = await EngineProxy.start(dockerHost);
    await using driver = dockerDriver({ host: proxy.host });
    proxy.break({ method: "POST", path: /\/volumes\/create/, fault: "lie" });
    const box = driver.create({ image, network: { initial: LIST }, trial: "network-gateway" });
    await using _ = box;
    await box.start();
    expect(proxy.done).toHaveLength(1);
    const volume = (await stranger.call("GET", `/volumes/${await gatewayOf(box)}`)) as {
      readonly Labels: Readonly<Record<string, string>> | null;
    };
    expect(Object.keys(volume.Labels ?? {})).toEqual(
      expect.arrayContaining(["breakwater.expires", "breakwater.owner", "breakwater.role"]),
    );
    await box.teardownConfirmed();
  });
});

describe.skipIf(notSealed !== null)("[network.gateway] what a trial has of what was refused", () => {
  const bench = new Workbench();
  afterAll(() => bench[Symbol.asyncDispose]());

  it("a line for each, by time, box, host, port and rule, and their count in the result", async () => {
    const asks = (target: string): string =>
      `python3 - <<'END'
import socket
it = socket.create_connection(("127.0.0.1", 3128), 20)
it.sendall(b"CONNECT ${target} HTTP/1.1\\r\\nHost: ${target}\\r\\n\\r\\n")
print(it.recv(100).split(b"\\r\\n")[0].decode())
END`;
    const literal = sites["example.org"].v4;
    const script = [asks("example.org:443"), asks("example.com:22"), asks(`${literal}:443`)].join("\n");
    const files = {
      "task.toml": [
        "[agent]",
        "timeout_sec = 120",
        'network_mode = "allowlist"',
        'allowed_hosts = ["example.com"]',
        "[environment]",
        `docker_image = "${image}"`,
        'network_mode = "no-network"',
        "[verifier]",
        'environment_mode = "separate"',
        "timeout_sec = 120",
        'network_mode = "allowlist"',
        'allowed_hosts = ["example.com"]',
        "",
      ].join("\n"),
      "instruction.md": "Work.",
      "tests/test.sh": `#!/bin/sh\n${asks("example.net:443")}\nmkdir -p /logs/verifier; echo 1 >/logs/verifier/reward.txt`,
    };
    const { result, file } = await bench.run(files, {
      agent: async ({ box }) => {
        const { stdout } = await box.exec(["sh", "-c", script]);
        expect(Buffer.from(stdout).toString("utf8").match(/403/g)).toHaveLength(3);
      },
    });
    expect(result.error).toBeNull();
    const lines = ((await file("egress.jsonl")) ?? "").trimEnd().split("\n");
    const denials = lines.map((line) => JSON.parse(line) as Readonly<Record<string, unknown>>);
    expect(denials.map(({ box, host: to, port, rule }) => [box, to, port, rule])).toEqual([
      ["agent", "example.org", 443, "not-listed"],
      ["agent", "example.com", 22, "port"],
      ["agent", literal, 443, "not-listed"],
      ["verifier", "example.net", 443, "not-listed"],
    ]);
    const times = denials.map(({ at }) => Date.parse(String(at)));
    expect(times.every((at) => at >= Date.parse(result.startedAt) && at <= Date.parse(result.finishedAt))).toBe(true);
    expect(new Set(denials.map(({ boxId }) => boxId)).size).toBe(2);
    expect(result.deniedConnections).toEqual({ agent: 3, verifier: 1 });
    const written = JSON.parse((await file("result.json")) ?? "{}") as Readonly<Record<string, unknown>>;
    expect(JSON.stringify(written)).toContain('{"agent":3,"verifier":1}');
  });
});
