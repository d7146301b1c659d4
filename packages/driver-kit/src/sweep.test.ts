import { expect, it } from "vitest";
import { deadline } from "./deadline.ts";
import { currentOwner } from "@breakwater/runtime-api";
import { sweepObjects, type LabelledObject } from "./sweep.ts";

const gone: string[] = [];

function object(id: string, owner: "live" | "dead", remove?: () => Promise<void>): LabelledObject {
  const here = currentOwner();
  const labels = {
    role: "box",
    trial: `trial of ${id}`,
    expiresAtMs: Date.now() + 60_000,
    // No process of this machine starts before it.
    owner: owner === "live" ? here : { ...here, session: "another", startedAt: "0" },
  };
  return { kind: "box", id, labels, remove: remove ?? (async () => void gone.push(id)) };
}

it("removes what dead owners left and goes on when something cannot be removed", async () => {
  using clock = deadline(undefined, 10_000, { driver: "test", operation: "sweep", what: "sweeping" });
  const stuck = object("stuck", "dead", async () => {
    throw new Error("in use");
  });
  const objects = [object("live", "live"), stuck, object("dead", "dead")];
  const swept = (id: string): object => ({ kind: "box", id, trial: `trial of ${id}` });

  expect(await sweepObjects(objects, clock, { dryRun: true })).toEqual({
    removed: [swept("stuck"), swept("dead")],
    kept: [swept("live")],
    failed: [],
  });
  expect(gone).toEqual([]);

  expect(await sweepObjects(objects, clock)).toEqual({
    removed: [swept("dead")],
    kept: [swept("live")],
    failed: [{ ...swept("stuck"), reason: "in use" }],
  });
  expect(gone).toEqual(["dead"]);
});
