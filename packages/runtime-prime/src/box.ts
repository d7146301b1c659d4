import {
  type BackendBox,
  type BoxEnd,
  type BoxExec,
  type BoxImage,
  type BoxOperation,
  type Deadline,
  deadline,
  type HelperContext,
  proofOf,
  settlesWithin,
  type StartedBox,
  type StoppedBox,
} from "@breakwater/driver-kit";
import { type NetworkPolicy, type Proof, type Refusal, RuntimeError, type RuntimeSpec } from "@breakwater/runtime-api";
import { DRIVER, isStatus, toRuntimeError } from "./errors.ts";
import { Jobs } from "./exec.ts";
import { installHelper, type Shell } from "./files.ts";
import { Gateway } from "./gateway.ts";
import type { Connections } from "./http.ts";
import type { PrimeDriverOptions } from "./options.ts";
import { howItEnded } from "./report.ts";
import { isTerminal, type Sandbox } from "./schemas.ts";
import type { SeenStatus, Service } from "./service.ts";
import { Sessions } from "./sessions.ts";
import { removeUntilGone } from "./teardown.ts";
import { BOX_LABEL, createBody, egressLists, kindOf, LEAST_CPUS, LEAST_MEMORY_MB } from "./translate.ts";

const CREATE_TIMEOUT_MS = 2 * 60 * 1000;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 5000;
const COMMAND_TIMEOUT_MS = 30_000;
const EGRESS_TIMEOUT_MS = 60_000;
const LONGEST_EGRESS_PAUSE_MS = 3000;
/** Entries of one egress list. */
const MAX_EGRESS_ENTRIES = 256;
const MAX_LOG_CHARACTERS = 2000;
/** Refusals of a create call: nothing was made by it. */
const REFUSED = [400, 401, 402, 403, 422] as const;

/** What a box needs of its driver. */
export interface BoxContext {
  readonly service: Service;
  readonly connections: Connections;
  readonly options: PrimeDriverOptions;
}

/** One sandbox. */
export class PrimeBox implements BackendBox {
  readonly #id: string;
  readonly #spec: RuntimeSpec;
  readonly #context: BoxContext;
  readonly #body: Readonly<Record<string, unknown>>;
  #creating: Promise<Sandbox> | null = null;
  #sandboxId: string | null = null;
  #hasRun = false;
  /** How programs are run: one of the two, by the kind of the sandbox. */
  #openProgram: ((clock: Deadline, argv: readonly string[]) => Promise<BoxExec>) | null = null;

  constructor(id: string, spec: RuntimeSpec, context: BoxContext) {
    this.#id = id;
    this.#spec = spec;
    this.#context = context;
    this.#body = createBody(id, spec, context.options);
  }

  get handle(): string {
    return this.#sandboxId ?? this.#id;
  }

