import type { SweepOptions, SweepReport, SweptObject } from "@breakwater/runtime-api";
import { type Deadline, type LabelledObject, LABELS, parseLabels, sweepObjects } from "@breakwater/driver-kit";
import { FORWARDER_ROLE, forwarderName } from "./egress.ts";
import type { Engine } from "./engine.ts";
import { GATEWAY_NAME_PREFIX, GATEWAY_ROLE, removeVolume } from "./gateway.ts";
import { listNetworks, removeNetworkIfUnused } from "./networks.ts";
import { removeServiceNetwork, SERVICE_NETWORK_ROLE } from "./service-networks.ts";
import { SERVICE_ROLE } from "./services.ts";
import { KEEPER_ROLE, keeperName } from "./shared-network.ts";
import { removeUntilGone } from "./teardown.ts";
import { BOX_LABEL } from "./translate.ts";
import { VOLUME_ROLE } from "./volumes.ts";

/** The part of the engine's list of containers that counts. */
interface ContainerSummary {
  readonly Id: string;
  readonly Names?: readonly string[] | null;
  readonly Labels?: Readonly<Record<string, string>> | null;
}

interface VolumeSummary {
  readonly Name: string;
  readonly Labels?: Readonly<Record<string, string>> | null;
}

/**
 * Removes what dead or expired owners left: forwarders before the boxes in whose networks they are, services with their networks and volumes, gateways and
 * their volumes, and bridges that nothing uses any more.
 */
export async function sweep(engine: Engine, clock: Deadline, options?: SweepOptions): Promise<SweepReport> {
  const owned = await sweepObjects(listOwned(engine, clock), clock, options);
  const removed = [...owned.removed];
  const kept = [...owned.kept];
  const failed = [...owned.failed];
  // Bridges have no owner: those that nothing uses are removed.
  for (const { Id: id } of await listNetworks(engine, clock)) {
    const bridge: SweptObject = { kind: "network", id, trial: null };
    try {
      const outcome = await removeNetworkIfUnused(engine, clock, id, { dryRun: options?.dryRun ?? false });
      (outcome === "removed" ? removed : kept).push(bridge);
    } catch (error) {
      failed.push({ ...bridge, reason: (error as Error).message });
    }
  }
  return { removed, kept, failed };
}

/** Everything of ours that has labels, in the order in which it can be removed. */
async function* listOwned(engine: Engine, clock: Deadline): AsyncGenerator<LabelledObject, void, undefined> {
  for (const list of [listForwarders, listServices, listBoxes, listKeepers, listGateways]) {
    for (const { Id: id, Labels } of await list(engine, clock)) {
      const labels = parseLabels(Labels);
      if (labels !== null) yield { kind: "container", id, labels, remove: () => removeUntilGone(engine, clock, id) };
    }
  }
  for (const role of [GATEWAY_ROLE, VOLUME_ROLE]) {
    for (const { Name: id, Labels } of await listVolumes(engine, clock, role)) {
      const labels = parseLabels(Labels);
      if (labels !== null) yield { kind: "volume", id, labels, remove: () => removeVolume(engine, clock, id) };
    }
  }
  for (const { Id: id, Labels } of await listNetworks(engine, clock, SERVICE_NETWORK_ROLE)) {
    const labels = parseLabels(Labels);
    if (labels !== null) yield { kind: "network", id, labels, remove: () => removeServiceNetwork(engine, clock, id) };
  }
}

/** Every box of this driver, whoever owns it. A container made of an image of a box has a box's labels, but not its name. */
export async function listBoxes(engine: Engine, clock: Deadline): Promise<readonly ContainerSummary[]> {
  return listContainers(engine, clock, "box", (name, box) => name === box);
}

async function listServices(engine: Engine, clock: Deadline): Promise<readonly ContainerSummary[]> {
  return listContainers(engine, clock, SERVICE_ROLE, (name, box) => name === box);
}

async function listKeepers(engine: Engine, clock: Deadline): Promise<readonly ContainerSummary[]> {
  return listContainers(engine, clock, KEEPER_ROLE, (name, box) => name === keeperName(box));
}

async function listForwarders(engine: Engine, clock: Deadline): Promise<readonly ContainerSummary[]> {
  return listContainers(engine, clock, FORWARDER_ROLE, (name, box) => name === forwarderName(box));
}

async function listGateways(engine: Engine, clock: Deadline): Promise<readonly ContainerSummary[]> {
  return listContainers(engine, clock, GATEWAY_ROLE, (name) => name.startsWith(GATEWAY_NAME_PREFIX));
}

async function listContainers(
  engine: Engine,
  clock: Deadline,
  role: string,
  isOurs: (name: string, box: string) => boolean,
): Promise<readonly ContainerSummary[]> {
  const containers = await engine.json<readonly ContainerSummary[]>(clock, {
    method: "GET",
    path: "/containers/json",
    query: { all: true, filters: { label: [`${LABELS.role}=${role}`] } },
  });
  return containers.filter(({ Names, Labels }) =>
    (Names ?? []).some((name) => isOurs(name.replace(/^\//, ""), Labels?.[BOX_LABEL] ?? "")),
  );
}

async function listVolumes(engine: Engine, clock: Deadline, role: string): Promise<readonly VolumeSummary[]> {
  const { Volumes: volumes } = await engine.json<{ readonly Volumes: readonly VolumeSummary[] | null }>(clock, {
    method: "GET",
    path: "/volumes",
    query: { filters: { label: [`${LABELS.role}=${role}`] } },
  });
  return volumes ?? [];
}
