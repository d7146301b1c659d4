import {
  RuntimeError,
  type BoxReport,
  type NetworkPolicy,
  type Runtime,
  type RuntimeErrorCode,
} from "@breakwater/runtime-api";
import { describe, expect, it } from "vitest";

import { underPolicy } from "./phase-network.ts";
import { newRecord, type Trial } from "./trial.ts";

const BASELINE: NetworkPolicy = { mode: "no-network" };
const POLICY: NetworkPolicy = { mode: "public" };

/** A box that records what is set, and fails where it is told to. */
function recordingBox(
  fails: NetworkPolicy["mode"] | null = null,
  { code }: { readonly code: RuntimeErrorCode } = { code: "ERR_NETWORK_CHANGE" },
  report: Pick<BoxReport, "endedBy"> = { endedBy: "stopped" },
): { readonly box: Runtime; readonly set: string[] } {
  const set: string[] = [];
  const setNetwork = async (policy: NetworkPolicy): Promise<void> => {
    if (policy.mode === fails) throw new RuntimeError({ code, driver: "d", operation: "setNetwork", message: "no" });
    set.push(policy.mode);
  };
  const spec = { network: { initial: BASELINE, later: [POLICY] } };
  return { box: { id: "b", spec, setNetwork, report: async () => report } as never, set };
}

/** A trial with as many steps in which an agent has worked. */
function trialAfter(worked: number): Trial {
  const record = { ...newRecord(), steps: Array.from({ length: worked }, () => ({ agent: {} })) };
  const capabilities = { firstProcess: "ours" };
  return { signal: new AbortController().signal, events: { emit: () => undefined }, record, capabilities } as never;
}

const trial = trialAfter(0);
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

  describe("in a box of which the driver says that its contents have ended it", () => {
    const lost = { code: "ERR_BOX_LOST" } as const;
    const contents = { endedBy: "contents" } as const;

    it("goes on without the baseline", async () => {
      const after = trialAfter(1);
      const { box } = recordingBox("no-network", lost, contents);
      expect(await underPolicy(after, box, AGENT, async () => 1)).toBe(1);
      expect(after.record.agentBoxEndedBy).toBe("contents");
    });

    it("is no reason to try again where an agent has worked in it before the phase", async () => {
      const phase = async (): Promise<void> => undefined;
      const { box } = recordingBox("public", lost, contents);
      const crashed = { reason: "crashed", code: "ERR_BOX_ENDED" };
      await expect(underPolicy(trialAfter(1), box, AGENT, phase)).rejects.toMatchObject(crashed);
      await expect(underPolicy(trialAfter(0), box, AGENT, phase)).rejects.toMatchObject(lost);
    });

    it("fails as the box did where somebody else has ended it", async () => {
      const { box } = recordingBox("no-network", lost, { endedBy: "outside" });
      const failure = { reason: "infrastructure", code: "ERR_BOX_LOST" };
      await expect(underPolicy(trialAfter(1), box, AGENT, async () => 1)).rejects.toMatchObject(failure);
    });
  });
});