  async start(clock: Deadline): Promise<StartedBox> {
    this.#refuseOutOfBounds();
    this.#creating = this.#create();
    const { id } = await clock.race(this.#creating);
    await this.#untilRunning(clock, id);
    this.#hasRun = true;
    const startedAtMs = Date.now();
    const image = await this.#makeUsable(clock, id);
    if (this.#isVm) await this.#untilEgressApplied(clock, null);
    return { image: { ...image, id: this.#spec.image }, startedAtMs };
  }

  get #isVm(): boolean {
    return kindOf(this.#context.options) === "vm";
  }

  async #makeUsable(clock: Deadline, id: string): Promise<BoxImage> {
    const { connections, service } = this.#context;
    const gateway = new Gateway(connections, service, id);
    if (this.#isVm) {
      const sessions = new Sessions(gateway, connections);
      this.#openProgram = (ofProgram, argv) => sessions.open(ofProgram, argv);
      const shell: Shell = (own, command, { asImage, isStarting }) =>
        sessions.run(own, command, asImage ? { user: null, cwd: null } : { user: "root", cwd: "/" }, isStarting);
      return installHelper({ gateway, shell }, clock, this.#id);
    }
    const jobs = new Jobs(gateway, this.#id);
    this.#openProgram = async (_ofProgram, argv) => jobs.open(argv.slice(1));
    const shell: Shell = (own, command, { asImage, isStarting }) => {
      const as = asImage ? { user: null, cwd: null } : { user: "0:0" };
      return gateway.run(own, { command, timeoutMs: COMMAND_TIMEOUT_MS, ...as }, isStarting);
    };
    return installHelper({ gateway, shell }, clock, this.#id);
  }

  /** What the service's own bounds forbid: it gives no less, and more would not be the limit that was asked for. */
  #refuseOutOfBounds(): void {
    const { cpus, memoryMb, network } = this.#spec;
    const refusals: Refusal[] = [];
    if (cpus !== null && cpus < LEAST_CPUS) {
      const message = `${cpus} cores were asked for, the service gives at least ${LEAST_CPUS}`;
      refusals.push({
        key: "cpus",
        code: "REFUSED_CPUS",
        message,
        advice: "override the number of cores (--override-cpus)",
      });
    }
    if (memoryMb !== null && memoryMb < LEAST_MEMORY_MB) {
      const message = `${memoryMb} MiB were asked for, the service gives at least ${LEAST_MEMORY_MB}`;
      refusals.push({
        key: "memoryMb",
        code: "REFUSED_MEMORY",
        message,
        advice: "override the memory (--override-memory-mb)",
      });
    }
    for (const policy of [network.initial, ...network.later]) {
      if (policy.mode !== "allowlist" || policy.hosts.length <= MAX_EGRESS_ENTRIES) continue;
      const message = `an allowlist of ${policy.hosts.length} entries was asked for, the service takes ${MAX_EGRESS_ENTRIES}`;
      refusals.push({
        key: "network",
        code: "REFUSED_ALLOWLIST_ENTRY",
        message,
        advice: "use fewer entries, or wildcards",
      });
    }
    if (refusals.length === 0) return;
    throw this.#error("ERR_UNSUPPORTED", "start", refusals.map(({ message }) => message).join("; "), { refusals });
  }

  /** On a clock of its own: whoever cleans up waits for its answer, or asks again with the same key. */
  async #create(): Promise<Sandbox> {
    const about = { driver: DRIVER, boxId: this.#id, operation: "start", what: "creating the sandbox" };
    using clock = deadline(undefined, CREATE_TIMEOUT_MS, about);
    const sandbox = await this.#context.service.create(clock, this.#body);
    this.#sandboxId = sandbox.id;
    return sandbox;
  }

  async #untilRunning(clock: Deadline, id: string): Promise<void> {
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(1.5 * pauseMs, LONGEST_PAUSE_MS)) {
      const seen = await this.#seen(clock, id);
      if (seen?.status === "RUNNING") return;
      if (seen === null)
        throw this.#error("ERR_BOX_LOST", "start", "the sandbox was removed by something else while it was started");
      if (isTerminal(seen.status)) throw this.#notStarted(seen);
      await clock.sleep(pauseMs * (0.75 + Math.random() / 2));
    }
  }

  #notStarted({ status, errorType, errorMessage }: NonNullable<SeenStatus>): RuntimeError {
    const said = [errorType, errorMessage].filter(Boolean).join(": ");
    if (errorType === "IMAGE_PULL_FAILED") {
      return this.#error(
        "ERR_IMAGE_PULL",
        "start",
        `${this.#spec.image} could not be pulled (${said}); check its name and whether it is public`,
      );
    }
    return this.#error(
      "ERR_BOX_START",
      "start",
      `the sandbox became ${status} before it ran${said === "" ? "" : ` (${said})`}`,
    );
  }

