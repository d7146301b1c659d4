import { randomBytes } from "node:crypto";
import { withRuntime } from "@breakwater/runtime-api";
import Dockerode from "dockerode";
import { expect, test } from "vitest";
import { dockerDriver } from "../src/index.ts";
import { image } from "./backend.ts";

const DRIVERS = 6;

async function bridges(name: string): Promise<readonly string[]> {
  const filters = JSON.stringify({ label: [`breakwater.bridge=${name}`] });
  return (await new Dockerode().listNetworks({ filters })).map(({ Name }) => Name);
}

// The engine takes two networks of one name, and then starts no box on either: so no name is given twice.
test("drivers that need the public bridge at the same moment all get one, and none is left", async () => {
  const publicNetwork = `breakwater-test-${randomBytes(4).toString("hex")}`;
  const seen = new Set<string>();
  for (const round of [1, 2]) {
    const drivers = Array.from({ length: DRIVERS }, () => dockerDriver({ publicNetwork }));
    try {
      const started = drivers.map((driver) =>
        withRuntime(driver, { image, network: { initial: { mode: "public" } } }, async (box) => {
          for (const name of await bridges(publicNetwork)) seen.add(name);
          return (await box.exec(["true"])).exitCode;
        }),
      );
      expect(await Promise.all(started)).toEqual(drivers.map(() => 0));
    } finally {
      for (const driver of drivers) await driver[Symbol.asyncDispose]();
    }
    expect(await bridges(publicNetwork)).toEqual([]);
    expect(seen.size).toBeGreaterThanOrEqual(round);
  }
}, 300_000);

test("a bridge that was removed while no box was on it is made anew for a box that becomes public", async () => {
  const publicNetwork = `breakwater-test-${randomBytes(4).toString("hex")}`;
  await using driver = dockerDriver({ publicNetwork });
  const network = { initial: { mode: "no-network" }, later: [{ mode: "public" }] } as const;
  await withRuntime(driver, { image, network }, async (box) => {
    const [before = ""] = await bridges(publicNetwork);
    await new Dockerode().getNetwork(before).remove();
    await box.setNetwork({ mode: "public" });
    const after = await bridges(publicNetwork);
    expect(after).toHaveLength(1);
    expect(after).not.toContain(before);
    expect((await box.exec(["true"])).exitCode).toBe(0);
  });
});
