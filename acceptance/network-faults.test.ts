import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { NetworkPolicy, Runtime } from "@breakwater/runtime-api";
import { dockerDriver } from "@breakwater/runtime-docker";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { dockerHost, image } from "./support/backend.ts";
import { Stranger, until } from "./support/engine.ts";
import { EngineProxy, type FaultyCall } from "./support/engine-proxy.ts";
import { assertNoWayOut, newToken, notSealed, tryFrom } from "./support/sealed.ts";
import { Workbench } from "./support/trials.ts";

/*
 * Changes of the network that fail half-way, and what enforces allowlists ending in mid-run. No box may go on under a policy that is not the one that was
 * asked for, and none may be rewarded with a network that it was not promised.
 */

vi.setConfig({ testTimeout: 240_000, hookTimeout: 240_000 });

const PUBLIC: NetworkPolicy = { mode: "public" };
const NONE: NetworkPolicy = { mode: "no-network" };
const LIST: NetworkPolicy = { mode: "allowlist", hosts: ["example.com"] };
const OTHER_LIST: NetworkPolicy = { mode: "allowlist", hosts: ["example.org"] };
const ALL: readonly NetworkPolicy[] = [PUBLIC, NONE, LIST, OTHER_LIST];

const DISCONNECT = { method: "POST", path: /\/disconnect/ } as const;
const CONNECT = { method: "POST", path: /\/networks\/[^/]+\/connect/ } as const;

/** The change is not in force, so the box does nothing any more; and says so. */
const ENDED = {
  ranBefore: true,
  code: "ERR_NETWORK_CHANGE",
  state: "unfit",
  runs: false,
  exec: "ERR_BOX_UNFIT",
} as const;

const stranger = new Stranger(dockerHost);

async function roleOf(role: "gateway" | "forwarder", box?: Runtime): Promise<readonly string[]> {
  const label = [`breakwater.role=${role}`, ...(box === undefined ? [] : [`breakwater.box=${box.id}`])];
  const filters = encodeURIComponent(JSON.stringify({ label }));
  const found = (await stranger.call("GET", `/containers/json?all=1&filters=${filters}`)) as { Id: string }[];
  return found.map(({ Id }) => Id);
}

/** The gateway of a box: the one whose volume its forwarder has. */
async function gatewayOf(box: Runtime): Promise<string> {
  const [forwarder = ""] = await roleOf("forwarder", box);
  const found = (await stranger.call("GET", `/containers/${forwarder}/json`)) as { Mounts: { Name: string }[] };
  return found.Mounts[0]?.Name ?? "";
}

async function codeOf(operation: Promise<unknown>): Promise<unknown> {
  return operation.then(
    () => "done",
    (error: unknown) => (error as { readonly code?: unknown }).code,
  );
}

async function runs(container: string): Promise<boolean> {
  const found = (await stranger.call("GET", `/containers/${container}/json`)) as { State: { Running: boolean } } | null;
  return found?.State.Running ?? false;
}

