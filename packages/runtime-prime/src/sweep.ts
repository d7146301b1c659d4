import { type Deadline, type LabelledObject, parseLabels, sweepObjects } from "@breakwater/driver-kit";
import type { SweepOptions, SweepReport } from "@breakwater/runtime-api";
import type { Service } from "./service.ts";
import { removeUntilGone } from "./teardown.ts";
import { BOX_LABEL, fromServiceLabels, ROLE_LABEL } from "./translate.ts";

/** Deletes the sandboxes of dead or expired owners. */
export async function sweep(service: Service, clock: Deadline, options?: SweepOptions): Promise<SweepReport> {
  const objects: LabelledObject[] = [];
  for (const { id, labels: written, status } of await service.listActive(clock, [ROLE_LABEL])) {
    const named = fromServiceLabels(written);
    const labels = parseLabels(named);
    const box = named[BOX_LABEL];
    if (labels === null || box === undefined) continue;
    const removal = { label: `${BOX_LABEL}=${box}`, hasRun: status === "RUNNING" };
    objects.push({ kind: "sandbox", id, labels, remove: () => removeUntilGone(service, clock, id, removal) });
  }
  return sweepObjects(objects, clock, options);
}
