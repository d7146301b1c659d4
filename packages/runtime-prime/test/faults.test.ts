import { type OwnEmulator, startEmulator } from "@breakwater/backends/prime";
import { isRuntimeError, type Runtime, type RuntimeDriver, type RuntimeErrorCode } from "@breakwater/runtime-api";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { primeDriver } from "../src/index.ts";
import { image } from "./backend.ts";

// Faults that the service is known for, one emulator of its own for all: what the driver makes of them, and that nothing is left.

const LONG_MS = 240_000;
const { DOCKER_HOST = "" } = process.env;

let emulator: OwnEmulator;
let driver: RuntimeDriver;

beforeAll(async () => {
  emulator = await startEmulator(DOCKER_HOST);
  driver = primeDriver({ kind: "container", apiKey: emulator.apiKey, baseUrl: emulator.url });
}, LONG_MS);

afterAll(async () => {
  await driver[Symbol.asyncDispose]();
  await emulator[Symbol.asyncDispose]();
}, LONG_MS);

beforeEach(async () => {
  await emulator.admin("POST", "/reset", {});
});

interface SeenSandbox {
  readonly name: string;
  readonly status: string;
  readonly boxRuns: boolean;
}

/** What is left: sandboxes that are not at their end, or behind whose end something still runs. */
async function leftovers(): Promise<readonly SeenSandbox[]> {
  const { sandboxes } = (await emulator.admin("GET", "/sandboxes")) as { readonly sandboxes: readonly SeenSandbox[] };
  return sandboxes.filter(({ status, boxRuns }) => boxRuns || !["TERMINATED", "ERROR", "TIMEOUT"].includes(status));
}

async function sandboxCount(): Promise<number> {
  const { sandboxes } = (await emulator.admin("GET", "/sandboxes")) as { readonly sandboxes: readonly unknown[] };
  return sandboxes.length;
}

async function fault(rule: unknown): Promise<void> {
  await emulator.admin("POST", "/faults", rule);
}

function newBox(): Runtime {
  return driver.create({ image, lifetimeMs: 20 * 60_000 });
}

async function startedBox(): Promise<Runtime> {
  const box = newBox();
  await box.start();
  return box;
}

async function rejection(work: Promise<unknown>, code: RuntimeErrorCode): Promise<Error> {
  const error = await work.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(isRuntimeError(error, code), `expected ${code}, got ${String(error)}`).toBe(true);
  return error as Error;
}

const deletion = { origin: "control", method: "DELETE", path: "/sandbox/" } as const;
const answer = (status: number, body: unknown = { detail: "fault" }): unknown => ({ kind: "answer", status, body });

describe("teardown", () => {
  it.each([
    ["500 twice", { ...deletion, times: 2, fault: answer(500) }],
    ["502 after it was carried out", { ...deletion, carriedOut: true, fault: answer(502) }],
    ["404 without effect", { ...deletion, fault: answer(404) }],
    ["409 without effect", { ...deletion, fault: answer(409) }],
    ["200 without effect", { ...deletion, fault: answer(200, { success: true, message: "deleted" }) }],
    ["a cut connection", { ...deletion, fault: { kind: "reset" } }],
  ])(
    "is proven although DELETE gets %s",
    async (_what, rule) => {
      const box = await startedBox();
      expect(await leftovers()).toHaveLength(1);
      await fault(rule);
      const proof = await box.teardownConfirmed();
      expect(proof.answer).toMatch(/TERMINATED; no active sandbox/);
      expect(await leftovers()).toEqual([]);
    },
    LONG_MS,
  );

  it(
    "waits for a sandbox that lives on after its deletion, and is not proven before",
    async () => {
      const box = await startedBox();
      await emulator.admin("PATCH", "/knobs", { deleteLingersMs: 15_000 });
      await rejection(box.teardownConfirmed({ timeoutMs: 3000 }), "ERR_TEARDOWN_UNCONFIRMED");
      expect(await leftovers()).toHaveLength(1);
      await box.teardownConfirmed();
      expect(await leftovers()).toEqual([]);
    },
    LONG_MS,
  );

  it(
    "is not proven while the service does not answer, and is afterwards",
    async () => {
      const box = await startedBox();
      await fault({ origin: "control", times: null, fault: answer(503) });
      await rejection(box.teardownConfirmed({ timeoutMs: 3000 }), "ERR_TEARDOWN_UNCONFIRMED");
      await emulator.admin("DELETE", "/faults");
      await box.teardownConfirmed();
      expect(await leftovers()).toEqual([]);
    },
    LONG_MS,
  );

  it(
    "takes a sandbox that the service has forgotten for gone",
    async () => {
      const box = await startedBox();
      await emulator.admin("PATCH", "/knobs", { getAfterDelete: "not-found" });
      const proof = await box.teardownConfirmed();
      expect(proof.answer).toMatch(/NOT_FOUND/);
      expect(await leftovers()).toEqual([]);
    },
    LONG_MS,
  );

  it(
    "leaves nothing when a deletion races the start",
    async () => {
      await emulator.admin("PATCH", "/knobs", { deleteRaceLeavesOrphan: true, pendingMs: 1000, provisioningMs: 500 });
      const box = newBox();
      await rejection(box.start({ timeoutMs: 700 }), "ERR_TIMEOUT");
      expect(await leftovers()).toEqual([]);
    },
    LONG_MS,
  );
});

