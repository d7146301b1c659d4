import { BOX_HELPER_PATH } from "@breakwater/box-helper";
import {
  type EgressReport,
  type NetworkPolicy,
  type Proof,
  RuntimeError,
  type RuntimeSpec,
} from "@breakwater/runtime-api";
import { type Deadline, type HelperContext, labelsFor, settlesWithin } from "@breakwater/driver-kit";
import type { BoxContext } from "./box.ts";
import { BoxNetwork } from "./box-network.ts";
import { type Engine, operate } from "./engine.ts";
import { DRIVER, isStatus } from "./errors.ts";
import { type ContainerInspection, inspectContainer, removeUntilGone } from "./teardown.ts";
import { BOX_LABEL, ownContainer } from "./translate.ts";

/** The role of a network's keeper in its labels. */
export const KEEPER_ROLE = "network-keeper";

const CREATE_TIMEOUT_MS = 2 * 60 * 1000;
const MEMORY_BYTES = 64 * 1024 * 1024;
const LOOPBACK = "127.0.0.1";

/** What a box does with its network. */
export type NetworkOfBox = Pick<BoxNetwork, keyof BoxNetwork>;

/** The name of the keeper of a box's network. */
export function keeperName(boxId: string): string {
  return `${boxId}-network`;
}

/**
 * The one network of a box and of the services beside it: a namespace that belongs to a container of its own, the keeper, which runs nothing but our hold
 * and outlives each of them. A policy is in force for all who join it, because there is only one way out or none; they meet on its loopback, where their
 * names lead. See docs/decisions/0016-services.md.
 */
export class SharedNetwork {
  readonly #boxId: string;
  readonly #spec: RuntimeSpec;
  readonly #names: readonly string[];
  readonly #context: BoxContext;
  readonly #engine: Engine;
  readonly #network: BoxNetwork;
  #creating: Promise<unknown> | null = null;
  #policy: NetworkPolicy;

  /** `names` lead to the loopback. */
  constructor(boxId: string, spec: RuntimeSpec, names: readonly string[], context: BoxContext) {
    this.#boxId = boxId;
    this.#spec = spec;
    this.#names = names;
    this.#context = context;
    this.#engine = context.engine;
    this.#network = new BoxNetwork(boxId, spec, context.network);
    this.#policy = spec.network.initial;
  }

