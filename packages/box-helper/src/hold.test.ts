import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { boxHelperPath } from "./index.ts";

// A pid namespace of its own takes Linux and root; elsewhere the hold is tried in boxes only.
const isPossible = process.platform === "linux" && process.getuid?.() === 0 && ["x64", "arm64"].includes(process.arch);

test.runIf(isPossible)("a TERM from outside ends the hold at once, none from inside does", async () => {
  const helper = boxHelperPath(process.arch === "arm64" ? "arm64" : "amd64");
  const hold = [helper, "hold", "--lifetime-ms", "60000"];
  const namespace = spawn("unshare", ["--pid", "--fork", "--kill-child", "--mount-proc", ...hold]);
  onTestFinished(() => void namespace.kill("SIGKILL"));
  const ended = once(namespace, "exit");
  const first = await holdBelow(namespace.pid ?? 0);

  const inside = ["--target", String(first), "--pid", "--mount"];
  // The second signal is sent, and handled, after the first.
  for (const name of ["TERM", "HUP"]) execFileSync("nsenter", [...inside, "sh", "-c", `kill -${name} 1`]);
  expect(execFileSync("nsenter", [...inside, "cat", "/proc/1/cmdline"], { encoding: "utf8" })).toBe(
    `${hold.join("\0")}\0`,
  );

  process.kill(first, "SIGTERM");
  expect(await ended).toEqual([143, null]);
});

/** The first process of the namespace, once it is a hold that is ready: the last thing that it does is to take on saved ids of its own. */
async function holdBelow(parent: number): Promise<number> {
  for (const deadline = Date.now() + 20_000; Date.now() < deadline; await sleep(20)) {
    const child = children(parent)[0];
    if (child !== undefined && field(child, "Uid")?.split("\t")[2] === "65533") return child;
  }
  throw new Error("the hold did not start");
}

function children(parent: number): readonly number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name) && field(Number(name), "PPid") === String(parent))
    .map(Number);
}

function field(pid: number, name: string): string | undefined {
  try {
    return new RegExp(`^${name}:\\s*(.+)$`, "m").exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
  } catch {
    return undefined;
  }
}
