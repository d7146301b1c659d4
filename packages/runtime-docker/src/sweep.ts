import type { SweepReport, SweptObject } from "@breakwater/runtime-api";
import { type Deadline, isLeftover, LABELS, parseLabels } from "@breakwater/driver-kit";
import type { Engine } from "./engine.ts";
import { listNetworks, removeNetworkIfUnused } from "./networks.ts";
import { removeUntilGone } from "./teardown.ts";
import { BOX_LABEL } from "./translate.ts";

/** The part of the engine's list of containers that counts. */
interface ContainerSummary {
  readonly Id: string;
  readonly Names?: readonly string[] | null;
  readonly Labels?: Readonly<Record<string, string>> | null;
}

/** Removes what dead or expired owners left: boxes, and bridges that nothing uses any more. */
export async function sweep(engine: Engine, clock: Deadline, dryRun: boolean): Promise<SweepReport> {
  const removed: SweptObject[] = [];
  const kept: SweptObject[] = [];
  const failed: (SweptObject & { readonly reason: string })[] = [];

  for (const container of await listBoxes(engine, clock)) {
    const labels = parseLabels(container.Labels);
    if (labels === null) continue;
    const box: SweptObject = { kind: "container", id: container.Id, trial: labels.trial };
    if (!isLeftover(labels)) {
      kept.push(box);
      continue;
    }
    try {
      if (!dryRun) await removeUntilGone(engine, clock, container.Id);
      removed.push(box);
    } catch (error) {
      failed.push({ ...box, reason: (error as Error).message });
    }
  }

  for (const network of await listNetworks(engine, clock)) {
    const bridge: SweptObject = { kind: "network", id: network.Id, trial: null };
    try {
      const outcome = await removeNetworkIfUnused(engine, clock, network.Id, { dryRun });
      (outcome === "removed" ? removed : kept).push(bridge);
    } catch (error) {
      failed.push({ ...bridge, reason: (error as Error).message });
    }
  }
  return { removed, kept, failed };
}

/** Every box of this driver, whoever owns it. A container made of an image of a box has a box's labels, but not its name. */
export async function listBoxes(engine: Engine, clock: Deadline): Promise<readonly ContainerSummary[]> {
  const containers = await engine.json<readonly ContainerSummary[]>(clock, {
    method: "GET",
    path: "/containers/json",
    query: { all: true, filters: { label: [`${LABELS.role}=box`] } },
  });
  return containers.filter(({ Names, Labels }) => (Names ?? []).includes(`/${Labels?.[BOX_LABEL] ?? ""}`));
}
