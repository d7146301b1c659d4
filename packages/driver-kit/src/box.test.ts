import {
  parseRuntimeSpec,
  type Runtime,
  type RuntimeCapabilities,
  RuntimeError,
  type RuntimeErrorCode,
  type RuntimeSpecInput,
} from "@breakwater/runtime-api";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { ScriptedHelper } from "../test/scripted-helper.ts";
import type { BackendBox, BoxExec } from "./backend-box.ts";
import { createBox } from "./box.ts";
import { proofOf } from "./proof.ts";

const CAPABILITIES: RuntimeCapabilities = {
  networkModes: ["public", "no-network"],
  networkChange: "cuts",
  allowlistEntries: [],
  allowlistPorts: [],
  stop: "sealed",
  firstProcess: "ours",
  freeze: "freezes",
  limits: [],
  maxCpus: null,
  maxMemoryMb: null,
  gpus: 0,
  users: "any",
  imagePin: "id",
  imageSources: ["reference"],
  services: "none",
  operatingSystems: ["linux"],
  maxLifetimeMs: null,
};

/** A program that ends at once, having said what our helper says when it is asked for mounts. What is asked for a path is killed first. */
function endsAtOnce(): BoxExec {
  const helper = new ScriptedHelper();
  helper.onFrame = ({ type }) => {
    if (type !== "R") return;
    if (helper.request.argv[1] === "mounts") helper.say("stdout", '{"path":"/dev/shm","fileSystem":"tmpfs"}\n');
    helper.conclude({ exit: helper.request.argv[1] === "stat" ? 137 : 0 });
    helper.end();
  };
  return helper;
}

/** A backend of which some calls can be made to fail, and the names of the calls in their order. */
function box(
  faults: Partial<BackendBox> = {},
  spec: Partial<RuntimeSpecInput> = {},
  capabilities: Partial<RuntimeCapabilities> = {},
): { readonly box: Runtime; readonly calls: readonly string[] } {
  const calls: string[] = [];
  let state: "running" | "frozen" | "gone" = "running";
  const real: BackendBox = {
    handle: "backend-1",
    start: async () => ({
      image: { id: "1", entrypoint: [], workdir: null, user: null, env: {} },
      startedAtMs: Date.now(),
    }),
    look: async () => state,
    openExec: async () => endsAtOnce(),
    setNetwork: async () => undefined,
    freeze: async () => void (state = "frozen"),
    thaw: async () => void (state = "running"),
    stop: async () => ({ proof: proofOf("backend-1", "does it run", "no"), exitCode: null, endedBefore: false }),
    howItEnded: async () => ({ endedBy: "outside", exitCode: 137, oomKills: null, memoryPeakBytes: null, cpuMs: null }),
    remove: async () => {
      state = "gone";
      return proofOf("backend-1", "is it there", "no");
    },
  };
  const backend = { ...real, ...faults };
  const recorded = new Proxy(backend, {
    get(target, key) {
      const value = Reflect.get(target, key) as unknown;
      if (typeof value === "function" && key !== "look") calls.push(String(key));
      return value;
    },
  });
  const parsed = parseRuntimeSpec({ image: "image", ...spec });
  const probe = async (): Promise<RuntimeCapabilities> => ({ ...CAPABILITIES, ...capabilities });
  return { box: createBox({ driver: "test", spec: parsed, probe, backend: () => recorded }), calls };
}

describe("our helper in a box", () => {
  // The agent's processes can end it: that must not look like the backend's fault, which would be a reason to try again.
  it("that something has killed is no failure of the backend", async () => {
    const { box: hostile } = box();
    await hostile.start();
    await expect(hostile.inspectPath("/tests")).rejects.toMatchObject({ code: "ERR_TRANSFER" });
  });
});

