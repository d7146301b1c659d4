import { randomBytes } from "node:crypto";
import {
  BOXES_DIRECTORY,
  CONTROL_ARGV,
  type ControlTransport,
  gatewayArgv,
  GatewayControl,
  GatewayError,
} from "@breakwater/egress-gateway";
import { isRuntimeError, RuntimeError } from "@breakwater/runtime-api";
import { type Deadline, labelsFor } from "@breakwater/driver-kit";
import type { EgressImages } from "./egress-images.ts";
import { type Engine, operate } from "./engine.ts";
import { DRIVER, isStatus } from "./errors.ts";
import { EngineExec } from "./exec.ts";
import { PublicNetwork } from "./networks.ts";
import { inspectContainer, removeUntilGone } from "./teardown.ts";
import { ownContainer } from "./translate.ts";

/** The role of a gateway and of its volume in their labels. */
export const GATEWAY_ROLE = "gateway";
export const GATEWAY_NAME_PREFIX = "breakwater-gateway-";

const LIFETIME_MS = 24 * 60 * 60 * 1000;
/** For the end of boxes that live as long as the gateway. */
const SPARE_LIFETIME_MS = 60 * 60 * 1000;
const START_TIMEOUT_MS = 5 * 60 * 1000;
const REMOVE_TIMEOUT_MS = 60_000;
const SESSION_TIMEOUT_MS = 30_000;
const CALL_TIMEOUT_MS = 30_000;
const MEMORY_BYTES = 512 * 1024 * 1024;
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
  readonly #bridge: PublicNetwork | null;
  readonly #boxes = new Set<string>();
  #session: Promise<GatewayControl> | undefined;
  #instance: string | undefined;

  static async start(context: GatewayContext, expiresAtMs: number): Promise<Gateway> {
    const name = `${GATEWAY_NAME_PREFIX}${randomBytes(10).toString("hex")}`;
    const shares = await context.sharesBridge();
    const bridge = shares ? null : new PublicNetwork(context.engine, name, { isShared: false });
    const gateway = new Gateway(context.engine, name, bridge);
    try {
      const doing = { operation: "start", what: "starting the egress gateway", subject: "other" } as const;
      await operate(undefined, doing, (clock) => gateway.#start(context, expiresAtMs, clock), START_TIMEOUT_MS);
      return gateway;
    } catch (error) {
      await gateway.#remove().catch(() => undefined);
      throw error;
    }
  }

  private constructor(engine: Engine, name: string, bridge: PublicNetwork | null) {
    this.#engine = engine;
    this.#name = name;
    this.#bridge = bridge;
  }

  /** For the mounts of forwarders. */
  get volume(): string {
    return this.#name;
  }

  async #start(context: GatewayContext, expiresAtMs: number, clock: Deadline): Promise<void> {
    const image = await context.images.gateway(clock);
    const labels = labelsFor({ role: GATEWAY_ROLE, trial: null, expiresAtMs });
    await this.#engine.json(clock, {
      method: "POST",
      path: "/volumes/create",
      body: { Name: this.#name, Driver: "local", Labels: labels },
    });
    const bridge = this.#bridge ?? context.publicNetwork;
    for (let attempt = 1; ; attempt++) {
      const network = await bridge.id(clock);
      try {
        await this.#engine.json(clock, {
          method: "POST",
          path: "/containers/create",
          query: { name: this.#name },
          body: containerOptions(this.#name, image, labels, network, expiresAtMs),
        });
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
        const { Id: execId } = await this.#engine.json<{ readonly Id: string }>(
          clock,
          {
            method: "POST",
            path: `/containers/${this.#name}/exec`,
            body: { AttachStdin: true, AttachStdout: true, AttachStderr: true, Tty: false, Cmd: [...CONTROL_ARGV] },
          },
          { idempotent: true },
        );
        const call = { method: "POST", path: `/exec/${execId}/start`, body: { Detach: false, Tty: false } } as const;
        const exec = new EngineExec(await this.#engine.hijack(clock.signal, call), () => Promise.resolve(null));
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
  }

  unuse(boxId: string): void {
    this.#boxes.delete(boxId);
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

function containerOptions(
  name: string,
  image: string,
  labels: Readonly<Record<string, string>>,
  network: string,
  expiresAtMs: number,
): object {
  return {
    Image: image,
    Labels: labels,
    Cmd: gatewayArgv({ lifetimeMs: Math.max(1, expiresAtMs - Date.now()) }),
    HostConfig: {
      ...ownContainer(MEMORY_BYTES),
      NetworkMode: network,
      Mounts: [{ Type: "volume", Source: name, Target: BOXES_DIRECTORY, ReadOnly: false }],
    },
  };
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
