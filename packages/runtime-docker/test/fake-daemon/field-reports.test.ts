import type { ExecResult, Proof, Runtime, RuntimeDriver } from "@breakwater/runtime-api";
import { describe, expect, it } from "vitest";
import dockerDriver from "../../src/index.ts";
import { CONTAINER, CREATED, DEAD, ENDS, FakeDaemon, type Program, RUNNING, type Rule, type Script } from "./daemon.ts";

/*
 * Faults that people met and that no real engine can be made to show. A test is named after its row in the list of field reports; every row that asks for a daemon
 * on script is here: B01, B05, B12, B23, B34, B55, B57, B64, B72, B73, B102, B104, B106, B109, B110. What a whole trial makes of B57 is in acceptance/faults.long.test.ts.
 * Nothing here needs an engine. An unhandled rejection fails the run.
 */

const SPEC = { image: "image", network: { initial: { mode: "no-network" }, later: [] } } as const;
const NO_SUCH_IMAGE = { status: 404, json: { message: "no such image" } } as const;
const FAILURE = { status: 500, json: { message: "something went wrong" } } as const;
const INSPECT = "GET /containers/*/json";
const IMAGE = { status: 200, json: { Id: `sha256:${"1".repeat(64)}`, Os: "linux" } } as const;

/** A driver on a daemon of its own, and a box that is not started yet. */
async function create(
  script: Script,
  spec: Parameters<RuntimeDriver["create"]>[0] = SPEC,
): Promise<{ readonly daemon: FakeDaemon; readonly box: Runtime } & AsyncDisposable> {
  const daemon = await FakeDaemon.start(script);
  const driver = dockerDriver({ host: daemon.host });
  return {
    daemon,
    box: driver.create(spec),
    [Symbol.asyncDispose]: async () => {
      await driver[Symbol.asyncDispose]();
      await daemon[Symbol.asyncDispose]();
    },
  };
}

async function start(...args: Parameters<typeof create>): ReturnType<typeof create> {
  const made = await create(...args);
  await made.box.start();
  return made;
}

function rules(...list: readonly Rule[]): Script {
  return { rules: list };
}

function says(stdout: string, program: Partial<Program> = {}): Script {
  return { programs: [{ argv: /^program$/, output: [{ stdout }, { ends: { exit: 3 } }], ...program }] };
}

function text(result: ExecResult): string {
  return Buffer.from(result.stdout).toString();
}

