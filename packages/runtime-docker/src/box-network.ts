import { type EgressReport, type NetworkPolicy, RuntimeError, type RuntimeSpec } from "@breakwater/runtime-api";
import { PROXY_ENVIRONMENT, RESOLVER_ADDRESS } from "@breakwater/egress-gateway";
import { type Deadline, type HelperContext, interfaces } from "@breakwater/driver-kit";
import { BoxEgress, type EgressContext } from "./egress.ts";
import type { Engine } from "./engine.ts";
import { DRIVER, isStatus } from "./errors.ts";
import { PublicNetwork } from "./networks.ts";
import { type ContainerInspection, inspectContainer } from "./teardown.ts";

/** What the networks of all boxes of a driver have in common. */
export interface NetworkContext {
  readonly engine: Engine;
  /** The bridge that boxes share, where the engine can keep them apart on it. */
  readonly publicNetwork: PublicNetwork;
  readonly egress: EgressContext;
  /** How boxes with the policy `public` get out. */
  readonly publicVia: "bridge" | "gateway";
  /** The name servers that the engine gives to containers outside its named networks: none of them is on its host's loopback. */
  readonly nameServers: (image: string) => Promise<readonly string[]>;
}

/**
 * The network of one box, from before it is made until it is gone. A box with a restricted policy has only its loopback; where the spec has an allowlist,
 * a forwarder listens there in every phase, so that no program of the box can take its ports and a change is one word to the gateway.
 */
export class BoxNetwork {
  readonly #boxId: string;
  readonly #spec: RuntimeSpec;
  readonly #context: NetworkContext;
  readonly #engine: Engine;
  readonly #egress: BoxEgress | null;
  #bridge: PublicNetwork;
  /** What `modeAtCreate` gave. */
  #madeOn = "none";
  #policy: NetworkPolicy;

  constructor(boxId: string, spec: RuntimeSpec, context: NetworkContext) {
    this.#boxId = boxId;
    this.#spec = spec;
    this.#context = context;
    this.#engine = context.engine;
    this.#bridge = context.publicNetwork;
    this.#policy = spec.network.initial;
    const usesGateway = this.#policies.some((policy) => policy.mode !== "no-network" && !this.#isOnBridge(policy));
    this.#egress = usesGateway ? new BoxEgress(boxId, spec, context.egress) : null;
  }

  /** For engines that cannot keep boxes apart on one bridge. */
  useOwnBridge(): void {
    this.#bridge = new PublicNetwork(this.#engine, this.#boxId, { isShared: false });
  }

  /** The engine's network mode for the box that is to be made. */
  async modeAtCreate(clock: Deadline): Promise<string> {
    this.#madeOn = this.#onBridge ? await this.#bridge.id(clock) : "none";
    return this.#madeOn;
  }

