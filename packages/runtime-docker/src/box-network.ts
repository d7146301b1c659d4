import { type NetworkPolicy, RuntimeError, type RuntimeSpec } from "@breakwater/runtime-api";
import { type Deadline, type HelperContext, interfaces } from "@breakwater/driver-kit";
import type { Engine } from "./engine.ts";
import { DRIVER, isStatus } from "./errors.ts";
import { PublicNetwork } from "./networks.ts";
import { type ContainerInspection, inspectContainer } from "./teardown.ts";

/** The network of one box, from before it is made until it is gone. */
export class BoxNetwork {
  readonly #boxId: string;
  readonly #spec: RuntimeSpec;
  readonly #engine: Engine;
  readonly #shared: PublicNetwork;
  #bridge: PublicNetwork;
  #policy: NetworkPolicy;

  constructor(boxId: string, spec: RuntimeSpec, engine: Engine, shared: PublicNetwork) {
    this.#boxId = boxId;
    this.#spec = spec;
    this.#engine = engine;
    this.#shared = shared;
    this.#bridge = shared;
    this.#policy = spec.network.initial;
  }

  /** For engines that cannot keep boxes apart on one bridge. */
  useOwnBridge(): void {
    this.#bridge = new PublicNetwork(this.#engine, this.#boxId, { isShared: false });
  }

  /** The engine's network mode for the box that is to be made. */
  async modeAtCreate(clock: Deadline): Promise<string> {
    return this.#onBridge ? this.#bridge.id(clock) : "none";
  }

  /**
   * For a box that was made and does not run yet. Where the policy may become "public" later the box is made on the bridge and taken off it before
   * it runs: engines refuse to connect a box that was made without any network.
   */
  async beforeStart(clock: Deadline, container: string): Promise<void> {
    if (this.#policy.mode === "no-network" && this.#onBridge) await this.#disconnect(clock, container);
  }

  /** Whether somebody removed the bridge since it was asked for. It is made anew then. */
  async wasRemoved(clock: Deadline): Promise<boolean> {
    if (!this.#onBridge) return false;
    const network = await this.#bridge.id(clock);
    if (await this.#bridge.exists(clock, network)) return false;
    this.#bridge.forget(network);
    return true;
  }

  /** To be called with what `modeAtCreate` gave when the engine says that there is no such network. */
  forget(networkMode: string): void {
    if (networkMode !== "none") this.#bridge.forget(networkMode);
  }

  /** Changes the policy. Whether it holds is for the two checks to say. */
  async set(policy: NetworkPolicy, clock: Deadline, container: string): Promise<void> {
    const before = await inspectContainer(this.#engine, clock, container);
    if (before === null) return;
    if (policy.mode === "public") await this.#connect(clock, container, before);
    else if (attachedNetworks(before).length > 0) await this.#disconnect(clock, container);
    this.#policy = policy;
  }

  /** Reads back what the box is attached to: anything but the expected set is fatal. */
  async check(clock: Deadline, inspection: ContainerInspection): Promise<void> {
    const attached = attachedNetworks(inspection);
    const expected = this.#policy.mode === "public" ? [await this.#bridge.id(clock)] : [];
    if (attached.length === expected.length && attached.every((network) => expected.includes(network))) return;
    const names = Object.keys(inspection.NetworkSettings?.Networks ?? {});
    throw this.#notInForce(`the engine says that the box is attached to ${JSON.stringify(names)}`);
  }

  /** The box's own view: which interfaces there are. */
  async checkInside(inside: HelperContext, clock: Deadline): Promise<void> {
    const names = await interfaces(inside, { signal: clock.signal });
    const others = names.filter((name) => name !== "lo");
    if (names.includes("lo") && (this.#policy.mode === "public" ? others.length > 0 : others.length === 0)) return;
    throw this.#notInForce(`the box has the interfaces ${names.join(", ")}`);
  }

  /** When the box is gone: nothing is attached to a bridge of its own any more. What cannot be removed now, sweep finds. */
  async remove(clock: Deadline): Promise<void> {
    if (this.#bridge === this.#shared || !this.#bridge.used) return;
    await this.#bridge.removeIfUnused(clock).catch(() => undefined);
  }

  /** Whether the box was made on the bridge. */
  get #onBridge(): boolean {
    return [this.#spec.network.initial, ...this.#spec.network.later].some(({ mode }) => mode === "public");
  }

  async #connect(clock: Deadline, container: string, before: ContainerInspection): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      const network = await this.#bridge.id(clock);
      if (attachedNetworks(before).includes(network)) return;
      try {
        const body = { Container: container };
        await this.#engine.done(clock, { method: "POST", path: `/networks/${network}/connect`, body });
        return;
      } catch (error) {
        if (!isStatus(error, 404) || attempt > 1) throw error;
        this.#bridge.forget(network);
      }
    }
  }

  async #disconnect(clock: Deadline, container: string): Promise<void> {
    const inspection = await inspectContainer(this.#engine, clock, container);
    for (const network of Object.keys(inspection?.NetworkSettings?.Networks ?? {})) {
      await this.#engine.done(clock, {
        method: "POST",
        path: `/networks/${encodeURIComponent(network)}/disconnect`,
        body: { Container: container, Force: true },
      });
    }
  }

  #notInForce(seen: string): RuntimeError {
    return new RuntimeError({
      code: "ERR_NETWORK_CHANGE",
      driver: DRIVER,
      operation: "setNetwork",
      boxId: this.#boxId,
      message: `the policy is ${this.#policy.mode}, and ${seen}`,
    });
  }
}

function attachedNetworks(inspection: ContainerInspection): readonly string[] {
  // Docker lists the absence of a network as the network "none".
  return Object.entries(inspection.NetworkSettings?.Networks ?? {})
    .filter(([name]) => name !== "none")
    .map(([name, network]) => network.NetworkID || name);
}
