import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  type NetworkPolicy,
  type RefusalCode,
  refusals,
  type RuntimeCapabilities,
  type RuntimeSpecInput,
} from "@breakwater/runtime-api";
import { rejection } from "../box-tools.ts";
import type { CaseContext, ConformanceCase } from "../case.ts";
import {
  anyUser,
  builds,
  changesNetwork,
  cutsConnections,
  freezes,
  limit,
  networkMode,
  readsAfterStop,
  services,
  unboundedLifetime,
  windows,
} from "../needs.ts";

/** start refuses with this reason among all reasons that there are, and nothing was made. */
async function assertRefused(
  context: CaseContext,
  spec: Partial<RuntimeSpecInput>,
  ...codes: readonly RefusalCode[]
): Promise<void> {
  const box = context.newBox(spec);
  const error = await rejection(box.start(), "ERR_UNSUPPORTED");
  const reasons = error.refusals.map((it) => it.code);
  for (const code of codes) assert.ok(reasons.includes(code), `refused for ${reasons.join(", ")}, not for ${code}`);
  assert.deepEqual(error.refusals, refusals(box.spec, context.capabilities), "not the reasons that refusals() gives");
  for (const { key, message, advice } of error.refusals) assert.ok(key !== "" && message !== "" && advice !== "");
  assert.deepEqual(await context.objectsOf(box), [], "something was made for a refused spec");
}

const policyOf = (mode: NetworkPolicy["mode"]): NetworkPolicy =>
  mode === "allowlist" ? { mode, hosts: ["example.com"] } : { mode };

/** A twin: what is not claimed is refused with a code. */
function networkTwin(mode: NetworkPolicy["mode"]): ConformanceCase {
  return {
    id: `refusal.network-${mode}`,
    level: "MUST",
    title: `refuse the network mode ${mode}`,
    promise: "A driver enforces a policy exactly or refuses it; it never warns and continues.",
    unless: networkMode(mode),
    covers: ["B70"],
    run: (context) => assertRefused(context, { network: { initial: policyOf(mode) } }, "REFUSED_NETWORK_MODE"),
  };
}

/** The most that anything in `probed` says is within what `claimed` says. */
function assertWithin(probed: RuntimeCapabilities, claimed: RuntimeCapabilities): void {
  for (const key of ["networkModes", "allowlistEntries", "limits", "imageSources", "operatingSystems"] as const) {
    const most: readonly unknown[] = claimed[key];
    for (const one of probed[key])
      assert.ok(most.includes(one), `probe says ${key} ${one}, the driver does not claim it`);
  }
  const orders = {
    networkChange: ["none", "new-connections-only", "cuts"],
    stop: ["destroys", "sealed", "halted"],
    firstProcess: ["backend", "ours"],
    freeze: ["none", "freezes"],
    users: ["image", "any"],
    imagePin: ["none", "observed", "id"],
    services: ["none", "full"],
  } as const;
  for (const [key, order] of Object.entries(orders) as [keyof typeof orders, readonly string[]][]) {
    assert.ok(
      order.indexOf(probed[key]) <= order.indexOf(claimed[key]),
      `probe says ${key} ${probed[key]}, the driver claims ${claimed[key]}`,
    );
  }
  for (const key of ["maxCpus", "maxMemoryMb", "maxLifetimeMs"] as const) {
    assert.ok(
      (probed[key] ?? Infinity) <= (claimed[key] ?? Infinity),
      `probe says more for ${key} than the driver claims`,
    );
  }
  assert.ok(probed.gpus <= claimed.gpus);
}

