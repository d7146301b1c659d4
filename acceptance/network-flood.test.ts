import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { runInside } from "@breakwater/backends/network";
import type { NetworkPolicy, Runtime } from "@breakwater/runtime-api";
import { dockerDriver } from "@breakwater/runtime-docker";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { dockerHost, image } from "./support/backend.ts";
import { Stranger, until } from "./support/engine.ts";
import { assertNoWayOut, notSealed } from "./support/sealed.ts";

/*
 * A box that takes every connection that it gets and lets all of them stall. What they want of the gateway and of its own forwarder has to fit into what these
 * two may have, the kernel's part included; and other boxes get on.
 */

vi.setConfig({ testTimeout: 600_000, hookTimeout: 240_000 });

const PROGRAM = await readFile(join(import.meta.dirname, "support/flood.py"), "utf8");
const LIST: NetworkPolicy = { mode: "allowlist", hosts: ["example.com"] };
const RESULT = "/tmp/flood.json";
const FLOOD = {
  ports: [80, 80, 443, 3128],
  host: "example.com",
  count: 1100,
  path: "/large?bytes=1000000000",
  read: 65536,
};
const FLOOD_TIMEOUT_MS = 500_000;

const stranger = new Stranger(dockerHost);

interface Inspection {
  readonly State: { readonly Pid: number; readonly Running: boolean; readonly OOMKilled: boolean };
  readonly HostConfig: { readonly Memory: number };
  readonly Mounts: readonly { readonly Name: string }[];
}

async function inspect(container: string): Promise<Inspection> {
  return (await stranger.call("GET", `/containers/${container}/json`)) as Inspection;
}

/**
 * What a container wants of memory, as a part of what it may have. The kernel's part for TCP is in the engine's own count on some hosts only, so it is
 * added: `connections` says which of the namespace's are the container's.
 */
async function memoryOf(container: string, connections: string): Promise<number> {
  const { State, HostConfig } = await inspect(container);
  const { memory_stats: counted } = (await stranger.call("GET", `/containers/${container}/stats?stream=0`)) as {
    readonly memory_stats: { readonly usage: number };
  };
  const argv = ["nsenter", `--net=/proc/${State.Pid}/ns/net`, "ss", "-tmnHO", connections] as const;
  const { stdout } = await runInside([...argv], { timeoutMs: 60_000 });
  let kernel = 0;
  for (const [, received, spare, queued] of stdout.matchAll(/skmem:\(r(\d+),.*?,f(\d+),w(\d+)/g)) {
    kernel += Number(received) + Number(spare) + Number(queued);
  }
  const mib = (bytes: number): number => Math.round(bytes / 1024 / 1024);
  console.info(`${container}: ${mib(counted.usage)} MiB, TCP ${mib(kernel)} MiB, limit ${mib(HostConfig.Memory)} MiB`);
  expect(kernel).toBeGreaterThan(0);
  return (counted.usage + kernel) / HostConfig.Memory;
}

describe.skipIf(notSealed !== null)("[network.flood] a thousand stalled downloads", () => {
  const driver = dockerDriver();
  const boxes: Runtime[] = [];

  beforeAll(() => assertNoWayOut());
  afterAll(async () => {
    await Promise.all(boxes.map((box) => box[Symbol.asyncDispose]()));
    await driver[Symbol.asyncDispose]();
  });

  async function start(): Promise<Runtime> {
    const box = driver.create({ image, network: { initial: LIST }, trial: "network-flood" });
    boxes.push(box);
    await box.start();
    return box;
  }

  async function output(box: Runtime, ...argv: readonly [string, ...string[]]): Promise<string> {
    return Buffer.from((await box.exec([...argv], { timeoutMs: 120_000 })).stdout).toString("utf8");
  }

  it("neither end the gateway or the forwarder, nor keep another box from the network", async () => {
    const [flooding, other] = [await start(), await start()];
    const forwarder = `${flooding.id}-forwarder`;
    const gateway = (await inspect(forwarder)).Mounts[0]?.Name ?? "";
    const status = (box: Runtime): Promise<string> =>
      output(box, "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "60", "http://example.com/");
    expect([await status(flooding), await status(other)]).toEqual(["200", "200"]);
    const before = await Promise.all([gateway, forwarder].map(inspect));

    let end = (): void => undefined;
    const ended = new Promise<void>((resolve) => (end = resolve));
    const stdin = (async function* () {
      yield Buffer.from("\n");
      await ended;
    })();
    const flood = flooding.exec(["sh", "-c", `exec python3 -c "$0" "$1" > ${RESULT}`, PROGRAM, JSON.stringify(FLOOD)], {
      stdin,
      timeoutMs: FLOOD_TIMEOUT_MS,
    });
    try {
      let taken = "";
      const isThere = async (): Promise<boolean> => (taken = await output(flooding, "cat", RESULT)) !== "";
      await until("the flood", isThere, FLOOD_TIMEOUT_MS);
      expect(Number(taken)).toBeGreaterThan(900);

      const served = "( sport = :80 or sport = :443 or sport = :3128 )";
      expect(await memoryOf(gateway, "")).toBeLessThan(0.9);
      expect(await memoryOf(forwarder, served)).toBeLessThan(0.9);
      expect(await status(other)).toBe("200");
    } finally {
      end();
      await flood;
    }
    const after = await Promise.all([gateway, forwarder].map(inspect));
    expect(after.map(({ State }) => [State.Running, State.OOMKilled, State.Pid])).toEqual(
      before.map(({ State }) => [true, false, State.Pid]),
    );
    expect(await status(flooding)).toBe("200");
  });
});
