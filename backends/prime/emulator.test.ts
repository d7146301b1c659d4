import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Box, Boxes, BoxOptions, Output, Program } from "./box.ts";
import { Emulator } from "./emulator.ts";
import { servers } from "./servers.ts";

// What the documents of the service say about its API, without any box: those that real boxes are needed for are tried by the driver's suites and by
// `npm run interop`.

/** A box that runs nothing: programs write what they were told to, and end at once or never. */
class NoBox implements Box {
  readonly name = "none";
  readonly options: BoxOptions;
  #end: ((end: { exitCode: number; oomKilled: boolean } | null) => void) | undefined;
  #runs = false;

  constructor(options: BoxOptions) {
    this.options = options;
  }

  async start(): Promise<void> {
    this.#runs = true;
  }

  ended(): Promise<{ readonly exitCode: number; readonly oomKilled: boolean } | null> {
    return new Promise((resolve) => {
      this.#end = resolve;
    });
  }

  end(exitCode: number, oomKilled: boolean): void {
    this.#runs = false;
    this.#end?.({ exitCode, oomKilled });
  }

  async isRunning(): Promise<boolean> {
    return this.#runs;
  }

  async hostPid(): Promise<number> {
    throw new Error("no firewall either");
  }

  async kill(): Promise<void> {
    this.end(137, false);
  }

  async remove(): Promise<void> {
    this.#runs = false;
    this.#end?.(null);
  }

  async logs(): Promise<string> {
    return "said\n";
  }

  async run(argv: readonly string[]): Promise<Program> {
    const command = argv.at(-1) ?? "";
    async function* output(): AsyncGenerator<Output> {
      if (command === "hang") await new Promise(() => undefined);
      if (command.startsWith("say ")) yield { stream: "stdout", chunk: Buffer.from(command.slice(4)) };
    }
    return {
      pid: 7,
      output: output(),
      write: async () => undefined,
      endInput: () => undefined,
      exitCode: async () => 3,
      detach: () => undefined,
    };
  }
}

class NoBoxes implements Boxes {
  readonly made: NoBox[] = [];

  async hasImage(image: string): Promise<boolean> {
    return image !== "absent";
  }

  async create(options: BoxOptions): Promise<Box> {
    const box = new NoBox(options);
    this.made.push(box);
    return box;
  }
}

interface Answer {
  readonly status: number;
  readonly body: Record<string, unknown>;
  readonly headers: Record<string, unknown>;
}

let boxes: NoBoxes;
let emulator: Emulator;
let planes: ReturnType<typeof servers>;

beforeEach(async () => {
  boxes = new NoBoxes();
  emulator = new Emulator("the key", boxes);
  emulator.gatewayUrl = "http://gateway.test";
  emulator.knobs = { ...emulator.knobs, pendingMs: 30, provisioningMs: 30, reachableLagMs: 0, deleteLingersMs: 0 };
  planes = servers(emulator);
});

afterEach(async () => {
  await emulator.sandboxes.close();
  await planes.control.close();
  await planes.data.close();
});

/** The machine may be. */
const BUSY = { timeout: 15_000, interval: 10 } as const;

function eventually<T>(look: () => Promise<T>): ReturnType<typeof expect.poll<T>> {
  return expect.poll(look, BUSY);
}

function knobs(some: Partial<Emulator["knobs"]>): void {
  emulator.knobs = { ...emulator.knobs, ...some };
}

async function call(
  method: "GET" | "POST" | "PUT" | "DELETE",
  path: string,
  payload?: object,
  key = "the key",
): Promise<Answer> {
  const answer = await planes.control.inject({
    method,
    url: `/api/v1${path}`,
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    ...(payload === undefined ? {} : { payload }),
  });
  return {
    status: answer.statusCode,
    body: answer.body.startsWith("{") ? (answer.json() as Record<string, unknown>) : {},
    headers: answer.headers,
  };
}

async function create(some: object = {}): Promise<Answer & { readonly id: string }> {
  const answer = await call("POST", "/sandbox", { name: "one", docker_image: "image", vm: false, ...some });
  return { ...answer, id: String(answer.body["id"]) };
}

async function running(some: object = {}): Promise<string> {
  const { id } = await create(some);
  await eventually(async () => (await call("GET", `/sandbox/${id}`)).body["status"]).toBe("RUNNING");
  return id;
}

async function statusOf(id: string): Promise<unknown> {
  return (await call("GET", `/sandbox/${id}`)).body["status"];
}

