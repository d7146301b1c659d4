import { describe, expect, it } from "vitest";
import type { RuntimeDriver } from "./driver.ts";
import type { Runtime } from "./runtime.ts";
import type { RuntimeSpecInput } from "./spec.ts";
import { provisionRuntime, withRuntime } from "./with-runtime.ts";

/** A driver that has no boxes: only notes the order of the calls. */
function notingDriver(failing: Readonly<Record<string, Error>> = {}): {
  readonly driver: RuntimeDriver;
  readonly calls: string[];
} {
  const calls: string[] = [];
  const note = async (call: string): Promise<void> => {
    calls.push(call);
    const error = failing[call];
    if (error !== undefined) throw error;
  };
  const box = {
    start: (options: unknown) => note(options === undefined ? "start" : `start ${JSON.stringify(options)}`),
    teardownConfirmed: () => note("teardownConfirmed"),
    [Symbol.asyncDispose]: () => note("dispose"),
  } as unknown as Runtime;
  const driver = {
    create: (spec: RuntimeSpecInput) => {
      calls.push(`create ${spec.image}`);
      return box;
    },
  } as unknown as RuntimeDriver;
  return { driver, calls };
}

const failure = new Error("no");

describe("withRuntime", () => {
  it("starts a box, gives it away, and tears it down, confirmed", async () => {
    const { driver, calls } = notingDriver();
    const use = async (): Promise<number> => {
      calls.push("use");
      return 5;
    };
    expect(await withRuntime(driver, { image: "x" }, use, { timeoutMs: 7 })).toBe(5);
    expect(calls).toEqual(["create x", 'start {"timeoutMs":7}', "use", "teardownConfirmed"]);
  });

  it("removes the box when its use fails, and throws that error", async () => {
    const { driver, calls } = notingDriver();
    await expect(withRuntime(driver, { image: "x" }, () => Promise.reject(failure))).rejects.toBe(failure);
    expect(calls).toEqual(["create x", "start", "dispose"]);
  });

  it("does not use a box that did not start", async () => {
    const { driver, calls } = notingDriver({ start: failure });
    let used = false;
    const use = async (): Promise<void> => {
      used = true;
    };
    await expect(withRuntime(driver, { image: "x" }, use)).rejects.toBe(failure);
    expect([used, calls]).toEqual([false, ["create x", "start"]]);
  });

  it("says so when the box may still be there", async () => {
    const { driver } = notingDriver({ teardownConfirmed: failure });
    await expect(withRuntime(driver, { image: "x" }, async () => 5)).rejects.toBe(failure);
  });
});

describe("provisionRuntime", () => {
  it("gives a started box that disposes of itself", async () => {
    const { driver, calls } = notingDriver();
    {
      await using box = await provisionRuntime(driver, { image: "x" });
      expect(box).toBeDefined();
    }
    expect(calls).toEqual(["create x", "start", "dispose"]);
  });
});
