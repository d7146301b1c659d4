import {
  type EgressReport,
  isRuntimeError,
  type NetworkPolicy,
  type Proof,
  RuntimeError,
  type RuntimeErrorCode,
  type RuntimeService,
  type RuntimeSpec,
} from "@breakwater/runtime-api";
import {
  type BackendBox,
  type BoxEnd,
  type BoxExec,
  type BoxImage,
  type BoxOperation,
  type BoxUsage,
  type Deadline,
  type HelperContext,
  labelsFor,
  type LocatedPath,
  proofOf,
  settlesWithin,
  type StartedBox,
  type StoppedBox,
  UNKNOWN_USAGE,
} from "@breakwater/driver-kit";
import type Dockerode from "dockerode";
import { BoxNetwork, type NetworkContext } from "./box-network.ts";
import { createContainer, type Engine, operate, readAll } from "./engine.ts";
import { DRIVER, isStatus, toRuntimeError } from "./errors.ts";
import { Demultiplexer, openExec } from "./exec.ts";
import { locate } from "./files.ts";
import type { Images } from "./images.ts";
import type { EngineFacts } from "./probe.ts";
import { classifyEnd, type EngineEvent, type StatsAnswer, usageOf } from "./report.ts";
import type { NetworkOfBox } from "./shared-network.ts";
import { type ContainerInspection, inspectContainer, removeUntilGone } from "./teardown.ts";
import { BOX_LABEL, containerOptions, execOptions } from "./translate.ts";

const MAX_LOG_BYTES = 64 * 1024;
const MAX_EVENTS_BYTES = 1024 * 1024;
const SHORT_PAUSE_MS = 50;
/** How long the engine may take to describe a box as running that it has started. */
const RUNNING_TIMEOUT_MS = 30_000;
/** What engines call a container that has not run yet. */
const NOT_YET: ReadonlySet<string> = new Set(["created", "configured", "initialized", "starting"]);

/** What a box needs of its driver. */
export interface BoxContext {
  readonly engine: Engine;
  readonly images: Images;
  readonly network: NetworkContext;
  readonly kind: () => Promise<EngineFacts["kind"]>;
  /** The helper as a plain tar archive to be unpacked at `/`. */
  readonly helperArchive: () => Promise<Buffer>;
}

/** What is beside a main box: made before it, and gone after it. */
export interface Companions {
  readonly before: (clock: Deadline) => Promise<void>;
  /** The main box runs. */
  readonly after: (clock: Deadline) => Promise<void>;
  readonly service: (name: string) => RuntimeService;
  /** `ERR_NETWORK_LOST` when one of them was ended from outside. */
  readonly assertThere: (clock: Deadline) => Promise<void>;
  readonly remove: (clock: Deadline) => Promise<readonly Proof[]>;
}

/** What differs for a box that has companions, or is one. */
export interface BoxParts {
  /** In its labels. Default is `box`. */
  readonly role?: string;
  readonly network: NetworkOfBox;
  readonly companions?: Companions;
  /** Changes what the engine is asked to make. */
  readonly adjust?: (
    options: Dockerode.ContainerCreateOptions,
    image: BoxImage,
    clock: Deadline,
  ) => Promise<Dockerode.ContainerCreateOptions>;
}

/** One container. */
export class DockerBox implements BackendBox {
  readonly #id: string;
  readonly #spec: RuntimeSpec;
  readonly #context: BoxContext;
  readonly #engine: Engine;
  readonly #network: NetworkOfBox;
  readonly #parts: BoxParts;
  #kind: EngineFacts["kind"] = "docker";
  /** The engine's id, once it has answered. Until then our id, which is the container's name, stands for it. */
  #container: string | null = null;
  #creating: Promise<string> | null = null;
  #killing: Promise<void> | null = null;
  #wasKilled = false;
  #startedAtMs = 0;
  /** We have ended it: nothing that becomes of its network afterwards matters. */
  #isOver = false;

  constructor(id: string, spec: RuntimeSpec, context: BoxContext, parts?: BoxParts) {
    this.#id = id;
    this.#spec = spec;
    this.#context = context;
    this.#engine = context.engine;
    this.#parts = parts ?? { network: new BoxNetwork(id, spec, context.network) };
    this.#network = this.#parts.network;
  }

  get handle(): string {
    return this.#container ?? this.#id;
  }