describe.skipIf(notSealed !== null)("[network.faults] a change that fails half-way", () => {
  let proxy: EngineProxy;
  let driver: ReturnType<typeof dockerDriver>;
  const boxes: Runtime[] = [];

  beforeAll(async () => {
    await assertNoWayOut();
    proxy = await EngineProxy.start(dockerHost);
    driver = dockerDriver({ host: proxy.host });
  });
  afterEach(async () => {
    proxy.break();
    await Promise.all(boxes.splice(0).map((box) => box.teardownConfirmed()));
  });
  afterAll(async () => {
    await driver[Symbol.asyncDispose]();
    await proxy[Symbol.asyncDispose]();
  });

  async function start(initial: NetworkPolicy, later: readonly NetworkPolicy[] = ALL): Promise<Runtime> {
    const box = driver.create({ image, network: { initial, later }, trial: "network-faults" });
    boxes.push(box);
    await box.start();
    return box;
  }

  /** What becomes of a change, and of the box. */
  async function change(box: Runtime, policy: NetworkPolicy, timeoutMs = 60_000): Promise<object> {
    const ranBefore = await runs(box.id);
    const code = await codeOf(box.setNetwork(policy, { timeoutMs }));
    const state = box.state;
    return { ranBefore, code, state, runs: await runs(box.id), exec: await codeOf(box.exec(["true"])) };
  }

  const changes: readonly (readonly [string, NetworkPolicy, NetworkPolicy, FaultyCall])[] = [
    ["refuses to take it off the bridge", PUBLIC, NONE, { ...DISCONNECT, fault: "refuse" }],
    ["only says that it took it off the bridge", PUBLIC, NONE, { ...DISCONNECT, fault: "lie" }],
    ["only says that it took it off the bridge", PUBLIC, LIST, { ...DISCONNECT, fault: "lie" }],
    ["refuses to put it on the bridge", NONE, PUBLIC, { ...CONNECT, fault: "refuse" }],
    ["only says that it put it on the bridge", LIST, PUBLIC, { ...CONNECT, fault: "lie" }],
    ["loses the connection while it puts it on the bridge", NONE, PUBLIC, { ...CONNECT, fault: "cut" }],
  ];
  it.each(changes)("leaves no box running when the engine %s", async (_, from, to, fault) => {
    const box = await start(from);
    proxy.break(fault);
    expect(await change(box, to)).toEqual(ENDED);
    expect(proxy.done.length).toBeGreaterThan(0);
  });

  it("leaves no box running when the engine does not answer in time", async () => {
    const box = await start(PUBLIC, [NONE]);
    proxy.break({ ...DISCONNECT, fault: "stall" });
    expect(await change(box, NONE, 2000)).toEqual(ENDED);
  });

  it("says what is left when the box cannot even be stopped", async () => {
    const box = await start(PUBLIC, [NONE]);
    proxy.break({ ...DISCONNECT, fault: "refuse" }, { method: "POST", path: /\/kill/, fault: "refuse" });
    const error = await box.setNetwork(NONE, { timeoutMs: 10_000 }).catch((it: unknown) => it);
    expect(error).toMatchObject({ code: "ERR_NETWORK_CHANGE", leftovers: [expect.any(String)] });
    expect(box.state).toBe("unfit");
  });

  it.each([
    ["allowlist to no network", LIST, NONE],
    ["one list to another", LIST, OTHER_LIST],
    ["public to a list", PUBLIC, LIST],
    ["no network to a list", NONE, LIST],
    ["a list to public", LIST, PUBLIC],
  ])("leaves no box running when the gateway has ended: %s", async (_, from, to) => {
    const box = await start(from);
    await stranger.kill(await gatewayOf(box));
    expect(await change(box, to)).toEqual(ENDED);
  });

  it("leaves no box running when the gateway does not answer in time", async () => {
    const box = await start(LIST);
    const gateway = await gatewayOf(box);
    await stranger.call("POST", `/containers/${gateway}/pause`);
    try {
      expect(await change(box, OTHER_LIST, 5000)).toEqual(ENDED);
    } finally {
      await stranger.call("POST", `/containers/${gateway}/unpause`);
    }
  });

  it("leaves no box running when its forwarder has ended", async () => {
    const box = await start(LIST);
    const [forwarder = ""] = await roleOf("forwarder", box);
    await stranger.kill(forwarder);
    expect(await change(box, OTHER_LIST)).toEqual(ENDED);
  });
});

/** Ends each of our programs that asks what interfaces there are. */
const ENDS_HELPERS = `import os
print("ready", flush=True)
while True:
    for it in filter(str.isdigit, os.listdir("/proc")):
        try:
            if b"/sys/class/net" in open("/proc/%s/cmdline" % it, "rb").read() and int(it) != os.getpid(): os.kill(int(it), 9)
        except OSError: pass`;

/** As many processes as the box may have. */
const LEAVES_NO_ROOM = `import os, time
try:
    while os.fork() > 0: pass
    time.sleep(600)
except OSError: print("ready", flush=True)
time.sleep(600)`;

describe.skipIf(notSealed !== null)("[network.faults] a change that the box's contents keep from being shown", () => {
  const driver = dockerDriver();
  afterAll(() => driver[Symbol.asyncDispose]());

  // Else an agent could bring about a failure of the backend, which is a reason to try again.
  it.each([
    ["end our helper", ENDS_HELPERS],
    ["leave no room for it", LEAVES_NO_ROOM],
  ])("ends the box by them: they %s", async (_, program) => {
    const network = { initial: PUBLIC, later: [NONE] };
    await using box = driver.create({ image, network, pidsLimit: 64, trial: "network-faults" });
    await box.start();
    await box.exec(["sh", "-c", "echo kept >/kept"]);
    let isReady = false;
    const running = box.exec(["python3", "-c", program], { onOutput: () => void (isReady = true) });
    running.catch(() => undefined);
    await until("the program in the box", () => isReady);
    expect(await codeOf(box.setNetwork(NONE))).toBe("ERR_BOX_LOST");
    expect([box.state, await runs(box.id), (await box.report()).endedBy]).toEqual(["stopped", false, "contents"]);
    expect(Buffer.from((await box.readBounded("/kept", { maxBytes: 10 })) ?? []).toString("utf8")).toBe("kept\n");
    await box.teardownConfirmed();
  });
});

