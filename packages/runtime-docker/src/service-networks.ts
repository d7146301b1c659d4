import { type NetworkPolicy, type Proof, RuntimeError, type ServiceSpec } from "@breakwater/runtime-api";
import { type Deadline, labelsFor, proofOf } from "@breakwater/driver-kit";
import type Dockerode from "dockerode";
import { type Engine, operate } from "./engine.ts";
import { DRIVER, isStatus } from "./errors.ts";
import type { NetworkOfBox } from "./shared-network.ts";
import type { ContainerInspection } from "./teardown.ts";
import { assertGone, type Owned } from "./volumes.ts";

/** The role of a network that services named, in its labels. */
export const SERVICE_NETWORK_ROLE = "service-network";

const CREATE_TIMEOUT_MS = 60_000;
const PAUSE_MS = 100;

/** The networks that services name: bridges of one box, which lead outside, and on which its services know each other by name. */
export class ServiceNetworks {
  readonly #engine: Engine;
  readonly #owned: Owned;
  readonly #wanted = new Set<string>();
  readonly #ids = new Map<string, string>();
  readonly #asked = new Set<string>();

  constructor(engine: Engine, owned: Owned) {
    this.#engine = engine;
    this.#owned = owned;
  }

  /** The network of a service that names some. */
  of(service: ServiceSpec): NetworkOfBox {
    for (const name of service.networks ?? []) this.#wanted.add(name);
    return new NamedNetworks(this.#engine, this.#owned.boxId, service, (name) => this.id(name));
  }

  async make(clock: Deadline): Promise<void> {
    const { boxId, trial, lifetimeMs } = this.#owned;
    for (const name of this.#wanted) {
      clock.throwIfOver();
      const Labels = labelsFor({ role: SERVICE_NETWORK_ROLE, trial, expiresAtMs: Date.now() + lifetimeMs });
      const body = { Name: this.#nameOf(name), CheckDuplicate: true, Driver: "bridge", Internal: false, Labels };
      const doing = { operation: "start", what: "making a network of services", boxId, subject: "network" } as const;
      this.#asked.add(name);
      // On a clock of its own: the engine finishes a call whose caller has gone.
      const { Id: id } = await operate(
        undefined,
        doing,
        (own) => this.#engine.json<{ readonly Id: string }>(own, { method: "POST", path: "/networks/create", body }),
        CREATE_TIMEOUT_MS,
      );
      this.#ids.set(name, id);
    }
  }

  id(name: string): string {
    return this.#ids.get(name) ?? this.#nameOf(name);
  }

  /** How a service is put on the first of its networks. */
  endpoint({
    name,
    networks: [first = ""] = [],
  }: ServiceSpec): Pick<Dockerode.ContainerCreateOptions, "NetworkingConfig"> {
    return { NetworkingConfig: { EndpointsConfig: { [this.id(first)]: { Aliases: [name] } } } };
  }

  /** When nothing is attached to them any more. */
  async remove(clock: Deadline): Promise<readonly Proof[]> {
    const proofs: Proof[] = [];
    for (const name of this.#asked) proofs.push(await removeServiceNetwork(this.#engine, clock, this.id(name)));
    return proofs;
  }

  #nameOf(name: string): string {
    return `${this.#owned.boxId}-${name}`;
  }
}

/** A removal that is refused because the last container is on its way out is tried again until the clock's end. */
export async function removeServiceNetwork(engine: Engine, clock: Deadline, id: string): Promise<Proof> {
  const path = `/networks/${encodeURIComponent(id)}`;
  for (;;) {
    try {
      await engine.done(clock, { method: "DELETE", path });
      break;
    } catch (error) {
      if (isStatus(error, 404)) break;
      if (!isStatus(error, 403, 409)) throw error;
    }
    await clock.sleep(PAUSE_MS);
  }
  await assertGone(engine, clock, path);
  return proofOf(id, `GET ${path}`, "404 no such network; GET /_ping: 200");
}

/** A service on networks of its own, whatever the policy of its box. */
class NamedNetworks implements NetworkOfBox {
  readonly #engine: Engine;
  readonly #boxId: string;
  readonly #service: ServiceSpec;
  readonly #id: (name: string) => string;

  constructor(engine: Engine, boxId: string, service: ServiceSpec, id: (name: string) => string) {
    this.#engine = engine;
    this.#boxId = boxId;
    this.#service = service;
    this.#id = id;
  }

  get #networks(): readonly string[] {
    return (this.#service.networks ?? []).map((name) => this.#id(name));
  }

  useOwnBridge(): void {}

  modeAtCreate(): Promise<string> {
    return Promise.resolve(this.#networks[0] ?? "none");
  }

  nameServers(): Promise<readonly string[]> {
    return Promise.resolve([]);
  }

  /** An engine puts a new container on one network only. */
  async beforeStart(clock: Deadline, container: string): Promise<void> {
    for (const network of this.#networks.slice(1)) {
      const body = { Container: container, EndpointConfig: { Aliases: [this.#service.name] } };
      await this.#engine.done(clock, { method: "POST", path: `/networks/${network}/connect`, body });
    }
  }

  async afterStart(): Promise<void> {}

  wasRemoved(): Promise<boolean> {
    return Promise.resolve(false);
  }

  async forget(): Promise<void> {}

  set(): Promise<void> {
    throw new TypeError("the networks of a service do not change");
  }

  async assertHeld(): Promise<void> {}

  readonly egressReport = null;

  environmentFor(_policy: NetworkPolicy): Readonly<Record<string, string>> {
    return {};
  }

  check(_clock: Deadline, { NetworkSettings }: ContainerInspection): Promise<void> {
    const attached = Object.values(NetworkSettings?.Networks ?? {}).map(({ NetworkID }) => NetworkID ?? "");
    const expected = this.#networks;
    if (attached.length === expected.length && attached.every((id) => expected.includes(id))) return Promise.resolve();
    throw new RuntimeError({
      code: "ERR_BOX_START",
      driver: DRIVER,
      operation: "start",
      boxId: this.#boxId,
      message: `the service ${this.#service.name} is not on the networks that it names; see the engine's log`,
    });
  }

  async checkInside(): Promise<void> {}

  async close(): Promise<void> {}

  async remove(): Promise<void> {}
}