describe("start", () => {
  it(
    "makes one sandbox although the answer to its creation is lost",
    async () => {
      const before = await sandboxCount();
      await fault({ origin: "control", method: "POST", path: "/sandbox$", carriedOut: true, fault: { kind: "reset" } });
      const box = await startedBox();
      expect(await sandboxCount()).toBe(before + 1);
      await box.teardownConfirmed();
      expect(await leftovers()).toEqual([]);
    },
    LONG_MS,
  );

  it(
    "stands a burst of 500",
    async () => {
      await fault({ origin: "control", method: "POST", path: "/sandbox$", times: 3, fault: answer(500) });
      const box = await startedBox();
      await box.teardownConfirmed();
      expect(await leftovers()).toEqual([]);
    },
    LONG_MS,
  );

  it.each([
    [401, "ERR_BACKEND_AUTH"],
    [402, "ERR_BACKEND_QUOTA"],
    [422, "ERR_BACKEND"],
  ] as const)(
    "tells a refusal with %i, leaves nothing and does not tell the key",
    async (status, code) => {
      await fault({ origin: "control", method: "POST", path: "/sandbox$", times: null, fault: answer(status) });
      const error = await rejection(newBox().start(), code);
      for (let each: unknown = error; each instanceof Error; each = each.cause) {
        expect(`${each.message} ${each.stack} ${JSON.stringify(each)}`).not.toContain(emulator.apiKey);
      }
      expect(await leftovers()).toEqual([]);
    },
    LONG_MS,
  );

  it(
    "waits as a rate limit says",
    async () => {
      const limit = { kind: "answer", status: 429, body: { detail: "slow down" }, headers: { "retry-after": "2" } };
      await fault({ origin: "control", method: "POST", path: "/sandbox$", fault: limit });
      const startedAt = performance.now();
      const box = await startedBox();
      expect(performance.now() - startedAt).toBeGreaterThan(2000);
      await box.teardownConfirmed();
    },
    LONG_MS,
  );
});

describe("programs", () => {
  it(
    "of a VM leave no timer behind",
    async () => {
      await using vms = primeDriver({ kind: "vm", apiKey: emulator.apiKey, baseUrl: emulator.url });
      const box = vms.create({ image, lifetimeMs: 20 * 60_000 });
      await box.start();
      const timers = (): number => process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length;
      const before = timers();
      for (let at = 0; at < 10; at += 1) await box.exec(["true"]);
      expect(timers() - before).toBeLessThan(5);
      await box.teardownConfirmed();
    },
    LONG_MS,
  );

  it(
    "run once although answers are lost and calls fail, and tokens expire",
    async () => {
      const box = await startedBox();
      for (const rule of [
        { carriedOut: true, fault: { kind: "reset" } },
        { carriedOut: true, fault: answer(502, { error: "gateway_error", code: 502 }) },
        { fault: answer(524, "error code: 524") },
        { fault: answer(401, { error: "invalid_token" }) },
        { fault: answer(409, { error: "dns" }) },
      ]) {
        await fault({ origin: "gateway", method: "POST", path: "/exec", ...rule });
      }
      const { exitCode, stdout } = await box.exec(["sh", "-c", "echo ran >> /ran; sleep 1; wc -l < /ran"]);
      expect([exitCode, Buffer.from(stdout).toString("utf8").trim()]).toEqual([0, "1"]);
      const again = await box.exec(["cat", "/ran"]);
      expect(Buffer.from(again.stdout).toString("utf8")).toBe("ran\n");
      await box.teardownConfirmed();
    },
    LONG_MS,
  );

  it(
    "get their input although the answer to a call that brought much of it is lost",
    async () => {
      const box = await startedBox();
      const times = 3;
      await fault({
        origin: "gateway",
        method: "POST",
        path: "/exec",
        times,
        carriedOut: true,
        fault: { kind: "reset" },
      });
      const content = Buffer.alloc(300_000, "input");
      const { exitCode, stdout } = await box.exec(["sh", "-c", "cat >/got; wc -c </got"], { stdin: content });
      expect([exitCode, Buffer.from(stdout).toString("utf8").trim()]).toEqual([0, "300000"]);
      const { faults } = (await emulator.admin("GET", "/faults")) as {
        readonly faults: readonly { readonly used: number }[];
      };
      expect(faults.map(({ used }) => used)).toEqual([times]);
      await box.teardownConfirmed();
    },
    LONG_MS,
  );

  it(
    "tell a box that was deleted by somebody else from a program that failed",
    async () => {
      const box = await startedBox();
      const { sandboxes } = (await emulator.admin("GET", "/sandboxes")) as {
        readonly sandboxes: readonly { readonly id: string; readonly name: string }[];
      };
      const id = sandboxes.find(({ name }) => name === box.id)?.id ?? "";
      await emulator.admin("POST", `/sandboxes/${id}/end`, { status: "TERMINATED" });
      await rejection(box.exec(["true"]), "ERR_BOX_LOST");
      await box.teardownConfirmed();
      expect(await leftovers()).toEqual([]);
    },
    LONG_MS,
  );
});
