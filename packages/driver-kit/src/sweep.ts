import type { SweepOptions, SweepReport, SweptObject } from "@breakwater/runtime-api";
import type { Deadline } from "./deadline.ts";
import { isLeftover, type ObjectLabels } from "./labels.ts";

/** An object of ours that a backend lists, with the labels that it carries. */
export interface LabelledObject {
  /** In the backend's word, for instance `container`. */
  readonly kind: string;
  readonly id: string;
  readonly labels: ObjectLabels;
  /** Removes it, and resolves when it is gone. */
  readonly remove: () => Promise<unknown>;
}

/** What `RuntimeDriver.sweep` does with objects that have owners: removes what dead or expired ones left, and nothing else. */
export async function sweepObjects(
  objects: Iterable<LabelledObject> | AsyncIterable<LabelledObject>,
  clock: Deadline,
  options?: SweepOptions,
): Promise<SweepReport> {
  const removed: SweptObject[] = [];
  const kept: SweptObject[] = [];
  const failed: (SweptObject & { readonly reason: string })[] = [];
  for await (const { kind, id, labels, remove } of objects) {
    const object: SweptObject = { kind, id, trial: labels.trial };
    if (!isLeftover(labels)) {
      kept.push(object);
      continue;
    }
    try {
      if (options?.dryRun !== true) await remove();
      removed.push(object);
    } catch (error) {
      clock.throwIfOver();
      failed.push({ ...object, reason: (error as Error).message });
    }
  }
  return { removed, kept, failed };
}
