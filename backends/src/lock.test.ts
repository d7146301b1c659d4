import { spawn } from "node:child_process";
import { once } from "node:events";
import { randomUUID } from "node:crypto";

import { describe, expect, it } from "vitest";

import { withLock } from "./lock.ts";

describe("withLock", () => {
  it("lets one in at a time", async () => {
    const name = randomUUID();
    let inside = 0;
    let most = 0;
    const enter = (): Promise<void> =>
      withLock(name, 10_000, async () => {
        inside += 1;
        most = Math.max(most, inside);
        await new Promise((resolve) => setTimeout(resolve, 20));
        inside -= 1;
      });
    await Promise.all([enter(), enter(), enter()]);
    expect(most).toBe(1);
  });

  it("is free again after a failure, and when its owner was killed", async () => {
    const name = randomUUID();
    await expect(withLock(name, 1000, () => Promise.reject(new Error("work failed")))).rejects.toThrow("work failed");
    const program = `import { withLock } from ${JSON.stringify(import.meta.resolve("./lock.ts"))};
      await withLock(${JSON.stringify(name)}, 1000, async () => { console.log("held"); await new Promise((done) => setTimeout(done, 60000)); });`;
    const owner = spawn(process.execPath, ["--input-type=module", "--eval", program], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    await once(owner.stdout, "data");
    await expect(withLock(name, 150, async () => {})).rejects.toMatchObject({ code: "TIMEOUT" });
    owner.kill("SIGKILL");
    await once(owner, "exit");
    await expect(withLock(name, 1000, async () => "mine")).resolves.toBe("mine");
  });
});
