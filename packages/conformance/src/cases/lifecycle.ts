import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type Proof, provisionRuntime, type Runtime, withRuntime } from "@breakwater/runtime-api";
import {
  assertAnswers,
  given,
  mistake,
  PATIENCE_MS,
  perl,
  processes,
  readCounter,
  expectedError,
  rejection,
  shell,
  startCounter,
  text,
  timed,
  uniqueSeconds,
  until,
  untilSleeping,
} from "../box-tools.ts";
import type { CaseContext, ConformanceCase } from "../case.ts";
import { anyUser, builds, freezes, ownFirstProcess, pinsById, services } from "../needs.ts";

const ABSENT_IMAGE = "breakwater-conformance.invalid/no-such-image:never";

/** Nothing of a box that never was, or is no more, is with the backend. */
async function assertNothingLeft({ objectsOf }: CaseContext, box: Runtime): Promise<void> {
  const left = await objectsOf(box);
  assert.deepEqual(left, [], `left behind: ${left.map((it) => `${it.kind} ${it.id}`).join(", ")}`);
}

function assertProof(proof: Proof): void {
  for (const key of ["id", "question", "answer"] as const) assert.ok(proof[key].length > 0, `a proof without ${key}`);
  assert.match(proof.at, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z$/);
  assert.ok(Math.abs(Date.now() - Date.parse(proof.at)) < 60_000, `a proof of ${proof.at}`);
}

/** A lifetime that a box still has most of when it has started, in milliseconds: what that takes is tried here and now. */
async function shortLifetimeMs({ ownBox }: CaseContext): Promise<number> {
  return Math.ceil(8_000 + 6 * (await timed(async () => assertAnswers(await ownBox()))));
}

