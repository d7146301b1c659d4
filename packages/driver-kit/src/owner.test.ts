import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { currentOwner, isOwnerAlive, ownerLabel, parseOwner, type Owner } from "@breakwater/runtime-api";
import { describe, expect, it } from "vitest";
import { isLeftover, LABELS, labelsFor, parseLabels } from "./labels.ts";

/** Elsewhere an owner other than ourselves cannot be looked at. */
const hasProc = currentOwner().boot !== "";
const another = (changes: Partial<Owner>): Owner => ({ ...currentOwner(), session: "another", ...changes });

function startTimeOf(pid: number): string {
  const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
  return stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19] ?? "";
}

describe("an owner", () => {
  it("is the same for the whole life of a process, and survives its label", () => {
    expect(parseOwner(ownerLabel())).toEqual(currentOwner());
    expect(currentOwner()).toBe(currentOwner());
    expect(currentOwner().pid).toBe(process.pid);
  });

  it.each(["", "null", "{}", "x", '{"host":1}', JSON.stringify({ ...currentOwner(), pid: "1" })])(
    "is not made of %s",
    (label) => {
      expect(parseOwner(label)).toBeNull();
    },
  );

  it("is alive if it is ourselves", () => {
    expect(isOwnerAlive(currentOwner())).toBe("alive");
  });

  it.each([{ host: "elsewhere" }, { boot: "earlier" }, { pidNamespace: "pid:[1]" }])(
    "with another %o cannot be seen",
    (changes) => {
      expect(isOwnerAlive(another(changes))).toBe("unknown");
    },
  );

  it.runIf(hasProc)("is alive while its process is, and dead after", async () => {
    const program = spawn("sleep", ["60"]);
    await once(program, "spawn");
    const pid = program.pid ?? 0;
    const owner = another({ pid, startedAt: startTimeOf(pid) });
    expect(isOwnerAlive(owner)).toBe("alive");
    expect(isOwnerAlive({ ...owner, startedAt: "1" })).toBe("dead");
    program.kill("SIGKILL");
    await once(program, "exit");
    expect(isOwnerAlive(owner)).toBe("dead");
  });

  it.runIf(hasProc)("is dead when its process waits to be reaped", async () => {
    // The shell starts a child and becomes a program that does not know of it.
    const program = spawn("sh", ["-c", "sleep 0.2 & echo $!; exec sleep 60"], { stdio: ["ignore", "pipe", "ignore"] });
    const [line] = (await once(program.stdout, "data")) as [Buffer];
    const pid = Number(line.toString());
    for (let tries = 0; !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, "latin1")) && tries < 200; tries++) {
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    expect(isOwnerAlive(another({ pid, startedAt: startTimeOf(pid) }))).toBe("dead");
    program.kill("SIGKILL");
    await once(program, "exit");
  });
});

describe("labels", () => {
  const labels = labelsFor({ role: "box", trial: "task__1", expiresAtMs: 1_800_000_000_000.4 });

  it("say what an object is, whose, and until when", () => {
    expect(labels).toMatchObject({
      [LABELS.role]: "box",
      [LABELS.trial]: "task__1",
      [LABELS.expires]: "1800000000001",
    });
    expect(parseLabels(labels)).toEqual({
      role: "box",
      trial: "task__1",
      expiresAtMs: 1_800_000_000_001,
      owner: currentOwner(),
    });
    expect(
      parseLabels({ ...labelsFor({ role: "network", trial: null, expiresAtMs: 1 }), other: "x" })?.trial,
    ).toBeNull();
  });

  it.each([
    null,
    undefined,
    {},
    { [LABELS.role]: "box" },
    { ...labels, [LABELS.expires]: "soon" },
    { ...labels, [LABELS.owner]: "me" },
  ])("%o are not ours", (foreign) => {
    expect(parseLabels(foreign)).toBeNull();
  });

  it.runIf(hasProc)("of a live owner are never a leftover, of a dead one always, of an unseen one after expiry", () => {
    const ours = { role: "box", trial: null, expiresAtMs: 1000 };
    const dead = another({ startedAt: "1" });
    const unseen = another({ host: "elsewhere" });
    expect([999, 1001].map((now) => isLeftover({ ...ours, owner: currentOwner() }, now))).toEqual([false, false]);
    expect([999, 1001].map((now) => isLeftover({ ...ours, owner: dead }, now))).toEqual([true, true]);
    expect([999, 1001].map((now) => isLeftover({ ...ours, owner: unseen }, now))).toEqual([false, true]);
  });
});