describe("a start", () => {
  it("that is refused asks the backend for nothing", async () => {
    const { box: refused, calls } = box({}, { gpus: 1 });
    await expect(refused.start()).rejects.toMatchObject({ code: "ERR_UNSUPPORTED" });
    expect([calls, refused.state]).toEqual([[], "gone"]);
    expect((await refused.teardownConfirmed()).answer).toBe("no create call was made");
    expect(calls).toEqual([]);
  });

  it("that is given up is undone when nothing is under way any more", async () => {
    const order: string[] = [];
    const { box: late } = box({
      start: async () => {
        await sleep(300);
        order.push("made");
        throw new Error("too late");
      },
      remove: async () => {
        order.push("removed");
        return proofOf("backend-1", "is it there", "no");
      },
    });
    await expect(late.start({ timeoutMs: 20 })).rejects.toMatchObject({ code: "ERR_TIMEOUT" });
    expect([order, late.state]).toEqual([["made", "removed"], "gone"]);
  });

  it("that cannot be undone names what is left", async () => {
    const fails = async (): Promise<never> => {
      throw new Error("out of order");
    };
    const { box: leaking } = box({ prove: fails, remove: fails });
    await expect(leaking.start()).rejects.toMatchObject({ code: "ERR_BOX_START", leftovers: ["backend-1"] });
    expect(leaking.state).toBe("unfit");
    await expect(leaking.teardownConfirmed()).rejects.toMatchObject({ code: "ERR_TEARDOWN_UNCONFIRMED" });
  });

  it("is over when a program has run, which tells what is memory", async () => {
    const { box: started } = box();
    await started.start();
    expect((await started.report()).memoryMounts).toEqual(["/dev/shm"]);
    await expect(started.start()).rejects.toMatchObject({ code: "ERR_BOX_STATE" });
  });
});

describe("a helper that could not be started", () => {
  const refused: BackendBox["openExec"] = async () => {
    const helper = new ScriptedHelper();
    helper.onFrame = () => helper.end();
    return Object.assign(helper, {
      outcome: async () => ({ exitCode: 126, startFailure: "cannot exec in a stopped container" }),
    });
  };

  // The backend's programs may know sooner than the backend that a box has ended.
  it("is a box that was lost where the backend notices it a moment later", async () => {
    let hasEnded = false;
    let looks = 0;
    const { box: ending } = box({
      openExec: async (argv, clock) => (hasEnded ? refused(argv, clock) : endsAtOnce()),
      look: async () => (hasEnded && (looks += 1) > 2 ? "ended" : "running"),
    });
    await ending.start();
    hasEnded = true;
    await expect(ending.exec(["true"])).rejects.toMatchObject({ code: "ERR_BOX_LOST" });
  });

  it("is one that could not be started where the box goes on", async () => {
    let isFull = false;
    const { box: full } = box({
      openExec: async (argv, clock) => (isFull ? refused(argv, clock) : endsAtOnce()),
    });
    await full.start();
    isFull = true;
    await expect(full.exec(["true"])).rejects.toMatchObject({ code: "ERR_EXEC_START" });
  });
});

describe("a change that the backend does not manage", () => {
  it("of freezing is asked for again", async () => {
    let asked = 0;
    const { box: slow } = box({
      freeze: async () => void asked++,
      look: async () => (asked < 4 ? "running" : "frozen"),
    });
    await slow.start();
    await slow.freeze();
    expect([asked, slow.state]).toEqual([4, "frozen"]);
  });

  it("of freezing at all ends with the clock", async () => {
    const { box: never } = box({ freeze: async () => undefined });
    await never.start();
    await expect(never.freeze({ timeoutMs: 900 })).rejects.toMatchObject({ code: "ERR_BACKEND" });
    expect(never.state).toBe("running");
  });

  const lost = { driver: "test", operation: "setNetwork", message: "404" } as const;
  it.each([
    ["with an error of the backend", new Error("half-way")],
    ["with an answer that cannot be read", new TypeError("no property of undefined")],
    // A network that is not there is a 404 too: what became of the box is asked.
    ["with a 404, though the box is there", new RuntimeError({ ...lost, code: "ERR_BOX_LOST" })],
    ["with a conflict", new RuntimeError({ ...lost, code: "ERR_BOX_STATE" })],
  ])("of the network that fails %s stops the box", async (_how, failure) => {
    const later = [{ mode: "no-network" }] as const;
    const { box: torn, calls } = box(
      {
        setNetwork: async () => {
          throw failure;
        },
      },
      { network: { initial: { mode: "public" }, later } },
    );
    await torn.start();
    await expect(torn.setNetwork({ mode: "no-network" })).rejects.toMatchObject({
      code: "ERR_NETWORK_CHANGE",
      leftovers: [],
    });
    expect([calls.includes("stop"), torn.state]).toEqual([true, "unfit"]);
    await expect(torn.exec(["true"])).rejects.toMatchObject({ code: "ERR_BOX_UNFIT" });
  });
});

