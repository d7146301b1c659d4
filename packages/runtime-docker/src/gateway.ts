import { randomBytes } from "node:crypto";
import {
  BOXES_DIRECTORY,
  CONTROL_ARGV,
  type ControlTransport,
  GATEWAY_RESOURCES,
  gatewayArgv,
  GatewayControl,
  GatewayError,
} from "@breakwater/egress-gateway";
import { isRuntimeError, RuntimeError } from "@breakwater/runtime-api";
import { type Deadline, labelsFor, settlesWithin } from "@breakwater/driver-kit";
import type { EgressImages } from "./egress-images.ts";
import { createContainer, type Engine, operate } from "./engine.ts";
import { DRIVER, isStatus } from "./errors.ts";
import { type EngineExec, openExec } from "./exec.ts";
import { PublicNetwork } from "./networks.ts";
import { inspectContainer, removeUntilGone } from "./teardown.ts";
import { ownContainer, ownExecOptions } from "./translate.ts";

/** The role of a gateway and of its volume in their labels. */
export const GATEWAY_ROLE = "gateway";
export const GATEWAY_NAME_PREFIX = "breakwater-gateway-";

const LIFETIME_MS = 24 * 60 * 60 * 1000;
/** For the end of boxes that live as long as the gateway. */
const SPARE_LIFETIME_MS = 60 * 60 * 1000;
const START_TIMEOUT_MS = 5 * 60 * 1000;
/** Longer than what it waits for first: a creation that is under way. */
const REMOVE_TIMEOUT_MS = 3 * 60 * 1000;
const SESSION_TIMEOUT_MS = 30_000;
const CALL_TIMEOUT_MS = 30_000;
const HEARTBEAT_MS = 20_000;
/** Longer than a session that opens and a call. */
const BEAT_TIMEOUT_MS = 90_000;
const PAUSE_MS = 100;

/** What gateways need of their driver. */
export interface GatewayContext {
  readonly engine: Engine;
  readonly images: EgressImages;
  /** The bridge that leads outside. A gateway listens on no port of it. */
  readonly publicNetwork: PublicNetwork;
  /** Whether all share that bridge; else every gateway gets its own. */
  readonly sharesBridge: () => Promise<boolean>;
}

/** The gateways of one driver: one at a time, unless it has died, or a box would outlive it. */
export class Gateways implements AsyncDisposable {
  readonly #context: GatewayContext;
  readonly #made: Gateway[] = [];
  #current: { readonly gateway: Promise<Gateway>; readonly expiresAtMs: number } | undefined;

  constructor(context: GatewayContext) {
    this.#context = context;
  }