describe.concurrent("what programs say", () => {
  it("B01, B109: a program has ended when our helper says so, though the engine never closes the connection", async () => {
    await using made = await start(says("all of it", { leaves: "open" }));
    const result = await made.box.exec(["program"]);
    expect([result.exitCode, text(result), result.truncated]).toEqual([3, "all of it", false]);
  });

  const hello = [{ stdout: "hello" }, { stdout: "world" }, { ends: { exit: 3 } }] as const;
  it.each<{ readonly row: string; readonly how: Partial<Program> }>([
    { row: "(a) a header that is split 3+5", how: { output: hello, cuts: [3] } },
    { row: "(b) a header by itself, its payload byte by byte", how: { output: hello, cuts: [8, 9, 10, 11, 12] } },
    { row: "(b) every byte by itself", how: { output: hello, cuts: "everywhere" } },
    { row: "(c) two frames at once", how: { output: hello } },
    { row: "(f) a frame of length 0", how: { output: [{ stdout: "" }, ...hello], cuts: [8] } },
  ])("B05: $row is exact", async ({ how }) => {
    await using made = await start(says("", how));
    const result = await made.box.exec(["program"]);
    expect([result.exitCode, text(result)]).toEqual([3, "helloworld"]);
  });

  it.each<{ readonly row: string; readonly how: Partial<Program> }>([
    { row: "(d) a stream of type 7", how: { output: [{ raw: [7, 0, 0, 0, 0, 0, 0, 1, 65] }, { ends: { exit: 0 } }] } },
    { row: "(e) 40 bytes of a frame of 100", how: { output: [{ stdout: "x".repeat(100) }], keep: 48 } },
  ])("B05: $row is a typed error, and the program is not run again", async ({ how }) => {
    await using made = await start(says("", how));
    await expect(made.box.exec(["program"])).rejects.toMatchObject({ code: "ERR_EXEC_UNKNOWN", retryable: false });
    expect(made.daemon.count("RUN program")).toBe(1);
  });

  it("B106: both output streams are always asked for", async () => {
    const refusal = { status: 400, json: { message: "must provide at least one stream to attach to" } };
    await using made = await start({
      ...says("heard"),
      rules: [
        { on: "POST /containers/*/exec", body: /"AttachStdout":false/, answer: refusal },
        { on: "POST /containers/*/exec", body: /"AttachStderr":false/, answer: refusal },
        { on: "POST /exec/*/start", body: /"Detach":true/, answer: refusal },
      ],
    });
    expect(text(await made.box.exec(["program"]))).toBe("heard");
    const asked = made.daemon.requests.filter(({ call }) => call === `POST /containers/${CONTAINER}/exec`);
    expect(asked.map(({ body }) => JSON.parse(body.toString()) as object)).toEqual(
      asked.map(() => expect.objectContaining({ AttachStdout: true, AttachStderr: true })),
    );
  });

  it.each([101, 200] as const)("B110: input arrives on a connection that is raw after a %d", async (upgrade) => {
    await using made = await start({ ...says("", { echo: true, output: [{ ends: { exit: 0 } }] }), upgrade });
    expect(text(await made.box.exec(["program"], { stdin: "input" }))).toBe("input");
    const started = made.daemon.requests.filter(({ call }) => call === "POST /exec/exec/start");
    expect(started.map(({ headers }) => [headers.connection, headers.upgrade])).toEqual(
      started.map(() => ["Upgrade", "tcp"]),
    );
  });
});

describe.concurrent("what is done once", () => {
  it("B12: a program whose connection breaks after a frame is not run again", async () => {
    await using made = await start({
      ...says("begun", { keep: 13 }),
      rules: [{ on: "GET /exec/*/json", answer: { status: 200, json: { Running: true, ExitCode: null, Pid: 43 } } }],
    });
    await expect(made.box.exec(["program"])).rejects.toMatchObject({ code: "ERR_EXEC_UNKNOWN", retryable: false });
    expect(made.daemon.count("RUN program")).toBe(1);
  });

  it("B12: a program that has ended meanwhile is not run again, and its output does not pass for complete", async () => {
    await using made = await start(says("begun", { keep: 13 }));
    expect(await made.box.exec(["program"])).toMatchObject({ exitCode: 0, truncated: true });
    expect(made.daemon.count("RUN program")).toBe(1);
  });

  it("B12: a program that could not be created was not run, and runs once when it is asked for again", async () => {
    await using made = await start(says("once"));
    made.daemon.misbehave({ on: "POST /containers/*/exec", times: 1, answer: FAILURE });
    await expect(made.box.exec(["program"])).rejects.toMatchObject({ code: "ERR_BACKEND" });
    expect(made.daemon.count("RUN program")).toBe(0);
    expect(text(await made.box.exec(["program"]))).toBe("once");
    expect(made.daemon.count("RUN program")).toBe(1);
  });

  it("B73: an image that has gone is pulled once, and the box is made of it", async () => {
    const images = "GET /images/*/json";
    await using made = await start(
      rules(
        { on: images, times: 1, answer: IMAGE },
        { on: images, when: "pulled", answer: IMAGE },
        { on: images, answer: NO_SUCH_IMAGE },
        { on: "POST /containers/create", times: 1, answer: NO_SUCH_IMAGE },
      ),
    );
    expect(made.box.state).toBe("running");
    expect([made.daemon.count("POST /images/create"), made.daemon.count("POST /containers/create")]).toEqual([1, 2]);
  });

  it("B73: without a registry the error names the image", async () => {
    await using made = await create(
      rules({ on: "GET /images/*/json", answer: NO_SUCH_IMAGE }, { on: "POST /images/create", answer: FAILURE }),
    );
    await expect(made.box.start()).rejects.toMatchObject({
      code: "ERR_IMAGE_PULL",
      message: expect.stringMatching(/pull image:/),
    });
    expect([made.daemon.count("POST /images/create"), made.daemon.count("POST /containers/create")]).toEqual([1, 0]);
  });

  it("B34: what is sent to the engine to be unpacked is plain tar", async () => {
    await using made = await start({});
    const sent = made.daemon.requests.filter(({ call }) => call.startsWith("PUT "));
    expect(sent.map(({ headers, body }) => [headers["content-encoding"], body.toString("latin1", 257, 262)])).toEqual([
      [undefined, "ustar"],
    ]);
  });
});