describe("changes that overlap", () => {
  const NONE = { mode: "no-network" } as const;
  const PUBLIC = { mode: "public" } as const;
  const network = { initial: PUBLIC, later: [NONE, PUBLIC] } as const;

  /** A backend whose changes take as long as they are told to, and what it did in which order. */
  function slowBox(faults: Partial<BackendBox> = {}): {
    readonly slow: Runtime;
    readonly done: string[];
    readonly letGo: () => void;
  } {
    const done: string[] = [];
    const waiting: (() => void)[] = [];
    let isOpen = false;
    const slowly = async (what: string): Promise<void> => {
      done.push(`${what} begins`);
      if (!isOpen) await new Promise<void>((resolve) => waiting.push(resolve));
      done.push(`${what} ends`);
    };
    let state: "running" | "frozen" = "running";
    const { box: slow } = box(
      {
        look: async () => state,
        setNetwork: async ({ mode }) => slowly(mode),
        freeze: async () => {
          await slowly("freeze");
          state = "frozen";
        },
        thaw: async () => {
          await slowly("thaw");
          state = "running";
        },
        ...faults,
      },
      { network },
    );
    const letGo = (): void => {
      isOpen = true;
      for (const resolve of waiting.splice(0)) resolve();
    };
    return { slow, done, letGo };
  }

  it("are made one after another, so that the policy of the last call is in force", async () => {
    const { slow, done, letGo } = slowBox();
    await slow.start();
    const settled: string[] = [];
    const calls = ([NONE, PUBLIC, NONE] as const).map((policy, index) =>
      slow.setNetwork(policy).then(() => settled.push(`${index} ${policy.mode}`)),
    );
    await sleep(50);
    expect([done, settled]).toEqual([["no-network begins"], []]);
    letGo();
    await Promise.all(calls);
    const inTurn = ["no-network", "public", "no-network"].flatMap((mode) => [`${mode} begins`, `${mode} ends`]);
    expect([done, settled]).toEqual([inTurn, ["0 no-network", "1 public", "2 no-network"]]);
  });

  it("of different kinds are made one after another too", async () => {
    const { slow, done, letGo } = slowBox();
    await slow.start();
    const calls = [slow.freeze(), slow.setNetwork(NONE), slow.thaw(), slow.setNetwork(PUBLIC)];
    await sleep(50);
    expect(done).toEqual(["freeze begins"]);
    letGo();
    await Promise.all(calls);
    const inTurn = ["freeze", "no-network", "thaw", "public"].flatMap((what) => [`${what} begins`, `${what} ends`]);
    expect([done, slow.state]).toEqual([inTurn, "running"]);
  });

  it("end with the first that fails: none is made in a box that was stopped", async () => {
    const asked: string[] = [];
    const { slow } = slowBox({
      setNetwork: async ({ mode }) => {
        asked.push(mode);
        throw new Error("half-way");
      },
    });
    await slow.start();
    const codes = [slow.setNetwork(NONE), slow.setNetwork(PUBLIC)].map(async (call) =>
      call.then(
        () => "done",
        (error: unknown) => (error as RuntimeError).code,
      ),
    );
    expect(await Promise.all(codes)).toEqual(["ERR_NETWORK_CHANGE", "ERR_BOX_UNFIT"]);
    expect([asked, slow.state]).toEqual([["no-network"], "unfit"]);
  });

  it("leave no box running when one is given up that waits: its policy may be the stricter one", async () => {
    const { slow, letGo } = slowBox();
    await slow.start();
    const first = slow.setNetwork(PUBLIC).catch(() => undefined);
    await expect(slow.setNetwork(NONE, { timeoutMs: 30 })).rejects.toMatchObject({ code: "ERR_NETWORK_CHANGE" });
    expect(slow.state).toBe("unfit");
    letGo();
    await first;
    expect(slow.state).toBe("unfit");
  });
});