  /** One that runs and outlives the given moment (Unix time); made when there is none. */
  async forBox(clock: Deadline, expiresAtMs: number): Promise<Gateway> {
    const current = this.#current;
    if (current !== undefined && current.expiresAtMs >= expiresAtMs) {
      const gateway = await clock.race(current.gateway);
      if (await gateway.runs(clock)) return gateway;
      if (this.#current === current) this.#current = undefined;
      return this.forBox(clock, expiresAtMs);
    }
    const ownExpiryMs = Math.max(Date.now() + LIFETIME_MS, expiresAtMs + SPARE_LIFETIME_MS);
    // On a clock of its own: the box that asked first may be given up while others wait.
    const gateway = Gateway.start(this.#context, ownExpiryMs);
    this.#current = { gateway, expiresAtMs: ownExpiryMs };
    gateway.then(
      (made) => this.#made.push(made),
      () => {
        if (this.#current?.gateway === gateway) this.#current = undefined;
      },
    );
    return clock.race(gateway);
  }

  /** Removes those that no box uses; the others end by themselves when nobody controls them. What is left, sweep finds. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#current?.gateway.catch(() => undefined);
    await Promise.all(this.#made.map((gateway) => gateway.release()));
  }
}

/** One gateway: a container that is attached to the outside, and a volume with the sockets of its boxes. */
export class Gateway {
  readonly #engine: Engine;
  readonly #name: string;
  readonly #labels: Readonly<Record<string, string>>;
  readonly #expiresAtMs: number;
  readonly #bridge: PublicNetwork | null;
  readonly #boxes = new Set<string>();
  #creating: Promise<string> | null = null;
  #heart: NodeJS.Timeout | undefined;
  #isBeating = false;
  #session: Promise<GatewayControl> | undefined;
  #instance: string | undefined;

  static async start(context: GatewayContext, expiresAtMs: number): Promise<Gateway> {
    const name = `${GATEWAY_NAME_PREFIX}${randomBytes(10).toString("hex")}`;
    const shares = await context.sharesBridge();
    const bridge = shares ? null : new PublicNetwork(context.engine, name, { isShared: false });
    const gateway = new Gateway(context.engine, name, expiresAtMs, bridge);
    try {
      const doing = { operation: "start", what: "starting the egress gateway", subject: "other" } as const;
      await operate(undefined, doing, (clock) => gateway.#start(context, clock), START_TIMEOUT_MS);
      return gateway;
    } catch (error) {
      await gateway.#remove().catch(() => undefined);
      throw error;
    }
  }

  private constructor(engine: Engine, name: string, expiresAtMs: number, bridge: PublicNetwork | null) {
    this.#engine = engine;
    this.#name = name;
    this.#expiresAtMs = expiresAtMs;
    this.#labels = labelsFor({ role: GATEWAY_ROLE, trial: null, expiresAtMs });
    this.#bridge = bridge;
  }

  /** The volume with the sockets. An engine that does not find it makes it by these words: it has an owner then, too. */
  mount({ readOnly }: { readonly readOnly: boolean }): object {
    const VolumeOptions = { Labels: this.#labels };
    return { Type: "volume", Source: this.#name, Target: BOXES_DIRECTORY, ReadOnly: readOnly, VolumeOptions };
  }

  async #start(context: GatewayContext, clock: Deadline): Promise<void> {
    const image = await context.images.gateway(clock);
    await this.#engine.json(clock, {
      method: "POST",
      path: "/volumes/create",
      body: { Name: this.#name, Driver: "local", Labels: this.#labels },
    });
    const bridge = this.#bridge ?? context.publicNetwork;
    for (let attempt = 1; ; attempt++) {
      const network = await bridge.id(clock);
      try {
        const doing = { operation: "start", what: "creating the egress gateway", subject: "other" } as const;
        this.#creating = createContainer(this.#engine, this.#name, this.#options(image, network), doing);
        await this.#creating;
        clock.throwIfOver();
        await this.#engine.done(clock, { method: "POST", path: `/containers/${this.#name}/start` });
        break;
      } catch (error) {
        clock.throwIfOver();
        // Somebody found the bridge unused and removed it: once more.
        if (attempt > 1 || !(await bridge.wasRemoved(clock, network))) throw error;
        await removeUntilGone(this.#engine, clock, this.#name);
      }
    }
    this.#instance = (await this.#control(clock)).instance;
  }

  #options(image: string, network: string): object {
    return {
      Image: image,
      Labels: this.#labels,
      Cmd: gatewayArgv({ lifetimeMs: Math.max(1, this.#expiresAtMs - Date.now()) }),
      HostConfig: {
        ...ownContainer(GATEWAY_RESOURCES.memoryBytes),
        Sysctls: GATEWAY_RESOURCES.sysctls,
        NetworkMode: network,
        Mounts: [this.mount({ readOnly: false })],
      },
    };
  }

  /** Whether the container runs and is the one that was started: one that began anew has forgotten everything. */
  async runs(clock: Deadline): Promise<boolean> {
    try {
      await this.call(clock, "probe", (control, options) => control.status(options));
      return true;
    } catch (error) {
      clock.throwIfOver();
      if (isRuntimeError(error, "ERR_NETWORK_LOST")) return false;
      throw error;
    }
  }

  /**
   * One question to the gateway; made again, once, when the connection to it is lost. `ERR_NETWORK_LOST` when the gateway itself has
   * ended or does not answer.
   */
  async call<T>(
    clock: Deadline,
    operation: string,
    ask: (control: GatewayControl, options: { signal: AbortSignal; timeoutMs: number }) => Promise<T>,
  ): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      try {
        const control = await this.#control(clock);
        return await ask(control, { signal: clock.signal, timeoutMs: Math.min(CALL_TIMEOUT_MS, clock.remainingMs()) });
      } catch (error) {
        clock.throwIfOver();
        if (!(error instanceof GatewayError)) throw error;
        const isGone = error.code === "ERR_GATEWAY_LOST" || error.code === "ERR_GATEWAY_PROTOCOL";
        if (isGone && attempt === 1) continue;
        if (!isGone && error.code !== "ERR_GATEWAY_TIMEOUT") throw error;
        // It may be the connection that is mute: the next question gets another one.
        void this.#session?.then(
          (control) => control.close(),
          () => undefined,
        );
        throw this.#lost(operation, "does not answer", error);
      }
    }
  }

  /** The session, opened anew when it was lost. */
  async #control(clock: Deadline): Promise<GatewayControl> {
    this.#session ??= this.#openSession();
    try {
      const control = await clock.race(this.#session);
      if (this.#instance === undefined || control.instance === this.#instance) return control;
    } catch (error) {
      clock.throwIfOver();
      const inspection = await inspectContainer(this.#engine, clock, this.#name);
      if (inspection?.State.Running === true) throw error;
      throw this.#lost("start", "has ended", error);
    }
    throw this.#lost("start", "was started anew");
  }

  /** Forgotten when it could not be opened, and when it closes. */
  #openSession(): Promise<GatewayControl> {
    const session = this.#open();
    const forget = (): void => {
      if (this.#session === session) this.#session = undefined;
    };
    session.then((control) => void control.closed.then(forget), forget);
    return session;
  }

  async #open(): Promise<GatewayControl> {
    const doing = { operation: "start", what: "opening the gateway's control session", subject: "other" } as const;
    return operate(
      undefined,
      doing,
      async (clock) => {
        const exec = await openExec(this.#engine, clock, this.#name, ownExecOptions(CONTROL_ARGV));
        try {
          return await GatewayControl.open(transport(exec), { signal: clock.signal, timeoutMs: clock.remainingMs() });
        } catch (error) {
          exec.close();
          throw error;
        }
      },
      SESSION_TIMEOUT_MS,
    );
  }

  use(boxId: string): void {
    this.#boxes.add(boxId);
    this.#heart ??= setInterval(() => void this.#beat(), HEARTBEAT_MS).unref();
  }

  unuse(boxId: string): void {
    this.#boxes.delete(boxId);
    if (this.#boxes.size > 0) return;
    clearInterval(this.#heart);
    this.#heart = undefined;
  }

  /**
   * A gateway ends when it has had no session for a while, and boxes may have nothing to ask for hours: so a session that was lost is opened again. A gateway that
   * has ended is found by the next who needs it.
   */
  async #beat(): Promise<void> {
    if (this.#isBeating) return;
    this.#isBeating = true;
    const doing = { operation: "probe", what: "keeping the egress gateway", subject: "other" } as const;
    await operate(undefined, doing, (clock) => this.runs(clock), BEAT_TIMEOUT_MS).catch(() => undefined);
    this.#isBeating = false;
  }

  async release(): Promise<void> {
    const session = await this.#session?.catch(() => undefined);
    session?.close();
    if (this.#boxes.size === 0) await this.#remove().catch(() => undefined);
  }

  async #remove(): Promise<void> {
    const doing = { operation: "dispose", what: "removing the egress gateway", subject: "other" } as const;
    await operate(
      undefined,
      doing,
      async (clock) => {
        if (this.#creating !== null) await settlesWithin(this.#creating, clock.remainingMs());
        await removeUntilGone(this.#engine, clock, this.#name);
        await removeVolume(this.#engine, clock, this.#name);
        if (this.#bridge?.used === true) await this.#bridge.removeIfUnused(clock);
      },
      REMOVE_TIMEOUT_MS,
    );
  }

  #lost(operation: string, what: string, cause?: unknown): RuntimeError {
    return new RuntimeError({
      code: "ERR_NETWORK_LOST",
      driver: DRIVER,
      operation,
      cause,
      message: `the egress gateway ${this.#name} ${what}: the boxes that use it reach nothing any more; see its log and the engine's`,
    });
  }
}

/** A removal that is still refused because the last container is on its way out is tried again until the clock's end. */
export async function removeVolume(engine: Engine, clock: Deadline, name: string): Promise<void> {
  for (;;) {
    try {
      await engine.done(clock, { method: "DELETE", path: `/volumes/${encodeURIComponent(name)}` });
      return;
    } catch (error) {
      if (isStatus(error, 404)) return;
      if (!isStatus(error, 409)) throw error;
    }
    await clock.sleep(PAUSE_MS);
  }
}

function transport(exec: EngineExec): ControlTransport {
  return {
    write: (bytes) => exec.write(bytes),
    output: stdoutOf(exec),
    close: () => exec.close(),
  };
}

async function* stdoutOf(exec: EngineExec): AsyncGenerator<Uint8Array> {
  for await (const { stream, chunk } of exec.output) if (stream === "stdout") yield chunk;
}