/** A call to the data plane with a token of its own. */
async function through(
  id: string,
  method: "GET" | "POST",
  route: string,
  options: { readonly payload?: object | Buffer; readonly token?: string; readonly type?: string } = {},
): Promise<{ readonly status: number; readonly text: string; readonly bytes: Buffer }> {
  const { body } = await call("POST", `/sandbox/${id}/auth`);
  const answer = await planes.data.inject({
    method,
    url: `/${String(body["user_ns"])}/${String(body["job_id"])}${route}`,
    headers: {
      authorization: `Bearer ${options.token ?? String(body["token"])}`,
      ...(options.payload === undefined ? {} : { "content-type": options.type ?? "application/json" }),
    },
    ...(options.payload === undefined ? {} : { payload: options.payload }),
  });
  return { status: answer.statusCode, text: answer.body, bytes: answer.rawPayload };
}

describe("two origins", () => {
  it("lets in with the API key here, with a sandbox's own token there", async () => {
    expect((await call("GET", "/sandbox", undefined, "another")).status).toBe(401);
    const id = await running();
    const auth = (await call("POST", `/sandbox/${id}/auth`)).body;
    expect(Object.keys(auth).sort()).toEqual(["expires_at", "gateway_url", "job_id", "token", "user_ns"]);
    expect(auth["gateway_url"]).toBe("http://gateway.test");
    expect((await through(id, "POST", "/exec", { payload: { command: "say a" } })).status).toBe(200);
    expect((await through(id, "POST", "/exec", { payload: { command: "say a" }, token: "the key" })).status).toBe(401);
  });

  it("refuses a token whose time is over", async () => {
    const id = await running();
    knobs({ tokenTtlMs: 1 });
    const status = async (): Promise<number> =>
      (await through(id, "POST", "/exec", { payload: { command: "say a" } })).status;
    await expect.poll(status, BUSY).toBe(401);
  });
});

describe("lifecycle", () => {
  it("goes from PENDING over PROVISIONING to RUNNING, in the sandbox's own camel case", async () => {
    const { status, body, id } = await create();
    expect([status, body["status"], body["startedAt"]]).toEqual([201, "PENDING", null]);
    expect(id).toMatch(/^[a-z0-9]{24}$/);
    expect(body).toMatchObject({ dockerImage: "image", memoryGB: 2, diskSizeGB: 10, timeoutMinutes: 60, vm: false });
    await eventually(() => statusOf(id)).toBe("PROVISIONING");
    await eventually(() => statusOf(id)).toBe("RUNNING");
  });

  it("builds a VM's image when it is first used", async () => {
    knobs({ imageBuildMs: 60 });
    const { id } = await create({ vm: true });
    await eventually(async () => (await call("GET", `/sandbox/${id}`)).body["pendingImageBuildId"]).not.toBeNull();
    expect(await statusOf(id)).toBe("PENDING");
    await eventually(() => statusOf(id)).toBe("RUNNING");
  });

  it("runs before the gateway knows it", async () => {
    knobs({ reachableLagMs: 60_000 });
    const id = await running();
    const { status, text } = await through(id, "POST", "/exec", { payload: { command: "say a" } });
    expect([status, JSON.parse(text)]).toEqual([502, expect.objectContaining({ error: "sandbox_not_found" })]);
  });

  it("makes one sandbox for each idempotency key and team", async () => {
    const first = await create({ idempotency_key: "k" });
    expect((await create({ idempotency_key: "k" })).id).toBe(first.id);
    expect((await create({ idempotency_key: "k", team_id: "t" })).id).not.toBe(first.id);
    knobs({ replayStatus: 200 });
    expect((await create({ idempotency_key: "k" })).status).toBe(200);
  });

  it.each([
    ["runs out of memory", (box: NoBox) => box.end(137, true), "ERROR", "OOM_KILLED"],
    ["ends by itself", (box: NoBox) => box.end(0, false), "TERMINATED", null],
  ] as const)("tells by its error context that it %s", async (_what, end, status, errorType) => {
    const id = await running();
    end(boxes.made[0] as NoBox);
    await eventually(() => statusOf(id)).toBe(status);
    expect((await call("GET", `/sandbox/${id}/error-context`)).body).toMatchObject({ status, errorType });
  });

  it.each(["TERMINATED", "TIMEOUT"] as const)("ends as %s when its time is over", async (timeoutStatus) => {
    knobs({ minuteMs: 100, timeoutStatus });
    const id = await running({ timeout_minutes: 1 });
    await eventually(() => statusOf(id)).toBe(timeoutStatus);
    expect((await call("GET", `/sandbox/${id}/error-context`)).body["errorType"]).toBe("TIMEOUT");
  });
});

