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