  async start(clock: Deadline): Promise<StartedBox> {
    this.#kind = await clock.race(this.#context.kind());
    if (this.#kind === "podman") this.#network.useOwnBridge();
    await this.#parts.companions?.before(clock);
    const image = await this.#createAndRun(clock);
    const inspection = await this.#untilItRuns(clock);
    if (inspection?.State.Running === true) {
      await this.#network.check(clock, inspection);
      await this.#network.afterStart(clock, this.handle);
    }
    return { image, startedAtMs: this.#startedAtMs };
  }

  async prove(_inside: HelperContext, clock: Deadline): Promise<void> {
    await this.#parts.companions?.after(clock);
  }

  /** The engine has taken the call; the box is up, or has ended, when the engine describes it so. */
  async #untilItRuns(clock: Deadline): Promise<ContainerInspection | null> {
    const giveUpAt = performance.now() + RUNNING_TIMEOUT_MS;
    for (;;) {
      const inspection = await inspectContainer(this.#engine, clock, this.handle);
      if (inspection === null || inspection.State.Running || !NOT_YET.has(inspection.State.Status)) return inspection;
      if (performance.now() > giveUpAt) {
        const message = `the engine has taken the start, and calls the box ${inspection.State.Status} ${RUNNING_TIMEOUT_MS} ms later; see the engine's log`;
        throw this.#error("start", "ERR_BOX_START", message);
      }
      await clock.sleep(SHORT_PAUSE_MS);
    }
  }

  async #createAndRun(clock: Deadline): Promise<BoxImage> {
    for (let attempt = 1; ; attempt++) {
      const image = await this.#create(clock);
      const container = this.handle;
      try {
        await this.#engine.done(clock, {
          method: "PUT",
          path: `/containers/${container}/archive`,
          query: { path: "/" },
          file: await this.#context.helperArchive(),
        });
        await this.#network.beforeStart(clock, container);
        this.#startedAtMs = Date.now();
        await this.#engine.done(clock, { method: "POST", path: `/containers/${container}/start` });
        return image;
      } catch (error) {
        clock.throwIfOver();
        if (attempt > 1 || !(await this.#network.wasRemoved(clock))) throw await this.#startFailure(clock, error);
        // Somebody found the bridge unused and removed it: from the beginning, once.
        await removeUntilGone(this.#engine, clock, container);
      }
    }
  }

  async #create(clock: Deadline): Promise<BoxImage> {
    for (let pulled = false, attempt = 1; ; attempt++) {
      let image = await this.#context.images.find(clock, this.#spec.image);
      if (image === null) {
        image = await this.#context.images.pull(clock, this.#spec.image);
        pulled = true;
      }
      const network = {
        mode: await this.#network.modeAtCreate(clock),
        nameServers: await this.#network.nameServers(clock),
      };
      clock.throwIfOver();
      const options = containerOptions(this.#spec, image, { name: this.#id, labels: this.#labels() }, network);
      const { name = this.#id, ...body } = (await this.#parts.adjust?.(options, image, clock)) ?? options;
      const doing = { operation: "start", what: "creating the box", boxId: this.#id, subject: "other" } as const;
      this.#creating = createContainer(this.#engine, name, body, doing);
      try {
        this.#container = await this.#creating;
        return image;
      } catch (error) {
        clock.throwIfOver();
        // The image or the network went away since we looked: 404, in Podman also 500 for the network. Both can be had again, once.
        const { cause } = error as { cause?: unknown };
        const isAway = isStatus(cause, 404) || (isStatus(cause, 500) && (await this.#network.wasRemoved(clock)));
        if (attempt > 1 || !isAway) throw error;
        await this.#network.forget();
        if (pulled && (await this.#context.images.find(clock, this.#spec.image)) === null) throw error;
      }
    }
  }

  #labels(): Record<string, string> {
    const expiresAtMs = Date.now() + this.#spec.lifetimeMs;
    return {
      ...labelsFor({ role: this.#parts.role ?? "box", trial: this.#spec.trial, expiresAtMs }),
      [BOX_LABEL]: this.#id,
    };
  }

  async #startFailure(clock: Deadline, cause: unknown): Promise<unknown> {
    if (!isStatus(cause, 400, 403, 404, 409, 500)) return cause;
    const inspection = await inspectContainer(this.#engine, clock, this.handle).catch(() => null);
    if (inspection === null) {
      return this.#error("start", "ERR_BOX_LOST", "the box was removed by something else while it was started", cause);
    }
    const advice = "see whether the image's working directory and the limits are usable";
    return this.#error(
      "start",
      "ERR_BOX_START",
      `the engine could not start the box: ${cause.detail}; ${advice}`,
      cause,
    );
  }

  async lastWords(clock: Deadline): Promise<string> {
    const response = await this.#engine.send(clock.signal, {
      method: "GET",
      path: `/containers/${this.handle}/logs`,
      query: { stdout: true, stderr: true, tail: 20 },
    });
    const frames = new Demultiplexer().push(await readAll(response, MAX_LOG_BYTES));
    return Buffer.concat(frames.map(({ chunk }) => chunk))
      .toString("utf8")
      .trim();
  }

  async look(clock: Deadline): Promise<"running" | "frozen" | "ended" | "gone"> {
    const inspection = await inspectContainer(this.#engine, clock, this.handle);
    if (inspection === null) return "gone";
    const { Running, Paused } = inspection.State;
    return Running ? (Paused ? "frozen" : "running") : "ended";
  }

  async openExec(argv: readonly string[], clock: Deadline): Promise<BoxExec> {
    return openExec(this.#engine, clock, this.handle, execOptions(argv));
  }

  get streamsEndWithProgram(): boolean {
    return this.#kind === "podman";
  }

  async locate(path: string, clock: Deadline): Promise<LocatedPath> {
    return locate(this.#engine, clock, { container: this.handle, kind: this.#kind }, path);
  }

  /** Podman says that it has changed the network of a paused box, and has not. */
  get changesNetworkWhileFrozen(): boolean {
    return this.#kind !== "podman";
  }

  async setNetwork(policy: NetworkPolicy, clock: Deadline): Promise<void> {
    await this.#network.set(policy, clock, this.handle);
    const inspection = await inspectContainer(this.#engine, clock, this.handle);
    if (inspection !== null) await this.#network.check(clock, inspection);
    await this.#network.assertHeld(clock);
  }

  async proveNetwork(inside: HelperContext, clock: Deadline): Promise<void> {
    await this.#network.checkInside(inside, clock);
  }

  environmentFor(policy: NetworkPolicy): Readonly<Record<string, string>> {
    return this.#network.environmentFor(policy);
  }

  /** A program whose way out has ended must not look like one that failed by itself. */
  async afterProgram(clock: Deadline): Promise<void> {
    await this.#assertHeld(clock);
    if (!this.#isOver) await this.#parts.companions?.assertThere(clock);
  }

  async egress(clock: Deadline): Promise<EgressReport | null> {
    await this.#assertHeld(clock);
    return this.#network.egressReport;
  }

  /** Of a box that has ended, nothing is to be held. */
  async #assertHeld(clock: Deadline): Promise<void> {
    if (this.#isOver) return;
    try {
      await this.#network.assertHeld(clock);
    } catch (error) {
      if (!isRuntimeError(error, "ERR_NETWORK_LOST")) throw error;
      const seen = await this.look(clock);
      if (seen === "running" || seen === "frozen") throw error;
    }
  }

  async freeze(clock: Deadline): Promise<void> {
    await this.#engine.done(clock, { method: "POST", path: `/containers/${this.handle}/pause` });
  }

  async thaw(clock: Deadline): Promise<void> {
    await this.#engine.done(clock, { method: "POST", path: `/containers/${this.handle}/unpause` });
  }

  async stop(_inside: HelperContext, clock: Deadline): Promise<StoppedBox> {
    const container = this.handle;
    this.#isOver = true;
    for (; ; await clock.sleep(SHORT_PAUSE_MS)) {
      const inspection = await inspectContainer(this.#engine, clock, container);
      if (inspection === null) {
        throw this.#error("stopConfirmed", "ERR_BOX_LOST", "the box was removed by something else");
      }
      const { Status, Running, Paused, Pid, ExitCode } = inspection.State;
      if (Running && !this.#wasKilled) {
        await this.#kill();
      } else if (!Running && !Paused && Pid === 0) {
        const answer = `200 State: Status=${Status}, Running=false, Pid=0, ExitCode=${ExitCode}`;
        const proof = proofOf(container, `GET /containers/${container}/json`, answer);
        await this.#killing?.catch(() => undefined);
        return { proof, exitCode: ExitCode, endedBefore: !this.#wasKilled };
      }
    }
  }

  /** One for all who stop at the same time: a second one would take what the first has done for an end of the box's own. */
  async #kill(): Promise<void> {
    this.#killing ??= this.#sendKill().finally(() => (this.#killing = null));
    await this.#killing;
  }

  async #sendKill(): Promise<void> {
    const doing = { operation: "stopConfirmed", what: "killing the box", boxId: this.#id };
    const call = { method: "POST", path: `/containers/${this.handle}/kill`, query: { signal: "SIGKILL" } } as const;
    try {
      await operate(undefined, doing, (own) => this.#engine.done(own, call));
      this.#wasKilled = true;
    } catch (error) {
      // It has ended by itself meanwhile.
      if (!isRuntimeError(error, "ERR_BOX_STATE")) throw error;
    }
  }

  async howItEnded(clock: Deadline): Promise<BoxEnd> {
    const inspection = await inspectContainer(this.#engine, clock, this.handle);
    if (inspection === null) return { endedBy: "unknown", exitCode: null, ...UNKNOWN_USAGE };
    const end = classifyEnd(inspection.State, await this.#events(clock), this.#spec.memoryMb !== null);
    const isCounted = this.#kind !== "podman" || inspection.State.OOMKilled;
    return isCounted ? end : { ...end, oomKills: null };
  }

  async usage(clock: Deadline): Promise<BoxUsage> {
    const stats = await this.#engine.json<StatsAnswer | null>(clock, {
      method: "GET",
      path: `/containers/${this.handle}/stats`,
      query: { stream: false, "one-shot": true },
    });
    // Podman has no such event.
    if (this.#kind === "podman") return usageOf(stats);
    const events = await this.#events(clock);
    return { ...usageOf(stats), oomKills: events.filter(({ Action }) => Action === "oom").length };
  }

  /** What the engine still remembers of what happened to the box: its last events. */
  async #events(clock: Deadline): Promise<readonly EngineEvent[]> {
    const response = await this.#engine.send(clock.signal, {
      method: "GET",
      path: "/events",
      query: {
        since: Math.floor(this.#startedAtMs / 1000) - 1,
        // Podman leaves nearly all out when it is given an end, and Docker never ends without.
        ...(this.#kind === "podman" ? { stream: false } : { until: (Date.now() / 1000).toFixed(3) }),
        filters: { type: ["container"], container: [this.handle], event: ["oom", "kill", "die", "stop"] },
      },
    });
    const lines = (await readAll(response, MAX_EVENTS_BYTES)).toString("utf8").split("\n");
    return lines.filter((line) => line.trim() !== "").map((line) => JSON.parse(line) as EngineEvent);
  }

  async remove(clock: Deadline): Promise<Proof> {
    this.#isOver = true;
    await this.#network.close(clock);
    const removed = await settle(
      this.#creating === null ? Promise.resolve(this.#nothingMade()) : this.#removeContainer(this.#creating, clock),
    );
    const others = (await this.#parts.companions?.remove(clock)) ?? [];
    const proof = removed();
    await this.#network.remove(clock);
    return others.length === 0 ? proof : joined(proof, others);
  }

  service(name: string): RuntimeService {
    const { companions } = this.#parts;
    if (companions === undefined) throw new TypeError(`the spec has no service ${JSON.stringify(name)}`);
    return companions.service(name);
  }

  async #removeContainer(creating: Promise<string>, clock: Deadline): Promise<Proof> {
    await settlesWithin(creating, clock.remainingMs());
    return removeUntilGone(this.#engine, clock, this.handle);
  }

  #nothingMade(): Proof {
    return proofOf(this.#id, "was anything created for this box", "no create call was made");
  }

  toRuntimeError(error: unknown, doing: BoxOperation): unknown {
    return toRuntimeError(doing, error);
  }

  #error(operation: string, code: RuntimeErrorCode, message: string, cause?: unknown): RuntimeError {
    return new RuntimeError({ code, driver: DRIVER, operation, boxId: this.#id, message, cause });
  }
}

/** Waits, and leaves the outcome for later. */
async function settle<T>(promise: Promise<T>): Promise<() => T> {
  try {
    const value = await promise;
    return () => value;
  } catch (error) {
    return () => {
      throw error;
    };
  }
}

function joined(proof: Proof, others: readonly Proof[]): Proof {
  const all = [proof, ...others];
  return {
    ...proof,
    question: all.map(({ question }) => question).join("; "),
    answer: all.map(({ id, answer }) => `${id}: ${answer}`).join("; "),
  };
}