export const lifecycleCases: readonly ConformanceCase[] = [
  {
    id: "lifecycle.create-is-free",
    level: "MUST",
    title: "make a box object without asking the backend for anything",
    promise: "Constructing is free: no I/O before start.",
    async run(context) {
      const box = context.newBox({ image: ABSENT_IMAGE });
      assert.equal(box.state, "new");
      assert.equal(box.driver, context.driver.name);
      assert.notEqual(box.id, "");
      assert.notEqual(box.id, context.newBox().id, "two boxes have one id");
      await sleep(300);
      await assertNothingLeft(context, box);
    },
  },
  {
    id: "lifecycle.spec-complete",
    level: "MUST",
    title: "show the complete, frozen spec and leave the caller's as it is",
    promise: "spec: complete and frozen.",
    async run({ driver, image }) {
      const input = { image, env: { A: "1" }, network: { initial: { mode: "no-network" as const } } };
      const copy = structuredClone(input);
      const { spec } = driver.create(input);
      assert.deepEqual(input, copy);
      assert.deepEqual(
        [spec.image, spec.env, spec.user, spec.gpus, spec.entrypoint, spec.network.later],
        [image, { A: "1" }, null, 0, true, []],
      );
      assert.ok(
        Object.isFrozen(spec) && Object.isFrozen(spec.env) && Object.isFrozen(spec.network),
        "the spec is not frozen",
      );
      input.env.A = "2";
      assert.equal(spec.env["A"], "1");
    },
  },
  {
    id: "lifecycle.spec-mistakes",
    level: "MUST",
    title: "throw a TypeError for an invalid spec",
    promise: "create throws a TypeError for an invalid spec.",
    async run({ driver, image }) {
      await mistake(() => driver.create({ image: "" }));
      await mistake(() => driver.create({ image, memoryMb: -1 }));
      await mistake(() => driver.create({ image, workdir: "relative" }));
      await mistake(() => driver.create({ image, env: { "A=B": "x" } }));
      await mistake(() => driver.create({ image, lifetimeMs: Number.POSITIVE_INFINITY }));
    },
  },
  {
    id: "lifecycle.start-is-ready",
    level: "MUST",
    title: "have a box that works when start returns",
    promise: "When start returns, the box runs and a trivial program has run in it.",
    covers: ["B72"],
    async run({ newBox, objectsOf }) {
      const box = newBox();
      const starting = box.start();
      assert.equal(box.state, "starting");
      await starting;
      assert.equal(box.state, "running");
      await assertAnswers(box);
      assert.ok((await objectsOf(box)).length > 0, "a running box is not in the driver's own listing");
    },
  },
  {
    id: "lifecycle.start-twice",
    level: "MUST",
    title: "reject a second start, and keep the box",
    promise: "A second start rejects with ERR_BOX_STATE.",
    async run({ newBox }) {
      const box = newBox();
      const [first, second] = await Promise.allSettled([box.start(), box.start()]);
      assert.equal(first.status, "fulfilled");
      assert.equal(second.status, "rejected");
      await rejection(box.start(), "ERR_BOX_STATE");
      await assertAnswers(box);
    },
  },
  {
    id: "lifecycle.start-missing-image",
    level: "MUST",
    title: "reject for an image that cannot be had, and leave nothing",
    promise: "When start rejects, nothing is left behind; ERR_IMAGE_*.",
    covers: ["B54", "B73"],
    async run(context) {
      const box = context.newBox({ image: ABSENT_IMAGE });
      const error = await rejection(box.start(), "ERR_IMAGE_NOT_FOUND", "ERR_IMAGE_PULL");
      assert.ok(error.message.includes(ABSENT_IMAGE), `the image is not named: ${error.message}`);
      await assertNothingLeft(context, box);
      await rejection(box.exec(["true"]), "ERR_BOX_STATE");
    },
  },
  {
    id: "lifecycle.start-aborted-before",
    level: "MUST",
    title: "make nothing when the signal is aborted already",
    promise: "When start rejects, nothing is left behind; ERR_ABORTED.",
    async run(context) {
      const box = context.newBox();
      await rejection(box.start({ signal: AbortSignal.abort() }), "ERR_ABORTED");
      await assertNothingLeft(context, box);
    },
  },
  {
    id: "lifecycle.start-aborted",
    level: "MUST",
    title: "leave nothing when it is aborted at any moment of start",
    promise: "When start rejects, nothing is left behind.",
    covers: ["B54"],
    alone: true,
    timeoutMs: 400_000,
    async run(context) {
      let wholeMs = await timed(() => context.ownBox());
      let aborted = 0;
      for (let step = 0; step <= 14; step += 1) {
        const box = context.newBox();
        const abort = new AbortController();
        const start = performance.now();
        const starting = box.start({ signal: abort.signal });
        const timer = setTimeout(() => abort.abort(), (wholeMs * step) / 14);
        try {
          await starting;
          // The machine is less busy than it was.
          wholeMs = Math.min(wholeMs, performance.now() - start);
          await assertAnswers(box);
          await box.teardownConfirmed();
        } catch (error) {
          if (box.state === "running") throw error;
          expectedError(error, "ERR_ABORTED");
          aborted += 1;
        } finally {
          clearTimeout(timer);
        }
        await assertNothingLeft(context, box);
      }
      assert.ok(aborted >= 5, `only ${aborted} of 15 starts were aborted`);
    },
  },
  {
    id: "lifecycle.start-deadline",
    level: "MUST",
    title: "keep start's own deadline, and leave nothing",
    promise: "Every operation takes a deadline and ends; ERR_TIMEOUT.",
    covers: ["B23", "B54"],
    async run(context) {
      for (const timeoutMs of [1, 60]) {
        const box = context.newBox();
        const error = await box.start({ timeoutMs }).then(
          () => undefined,
          (reason: unknown) => reason,
        );
        if (error === undefined && timeoutMs > 1) continue;
        expectedError(error ?? new Error("it started within 1 ms"), "ERR_TIMEOUT");
        await assertNothingLeft(context, box);
      }
    },
  },
  {
    id: "lifecycle.before-start",
    level: "MUST",
    title: "reject every operation before start",
    promise: "ERR_BOX_STATE: the operation does not fit the box's state.",
    async run({ newBox }) {
      const box = newBox();
      await rejection(box.exec(["true"]), "ERR_BOX_STATE");
      await rejection(box.upload([], "/tmp"), "ERR_BOX_STATE");
      await rejection(box.readBounded("/etc/passwd", { maxBytes: 10_000 }), "ERR_BOX_STATE");
      await rejection(drain(box), "ERR_BOX_STATE");
      await rejection(box.inspectPath("/etc"), "ERR_BOX_STATE");
      await rejection(box.removePaths(["/tmp/x"]), "ERR_BOX_STATE");
      await rejection(box.killProcesses(), "ERR_BOX_STATE");
      await rejection(box.stopConfirmed(), "ERR_BOX_STATE");
      await rejection(box.report(), "ERR_BOX_STATE");
      assert.equal(box.state, "new");
    },
  },
  {
    id: "lifecycle.after-teardown",
    level: "MUST",
    title: "reject every operation after teardown",
    promise: "ERR_BOX_STATE: the operation does not fit the box's state.",
    async run({ ownBox }) {
      const box = await ownBox();
      await box.teardownConfirmed();
      assert.equal(box.state, "gone");
      await rejection(box.exec(["true"]), "ERR_BOX_STATE");
      await rejection(box.upload([], "/tmp"), "ERR_BOX_STATE");
      await rejection(box.readBounded("/etc/passwd", { maxBytes: 10_000 }), "ERR_BOX_STATE");
      await rejection(drain(box), "ERR_BOX_STATE");
      await rejection(box.inspectPath("/etc"), "ERR_BOX_STATE");
      await rejection(box.removePaths(["/tmp/x"]), "ERR_BOX_STATE");
      await rejection(box.killProcesses(), "ERR_BOX_STATE");
      await rejection(box.start(), "ERR_BOX_STATE");
    },
  },
  {
    id: "lifecycle.image-entrypoint",
    level: "MUST",
    title: "start the image's ENTRYPOINT beside the hold, with a keep-alive as its arguments",
    promise: "Our hold starts the image's ENTRYPOINT as a child with a keep-alive as its arguments.",
    prerequisites: ["images.entrypoint"],
    covers: ["B71"],
    async run({ ownBox, images }) {
      const { image, evidence } = given(images.entrypoint);
      const box = await ownBox({ image });
      await until(
        "the ENTRYPOINT's evidence",
        async () => (await box.readBounded(evidence, { maxBytes: 10_000 })) !== null,
      );
      assert.ok(
        text((await box.readBounded(evidence, { maxBytes: 10_000 })) ?? new Uint8Array()).trim() !== "",
        "the ENTRYPOINT got no arguments",
      );
      await assertAnswers(box);
      const without = await ownBox({ image, entrypoint: false });
      await sleep(1000);
      assert.equal(
        await without.readBounded(evidence, { maxBytes: 10_000 }),
        null,
        "the ENTRYPOINT ran although the spec says no",
      );
    },
  },
  {
    id: "lifecycle.image-entrypoint-ends",
    level: "MUST",
    title: "go on when the image's ENTRYPOINT ends",
    promise: "If that child ends, the box goes on.",
    prerequisites: ["images.entrypointThatEnds"],
    covers: ["B71"],
    async run({ ownBox, images }) {
      const box = await ownBox({ image: given(images.entrypointThatEnds) });
      await sleep(2000);
      await assertAnswers(box);
      assert.equal((await box.report()).endedBy, null);
    },
  },
  {
    id: "lifecycle.reaps",
    level: "MUST",
    title: "reap what programs leave behind",
    promise: "The first process is our hold. It reaps.",
    needs: [ownFirstProcess],
    covers: ["B59"],
    async run({ ownBox }) {
      const box = await ownBox();
      const count = `sub zombies { my $count = 0; opendir(my $proc, "/proc"); for (grep { /^[0-9]+$/ } readdir $proc) { open(my $f, "<", "/proc/$_/stat") or next; $count++ if (<$f> // "") =~ /\\) Z / } $count }`;
      await perl(box, `${count} if (!fork) { exit 0 } until (zombies()) { select(undef, undef, undef, 0.1) }`);
      await Promise.all(
        Array.from({ length: 5 }, () => shell(box, "for i in 1 2 3 4 5 6 7 8 9 10; do (sleep 0.1 &) ; done")),
      );
      await sleep(1500);
      await until("no zombie", async () => (await perl(box, `${count} print zombies()`)) === "0");
    },
  },
  {
    id: "lifecycle.lifetime",
    level: "MUST",
    title: "end by itself at its lifetime, and say so",
    promise: "A box has a maximum lifetime; it ends by itself.",
    covers: ["B53"],
    async run(context) {
      const lifetimeMs = await shortLifetimeMs(context);
      const box = await context.ownBox({ lifetimeMs });
      await assertAnswers(box);
      await until("the box's end", async () => (await box.report()).endedBy !== null, lifetimeMs + PATIENCE_MS);
      assert.equal((await box.report()).endedBy, "lifetime");
      await rejection(box.exec(["true"]), "ERR_BOX_LOST");
    },
  },
  {
    id: "lifecycle.lifetime-bounds-exec",
    level: "MUST",
    title: "let no exec without a deadline outlive the box's lifetime",
    promise: "Default deadline of exec: the box's remaining lifetime.",
    async run(context) {
      const lifetimeMs = await shortLifetimeMs(context);
      const box = await context.ownBox({ lifetimeMs });
      const tookMs = await timed(async () => {
        const result = await box
          .exec(["sleep", "4000"])
          .catch((error: unknown) => expectedError(error, "ERR_BOX_LOST", "ERR_EXEC_UNKNOWN"));
        if (!(result instanceof Error)) assert.equal(result.timedOut, true);
      });
      assert.ok(tookMs < lifetimeMs + PATIENCE_MS, "exec outlived the box");
    },
  },
  {
    id: "lifecycle.box-lost",
    level: "MUST",
    title: "tell a box that was ended from outside from a program that failed",
    promise: "Box lost is a typed error and never an exit code.",
    prerequisites: ["sabotage.endBox"],
    covers: ["B14", "B57"],
    async run({ ownBox, sabotage }) {
      const box = await ownBox();
      const marker = uniqueSeconds();
      const running = rejection(box.exec(["sh", "-c", `echo a; sleep ${marker}; echo b`]), "ERR_BOX_LOST");
      await untilSleeping(box, 1, marker);
      await given(sabotage.endBox)(box);
      await running;
      await rejection(box.exec(["true"]), "ERR_BOX_LOST");
      assertProof(await box.teardownConfirmed());
    },
  },
  {
    id: "lifecycle.ended-from-outside",
    level: "MUST",
    title: "report an end from outside as one: not as the doing of the box's contents",
    promise: "report() shows from the backend's own records why a box no longer runs.",
    prerequisites: ["sabotage.endBox"],
    async run({ ownBox, sabotage }) {
      const box = await ownBox();
      assert.equal((await box.report()).endedBy, null);
      await given(sabotage.endBox)(box);
      await until("the end in the report", async () => (await box.report()).endedBy !== null);
      const { endedBy } = await box.report();
      assert.ok(endedBy === "outside" || endedBy === "unknown", `endedBy is ${endedBy}`);
    },
  },
  {
    id: "lifecycle.stop",
    level: "MUST",
    title: "stop as often as one likes, in every state, without rejecting",
    promise: "stop: best-effort halt, idempotent, never rejects.",
    async run({ newBox }) {
      await newBox().stop();
      const box = newBox();
      await box.start();
      await Promise.all([box.stop(), box.stop()]);
      await box.stop();
      await rejection(box.exec(["true"]), "ERR_BOX_STATE");
      await box.teardownConfirmed();
      await box.stop();
    },
  },
  {
    id: "lifecycle.stop-confirmed",
    level: "MUST",
    title: "prove that nothing runs any more: a program seen counting no longer counts",
    promise:
      "stopConfirmed: proven that nothing that came from the image or a caller runs, and no exec is accepted any more.",
    covers: ["B92"],
    async run({ ownBox, capabilities }) {
      const box = await ownBox();
      await startCounter(box, "/var/tmp/count");
      assertProof(await box.stopConfirmed());
      assert.equal(box.state, "stopped");
      await rejection(box.exec(["true"]), "ERR_BOX_STATE");
      if (capabilities.stop === "destroys") return;
      const count = await readCounter(box, "/var/tmp/count");
      assert.ok(count > 0);
      await sleep(1500);
      assert.equal(await readCounter(box, "/var/tmp/count"), count, "the program goes on counting");
    },
  },
  {
    id: "lifecycle.stop-confirmed-stubborn",
    level: "MUST",
    title: "stop programs that ignore every signal, in bounded time",
    promise: "stopConfirmed: proven that nothing runs.",
    covers: ["B59"],
    async run({ ownBox }) {
      const box = await ownBox();
      await shell(
        box,
        `(trap "" TERM INT HUP QUIT; setsid sh -c 'trap "" TERM INT HUP; while :; do sleep 1; done' >/dev/null 2>&1 &)`,
      );
      await assert.doesNotReject(box.stopConfirmed({ timeoutMs: PATIENCE_MS }), "stubborn programs are not stopped");
      assertProof(await box.stopConfirmed());
    },
  },
  {
    id: "lifecycle.stop-ends-execs",
    level: "MUST",
    title: "end running execs on a stop with a typed error, never with a made-up exit code",
    promise: "Box lost and outcome unknown are typed errors and never an exit code.",
    async run({ ownBox }) {
      const box = await ownBox();
      const marker = uniqueSeconds();
      const running = box.exec(["sh", "-c", `sleep ${marker}; exit 0`]);
      const settled = rejection(running, "ERR_BOX_STATE", "ERR_BOX_LOST", "ERR_EXEC_UNKNOWN");
      await untilSleeping(box, 1, marker);
      await box.stopConfirmed();
      await settled;
    },
  },
  {
    id: "lifecycle.teardown-proof",
    level: "MUST",
    title: "prove by id that the box is gone",
    promise: "teardownConfirmed: proven by asking the backend by id: the box no longer exists.",
    covers: ["B55"],
    async run(context) {
      const box = await context.ownBox();
      assert.ok((await context.objectsOf(box)).length > 0, "a running box is not in the driver's own listing");
      assertProof(await box.teardownConfirmed());
      assert.equal(box.state, "gone");
      await assertNothingLeft(context, box);
    },
  },
  {
    id: "lifecycle.teardown-repeated",
    level: "MUST",
    title: "be gone as often as one asks",
    promise: "teardownConfirmed may be called again.",
    covers: ["B55"],
    async run(context) {
      const box = await context.ownBox();
      for (let call = 0; call < 3; call += 1) assertProof(await box.teardownConfirmed());
      await box[Symbol.asyncDispose]();
      await assertNothingLeft(context, box);
    },
  },
  {
    id: "lifecycle.teardown-parallel",
    level: "MUST",
    title: "return from every one of three parallel teardowns only when the box is gone",
    promise: "Removal in progress is not gone.",
    covers: ["B56"],
    async run(context) {
      const box = await context.ownBox();
      await perl(
        box,
        `for my $d (1..50) { mkdir "/var/tmp/d$d"; for (1..100) { open(my $f, ">", "/var/tmp/d$d/$_") } }`,
      );
      await Promise.all(
        Array.from({ length: 3 }, async () => {
          assertProof(await box.teardownConfirmed());
          await assertNothingLeft(context, box);
        }),
      );
    },
  },
  {
    id: "lifecycle.teardown-prompt",
    level: "SHOULD",
    title: "tear down a box with stubborn programs about as fast as one without",
    promise: "teardownConfirmed is bounded; teardown of a throw-away box kills at once.",
    covers: ["B59"],
    async run({ ownBox }) {
      const box = await ownBox();
      await shell(box, `(setsid sh -c 'trap "" TERM INT HUP; while :; do sleep 1; done' >/dev/null 2>&1 &)`);
      const quiet = await ownBox();
      const quietMs = await timed(() => quiet.teardownConfirmed());
      const tookMs = await timed(() => box.teardownConfirmed());
      assert.ok(
        tookMs < 9_000 + 5 * quietMs,
        `it took ${Math.round(tookMs)} ms, without stubborn programs ${Math.round(quietMs)} ms`,
      );
    },
  },
  {
    id: "lifecycle.teardown-anywhere",
    level: "MUST",
    title: "tear down from every state: new, stopped, frozen",
    promise: "teardownConfirmed covers the box in every state.",
    async run(context) {
      const fresh = context.newBox();
      assertProof(await fresh.teardownConfirmed());
      await rejection(fresh.start(), "ERR_BOX_STATE");
      const stopped = await context.ownBox();
      await stopped.stop();
      assertProof(await stopped.teardownConfirmed());
      await assertNothingLeft(context, stopped);
      if (!freezes.claimed(context.capabilities)) return;
      const frozen = await context.ownBox();
      await frozen.freeze();
      assertProof(await frozen.teardownConfirmed());
      await assertNothingLeft(context, frozen);
    },
  },
  {
    id: "lifecycle.teardown-ends-execs",
    level: "MUST",
    title: "end running execs on a teardown with a typed error",
    promise: "Box lost and outcome unknown are typed errors and never an exit code.",
    covers: ["B14"],
    async run({ ownBox }) {
      const box = await ownBox();
      const marker = uniqueSeconds();
      const settled = rejection(
        box.exec(["sh", "-c", `echo a; sleep ${marker}; exit 0`]),
        "ERR_BOX_STATE",
        "ERR_BOX_LOST",
        "ERR_EXEC_UNKNOWN",
      );
      await untilSleeping(box, 1, marker);
      await box.teardownConfirmed();
      await settled;
    },
  },
  {
    id: "lifecycle.dispose",
    level: "MUST",
    title: "remove everything on dispose, from every state, and never reject",
    promise: "dispose: best-effort removal of everything, never rejects.",
    async run(context) {
      const box = await context.ownBox();
      await context.newBox()[Symbol.asyncDispose]();
      await box[Symbol.asyncDispose]();
      await box[Symbol.asyncDispose]();
      await assertNothingLeft(context, box);
    },
  },
  {
    id: "lifecycle.with-runtime",
    level: "MUST",
    title: "serve withRuntime and await using: the value or the caller's error comes through, and nothing is left",
    promise: "withRuntime: start, or nothing left.",
    async run(context) {
      const { driver, newBox } = context;
      const { spec } = newBox();
      const again = { image: spec.image, network: spec.network, lifetimeMs: spec.lifetimeMs, trial: spec.trial ?? "" };
      const value = await withRuntime(driver, again, async (box) => text((await box.exec(["echo", "inside"])).stdout));
      assert.equal(value, "inside\n");
      const mine = new Error("the caller's own");
      await assert.rejects(
        withRuntime(driver, again, () => Promise.reject(mine)),
        mine,
      );
      const provisioned = await provisionRuntime(driver, again);
      assert.ok((await context.objectsOf(provisioned)).length > 0);
      await provisioned[Symbol.asyncDispose]();
      await assertNothingLeft(context, provisioned);
    },
  },
  {
    id: "lifecycle.freeze",
    level: "MUST",
    title: "freeze every process of a box, read it meanwhile, and thaw it",
    promise: "freeze / thaw: no process of the box runs in between; exec is refused, download and readBounded work.",
    needs: [freezes],
    async run({ ownBox }) {
      const box = await ownBox();
      await startCounter(box, "/var/tmp/count");
      await box.freeze();
      assert.equal(box.state, "frozen");
      const count = await readCounter(box, "/var/tmp/count");
      await rejection(box.exec(["true"]), "ERR_BOX_STATE");
      await sleep(1500);
      assert.equal(await readCounter(box, "/var/tmp/count"), count, "the program goes on counting");
      await box.thaw();
      assert.equal(box.state, "running");
      await until("the counter counting again", async () => (await readCounter(box, "/var/tmp/count")) > count);
      await assertAnswers(box);
    },
  },
  {
    id: "lifecycle.freeze-then-stop",
    level: "MUST",
    title: "stop a frozen box, confirmed",
    promise: "running ⇄ frozen → stopped.",
    needs: [freezes],
    async run({ ownBox }) {
      const box = await ownBox();
      await box.freeze();
      assertProof(await box.stopConfirmed());
      assert.equal(box.state, "stopped");
      await rejection(box.thaw(), "ERR_BOX_STATE");
    },
  },
  {
    id: "lifecycle.parallel-boxes",
    level: "MUST",
    title: "start ten boxes at once, each with files and processes of its own",
    promise: "Several boxes may run at the same time.",
    covers: ["B69", "B101"],
    timeoutMs: 300_000,
    async run({ newBox }) {
      const boxes = Array.from({ length: 10 }, () => newBox());
      await Promise.all(boxes.map((box) => box.start()));
      await Promise.all(boxes.map((box) => shell(box, `echo ${box.id} >/var/tmp/mine`)));
      const contents = await Promise.all(boxes.map((box) => shell(box, "cat /var/tmp/mine")));
      assert.deepEqual(
        contents,
        boxes.map((box) => `${box.id}\n`),
      );
      const marker = uniqueSeconds();
      const [first, ...others] = boxes as [Runtime, ...Runtime[]];
      await shell(first, `(sleep ${marker} >/dev/null 2>&1 &)`);
      await untilSleeping(first, 1, marker);
      for (const other of others.slice(0, 3)) {
        assert.ok(
          [...(await processes(other)).values()].every((line) => !line.includes(marker)),
          "a box sees another one's processes",
        );
      }
      await Promise.all(boxes.map((box) => box.teardownConfirmed()));
    },
  },
  {
    id: "lifecycle.prepare-image",
    level: "MUST",
    title: "prepare an image under an id that runs, and say what it declares",
    promise: "prepareImage carries id, entrypoint, workdir, user, env.",
    async run({ driver, image, ownBox }) {
      const prepared = await driver.prepareImage({ reference: image });
      assert.notEqual(prepared.id, "");
      assert.ok(Array.isArray(prepared.entrypoint) && typeof prepared.env === "object");
      assert.equal((await driver.prepareImage({ reference: image })).id, prepared.id);
      await assertAnswers(await ownBox({ image: prepared.id }));
      await rejection(driver.prepareImage({ reference: ABSENT_IMAGE }), "ERR_IMAGE_NOT_FOUND", "ERR_IMAGE_PULL");
    },
  },
  {
    id: "lifecycle.prepare-image-facts",
    level: "MUST",
    title: "say the user and the working directory that an image declares",
    promise: "prepareImage carries id, entrypoint, workdir, user, env.",
    prerequisites: ["images.nonRoot"],
    async run({ driver, images }) {
      const { image, uid, workdir } = given(images.nonRoot);
      const prepared = await driver.prepareImage({ reference: image });
      assert.deepEqual([prepared.user, prepared.workdir], [String(uid), workdir]);
    },
  },
  {
    id: "lifecycle.build-image",
    level: "MUST",
    title: "build an image from a folder, and build anew when the folder changes",
    promise: "prepareImage: pull, or build where capable.",
    needs: [builds, pinsById],
    covers: ["B75"],
    timeoutMs: 400_000,
    async run({ driver, image, ownBox }) {
      const context = await mkdtemp(join(tmpdir(), "conformance-build-"));
      try {
        await writeFile(join(context, "Dockerfile"), `FROM ${image}\nCOPY data /built\nENV BUILT=yes\n`);
        await writeFile(join(context, "data"), "first");
        const source = { context, name: "conformance-build" };
        const [first, same] = await Promise.all([driver.prepareImage(source), driver.prepareImage(source)]);
        assert.equal(first.id, same.id);
        assert.equal(first.env["BUILT"], "yes");
        assert.equal(await shell(await ownBox({ image: first.id }), "cat /built; echo $BUILT"), "firstyes\n");
        await writeFile(join(context, "data"), "second");
        const second = await driver.prepareImage(source);
        assert.notEqual(second.id, first.id);
        assert.equal(await shell(await ownBox({ image: second.id }), "cat /built"), "second");
        assert.equal(
          await shell(await ownBox({ image: first.id }), "cat /built"),
          "first",
          "a pinned image has changed",
        );
        await writeFile(join(context, "Dockerfile"), `FROM ${image}\nCOPY no-such-file /x\n`);
        await rejection(driver.prepareImage(source), "ERR_IMAGE_BUILD");
      } finally {
        await rm(context, { recursive: true, force: true });
      }
    },
  },
  {
    id: "lifecycle.doctor",
    level: "SHOULD",
    title: "say for people what works here and what does not, with advice, and come to an end",
    promise: "doctor: what works, what does not, what to do.",
    async run({ driver }) {
      let lines = 0;
      for await (const { status, what, advice = "" } of driver.doctor({ timeoutMs: PATIENCE_MS })) {
        lines += 1;
        assert.notEqual(what, "", "a line says nothing");
        assert.ok(status === "ok" || advice !== "", `no advice: ${what}`);
      }
      assert.ok(lines > 0, "doctor says nothing");
    },
  },
  {
    id: "lifecycle.service",
    level: "MUST",
    title: "run a service beside the main box: reachable by name, stopped and torn down with proof",
    promise: "service(name) has its own exec and stopConfirmed; teardownConfirmed covers the box and its services.",
    needs: [services],
    covers: ["B42"],
    timeoutMs: 300_000,
    async run(context) {
      const listen = `use Socket; socket(my $s, AF_INET, SOCK_STREAM, 0); setsockopt($s, SOL_SOCKET, SO_REUSEADDR, 1); bind($s, sockaddr_in(8000, INADDR_ANY)) or die; listen($s, 5); while (accept(my $c, $s)) { syswrite($c, "from the service\\n"); close $c }`;
      const box = await context.ownBox({
        services: [{ name: "peer", image: context.image, command: ["perl", "-e", listen] }],
      });
      const service = box.service("peer");
      assert.equal((await service.exec(["true"])).exitCode, 0);
      const ask = `use Socket; my ($e, $a) = Socket::getaddrinfo("peer", 8000, { socktype => SOCK_STREAM }); die $e if $e; socket(my $s, $a->{family}, SOCK_STREAM, 0); connect($s, $a->{addr}) or die $!; print scalar <$s>`;
      assert.equal(await perl(box, ask), "from the service\n");
      await mistake(() => box.service("nobody"));
      assertProof(await service.stopConfirmed());
      await assertAnswers(box);
      assertProof(await box.teardownConfirmed());
      await assertNothingLeft(context, box);
    },
  },
  {
    id: "lifecycle.start-unknown-user",
    level: "MUST",
    title: "start a box whose default user is unknown to the image only to reject its programs, or reject the start",
    promise: "Could not start the program is a typed error; when start rejects, nothing is left behind.",
    needs: [anyUser],
    covers: ["B54"],
    async run(context) {
      const box = context.newBox({ user: "nosuchuser" });
      const error = await box.start().then(
        () => undefined,
        (reason: unknown) => reason,
      );
      if (error === undefined) {
        const refused = await rejection(box.exec(["true"]), "ERR_EXEC_START");
        assert.equal(refused.step, "user");
        return;
      }
      expectedError(error, "ERR_BOX_START", "ERR_EXEC_START");
      await assertNothingLeft(context, box);
    },
  },
];

async function drain(box: Runtime): Promise<void> {
  for await (const chunk of box.download(["/etc/passwd"], { maxBytes: 1_000_000, maxEntries: 10 })) void chunk;
}