export const refusalCases: readonly ConformanceCase[] = [
  {
    id: "refusal.probe-within-claims",
    level: "MUST",
    title: "probe what this backend enforces, never more than the driver claims",
    promise: "probe: what this backend enforces here, never more; cached.",
    async run({ driver }) {
      const probed = await driver.probe();
      assertWithin(probed, driver.capabilities);
      assert.deepEqual(await driver.probe(), probed);
    },
  },
  {
    id: "refusal.capabilities-constant",
    level: "MUST",
    title: "claim the same before and after use, in every driver of the kind",
    promise: "capabilities: the most that this driver can claim: constant.",
    async run({ driver, newDriver }) {
      const other = newDriver();
      assert.deepEqual(other.capabilities, driver.capabilities);
      const before = structuredClone(other.capabilities);
      await other.probe();
      assert.deepEqual(other.capabilities, before);
      await other[Symbol.asyncDispose]();
    },
  },
  {
    id: "refusal.all-at-once",
    level: "MUST",
    title: "give all reasons at once, before anything is made",
    promise: "Refusals come all at once, before a box is paid for.",
    run: (context) =>
      assertRefused(
        context,
        {
          gpus: context.capabilities.gpus + 1,
          network: { initial: { mode: "public" }, later: [] },
          operatingSystem: "windows",
          image: "no-such-image",
        },
        "REFUSED_GPUS",
        ...(windows.claimed(context.capabilities) ? [] : (["REFUSED_OPERATING_SYSTEM"] as const)),
      ),
  },
  {
    id: "refusal.gpus",
    level: "MUST",
    title: "refuse more GPUs than there are",
    promise: "gpus: a number that the backend has.",
    run: (context) => assertRefused(context, { gpus: context.capabilities.gpus + 1 }, "REFUSED_GPUS"),
  },
  {
    id: "refusal.more-than-the-host",
    level: "MUST",
    title: "refuse more cores or memory than the host has, and name the override",
    promise: "Above what the host has = a refusal that names the override.",
    needs: [limit("cpus"), limit("memory")],
    async run(context) {
      const { maxCpus, maxMemoryMb } = context.capabilities;
      if (maxCpus !== null) await assertRefused(context, { cpus: Math.ceil(maxCpus) + 1 }, "REFUSED_CPUS");
      if (maxMemoryMb !== null)
        await assertRefused(context, { memoryMb: Math.ceil(maxMemoryMb) + 1 }, "REFUSED_MEMORY");
    },
  },
  networkTwin("public"),
  networkTwin("no-network"),
  networkTwin("allowlist"),
  {
    id: "refusal.network-change",
    level: "MUST",
    title: "refuse a later network policy",
    promise: "networkChange none: the first policy is the only one.",
    unless: changesNetwork,
    run: (context) =>
      assertRefused(
        context,
        { network: { initial: { mode: "no-network" }, later: [{ mode: "public" }] } },
        "REFUSED_NETWORK_CHANGE",
      ),
  },
  {
    id: "refusal.network-tightening",
    level: "MUST",
    title: "refuse a later policy that would leave forbidden connections open",
    promise: "Tightening while programs may run is refused unless it cuts open connections.",
    unless: cutsConnections,
    covers: ["B63"],
    run: (context) =>
      assertRefused(
        context,
        { network: { initial: { mode: "public" }, later: [{ mode: "no-network" }] } },
        "REFUSED_NETWORK_CHANGE",
      ),
  },
  {
    id: "refusal.freeze",
    level: "MUST",
    title: "refuse to freeze",
    promise: "freeze / thaw: where the driver has the capability.",
    unless: freezes,
    async run({ ownBox }) {
      const box = await ownBox();
      await rejection(box.freeze(), "ERR_UNSUPPORTED");
      await rejection(box.thaw(), "ERR_UNSUPPORTED");
      assert.equal(box.state, "running");
    },
  },
  {
    id: "refusal.read-after-stop",
    level: "MUST",
    title: "reject reading a box whose stop destroyed it",
    promise: "stop destroys: download and readBounded reject with a code.",
    unless: readsAfterStop,
    async run({ ownBox }) {
      const box = await ownBox();
      assert.notEqual(await box.readBounded("/etc/passwd", { maxBytes: 100_000 }), null);
      await box.stopConfirmed();
      await rejection(box.readBounded("/etc/passwd", { maxBytes: 100_000 }), "ERR_BOX_STATE");
      await rejection(
        (async () => {
          for await (const chunk of box.download(["/etc/passwd"], { maxBytes: 100_000, maxEntries: 1 })) void chunk;
        })(),
        "ERR_BOX_STATE",
      );
    },
  },
  {
    id: "refusal.limit-cpus",
    level: "MUST",
    title: "refuse a limit on cores",
    promise: "cpus: enforced, or refused.",
    unless: limit("cpus"),
    run: (context) => assertRefused(context, { cpus: 1 }, "REFUSED_CPUS"),
  },
  {
    id: "refusal.limit-memory",
    level: "MUST",
    title: "refuse a limit on memory",
    promise: "memoryMb: enforced, or refused.",
    unless: limit("memory"),
    run: (context) => assertRefused(context, { memoryMb: 512 }, "REFUSED_MEMORY"),
  },
  {
    id: "refusal.user",
    level: "MUST",
    title: "refuse another user than the image's",
    promise: "users image: a program can be run only as the image's own user.",
    unless: anyUser,
    async run(context) {
      await assertRefused(context, { user: "daemon" }, "REFUSED_USER");
      const box = await context.ownBox();
      await rejection(box.exec(["true"], { user: "daemon" }), "ERR_UNSUPPORTED");
    },
  },
  {
    id: "refusal.build",
    level: "MUST",
    title: "refuse to build an image",
    promise: "Build where capable.",
    unless: builds,
    async run({ driver, image }) {
      const context = await mkdtemp(join(tmpdir(), "conformance-build-"));
      try {
        await writeFile(join(context, "Dockerfile"), `FROM ${image}\n`);
        await rejection(driver.prepareImage({ context, name: "conformance-build" }), "ERR_UNSUPPORTED");
      } finally {
        await rm(context, { recursive: true, force: true });
      }
    },
  },
  {
    id: "refusal.services",
    level: "MUST",
    title: "refuse services",
    promise: "What cannot be honoured is refused, never ignored.",
    unless: services,
    covers: ["B42"],
    run: (context) =>
      assertRefused(context, { services: [{ name: "peer", image: context.image }] }, "REFUSED_SERVICES"),
  },
  {
    id: "refusal.lifetime",
    level: "MUST",
    title: "refuse a lifetime that the backend does not enforce",
    promise: "maxLifetimeMs: the longest lifetime that the backend enforces without us.",
    unless: unboundedLifetime,
    run: (context) =>
      assertRefused(context, { lifetimeMs: (context.capabilities.maxLifetimeMs ?? 0) + 1 }, "REFUSED_LIFETIME"),
  },
  {
    id: "refusal.operating-system",
    level: "MUST",
    title: "refuse windows boxes",
    promise: "operatingSystems: what boxes can be had.",
    unless: windows,
    run: (context) => assertRefused(context, { operatingSystem: "windows" }, "REFUSED_OPERATING_SYSTEM"),
  },
];