describe("a change of the network that is in force", () => {
  const network = { initial: { mode: "public" }, later: [{ mode: "no-network" }] } as const;
  const stop: BackendBox["stop"] = async () => ({
    proof: proofOf("1", "runs", "no"),
    exitCode: 137,
    endedBefore: false,
  });
  const failure = (code: RuntimeErrorCode): RuntimeError =>
    new RuntimeError({ code, driver: "test", operation: "setNetwork", message: "no" });

  // Else an agent that ends our helpers could choose a retry.
  it.each(["ERR_TRANSFER", "ERR_EXEC_START", "ERR_TIMEOUT", "ERR_BOX_UNFIT"] as const)(
    "and cannot be shown from within (%s) ends the box by its contents",
    async (code) => {
      const prevented = async (): Promise<never> => {
        throw failure(code);
      };
      const { box: hostile } = box({ stop, proveNetwork: prevented }, { network });
      await hostile.start();
      await expect(hostile.setNetwork({ mode: "no-network" })).rejects.toMatchObject({ code: "ERR_BOX_LOST" });
      expect([hostile.state, (await hostile.report()).endedBy]).toEqual(["stopped", "contents"]);
      await expect(hostile.setNetwork({ mode: "no-network" })).rejects.toMatchObject({ code: "ERR_BOX_LOST" });
    },
  );

  it.each(["ERR_NETWORK_CHANGE", "ERR_BACKEND", "ERR_EXEC_UNKNOWN"] as const)(
    "is not for what is seen within, or for the backend's failure (%s)",
    async (code) => {
      const refuted = async (): Promise<never> => {
        throw failure(code);
      };
      const { box: torn } = box({ stop, proveNetwork: refuted }, { network });
      await torn.start();
      await expect(torn.setNetwork({ mode: "no-network" })).rejects.toMatchObject({ code: "ERR_NETWORK_CHANGE" });
      expect([torn.state, (await torn.report()).endedBy]).toEqual(["unfit", "stopped"]);
    },
  );

  it("is not shown from within while the box is frozen", async () => {
    const { box: frozen, calls } = box({ proveNetwork: async () => undefined }, { network });
    await frozen.start();
    await frozen.setNetwork({ mode: "no-network" });
    expect(calls.filter((call) => call === "proveNetwork")).toHaveLength(1);
    await frozen.freeze();
    await frozen.setNetwork({ mode: "public" });
    expect(calls.filter((call) => call === "proveNetwork")).toHaveLength(1);
  });
});