describe("requests", () => {
  it("answers 422 with what is wrong, and passes over keys that it does not know", async () => {
    const { status, body } = await create({ cpu_cores: 17 });
    expect([status, body["detail"]]).toEqual([422, [expect.objectContaining({ loc: ["body", "cpu_cores"] })]]);
    expect((await create({ unheard_of: 1 })).status).toBe(201);
    expect(emulator.log.entries.at(-1)?.unknownKeys).toEqual(["unheard_of"]);
  });

  it("takes 1 to 100 different ids for one question, and tells what it does not know by item", async () => {
    const ask = async (ids: readonly string[]): Promise<Answer> =>
      call("POST", "/sandbox/status:batchGet", { sandbox_ids: ids });
    for (const ids of [[], ["a", "a"], Array.from({ length: 101 }, (_, at) => `id${at}`)]) {
      expect((await ask(ids)).status).toBe(422);
    }
    const { id } = await create();
    expect((await ask([id, "nobody"])).body).toMatchObject({
      statuses: [{ sandbox_id: id, error_type: null }],
      errors: [{ sandbox_id: "nobody", code: "NOT_FOUND" }],
    });
    expect(
      (await call("DELETE", "/sandbox", { sandbox_ids: Array.from({ length: 501 }, (_, at) => `${at}`) })).status,
    ).toBe(422);
  });

  it("lists by labels that all have to match, with and without what has ended", async () => {
    const id = await running({ labels: ["a", "b"] });
    await create({ labels: ["a"] });
    const listed = async (query: string): Promise<unknown> => (await call("GET", `/sandbox?${query}`)).body["total"];
    expect(await listed("labels=a&labels=b")).toBe(1);
    await call("DELETE", `/sandbox/${id}`);
    await eventually(() => listed("labels=b&is_active=true")).toBe(0);
    expect(await listed("labels=b")).toBe(1);
  });
});

describe("programs", () => {
  it("of a container are commands, which VMs do not have", async () => {
    const container = await running();
    const ran = await through(container, "POST", "/exec", { payload: { command: "say hello" } });
    expect(JSON.parse(ran.text)).toEqual({ stdout: "hello", stderr: "", exit_code: 3 });
    expect((await through(container, "POST", "/exec", { payload: { command: "hang", timeout: 0.1 } })).status).toBe(
      408,
    );
    knobs({ proxyLimitMs: 50 });
    expect((await through(container, "POST", "/exec", { payload: { command: "hang" } })).status).toBe(524);
    knobs({ maxCommandBytes: 10 });
    expect((await through(container, "POST", "/exec", { payload: { command: "say 1234567" } })).text).toContain(
      "name too long",
    );
    const route = "/command_session.CommandSession/Start";
    expect((await through(container, "POST", route, { payload: {} })).status).toBe(404);
    expect(
      (await through(await running({ vm: true }), "POST", "/exec", { payload: { command: "say a" } })).status,
    ).toBe(404);
  });

  it("need an absolute path, a field named file, and a file that is there", async () => {
    const id = await running();
    const form = (field: string): Buffer =>
      Buffer.from(`--x\r\ncontent-disposition: form-data; name="${field}"; filename="f"\r\n\r\nabc\r\n--x--\r\n`);
    const upload = async (path: string, field: string): Promise<number> => {
      const options = { payload: form(field), type: "multipart/form-data; boundary=x" };
      return (await through(id, "POST", `/upload?path=${path}`, options)).status;
    };
    expect(await upload("relative", "file")).toBe(400);
    expect(await upload("/tmp/f", "another")).toBe(422);
    expect((await through(id, "GET", "/read-file?path=relative")).status).toBe(422);
  });
});

describe("egress", () => {
  it("stores a policy with 202, and is not applied until it is in force", async () => {
    const id = await running({ vm: true });
    const before = (await call("GET", `/sandbox/${id}/egress-policy`)).body;
    // Nothing here can enforce it.
    expect(before).toMatchObject({ generation: 0, applied_generation: -1, applied: false });
    const { status, body } = await call("PUT", `/sandbox/${id}/egress-policy`, {
      allowlist: ["A.example"],
      denylist: null,
    });
    expect([status, body]).toEqual([
      202,
      { policy: { allowlist: ["a.example"], denylist: null }, generation: 1, applied_generation: -1, applied: false },
    ]);
    const both = { allowlist: ["a.example"], denylist: ["b.example"] };
    expect((await call("PUT", `/sandbox/${id}/egress-policy`, both)).status).toBe(422);
  });

  it("is for VMs only", async () => {
    expect((await call("GET", `/sandbox/${await running()}/egress-policy`)).status).toBeGreaterThanOrEqual(400);
    expect((await create({ vm: false, network_allowlist: [] })).status).toBe(422);
  });
});