  /** A question that failed is asked again, as long as the clock allows. */
  async #seen(clock: Deadline, id: string): Promise<SeenStatus> {
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS)) {
      try {
        return await this.#context.service.status(clock, id);
      } catch (error) {
        clock.throwIfOver();
        if (isStatus(error, 401, 403, 422) || clock.remainingMs() <= pauseMs) throw error;
        await clock.sleep(pauseMs);
      }
    }
  }

  async lastWords(clock: Deadline): Promise<string> {
    return (await this.#context.service.logs(clock, this.handle)).trim().slice(-MAX_LOG_CHARACTERS);
  }

  async look(clock: Deadline): Promise<"running" | "frozen" | "ended" | "gone"> {
    const seen = await this.#seen(clock, this.handle);
    if (seen === null) return "gone";
    if (isTerminal(seen.status)) return "ended";
    return seen.status === "PAUSED" ? "frozen" : "running";
  }

  async openExec(argv: readonly string[], clock: Deadline): Promise<BoxExec> {
    if (this.#openProgram === null) throw new TypeError("the box was not started");
    return this.#openProgram(clock, argv);
  }

  /** New connections follow; open ones live on, which the capability says. */
  async setNetwork(policy: NetworkPolicy, clock: Deadline): Promise<void> {
    const { generation } = await this.#context.service.setEgress(clock, this.handle, egressLists(policy));
    await this.#untilEgressApplied(clock, generation);
  }

  /** Stored is not in force. Whatever is not in force in time counts as not in force. */
  async #untilEgressApplied(clock: Deadline, generation: number | null): Promise<void> {
    const endsAt = performance.now() + EGRESS_TIMEOUT_MS;
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, LONGEST_EGRESS_PAUSE_MS)) {
      const state = await this.#context.service.egress(clock, this.handle);
      if (generation !== null && state.generation > generation) {
        throw this.#error("ERR_NETWORK_CHANGE", "setNetwork", "somebody else has set another network policy meanwhile");
      }
      if (state.appliedGeneration >= state.generation) return;
      if (performance.now() + pauseMs > endsAt) {
        const message = `the network policy was stored ${EGRESS_TIMEOUT_MS} ms ago and is not in force`;
        throw this.#error("ERR_NETWORK_CHANGE", "setNetwork", message);
      }
      await clock.sleep(pauseMs);
    }
  }

  async stop(_inside: HelperContext, clock: Deadline): Promise<StoppedBox> {
    const endedBefore = (await this.look(clock)) === "ended";
    return { proof: await this.remove(clock), exitCode: null, endedBefore };
  }

  async howItEnded(clock: Deadline): Promise<BoxEnd> {
    return howItEnded(await this.#context.service.get(clock, this.handle));
  }

  async remove(clock: Deadline): Promise<Proof> {
    const id = await this.#idToRemove(clock);
    if (id !== null) {
      const removal = { label: `${BOX_LABEL}=${this.#id}`, hasRun: this.#hasRun };
      return removeUntilGone(this.#context.service, clock, id, removal);
    }
    const listed = await this.#context.service.listActive(clock, [`${BOX_LABEL}=${this.#id}`]);
    if (listed.length > 0) throw new Error(`the service refused to create the sandbox, and has ${listed[0]?.id}`);
    const question = `GET /api/v1/sandbox?is_active=true&labels=${BOX_LABEL}=${this.#id}`;
    return proofOf(this.#id, question, "the create call was refused; no active sandbox with this label");
  }

  /** The sandbox that the create call has made, also when its answer was lost: the same call again names it. `null` if it was refused, or never made. */
  async #idToRemove(clock: Deadline): Promise<string | null> {
    if (this.#creating === null) return null;
    await settlesWithin(this.#creating, clock.remainingMs());
    if (this.#sandboxId !== null) return this.#sandboxId;
    try {
      this.#sandboxId = (await this.#context.service.create(clock, this.#body)).id;
    } catch (error) {
      clock.throwIfOver();
      if (!isStatus(error, ...REFUSED)) throw error;
    }
    return this.#sandboxId;
  }

  toRuntimeError(error: unknown, { operation, what, boxId }: BoxOperation): unknown {
    return toRuntimeError({ operation, what, boxId }, error);
  }

  #error(
    code: RuntimeError["code"],
    operation: string,
    message: string,
    more?: { readonly refusals: readonly Refusal[] },
  ): RuntimeError {
    return new RuntimeError({ ...more, code, driver: DRIVER, operation, boxId: this.#id, message });
  }
}