describe.skipIf(notSealed !== null)("[network.faults] what enforces an allowlist ends", () => {
  const driver = dockerDriver();
  const bench = new Workbench();
  afterAll(async () => {
    await driver[Symbol.asyncDispose]();
    await bench[Symbol.asyncDispose]();
  });

  it.each(["gateway", "forwarder"] as const)("a program that runs when the %s ends is no result", async (which) => {
    const box = driver.create({ image, network: { initial: LIST }, trial: "network-faults" });
    try {
      await box.start();
      const running = box.exec(["sh", "-c", "echo started; sleep 8"]);
      const outcome = codeOf(running);
      await sleep(1000);
      const [forwarder = ""] = await roleOf("forwarder", box);
      await stranger.kill(which === "gateway" ? await gatewayOf(box) : forwarder);
      expect(await outcome).toBe("ERR_NETWORK_LOST");
      expect(box.state).toBe("unfit");
      // It has lost its network, and gained none.
      const found = (await stranger.call("GET", `/containers/${box.id}/json`)) as {
        NetworkSettings: { Networks: Record<string, { IPAddress: string }> };
      };
      expect(Object.values(found.NetworkSettings.Networks).filter(({ IPAddress }) => IPAddress !== "")).toEqual([]);
      await expect(box.report()).rejects.toMatchObject({ code: "ERR_NETWORK_LOST" });
      await box.stopConfirmed();
      await box.teardownConfirmed();
      expect(await box.report()).toMatchObject({ egress: { deniedCount: 0 } });
    } finally {
      await box[Symbol.asyncDispose]();
    }
  });

  it("the next box gets another gateway", async () => {
    const start = async (): Promise<Runtime> => {
      const box = driver.create({ image, network: { initial: LIST }, trial: "network-faults" });
      await box.start();
      return box;
    };
    const first = await start();
    const lost = await gatewayOf(first);
    await stranger.kill(lost);
    const second = await start();
    expect(await gatewayOf(second)).not.toBe(lost);
    expect(await tryFrom(second, [{ kind: "resolve", name: "example.com" }], newToken())).toEqual(["reached"]);
    await Promise.all([first, second].map((box) => box.teardownConfirmed()));
  });

  const task = (mode: "shared" | "separate", networks: { readonly agent: string; readonly verifier: string }) => ({
    "task.toml": [
      'artifacts = ["/app"]',
      "[agent]",
      "timeout_sec = 60",
      `network_mode = ${networks.agent}`,
      "[environment]",
      `docker_image = "${image}"`,
      'network_mode = "no-network"',
      "[verifier]",
      `environment_mode = "${mode}"`,
      "timeout_sec = 60",
      `network_mode = ${networks.verifier}`,
      "",
    ].join("\n"),
    "instruction.md": "Work.",
    "tests/test.sh": "#!/bin/sh\nmkdir -p /logs/verifier; sleep 8; echo 1 >/logs/verifier/reward.txt",
  });
  const ON_LIST = '"allowlist"\nallowed_hosts = ["example.com"]';
  const NOWHERE = '"no-network"';

  it.each(["shared", "separate"] as const)(
    "the trial has no reward when it is while the agent works (%s)",
    async (mode) => {
      const { result } = await bench.run(task(mode, { agent: ON_LIST, verifier: NOWHERE }), {
        agent: async ({ box }) => {
          await stranger.kill(await gatewayOf({ id: box.id } as Runtime));
          await box.exec(["true"]).catch(() => undefined);
        },
      });
      expect(result.rewards).toBeNull();
      expect(result.error).toMatchObject({ reason: "infrastructure", code: "ERR_NETWORK_LOST" });
      expect(result.leftovers).toEqual([]);
    },
  );

  it("the trial has no reward when it is while the tests run", async () => {
    const killing: Promise<void>[] = [];
    const { result } = await bench.run(task("shared", { agent: NOWHERE, verifier: ON_LIST }), {
      agent: async () => {},
      onEvent: ({ type, box }) => {
        if (type !== "verifier.started" || box === undefined) return;
        killing.push(sleep(1000).then(async () => stranger.kill(await gatewayOf({ id: box } as Runtime))));
      },
    });
    expect(killing).toHaveLength(1);
    await Promise.all(killing);
    expect(result.rewards).toBeNull();
    expect(result.error).toMatchObject({ reason: "infrastructure", code: "ERR_NETWORK_LOST" });
  });

  it("sweep finds what a killed owner left: box, forwarder, gateway and volume", async () => {
    const child = spawn(
      process.execPath,
      ["--conditions=@breakwater/source", join(import.meta.dirname, "support/start-and-wait.ts")],
      { stdio: ["ignore", "pipe", "inherit"] },
    );
    const [line] = (await once(child.stdout.setEncoding("utf8"), "data")) as [string];
    const box = { id: line.trim() } as Runtime;
    const gateway = await gatewayOf(box);
    const [forwarder = ""] = await roleOf("forwarder", box);
    child.kill("SIGKILL");
    await once(child, "exit");

    await until("the end of its owner", async () => {
      const { removed } = await driver.sweep({ dryRun: true });
      return removed.some(({ id }) => id === gateway);
    });
    const { removed, failed } = await driver.sweep();
    expect(failed).toEqual([]);
    const ids = removed.map(({ kind, id }) => `${kind} ${id}`);
    expect(ids).toContain(`volume ${gateway}`);
    expect(ids).toContain(`container ${forwarder}`);
    for (const name of [box.id, `${box.id}-forwarder`, gateway]) {
      expect(await stranger.call("GET", `/containers/${name}/json`)).toBeNull();
    }
    expect(await stranger.call("GET", `/volumes/${gateway}`)).toBeNull();
  });
});
