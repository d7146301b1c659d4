import type { Runtime } from "@breakwater/runtime-api";
import { dockerDriver } from "@breakwater/runtime-docker";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { dockerHost, image } from "./support/backend.ts";
import { Stranger } from "./support/engine.ts";
import { assertNoWayOut, notSealed, type Probe, tryFrom } from "./support/sealed.ts";

/* Many boxes with allowlists on one engine: all start, each reaches its own host and no other's, and what they cost besides themselves stays the same. */

vi.setConfig({ testTimeout: 1_800_000, hookTimeout: 300_000 });

const BOXES = 100;
const AT_A_TIME = 6;
const HOSTS = ["example.com", "example.org", "www.iana.org", "s3.amazonaws.com"] as const;
const MAX_GATEWAY_BYTES = 256 * 1024 * 1024;
const TRIAL = "network-many";

describe.skipIf(notSealed !== null)(`[network.many] ${BOXES} boxes with allowlists`, () => {
  const driver = dockerDriver();
  const stranger = new Stranger(dockerHost);
  const boxes: Runtime[] = [];

  beforeAll(() => assertNoWayOut());
  afterAll(async () => {
    await each(boxes, async (box) => box[Symbol.asyncDispose]());
    await driver[Symbol.asyncDispose]();
  });

  /** What there is for the boxes; their forwarders say which gateways they use. */
  async function objects(): Promise<Readonly<Record<string, number>>> {
    const ours = await stranger.objectsOf(TRIAL);
    const count = (wanted: string): number => ours.filter(({ kind }) => kind === wanted).length;
    const gateways = (await gatewaysInUse()).length;
    return { containers: count("container"), networks: count("network"), volumes: count("volume"), gateways };
  }

  async function gatewaysInUse(): Promise<readonly string[]> {
    const label = ["breakwater.role=forwarder", `breakwater.trial=${TRIAL}`];
    const filters = encodeURIComponent(JSON.stringify({ label }));
    const forwarders = (await stranger.call("GET", `/containers/json?all=1&filters=${filters}`)) as {
      Mounts: { Name: string }[];
    }[];
    return [...new Set(forwarders.map(({ Mounts: [mount] }) => mount?.Name ?? ""))];
  }

  it("all start, reach their own host and no other's, and share one gateway", async () => {
    const hosts = Array.from({ length: BOXES }, (_, index) => HOSTS[index % HOSTS.length] ?? "");
    await each(hosts, async (host) => {
      const box = driver.create({ image, network: { initial: { mode: "allowlist", hosts: [host] } }, trial: TRIAL });
      boxes.push(box);
      await box.start();
    });
    expect(await objects()).toEqual({ containers: 2 * BOXES, networks: 0, volumes: 0, gateways: 1 });

    const probes = HOSTS.map((name): Probe => ({ kind: "resolve", name }));
    await each(boxes, async (box) => {
      const { network } = box.spec;
      const own = network.initial.mode === "allowlist" ? network.initial.hosts[0] : undefined;
      const names = await tryFrom(box, probes, "many");
      expect(HOSTS.filter((_, index) => names[index] === "reached")).toEqual([own]);
      const { stdout } = await box.exec([
        "sh",
        "-c",
        HOSTS.map((host) => `curl -s -o /dev/null -w '%{http_code} ' --max-time 60 http://${host}/`).join("; "),
      ]);
      expect(Buffer.from(stdout).toString("utf8")).toBe(HOSTS.map((host) => (host === own ? "200 " : "403 ")).join(""));
    });

    const [gateway] = await gatewaysInUse();
    const stats = (await stranger.call("GET", `/containers/${gateway}/stats?stream=0`)) as {
      memory_stats: { usage: number };
    };
    console.info(`memory of the gateway of ${BOXES} boxes: ${Math.round(stats.memory_stats.usage / 1024 / 1024)} MiB`);
    expect(stats.memory_stats.usage).toBeLessThan(MAX_GATEWAY_BYTES);
  });

  it("leave nothing", async () => {
    await each(boxes, (box) => box.teardownConfirmed());
    expect(await objects()).toEqual({ containers: 0, networks: 0, volumes: 0, gateways: 0 });
  });
});

/** A few at a time. */
async function each<T>(items: readonly T[], work: (item: T) => Promise<unknown>): Promise<void> {
  const waiting = [...items];
  await Promise.all(
    Array.from({ length: AT_A_TIME }, async () => {
      for (let item = waiting.shift(); item !== undefined; item = waiting.shift()) await work(item);
    }),
  );
}
