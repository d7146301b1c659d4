import { FORWARDER_MEMORY_BYTES, forwarderArgv } from "@breakwater/egress-gateway";
import {
  type EgressDenial,
  type EgressReport,
  type NetworkPolicy,
  RuntimeError,
  type RuntimeSpec,
} from "@breakwater/runtime-api";
import { type Deadline, labelsFor, settlesWithin } from "@breakwater/driver-kit";
import type { EgressImages } from "./egress-images.ts";
import { createContainer, type Engine, operate } from "./engine.ts";
import { DRIVER } from "./errors.ts";
import type { Gateway, Gateways } from "./gateway.ts";
import { inspectContainer, removeUntilGone } from "./teardown.ts";
import { BOX_LABEL, ownContainer } from "./translate.ts";

/** The role of a forwarder in its labels. */
export const FORWARDER_ROLE = "forwarder";

const FORWARDER_TIMEOUT_MS = 60_000;
const LEAVE_TIMEOUT_MS = 10_000;
/** A box ends before its forwarder. */
const SPARE_LIFETIME_MS = 10 * 60 * 1000;
/** As `EgressReport.denials` promises. */
const MAX_DENIALS = 1000;

/** What boxes with an allowlist need of their driver. */
export interface EgressContext {
  readonly engine: Engine;
  readonly images: EgressImages;
  readonly gateways: Gateways;
}

/** The name of a box's forwarder. */
export function forwarderName(boxId: string): string {
  return `${boxId}-forwarder`;
}

/**
 * The only way out of one box: a forwarder in its network namespace, which listens on the box's loopback, and a gateway, to which it has
 * one socket. Root in the box can neither end the forwarder nor see the socket. The gateway knows the box by the socket.
 */
export class BoxEgress {
  readonly #boxId: string;
  readonly #spec: RuntimeSpec;
  readonly #context: EgressContext;
  readonly #engine: Engine;
  #gateway: Gateway | null = null;
  #creating: Promise<unknown> | null = null;
  #deniedCount = 0;
  #lastSeq = 0;
  readonly #denials: EgressDenial[] = [];

  constructor(boxId: string, spec: RuntimeSpec, context: EgressContext) {
    this.#boxId = boxId;
    this.#spec = spec;
    this.#context = context;
    this.#engine = context.engine;
  }

