import type { SweepOptions, SweepReport } from "@breakwater/runtime-api";
import { type Deadline, type LabelledObject, parseLabels, sweepObjects } from "@breakwater/driver-kit";
import type { Cluster } from "./cluster.ts";
import { listPods } from "./pods.ts";
import { removeUntilGone } from "./teardown.ts";
import { LABEL, MANAGED_BY } from "./translate.ts";

/** Removes the pods that dead or expired owners left. The network policies are the namespace's, and stay. */
export async function sweep(cluster: Cluster, clock: Deadline, options?: SweepOptions): Promise<SweepReport> {
  const objects: LabelledObject[] = [];
  for (const { metadata } of await listPods(cluster, clock, `${LABEL.managedBy}=${MANAGED_BY}`)) {
    const labels = parseLabels(metadata?.annotations);
    const { name, uid } = metadata ?? {};
    if (labels === null || name === undefined || uid === undefined) continue;
    objects.push({ kind: "pod", id: uid, labels, remove: () => removeUntilGone(cluster, clock, { name, uid }) });
  }
  return sweepObjects(objects, clock, options);
}
