import { RuntimeError } from "@breakwater/runtime-api";
import { type Deadline, LABELS } from "@breakwater/driver-kit";
import { type Engine, operate } from "./engine.ts";
import { DRIVER, isStatus } from "./errors.ts";

/** The part of the engine's description of a network that counts. */
export interface NetworkInspection {
  readonly Id: string;
  readonly Name: string;
  readonly Created?: string;
  readonly Driver?: string;
  readonly Internal?: boolean;
  readonly Labels?: Readonly<Record<string, string>> | null;
  readonly Options?: Readonly<Record<string, string>> | null;
}

/** Boxes on the bridge cannot reach each other. */
const NO_TRAFFIC_BETWEEN_BOXES = { "com.docker.network.bridge.enable_icc": "false" } as const;

/** The role of the shared bridge in its labels. It has no owner: whoever finds it unused may remove it. */
export const NETWORK_ROLE = "network";

/**
 * The bridge of boxes with the policy `public`. On Docker all of them share one: it runs out of address pools after some thirty networks, and can keep
 * boxes on a bridge apart. Podman cannot, and keeps its bridges apart, so there each box has its own.
 */
export class PublicNetwork {
  readonly #engine: Engine;
  readonly #name: string;
  readonly #isShared: boolean;
  #id: Promise<string> | undefined;

  constructor(engine: Engine, name: string, { isShared }: { readonly isShared: boolean }) {
    this.#engine = engine;
    this.#name = name;
    this.#isShared = isShared;
  }

  /** Whether anybody asked for the bridge. */
  get used(): boolean {
    return this.#id !== undefined;
  }

  /** What the engine calls the bridge in its descriptions of boxes: its id, in Podman's its name. It is made when there is none. */
  async id(clock: Deadline): Promise<string> {
    // On a clock of its own: the box that asked first may be given up while others wait.
    this.#id ??= operate(
      undefined,
      { operation: "start", what: "making the public network", subject: "network" },
      (own) => this.#ensure(own),
    ).catch((error: unknown) => {
      this.#id = undefined;
      throw error;
    });
    return clock.race(this.#id);
  }

  /** To be called when the engine says that there is no such network: somebody removed it. */
  forget(id: string): void {
    this.#id?.then(
      (known) => {
        if (known === id) this.#id = undefined;
      },
      () => undefined,
    );
  }

  /** Whether the bridge of this id is still there. */
  async exists(clock: Deadline, id: string): Promise<boolean> {
    try {
      await this.#engine.done(clock, { method: "GET", path: `/networks/${id}` });
      return true;
    } catch (error) {
      if (isStatus(error, 404)) return false;
      throw error;
    }
  }

  /** Removes the bridge if nothing is attached to it. Gives its id if it is gone now. */
  async removeIfUnused(clock: Deadline): Promise<string | null> {
    const found = await this.find(clock);
    if (found === null) return null;
    return (await removeNetworkIfUnused(this.#engine, clock, this.#idOf(found))) === "removed" ? found.Id : null;
  }

  /** The bridge as it is. Engines allow several networks of one name: everybody takes the oldest. */
  async find(clock: Deadline): Promise<NetworkInspection | null> {
    return (await this.#all(clock))[0] ?? null;
  }

  /** Oldest first. */
  async #all(clock: Deadline): Promise<readonly NetworkInspection[]> {
    const networks = await listNetworks(this.#engine, clock);
    const ours = networks.filter((network) => network.Name === this.#name);
    ours.sort((a, b) => (a.Created ?? "").localeCompare(b.Created ?? "") || a.Id.localeCompare(b.Id));
    return ours;
  }

  async #ensure(clock: Deadline): Promise<string> {
    const found = await this.#only(clock);
    if (found !== null) return this.#check(found);
    try {
      await this.#engine.json(clock, {
        method: "POST",
        path: "/networks/create",
        body: {
          Name: this.#name,
          CheckDuplicate: true,
          Driver: "bridge",
          Internal: false,
          ...(this.#isShared ? { Options: NO_TRAFFIC_BETWEEN_BOXES } : {}),
          Labels: { [LABELS.role]: NETWORK_ROLE },
        },
      });
    } catch (error) {
      // Somebody else was faster, or the name belongs to a network that is not ours: the next look tells.
      if (!isStatus(error, 409)) throw error;
    }
    const made = await this.#only(clock);
    if (made !== null) return this.#check(made);
    throw new RuntimeError({
      code: "ERR_BACKEND",
      driver: DRIVER,
      operation: "start",
      message: `the network ${this.#name} cannot be had: a network of that name exists that is not ours; remove it, or choose another name with the option publicNetwork`,
    });
  }

  /**
   * The oldest; the others, which somebody made at the same moment, are removed: an engine that has two of a name starts no box on either, whatever id it is
   * given (seen on 20.10). On Podman names are the boxes' own.
   */
  async #only(clock: Deadline): Promise<NetworkInspection | null> {
    const [oldest, ...others] = await this.#all(clock);
    for (const other of others) {
      if (this.#isShared) await removeNetworkIfUnused(this.#engine, clock, other.Id).catch(() => undefined);
    }
    return oldest ?? null;
  }

  #idOf(network: NetworkInspection): string {
    return this.#isShared ? network.Id : network.Name;
  }

  #check(network: NetworkInspection): string {
    const isolated =
      !this.#isShared ||
      Object.entries(NO_TRAFFIC_BETWEEN_BOXES).every(([key, value]) => network.Options?.[key] === value);
    if (isolated && network.Driver === "bridge" && network.Internal !== true) return this.#idOf(network);
    throw new RuntimeError({
      code: "ERR_BACKEND",
      driver: DRIVER,
      operation: "start",
      message: `the network ${this.#name} is not the bridge without traffic between boxes that it has to be; remove it, or choose another name with the option publicNetwork`,
    });
  }
}

/** Every network of ours. */
export async function listNetworks(engine: Engine, clock: Deadline): Promise<readonly NetworkInspection[]> {
  return engine.json(clock, {
    method: "GET",
    path: "/networks",
    query: { filters: { label: [`${LABELS.role}=${NETWORK_ROLE}`] } },
  });
}

/**
 * Removes a network unless a container belongs to it, also one that does not run yet. The engine itself refuses only for running ones.
 * With `dryRun` it only says what would happen.
 */
export async function removeNetworkIfUnused(
  engine: Engine,
  clock: Deadline,
  id: string,
  { dryRun = false }: { readonly dryRun?: boolean } = {},
): Promise<"removed" | "used"> {
  const isUsed = async (): Promise<boolean> => {
    const query = { all: true, filters: { network: [id] } };
    const users = await engine.json<readonly unknown[]>(clock, { method: "GET", path: "/containers/json", query });
    return users.length > 0;
  };
  if (await isUsed()) return "used";
  if (dryRun) return "removed";
  try {
    await engine.done(clock, { method: "DELETE", path: `/networks/${id}` });
  } catch (error) {
    // In use after all: Docker answers 403, Podman 409 or, before version 5, 500.
    if (isStatus(error, 403, 409) || (isStatus(error, 500) && (await isUsed()))) return "used";
    if (!isStatus(error, 404)) throw error;
  }
  return "removed";
}
