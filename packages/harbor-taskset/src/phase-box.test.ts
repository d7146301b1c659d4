import { setTimeout as pause } from "node:timers/promises";
import type { ExecOptions, ExecResult, Runtime } from "@breakwater/runtime-api";
import { describe, expect, it } from "vitest";

import type { AgentBox } from "./agents.ts";
import { workInBox } from "./phase-box.ts";

/** A box whose programs run until they are aborted. */
function patientBox(): { readonly box: Runtime; readonly calls: ExecOptions[]; readonly aborted: () => number } {
  const calls: ExecOptions[] = [];
  let aborted = 0;
  const exec = async (_argv: readonly string[], options: ExecOptions = {}): Promise<ExecResult> => {
    calls.push(options);
    await new Promise<void>((resolve) => options.signal?.addEventListener("abort", () => resolve(), { once: true }));
    aborted++;
    throw new Error("aborted");
  };
  return { box: { id: "b", driver: "d", exec } as unknown as Runtime, calls, aborted: () => aborted };
}

const PHASE = { user: "app", env: { A: "1" }, timeoutMs: 60_000, signal: new AbortController().signal };

describe("a caller's function in a box", () => {
  it("returns or throws, and that is how it ended", async () => {
    const { box } = patientBox();
    expect(await workInBox(box, PHASE, async () => 42)).toEqual({ status: "returned", value: 42 });
    const error = new Error("no");
    expect(await workInBox(box, PHASE, () => Promise.reject(error))).toEqual({ status: "threw", error });
    const throwing = (): Promise<void> => {
      throw error;
    };
    expect(await workInBox(box, PHASE, throwing)).toEqual({ status: "threw", error });
  });

  it("has its programs run as the phase's user and in its environment, unless it says otherwise", async () => {
    const { box, calls } = patientBox();
    await workInBox(box, { ...PHASE, timeoutMs: 20 }, (view) =>
      Promise.allSettled([view.exec(["a"]), view.exec(["b"], { user: "root", env: { A: "2", B: "3" } })]),
    );
    expect(calls.map(({ user, env }) => ({ user, env }))).toEqual([
      { user: "app", env: { A: "1" } },
      { user: "root", env: { A: "2", B: "3" } },
    ]);
  });

  it("is ended when its time is over, with what it had under way", async () => {
    const { box, aborted } = patientBox();
    const end = await workInBox(box, { ...PHASE, timeoutMs: 20 }, async (view) => {
      await view.exec(["sleep"]);
    });
    expect([end.status, aborted()]).toEqual(["timed-out", 1]);
  });

  it("leaves nothing under way that it did not wait for, and can do nothing afterwards", async () => {
    const { box, aborted } = patientBox();
    let kept: AgentBox | undefined;
    const end = await workInBox(box, PHASE, async (view) => {
      kept = view;
      void view.exec(["sleep"]);
      await pause(1);
    });
    expect([end.status, aborted()]).toEqual(["returned", 1]);
    await expect(kept?.exec(["true"])).rejects.toThrow("the phase is over");
  });

  it("is aborted by the caller, also before it began", async () => {
    const { box } = patientBox();
    const controller = new AbortController();
    setTimeout(() => controller.abort(), 10);
    const phase = { ...PHASE, signal: controller.signal };
    const sleep = async (view: AgentBox): Promise<void> => void (await view.exec(["sleep"]));
    expect((await workInBox(box, phase, sleep)).status).toBe("aborted");
    expect((await workInBox(box, phase, sleep)).status).toBe("aborted");
  });

  it("cannot stop or remove its box", async () => {
    const { box } = patientBox();
    await workInBox(box, PHASE, async (view) => {
      expect(Object.keys(view).sort()).toEqual([
        "download",
        "driver",
        "exec",
        "id",
        "inspectPath",
        "readBounded",
        "removePaths",
        "upload",
      ]);
    });
  });
});