  /**
   * The box's name servers, in every phase; empty for the engine's choice. A box that was on Docker's bridge keeps Docker's resolver, which asks servers on the loopback of the
   * engine's host from there, whatever network the box has by then; named servers it asks from within the box. With a forwarder that is the one: it has the gateway's answers.
   */
  async nameServers(clock: Deadline): Promise<readonly string[]> {
    if (this.#egress !== null) return [RESOLVER_ADDRESS];
    const leavesBridge = this.#onBridge && this.#policies.some((policy) => !this.#isOnBridge(policy));
    if (!leavesBridge || this.#hasOwnBridge) return [];
    const servers = await clock.race(this.#context.nameServers(this.#spec.image));
    return servers.length === 0 ? [RESOLVER_ADDRESS] : servers;
  }

  /**
   * For a box that was made and does not run yet. Where the policy may become "public" later the box is made on the bridge and taken off it before
   * it runs: engines refuse to connect a box that was made without any network.
   */
  async beforeStart(clock: Deadline, container: string): Promise<void> {
    if (this.#isOnBridge(this.#policy) || !this.#onBridge) return;
    // Podman sets up a box's network, loopback included, with its first process, which waits then for the start: a box that is taken off the bridge
    // before that has no loopback either.
    if (this.#hasOwnBridge) {
      await this.#engine.done(clock, { method: "POST", path: `/v4.0.0/libpod/containers/${container}/init` });
    }
    const inspection = await inspectContainer(this.#engine, clock, container);
    if (inspection !== null) await this.#disconnect(clock, container, inspection);
  }

  /** For a box that runs. */
  async afterStart(clock: Deadline, container: string): Promise<void> {
    await this.#egress?.open(clock, container, this.#policy, this.#isOnBridge(this.#policy));
  }

  /** Whether somebody removed the bridge that the box was made on. It is made anew then. */
  async wasRemoved(clock: Deadline): Promise<boolean> {
    return this.#madeOn !== "none" && this.#bridge.wasRemoved(clock, this.#madeOn);
  }

  /** To be called when the engine says that there is no such network. */
  async forget(): Promise<void> {
    if (this.#madeOn !== "none") await this.#bridge.forget(this.#madeOn);
  }

  /** Changes the policy: cuts first, opens last. Whether it holds is for the checks to say. */
  async set(policy: NetworkPolicy, clock: Deadline, container: string): Promise<void> {
    const before = await inspectContainer(this.#engine, clock, container);
    if (before === null) return;
    const onBridge = this.#isOnBridge(policy);
    if (!onBridge) await this.#disconnect(clock, container, before);
    await this.#egress?.set(policy, clock, onBridge);
    if (onBridge) await this.#connect(clock, container, before);
    this.#policy = policy;
  }

  /** `ERR_NETWORK_LOST` when what enforces the policy has ended. */
  async assertHeld(clock: Deadline): Promise<void> {
    await this.#egress?.assertHeld(clock);
  }

  /** `null` for a box without an allowlist. */
  get egressReport(): EgressReport | null {
    return this.#egress?.report ?? null;
  }

  /** What a policy adds to the environment of every program. */
  environmentFor({ mode }: NetworkPolicy): Readonly<Record<string, string>> {
    return mode === "allowlist" ? PROXY_ENVIRONMENT : {};
  }

  /** Reads back what the box is attached to: anything but the expected set is fatal. */
  async check(clock: Deadline, inspection: ContainerInspection): Promise<void> {
    const attached = attachedNetworks(inspection).map(([, network]) => network);
    const expected = this.#isOnBridge(this.#policy) ? [await this.#bridge.id(clock)] : [];
    if (attached.length === expected.length && attached.every((network) => expected.includes(network))) return;
    const names = Object.keys(inspection.NetworkSettings?.Networks ?? {});
    throw this.#notInForce(`the engine says that the box is attached to ${JSON.stringify(names)}`);
  }

  /** The box's own view: which interfaces there are. */
  async checkInside(inside: HelperContext, clock: Deadline): Promise<void> {
    const names = await interfaces(inside, { signal: clock.signal });
    const others = names.filter((name) => name !== "lo");
    if (names.includes("lo") && others.length > 0 === this.#isOnBridge(this.#policy)) return;
    throw this.#notInForce(`the box has the interfaces ${names.join(", ")}`);
  }

  /** Before the box is removed: what lives in its network namespace goes first. */
  async close(clock: Deadline): Promise<void> {
    await this.#egress?.close(clock);
  }

  /** When the box is gone: nothing is attached to a bridge of its own any more. What cannot be removed now, sweep finds. */
  async remove(clock: Deadline): Promise<void> {
    if (!this.#hasOwnBridge || !this.#bridge.used) return;
    await this.#bridge.removeIfUnused(clock).catch(() => undefined);
  }

  get #hasOwnBridge(): boolean {
    return this.#bridge !== this.#context.publicNetwork;
  }

  get #policies(): readonly NetworkPolicy[] {
    return [this.#spec.network.initial, ...this.#spec.network.later];
  }

  /** Whether the box was made on the bridge. */
  get #onBridge(): boolean {
    return this.#policies.some((policy) => this.#isOnBridge(policy));
  }

  #isOnBridge({ mode }: NetworkPolicy): boolean {
    return mode === "public" && this.#context.publicVia === "bridge";
  }

  async #connect(clock: Deadline, container: string, before: ContainerInspection): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      const network = await this.#bridge.id(clock);
      if (attachedNetworks(before).some(([, attached]) => attached === network)) return;
      try {
        const body = { Container: container };
        await this.#engine.done(clock, { method: "POST", path: `/networks/${network}/connect`, body });
        return;
      } catch (error) {
        if (!isStatus(error, 404) || attempt > 1) throw error;
        await this.#bridge.forget(network);
      }
    }
  }

  async #disconnect(clock: Deadline, container: string, inspection: ContainerInspection): Promise<void> {
    for (const [network] of attachedNetworks(inspection)) {
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

/** Names, and what `PublicNetwork.id` calls them. */
function attachedNetworks(inspection: ContainerInspection): readonly (readonly [name: string, id: string])[] {
  // Docker lists the absence of a network as the network "none".
  return Object.entries(inspection.NetworkSettings?.Networks ?? {})
    .filter(([name]) => name !== "none")
    .map(([name, network]) => [name, network.NetworkID || name] as const);
}