describe("a box that is unfit", () => {
  /** A program of which something is left. */
  const unkillable: BackendBox["openExec"] = async () => {
    const helper = new ScriptedHelper();
    helper.onFrame = ({ type }) => {
      if (type !== "R") return;
      helper.conclude({ exit: 0, survivors: [7] });
      helper.end();
    };
    return helper;
  };

  it("because a program may go on is stopped when it has been shown to have stopped, and its files can be read", async () => {
    let count = 0;
    const { box: unfit } = box(
      {
        openExec: async (argv, clock) => (count++ === 0 ? endsAtOnce() : unkillable(argv, clock)),
        locate: async (path) => ({ at: "missing", path }),
      },
      {},
      { stop: "halted" },
    );
    await unfit.start();
    await expect(unfit.exec(["true"])).rejects.toMatchObject({ code: "ERR_BOX_UNFIT" });
    expect(unfit.state).toBe("unfit");
    await expect(unfit.readBounded("/x", { maxBytes: 1 })).rejects.toMatchObject({ code: "ERR_BOX_UNFIT" });
    await unfit.stopConfirmed();
    expect(unfit.state).toBe("stopped");
    expect(await unfit.readBounded("/x", { maxBytes: 1 })).toBeNull();
  });

  it("because it has lost its network stays so", async () => {
    const lost = new RuntimeError({ code: "ERR_NETWORK_LOST", driver: "test", operation: "exec", message: "ended" });
    const { box: unfit } = box({
      afterProgram: async () => {
        throw lost;
      },
    });
    await unfit.start();
    await expect(unfit.exec(["true"])).rejects.toMatchObject({ code: "ERR_NETWORK_LOST" });
    await unfit.stopConfirmed();
    expect(unfit.state).toBe("unfit");
    await expect(unfit.readBounded("/x", { maxBytes: 1 })).rejects.toMatchObject({ code: "ERR_NETWORK_LOST" });
  });
});

describe("a change of the network of a frozen box", () => {
  it("is refused where the backend cannot do it, and nothing has happened", async () => {
    const network = { initial: { mode: "public" }, later: [{ mode: "no-network" }] } as const;
    const { box: frozen, calls } = box({ changesNetworkWhileFrozen: false }, { network });
    await frozen.start();
    await frozen.freeze();
    await expect(frozen.setNetwork({ mode: "no-network" })).rejects.toMatchObject({ code: "ERR_BOX_STATE" });
    expect([calls.includes("setNetwork"), frozen.state]).toEqual([false, "frozen"]);
  });
});

describe("a box that is being stopped", () => {
  it("starts no program", async () => {
    let proceed = (): void => undefined;
    const stopping = new Promise<void>((resolve) => (proceed = resolve));
    const { box: sealed } = box({
      stop: async () => {
        await stopping;
        return { proof: proofOf("backend-1", "does it run", "no"), exitCode: null, endedBefore: false };
      },
    });
    await sealed.start();
    const stopped = sealed.stopConfirmed();
    await expect(sealed.exec(["true"])).rejects.toMatchObject({ code: "ERR_BOX_STATE" });
    proceed();
    await stopped;
    expect([sealed.state, (await sealed.report()).endedBy]).toEqual(["stopped", "stopped"]);
  });

  it("runs no program whose connection came too late", async () => {
    let connect = (): void => undefined;
    const connected = new Promise<void>((resolve) => (connect = resolve));
    const late = new ScriptedHelper();
    let calls = 0;
    const { box: sealed } = box({
      // The first program is the proof of life.
      openExec: async () => {
        if (calls++ !== 1) return endsAtOnce();
        await connected;
        return late;
      },
    });
    await sealed.start();
    const program = sealed.exec(["true"]);
    await sealed.stopConfirmed();
    connect();
    await expect(program).rejects.toMatchObject({ code: "ERR_BOX_STATE" });
    expect(late.closed).toBe(true);
  });

  it("may be gone by that, and says so whenever it is asked to stop", async () => {
    let gone = false;
    const { box: destroyed } = box(
      {
        look: async () => (gone ? "gone" : "running"),
        stop: async () => {
          gone = true;
          return { proof: proofOf("backend-1", "is it there", "no"), exitCode: null, endedBefore: false };
        },
      },
      {},
      { stop: "destroys" },
    );
    await destroyed.start();
    expect((await destroyed.stopConfirmed()).answer).toBe("no");
    expect((await destroyed.stopConfirmed()).answer).toBe("no");
    await expect(destroyed.readBounded("/x", { maxBytes: 1 })).rejects.toMatchObject({ code: "ERR_BOX_STATE" });
    expect((await destroyed.report()).endedBy).toBe("stopped");
  });
});