describe("deletion", () => {
  it("is answered at once, then TERMINATED, then 404; the gateway says 410", async () => {
    const id = await running();
    const { token, user_ns: ns, job_id: job } = (await call("POST", `/sandbox/${id}/auth`)).body;
    expect((await call("DELETE", `/sandbox/${id}`)).body).toMatchObject({ success: true });
    await eventually(() => statusOf(id)).toBe("TERMINATED");
    expect((await call("DELETE", `/sandbox/${id}`)).status).toBe(404);
    const asked = async (): Promise<number> =>
      (
        await planes.data.inject({
          method: "GET",
          url: `/${String(ns)}/${String(job)}/read-file?path=/a`,
          headers: { authorization: `Bearer ${String(token)}` },
        })
      ).statusCode;
    expect(await asked()).toBe(410);
    knobs({ gatewayAfterDelete: "502" });
    expect(await asked()).toBe(502);
    knobs({ getAfterDelete: "not-found" });
    expect((await call("GET", `/sandbox/${id}`)).status).toBe(404);
  });

  it("may race the start and leave an orphan that is active again", async () => {
    knobs({ deleteRaceLeavesOrphan: true, provisioningMs: 400 });
    const { id } = await create();
    await call("DELETE", `/sandbox/${id}`);
    expect(await statusOf(id)).toBe("TERMINATED");
    await eventually(() => statusOf(id)).toBe("RUNNING");
    expect((await call("GET", "/sandbox?is_active=true")).body["total"]).toBe(1);
  });

  it("may take its time after it was answered", async () => {
    knobs({ deleteLingersMs: 400 });
    const id = await running();
    await call("DELETE", `/sandbox/${id}`);
    expect(await statusOf(id)).toBe("RUNNING");
    await eventually(() => statusOf(id)).toBe("TERMINATED");
  });
});

describe("faults", () => {
  async function fault(rule: object): Promise<void> {
    const answer = await planes.control.inject({ method: "POST", url: "/admin/faults", payload: rule });
    expect(answer.statusCode).toBe(200);
  }

  it("takes the place of an answer, so often, after so many, for so long", async () => {
    const answer = { kind: "answer", status: 500, body: { detail: "burst" } };
    await fault({ method: "POST", path: "/sandbox$", after: 1, times: 2, fault: answer });
    const seen: number[] = [];
    for (let at = 0; at < 4; at += 1) seen.push((await create()).status);
    expect(seen).toEqual([201, 500, 500, 201]);
    await fault({ method: "GET", times: null, forMs: 300, fault: answer });
    expect((await call("GET", "/sandbox")).status).toBe(500);
    await eventually(async () => (await call("GET", "/sandbox")).status).toBe(200);
  });

  it("comes after a request was carried out", async () => {
    const { id } = await create();
    await fault({ method: "DELETE", carriedOut: true, fault: { kind: "answer", status: 502, body: {} } });
    expect((await call("DELETE", `/sandbox/${id}`)).status).toBe(502);
    await eventually(() => statusOf(id)).toBe("TERMINATED");
  });

  it("makes an answer late", async () => {
    await fault({ method: "GET", fault: { kind: "delay", delayMs: 150 } });
    const startedAt = performance.now();
    await call("GET", "/sandbox");
    expect(performance.now() - startedAt).toBeGreaterThan(140);
  });
});

describe("bounds", () => {
  it.each([
    ["seconds", /^\d+$/],
    ["date", /GMT$/],
    ["none", /^undefined$/],
  ] as const)("limits the rate, with Retry-After in %s", async (retryAfter, expected) => {
    knobs({ retryAfter });
    const { id } = await create();
    // Twenty a minute.
    const ask = async (): Promise<Answer> => call("POST", `/sandbox/${id}/expose`, { port: 80 });
    for (let at = 0; at < 20; at += 1) expect((await ask()).status).toBe(400);
    const last = await ask();
    expect(last.status).toBe(429);
    expect(String(last.headers["retry-after"])).toMatch(expected);
  });

  it("writes down who asked for what", async () => {
    await call("GET", "/sandbox", undefined, "wrong");
    const { total, requests } = (await planes.control.inject({ method: "GET", url: "/admin/requests" })).json() as {
      readonly total: number;
      readonly requests: readonly object[];
    };
    expect(total).toBe(1);
    expect(requests).toEqual([
      expect.objectContaining({
        origin: "control",
        method: "GET",
        authorization: "invalid",
        status: 401,
        unknownKeys: [],
      }),
    ]);
    expect(JSON.stringify(requests)).not.toContain("the key");
  });
});
