import { spawn } from "node:child_process";
import { once } from "node:events";

import { describe, expect, it } from "vitest";

import { identify, isAlive, listProcesses, signal, terminate } from "./processes.ts";

describe("process identities", () => {
  it("know this process and its command line", () => {
    const mine = identify(process.pid);
    expect(mine).toBeDefined();
    expect(listProcesses().find((entry) => entry.identity.pid === process.pid)?.parentPid).toBe(process.ppid);
  });

  it("do not take a later process of the same number for the same", () => {
    const mine = identify(process.pid);
    if (mine === undefined) throw new Error("this process is not in /proc");
    expect(isAlive({ ...mine, startTicks: mine.startTicks - 1 })).toBe(false);
    expect(isAlive({ ...mine, bootId: "another" })).toBe(false);
    expect(signal({ ...mine, startTicks: mine.startTicks - 1 }, "SIGKILL")).toBe(false);
  });

  it("end a process that does not want to", async () => {
    const stubborn = spawn("sh", ["-c", "trap '' TERM; echo ready; while :; do sleep 1; done"], {
      stdio: ["ignore", "pipe", "ignore"],
    });
    await once(stubborn.stdout, "data");
    const identity = identify(stubborn.pid ?? 0);
    if (identity === undefined) throw new Error("the child has ended by itself");
    expect(await terminate(identity, 50)).toBe(true);
    expect(isAlive(identity)).toBe(false);
  });
});