  /** Makes it, under the first policy. */
  async open(clock: Deadline, lifetimeMs: number): Promise<void> {
    const keeper = keeperName(this.#boxId);
    for (let attempt = 1; ; attempt++) {
      try {
        await this.#create(clock, keeper, lifetimeMs);
        await this.#engine.done(clock, {
          method: "PUT",
          path: `/containers/${keeper}/archive`,
          query: { path: "/" },
          file: await this.#context.helperArchive(),
        });
        await this.#network.beforeStart(clock, keeper);
        await this.#engine.done(clock, { method: "POST", path: `/containers/${keeper}/start` });
        break;
      } catch (error) {
        clock.throwIfOver();
        // Somebody found the bridge unused and removed it: from the beginning, once.
        if (attempt > 1 || !(await this.#network.wasRemoved(clock))) throw error;
        await removeUntilGone(this.#engine, clock, keeper);
      }
    }
    await this.check(clock);
    await this.#network.afterStart(clock, keeper);
  }

  async #create(clock: Deadline, name: string, lifetimeMs: number): Promise<void> {
    const { images } = this.#context;
    const { image } = this.#spec;
    const { id } = await images.findOrPull(clock, image);
    const mode = await this.#network.modeAtCreate(clock);
    const nameServers = await this.#network.nameServers(clock);
    clock.throwIfOver();
    const labels = labelsFor({ role: KEEPER_ROLE, trial: this.#spec.trial, expiresAtMs: Date.now() + lifetimeMs });
    const body = {
      // Only our helper runs, so any image serves; this one is at hand.
      Image: id,
      Labels: { ...labels, [BOX_LABEL]: this.#boxId },
      Entrypoint: [BOX_HELPER_PATH, "hold", "--lifetime-ms", String(lifetimeMs)],
      Cmd: [],
      User: "0:0",
      WorkingDir: "/",
      Healthcheck: { Test: ["NONE"] },
      HostConfig: {
        ...ownContainer(MEMORY_BYTES),
        NetworkMode: mode,
        ...(nameServers.length === 0 ? {} : { Dns: [...nameServers] }),
        ExtraHosts: this.#names.map((one) => `${one}:${LOOPBACK}`),
      },
    };
    // The engine finishes a create call whose caller has gone. So the call has a clock of its own, and is waited for.
    const doing = {
      operation: "start",
      what: "creating the box's network",
      boxId: this.#boxId,
      subject: "other",
    } as const;
    const call = { method: "POST", path: "/containers/create", query: { name }, body } as const;
    this.#creating = operate(undefined, doing, (own) => this.#engine.json(own, call), CREATE_TIMEOUT_MS);
    try {
      await this.#creating;
    } catch (error) {
      const { cause } = error as { cause?: unknown };
      if (isStatus(cause, 404)) await this.#network.forget();
      throw error;
    }
    clock.throwIfOver();
  }

  /** What a box that joins is created with. */
  get mode(): string {
    return `container:${keeperName(this.#boxId)}`;
  }

  /** Reads back what the keeper is attached to: anything but the expected set is fatal. */
  async check(clock: Deadline): Promise<void> {
    await this.#network.check(clock, await this.#keeper(clock));
  }

  async checkInside(inside: HelperContext, clock: Deadline): Promise<void> {
    await this.#network.checkInside(inside, clock);
  }

  async set(policy: NetworkPolicy, clock: Deadline): Promise<void> {
    await this.#network.set(policy, clock, keeperName(this.#boxId));
    this.#policy = policy;
  }

  /** `ERR_NETWORK_LOST` when the keeper, or what enforces the policy, has ended. */
  async assertHeld(clock: Deadline): Promise<void> {
    await this.#keeper(clock);
    await this.#network.assertHeld(clock);
  }

  get egressReport(): EgressReport | null {
    return this.#network.egressReport;
  }

  /** What the policy that is in force adds to the environment of every program. Those who share it do not reach each other by a proxy. */
  get environment(): Readonly<Record<string, string>> {
    const env = this.#network.environmentFor(this.#policy);
    const direct = Object.entries(env).filter(([name]) => name.toLowerCase() === "no_proxy");
    return { ...env, ...Object.fromEntries(direct.map(([name, hosts]) => [name, [hosts, ...this.#names].join(",")])) };
  }

  async #keeper(clock: Deadline): Promise<ContainerInspection> {
    const keeper = await inspectContainer(this.#engine, clock, keeperName(this.#boxId));
    if (keeper?.State.Running === true) return keeper;
    throw new RuntimeError({
      code: "ERR_NETWORK_LOST",
      driver: DRIVER,
      operation: "exec",
      boxId: this.#boxId,
      message: `the keeper of the box's network ${keeper === null ? "was removed" : "has ended"}: the box and its services reach nothing any more; see the engine's log`,
    });
  }

  /** Before those who joined are removed: what else lives in the namespace goes first. */
  async close(clock: Deadline): Promise<void> {
    await this.#network.close(clock);
  }

  /** When those who joined are gone. `null` = nothing was made. */
  async remove(clock: Deadline): Promise<Proof | null> {
    if (this.#creating === null) return null;
    await settlesWithin(this.#creating, clock.remainingMs());
    const proof = await removeUntilGone(this.#engine, clock, keeperName(this.#boxId));
    await this.#network.remove(clock);
    return proof;
  }
}

/** The network of one that has joined: made, changed and removed elsewhere. */
export class JoinedNetwork implements NetworkOfBox {
  readonly #shared: SharedNetwork;

  constructor(shared: SharedNetwork) {
    this.#shared = shared;
  }

  useOwnBridge(): void {}

  modeAtCreate(): Promise<string> {
    return Promise.resolve(this.#shared.mode);
  }

  /** As the keeper's. */
  nameServers(): Promise<readonly string[]> {
    return Promise.resolve([]);
  }

  async beforeStart(): Promise<void> {}

  async afterStart(): Promise<void> {}

  wasRemoved(): Promise<boolean> {
    return Promise.resolve(false);
  }

  async forget(): Promise<void> {}

  async set(policy: NetworkPolicy, clock: Deadline): Promise<void> {
    await this.#shared.set(policy, clock);
  }

  async assertHeld(clock: Deadline): Promise<void> {
    await this.#shared.assertHeld(clock);
  }

  get egressReport(): EgressReport | null {
    return this.#shared.egressReport;
  }

  /** A change is asked of the main box, and concerns all who share its network. */
  environmentFor(): Readonly<Record<string, string>> {
    return this.#shared.environment;
  }

  async check(clock: Deadline): Promise<void> {
    await this.#shared.check(clock);
  }

  async checkInside(inside: HelperContext, clock: Deadline): Promise<void> {
    await this.#shared.checkInside(inside, clock);
  }

  async close(): Promise<void> {}

  async remove(): Promise<void> {}
}