  /** Opens the way for a box that runs, under its first policy. */
  async open(clock: Deadline, container: string, policy: NetworkPolicy, onBridge: boolean): Promise<void> {
    const lifetimeMs = this.#spec.lifetimeMs + SPARE_LIFETIME_MS;
    const expiresAtMs = Date.now() + lifetimeMs;
    const image = await this.#context.images.forwarder(clock);
    const gateway = await this.#context.gateways.forBox(clock, expiresAtMs);
    this.#gateway = gateway;
    gateway.use(this.#boxId);
    const { folder } = await gateway.call(clock, "start", (control, options) => control.addBox(this.#boxId, options));

    const labels = {
      ...labelsFor({ role: FORWARDER_ROLE, trial: this.#spec.trial, expiresAtMs }),
      [BOX_LABEL]: this.#boxId,
    };
    const body = forwarderOptions({ image, labels, container, gateway, folder, lifetimeMs });
    const name = forwarderName(this.#boxId);
    const doing = {
      operation: "start",
      what: "creating the box's forwarder",
      boxId: this.#boxId,
      subject: "other",
    } as const;
    this.#creating = createContainer(this.#engine, name, body, doing);
    await this.#creating;
    clock.throwIfOver();
    await this.#engine.done(clock, { method: "POST", path: `/containers/${name}/start` });
    const { inUse } = await gateway.call(clock, "start", (control, options) =>
      control.awaitForwarder(this.#boxId, {
        ...options,
        timeoutMs: Math.min(FORWARDER_TIMEOUT_MS, clock.remainingMs()),
      }),
    );
    if (inUse.length > 0) {
      throw new RuntimeError({
        code: "ERR_BOX_START",
        driver: DRIVER,
        operation: "start",
        boxId: this.#boxId,
        message: `a program of the image already listens on ${inUse.join(", ")}, which an allowlist needs; let it listen elsewhere, or start the box without the image's entrypoint`,
      });
    }
    await this.set(policy, clock, onBridge);
  }

  /**
   * When it resolves, the gateway has cut what the policy does not allow. A box that gets out over the bridge only asks it for names.
   */
  async set(policy: NetworkPolicy, clock: Deadline, onBridge: boolean): Promise<void> {
    await this.#required.call(clock, "setNetwork", (control, options) =>
      control.setPolicy(this.#boxId, policy, { ...options, direct: onBridge }),
    );
  }

  /** `ERR_NETWORK_LOST` unless gateway and forwarder are the ones that the box was started with. */
  async assertHeld(clock: Deadline): Promise<void> {
    const [forwarder] = await Promise.all([
      inspectContainer(this.#engine, clock, forwarderName(this.#boxId)),
      this.#takeRecords(clock),
    ]);
    if (forwarder?.State.Running === true) return;
    throw new RuntimeError({
      code: "ERR_NETWORK_LOST",
      driver: DRIVER,
      operation: "exec",
      boxId: this.#boxId,
      message: `the forwarder of the box ${forwarder === null ? "was removed" : "has ended"}: the box reaches nothing any more; see the engine's log`,
    });
  }

  /** What was refused until now, as far as it is known. */
  get report(): EgressReport {
    return { deniedCount: this.#deniedCount, denials: [...this.#denials] };
  }

  async #takeRecords(clock: Deadline): Promise<void> {
    const records = await this.#required.call(clock, "report", (control, options) =>
      control.records(this.#boxId, { ...options, after: this.#lastSeq }),
    );
    this.#deniedCount = records.denied;
    for (const { seq, at, host, port, rule } of records.denials) {
      if (seq <= this.#lastSeq) continue;
      this.#lastSeq = seq;
      if (this.#denials.length >= MAX_DENIALS) continue;
      this.#denials.push({ at, host, port, rule });
    }
  }

  /** Ends the way, whatever has become of its parts; the forwarder is gone when it resolves. To be called before the box is removed, and again. */
  async close(clock: Deadline): Promise<void> {
    const gateway = this.#gateway;
    if (gateway !== null) {
      const doing = { operation: "teardownConfirmed", what: "leaving the gateway", subject: "other" } as const;
      const leave = async (own: Deadline): Promise<void> => {
        await this.#takeRecords(own);
        await gateway.call(own, doing.operation, (control, options) => control.removeBox(this.#boxId, options));
      };
      // A gateway that does not answer denies everything, or has ended: the time is for the removal.
      await operate({ timeoutMs: Math.min(LEAVE_TIMEOUT_MS, clock.remainingMs()) }, doing, leave).catch(
        () => undefined,
      );
    }
    if (this.#creating !== null) {
      await settlesWithin(this.#creating, clock.remainingMs());
      await removeUntilGone(this.#engine, clock, forwarderName(this.#boxId));
    }
    gateway?.unuse(this.#boxId);
    this.#gateway = null;
  }

  get #required(): Gateway {
    if (this.#gateway !== null) return this.#gateway;
    throw new RuntimeError({
      code: "ERR_NETWORK_LOST",
      driver: DRIVER,
      operation: "setNetwork",
      boxId: this.#boxId,
      message: "the box has no gateway (any more)",
    });
  }
}

function forwarderOptions(options: {
  readonly image: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly container: string;
  readonly gateway: Gateway;
  readonly folder: string;
  readonly lifetimeMs: number;
}): object {
  return {
    Image: options.image,
    Labels: options.labels,
    Cmd: forwarderArgv({ folder: options.folder, lifetimeMs: options.lifetimeMs }),
    User: "0:0",
    HostConfig: {
      ...ownContainer(FORWARDER_MEMORY_BYTES),
      NetworkMode: `container:${options.container}`,
      CapAdd: ["NET_BIND_SERVICE"],
      ReadonlyRootfs: true,
      Mounts: [options.gateway.mount({ readOnly: true })],
    },
  };
}