describe.concurrent("a box that starts", () => {
  it("B72: is up when the engine says that it runs, not when it has taken the call", async () => {
    await using made = await start(rules({ on: INSPECT, when: "started", times: 5, answer: CREATED }));
    const calls = made.daemon.requests.map(({ call }) => call);
    const first = calls.indexOf(`POST /containers/${CONTAINER}/exec`);
    expect(calls.slice(0, first).filter((call) => call === `GET /containers/${CONTAINER}/json`)).toHaveLength(6);
  });

  // A creation is not given up so soon: what it makes has to be removed. It has two minutes.
  it.each(["GET /version", "GET /images/*/json", "PUT /containers/*/archive", INSPECT])(
    "B23: is given up at the deadline when %s is never answered",
    async (on) => {
      await using made = await create(rules(...ENDS, { on, times: 1, answer: "never" }));
      const begun = performance.now();
      await expect(made.box.start({ timeoutMs: 2000 })).rejects.toMatchObject({ code: "ERR_TIMEOUT" });
      expect(performance.now() - begun).toBeGreaterThan(1900);
      expect(made.box.state).toBe("gone");
    },
  );
});

describe.concurrent("a network that is cut", () => {
  const bridge = {
    Id: "net",
    Name: "breakwater-public",
    Driver: "bridge",
    Labels: { "breakwater.bridge": "breakwater-public" },
    Options: { "com.docker.network.bridge.enable_icc": "false" },
  };
  const ON_BRIDGE: Rule = {
    on: INSPECT,
    when: "started",
    answer: {
      status: 200,
      json: {
        Id: CONTAINER,
        State: { Status: "running", Running: true, Paused: false, Pid: 42, ExitCode: 0 },
        NetworkSettings: { Networks: { "breakwater-public": { NetworkID: "net" } } },
      },
    },
  };
  const NETWORKS: Rule = { on: "GET /networks", answer: { status: 200, json: [bridge] } };
  const disconnect = "POST /networks/*/disconnect";

  const BOTH_INTERFACES: Program = {
    argv: / manifest \/sys\/class\/net$/,
    output: [
      { stdout: ["lo", "eth0"].map((path) => `${JSON.stringify({ path, type: "link" })}\n`).join("") },
      { ends: { exit: 0 } },
    ],
  };

  it.each<{ readonly how: string; readonly rule: Rule }>([
    { how: "that the engine could not cut", rule: { on: disconnect, answer: FAILURE } },
    { how: "that is there though the engine says that it is cut", rule: { on: disconnect, answer: { status: 200 } } },
  ])("B64: $how leaves a box in which nothing is run any more", async ({ rule }) => {
    const spec = { image: "image", network: { initial: { mode: "public" }, later: [{ mode: "no-network" }] } } as const;
    const script = { rules: [...ENDS, ON_BRIDGE, NETWORKS, rule], programs: [BOTH_INTERFACES] };
    await using made = await start(script, spec);
    await expect(made.box.setNetwork({ mode: "no-network" })).rejects.toMatchObject({ code: "ERR_NETWORK_CHANGE" });
    await expect(made.box.exec(["program"])).rejects.toMatchObject({ code: "ERR_BOX_UNFIT" });
    expect(made.daemon.count("RUN program")).toBe(0);
  });

  it("B64: a box that cannot be taken off the bridge is never started", async () => {
    const spec = { image: "image", network: { initial: { mode: "no-network" }, later: [{ mode: "public" }] } } as const;
    const attached: Rule = { on: INSPECT, answer: ON_BRIDGE.answer };
    await using made = await create(rules(...ENDS, attached, NETWORKS, { on: disconnect, answer: FAILURE }), spec);
    await expect(made.box.start()).rejects.toMatchObject({ code: "ERR_BACKEND" });
    expect([made.daemon.count(`POST /containers/${CONTAINER}/start`), made.box.state]).toEqual([0, "gone"]);
  });
});

