import { type Deadline, isLeftover, parseLabels } from "@breakwater/driver-kit";
import type { SweepReport, SweptObject } from "@breakwater/runtime-api";
import type { Service } from "./service.ts";
import { removeUntilGone } from "./teardown.ts";
import { BOX_LABEL, fromServiceLabels, ROLE_LABEL } from "./translate.ts";

/** Deletes the sandboxes of dead or expired owners. */
export async function sweep(service: Service, clock: Deadline, dryRun: boolean): Promise<SweepReport> {
  const removed: SweptObject[] = [];
  const kept: SweptObject[] = [];
  const failed: (SweptObject & { readonly reason: string })[] = [];
  for (const sandbox of await service.listActive(clock, [ROLE_LABEL])) {
    const named = fromServiceLabels(sandbox.labels);
    const labels = parseLabels(named);
    const id = named[BOX_LABEL];
    if (labels === null || id === undefined) continue;
    const box: SweptObject = { kind: "sandbox", id: sandbox.id, trial: labels.trial };
    if (!isLeftover(labels)) {
      kept.push(box);
      continue;
    }
    try {
      const removal = { label: `${BOX_LABEL}=${id}`, hasRun: sandbox.status === "RUNNING" };
      if (!dryRun) await removeUntilGone(service, clock, sandbox.id, removal);
      removed.push(box);
    } catch (error) {
      failed.push({ ...box, reason: (error as Error).message });
    }
  }
  return { removed, kept, failed };
}
