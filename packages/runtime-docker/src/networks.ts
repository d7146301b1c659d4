import { randomBytes } from "node:crypto";
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
/** Which of a role's bridges this is: what the option `publicNetwork` says. */
const BRIDGE_LABEL = "breakwater.bridge";

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

  /** Whether somebody removed the bridge of this id. It is made anew then. */
  async wasRemoved(clock: Deadline, id: string): Promise<boolean> {
    if (await this.#exists(clock, id)) return false;
    await this.forget(id);
    return true;
  }

  /** To be called when the engine says that there is no such network: somebody removed it. */
  async forget(id: string): Promise<void> {
    const asked = this.#id;
    if ((await asked?.catch(() => undefined)) === id && this.#id === asked) this.#id = undefined;
  }

  async #exists(clock: Deadline, id: string): Promise<boolean> {
    try {
      await this.#engine.done(clock, { method: "GET", path: `/networks/${id}` });
      return true;
    } catch (error) {
      if (isStatus(error, 404)) return false;
      throw error;
    }
  }

  /** Removes the bridge, and others that were made at the same moment, if nothing is attached to them. */
  async removeIfUnused(clock: Deadline): Promise<void> {
    for (const network of await this.#all(clock)) await removeNetworkIfUnused(this.#engine, clock, this.#idOf(network));
  }

  /** The bridges that everybody would take, the oldest first. */
  async #all(clock: Deadline): Promise<readonly NetworkInspection[]> {
    const networks = await listNetworks(this.#engine, clock);
    const ours = networks.filter(({ Labels }) => Labels?.[BRIDGE_LABEL] === this.#name);
    return ours.toSorted((a, b) => (a.Created ?? "").localeCompare(b.Created ?? "") || a.Id.localeCompare(b.Id));
  }

  async #ensure(clock: Deadline): Promise<string> {
    const [found] = await this.#all(clock);
    if (found !== undefined) return this.#check(found);
    // Never twice the same name: two makers at one moment would get two networks of it, and then an engine starts no box on either, whatever
    // id it is given (seen on 20.10).
    const name = this.#isShared ? `${this.#name}-${randomBytes(4).toString("hex")}` : this.#name;
    const made = await this.#create(clock, name);
    const all = await this.#all(clock);
    const [oldest] = all;
    if (oldest === undefined) throw this.#unusable("was removed by something else");
    // Somebody was faster, so ours is not needed. A box that was put on it meanwhile keeps it.
    const own = all.find(({ Id }) => Id === made);
    if (own !== undefined && own !== oldest) await removeNetworkIfUnused(this.#engine, clock, this.#idOf(own));
    return this.#check(oldest);
  }

  /** Gives its id. Throws `ERR_BACKEND_QUOTA` where no addresses are left for one more network. */
  async #create(clock: Deadline, name: string): Promise<string> {
    const body = {
      Name: name,
      CheckDuplicate: true,
      Driver: "bridge",
      Internal: false,
      ...(this.#isShared ? { Options: NO_TRAFFIC_BETWEEN_BOXES } : {}),
      Labels: { [LABELS.role]: NETWORK_ROLE, [BRIDGE_LABEL]: this.#name },
    };
    try {
      const call = { method: "POST", path: "/networks/create", body } as const;
      return (await this.#engine.json<{ readonly Id: string }>(clock, call)).Id;
    } catch (error) {
      // The call names nothing that could be missing or wrong but an address pool, which the engine chooses: 404 of Docker 20.10 [seen], 400 of newer ones.
      if (!isStatus(error, 400, 404)) throw error;
      throw new RuntimeError({
        code: "ERR_BACKEND_QUOTA",
        driver: DRIVER,
        operation: "start",
        message: `the engine has no addresses for the network ${name} (${error.detail}); remove networks that nobody needs, or give it more address pools`,
        retryable: true,
        cause: error,
      });
    }
  }

  #idOf(network: NetworkInspection): string {
    return this.#isShared ? network.Id : network.Name;
  }

  #check(network: NetworkInspection): string {
    const isolated =
      !this.#isShared ||
      Object.entries(NO_TRAFFIC_BETWEEN_BOXES).every(([key, value]) => network.Options?.[key] === value);
    if (isolated && network.Driver === "bridge" && network.Internal !== true) return this.#idOf(network);
    throw this.#unusable("is not the bridge without traffic between boxes that it has to be; remove it");
  }

  #unusable(what: string): RuntimeError {
    return new RuntimeError({
      code: "ERR_BACKEND",
      driver: DRIVER,
      operation: "start",
      message: `the network ${this.#name} ${what}, or choose another name with the option publicNetwork`,
    });
  }
}

/** Every network of ours in one role. */
export async function listNetworks(
  engine: Engine,
  clock: Deadline,
  role: string = NETWORK_ROLE,
): Promise<readonly NetworkInspection[]> {
  return engine.json(clock, {
    method: "GET",
    path: "/networks",
    query: { filters: { label: [`${LABELS.role}=${role}`] } },
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
