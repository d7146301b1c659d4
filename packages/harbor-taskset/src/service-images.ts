import type { PreparedImage, ServiceSpec } from "@breakwater/runtime-api";

import type { BoxKind } from "./boxes.ts";
import type { PlannedImage, PlannedService } from "./plan.ts";
import type { Trial, TrialRecord } from "./trial.ts";

/** Of each trial, by what they are made from. */
const prepared = new WeakMap<TrialRecord, Map<string, string>>();

type Prepare = (trial: Trial, of: BoxKind, image: PlannedImage, timeoutMs: number) => Promise<PreparedImage>;

/** The services of a box with their images, which are at hand and pinned then. */
export async function prepareServices(
  trial: Trial,
  of: BoxKind,
  planned: { readonly services: readonly PlannedService[]; readonly imageTimeoutMs: number },
  prepare: Prepare,
): Promise<readonly ServiceSpec[]> {
  const known = prepared.get(trial.record) ?? new Map<string, string>();
  prepared.set(trial.record, known);
  const services: ServiceSpec[] = [];
  for (const { image, spec } of planned.services) {
    const source = JSON.stringify(image);
    const id = known.get(source) ?? (await prepare(trial, of, image, planned.imageTimeoutMs)).id;
    known.set(source, id);
    services.push({ ...spec, image: id });
  }
  return services;
}
