import { RuntimeError, type NetworkPolicy, type Runtime } from "@breakwater/runtime-api";
import { describe, expect, it } from "vitest";

import { underPolicy } from "./phase-network.ts";
import type { Trial } from "./trial.ts";

const BASELINE: NetworkPolicy = { mode: "no-network" };
const POLICY: NetworkPolicy = { mode: "public" };

/** A box that records what is set, and fails where it is told to. */
function recordingBox(fails: NetworkPolicy["mode"] | null = null): { readonly box: Runtime; readonly set: string[] } {
  const set: string[] = [];
  const setNetwork = async (policy: NetworkPolicy): Promise<void> => {
    if (policy.mode === fails)
      throw new RuntimeError({ code: "ERR_NETWORK_CHANGE", driver: "d", operation: "setNetwork", message: "no" });
    set.push(policy.mode);
  };
  return { box: { id: "b", spec: { network: { initial: BASELINE, later: [POLICY] } }, setNetwork } as never, set };
}

const trial = {
  signal: new AbortController().signal,
  events: { emit: () => undefined },
} as never as Trial;
const { signal } = trial;
const AGENT = { of: "agent", policy: POLICY, goesOn: true, signal } as const;

describe("a phase under its own policy", () => {
  it("has it before it begins, and the baseline afterwards", async () => {
    const { box, set } = recordingBox();
    expect(await underPolicy(trial, box, AGENT, async () => [...set])).toEqual(["public"]);
    expect(set).toEqual(["public", "no-network"]);
  });

  it("switches nothing where it has none", async () => {
    const { box, set } = recordingBox();
    expect(await underPolicy(trial, box, { ...AGENT, policy: null }, async () => 1)).toBe(1);
    expect(set).toEqual([]);
  });

  it("gives the baseline back when the phase fails, and fails as the phase did", async () => {
    const failure = new Error("the phase");
    for (const fails of [null, "no-network"] as const) {
      const { box, set } = recordingBox(fails);
      await expect(underPolicy(trial, box, AGENT, () => Promise.reject(failure))).rejects.toBe(failure);
      expect(set).toEqual(fails === null ? ["public", "no-network"] : ["public"]);
    }
  });

  it("does not begin where the policy cannot be had, and fails where the baseline cannot", async () => {
    let began = 0;
    const phase = async (): Promise<void> => void (began += 1);
    const code = "ERR_NETWORK_CHANGE";
    await expect(underPolicy(trial, recordingBox("public").box, AGENT, phase)).rejects.toMatchObject({ code });
    expect(began).toBe(0);
    await expect(underPolicy(trial, recordingBox("no-network").box, AGENT, phase)).rejects.toMatchObject({ code });
    expect(began).toBe(1);
  });

  it("does not go back in a box that is stopped next", async () => {
    const { box, set } = recordingBox();
    await underPolicy(trial, box, { ...AGENT, goesOn: false }, async () => undefined);
    expect(set).toEqual(["public"]);
  });
});
