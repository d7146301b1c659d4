import assert from "node:assert/strict";
import type { RuntimeSpecInput, SweepReport, SweptObject } from "@breakwater/runtime-api";
import { assertAnswers, given, rejection, timed } from "../box-tools.ts";
import type { CaseContext, ConformanceCase } from "../case.ts";
import { OwnerProcess } from "../owner-process.ts";

const ofTrial = (objects: readonly SweptObject[], trial: string | null): readonly SweptObject[] =>
  objects.filter((it) => it.trial === trial);

/** A spec for a box that another process owns. */
function specForOther({ newBox }: CaseContext): RuntimeSpecInput & { readonly trial: string } {
  const { image, network, lifetimeMs, trial } = newBox().spec;
  return { image, network, lifetimeMs, trial: `${trial}-owner` };
}

function assertUntouched(report: SweepReport, trial: string | null, whose: string): void {
  assert.deepEqual(ofTrial(report.removed, trial), [], `${whose} box was swept`);
  assert.deepEqual(ofTrial(report.failed, trial), [], `${whose} box was to be swept`);
  assert.ok(ofTrial(report.kept, trial).length > 0, `${whose} box is not in the report`);
}

export const leaksCases: readonly ConformanceCase[] = [
  {
    id: "leaks.sweep-keeps-own",
    level: "MUST",
    title: "leave the boxes of a live owner alone when it sweeps",
    promise: "sweep never touches a live owner's box.",
    covers: ["B52"],
    alone: true,
    async run({ ownBox, driver }) {
      const box = await ownBox();
      assertUntouched(await driver.sweep(), box.spec.trial, "a live owner's");
      await assertAnswers(box);
    },
  },
  {
    id: "leaks.sweep-dead-owner",
    level: "MUST",
    title: "remove exactly what a dead owner left, after saying so on a dry run",
    promise: "sweep removes exactly what dead or expired owners left.",
    prerequisites: ["driverModule"],
    covers: ["B52", "B53"],
    alone: true,
    timeoutMs: 400_000,
    async run(context) {
      const { driver, ownBox, objectsOfTrial } = context;
      const module = given(context.driverModule);
      const [deadSpec, liveSpec] = [specForOther(context), specForOther(context)];
      const mine = await ownBox();
      const [dead, live] = await Promise.all([
        OwnerProcess.start(module, deadSpec),
        OwnerProcess.start(module, liveSpec),
      ]);
      try {
        assertUntouched(await driver.sweep({ dryRun: true }), deadSpec.trial, "a still living owner's");
        await dead.kill();

        const announced = await driver.sweep({ dryRun: true });
        assert.ok(ofTrial(announced.removed, deadSpec.trial).length > 0, "the dead owner's box is not found");
        assert.ok((await objectsOfTrial(deadSpec.trial)).length > 0, "a dry run removed something");

        const report = await driver.sweep();
        assert.ok(ofTrial(report.removed, deadSpec.trial).length > 0, "the dead owner's box was not removed");
        assert.deepEqual(await objectsOfTrial(deadSpec.trial), [], "something of the dead owner is left");
        assertUntouched(report, liveSpec.trial, "another live process's");
        assertUntouched(report, mine.spec.trial, "our own");
        await live.check();
        await assertAnswers(mine);
      } finally {
        await dead.kill();
        await live.end();
      }
    },
  },
  {
    id: "leaks.sweep-foreign",
    level: "MUST",
    title: "never touch a box that is not ours",
    promise: "sweep never touches a foreign box.",
    prerequisites: ["sabotage.foreignBox"],
    covers: ["B52"],
    alone: true,
    async run({ driver, sabotage, image }) {
      const foreign = await given(sabotage.foreignBox)(image);
      try {
        assert.ok(await foreign.runs());
        await driver.sweep();
        assert.ok(await foreign.runs(), "a foreign box was swept");
      } finally {
        await foreign.remove();
      }
    },
  },
  {
    id: "leaks.lifetime-without-owner",
    level: "MUST",
    title: "end a box at its lifetime when its owner cannot act",
    promise: "A box has a maximum lifetime enforced without us.",
    covers: ["B53"],
    alone: true,
    async run({ ownBox }) {
      const startMs = await timed(async () => assertAnswers(await ownBox()));
      const lifetimeMs = Math.ceil(6_000 + 4 * startMs);
      const box = await ownBox({ lifetimeMs });
      await assertAnswers(box);
      // Nothing of this process runs meanwhile: no timer of a driver either.
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, lifetimeMs + 6_000 + startMs);
      await rejection(box.exec(["true"]), "ERR_BOX_LOST");
      assert.equal((await box.report()).endedBy, "lifetime");
    },
  },
  {
    id: "leaks.process-ends",
    level: "MUST",
    title: "keep no process alive once its boxes are gone and the driver is disposed",
    promise: "Disposing a driver closes connections that it opened itself.",
    prerequisites: ["driverModule"],
    covers: ["B51"],
    async run(context) {
      const spec = specForOther(context);
      const owner = await OwnerProcess.start(given(context.driverModule), spec);
      await owner.check();
      await owner.end();
      assert.deepEqual(await context.objectsOfTrial(spec.trial), []);
    },
  },
  {
    id: "leaks.dispose-driver",
    level: "MUST",
    title: "remove nothing that is in use when another driver is disposed",
    promise: "Disposing a driver removes nothing that is in use.",
    async run({ ownBox, newDriver }) {
      const box = await ownBox();
      const other = newDriver();
      await other.probe();
      await other[Symbol.asyncDispose]();
      await other[Symbol.asyncDispose]();
      await assertAnswers(box);
    },
  },
];