describe.concurrent("a box that ends", () => {
  const isProof: Partial<Proof> = { id: CONTAINER, answer: expect.stringContaining("404") as string };

  it("B55: is gone when a question for it says so: removals that fail and a failed question do not count", async () => {
    await using made = await start(
      rules(
        { on: "DELETE /containers/*", times: 2, answer: FAILURE },
        { on: INSPECT, when: "removed", times: 1, answer: FAILURE },
      ),
    );
    expect(await made.box.teardownConfirmed()).toMatchObject(isProof);
    expect(made.daemon.count("DELETE /containers/*")).toBe(4);
  });

  it("B55: is not gone while the engine still describes it, whatever it answered to the removal", async () => {
    const stillThere: Rule = { on: INSPECT, when: "removed", times: 5, answer: RUNNING };
    await using made = await start(rules(stillThere));
    const before = made.daemon.count(INSPECT);
    expect(await made.box.teardownConfirmed()).toMatchObject(isProof);
    expect(made.daemon.count(INSPECT)).toBe(before + 6);
  });

  it("B57: that cannot be removed is named, in bounded time", async () => {
    await using made = await start(
      rules({ on: "DELETE /containers/*", answer: FAILURE }, { on: INSPECT, when: "killed", answer: DEAD }),
    );
    await made.box.stopConfirmed();
    await expect(made.box.teardownConfirmed({ timeoutMs: 1000 })).rejects.toMatchObject({
      code: "ERR_TEARDOWN_UNCONFIRMED",
      leftovers: [CONTAINER],
    });
    expect(made.box.state).not.toBe("gone");
  });

  it("B104: has stopped when the engine describes it so, not when it has taken the call", async () => {
    await using made = await start(rules({ on: INSPECT, when: "killed", times: 5, answer: RUNNING }));
    expect(await made.box.stopConfirmed()).toMatchObject({ answer: expect.stringContaining("Running=false") });
    expect(made.daemon.count("POST /containers/*/wait")).toBe(0);
  });
});

describe.concurrent("a daemon that goes away", () => {
  it.each(["before headers", "after headers"] as const)(
    "B102: a question whose connection breaks %s is asked again",
    async (cut) => {
      await using made = await create(rules({ on: "GET /info", times: 2, answer: { cut } }));
      await made.box.start();
      expect(made.daemon.count("GET /info")).toBe(3);
    },
  );

  it.each(["before headers", "after headers"] as const)(
    "B102: a box whose creation breaks %s is not made twice, and is removed by its name",
    async (cut) => {
      await using made = await create(rules({ on: "POST /containers/create", answer: { cut } }));
      await expect(made.box.start()).rejects.toMatchObject({ code: "ERR_BACKEND_UNAVAILABLE" });
      expect(made.daemon.count("POST /containers/create")).toBe(1);
      expect(made.daemon.count(`DELETE /containers/${made.box.id}`)).toBeGreaterThan(0);
    },
  );

  it("B102: a program whose connection breaks in the middle of a frame has an unknown outcome", async () => {
    await using made = await start(says("0123456789", { keep: 12 }));
    await expect(made.box.exec(["program"])).rejects.toMatchObject({ code: "ERR_EXEC_UNKNOWN", retryable: false });
  });

  it("B102: while nobody listens calls fail at once, and a removal goes on until it is proven", async () => {
    await using made = await start(says("still here"));
    made.daemon.misbehave({ on: "POST /containers/*/exec", times: 1, answer: { gone: 5000 } });
    await expect(made.box.exec(["program"])).rejects.toMatchObject({
      code: "ERR_BACKEND_UNAVAILABLE",
      retryable: true,
    });
    expect(await made.box.teardownConfirmed()).toMatchObject({ id: CONTAINER });
  });
});
