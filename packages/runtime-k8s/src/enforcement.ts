import { randomBytes } from "node:crypto";
import type { V1Pod } from "@kubernetes/client-node";
import { BOX_HELPER_PATH } from "@breakwater/box-helper";
import type { Deadline } from "@breakwater/driver-kit";
import { type Proof, RuntimeError } from "@breakwater/runtime-api";
import { type Cluster, operate } from "./cluster.ts";
import { DRIVER } from "./errors.ts";
import { ask, StartSlots } from "./exec.ts";
import { becomes, CANARY_ROLE, type Dial, parseDial, type Policies, podAddress, PORTS, probeArgv } from "./network.ts";
import type { Settings } from "./options.ts";
import { awaitStart, createPod, readPod } from "./pods.ts";
import { type PodId, removeUntilGone } from "./teardown.ts";
import { BOX_CONTAINER, helperPod, type PodIdentity } from "./translate.ts";

const CANARY_LIFETIME_MS = 24 * 60 * 60 * 1000;
const CLIENT_LIFETIME_MS = 10 * 60 * 1000;
const REMOVE_TIMEOUT_MS = 60_000;

/** A pod that runs, and where it is. */
interface RunningPod extends PodId {
  readonly address: string;
}

/**
 * Shows that network policies do something: clusters accept them whether or not anything enforces them. A canary listens for as long as the driver is used, and
 * every box is shown not to reach what its policy forbids while the canary answers.
 */
export class Enforcement {
  readonly #cluster: Cluster;
  readonly #settings: Settings;
  readonly #policies: Policies;
  readonly #slots = new StartSlots();
  #canary: Promise<RunningPod> | undefined;

  constructor(cluster: Cluster, settings: Settings, policies: Policies) {
    this.#cluster = cluster;
    this.#settings = settings;
    this.#policies = policies;
  }

  /** A connection that may be, then may not be, then may be again: only all three show enforcement. */
  async isProven(clock: Deadline): Promise<boolean> {
    await this.#policies.ensure(clock);
    const { address } = await this.#listening(clock);
    const client = await this.#start(clock, ["idle"], "probe", this.#policies.publicLabel, CLIENT_LIFETIME_MS);
    try {
      const dial = this.#dialFrom(client.name);
      for (const mode of ["public", "no-network", "public"] as const) {
        await this.#policies.relabel(clock, client.name, this.#policies.labelFor(mode));
        if (!(await becomes(dial, address, mode, clock))) return false;
      }
      return true;
    } finally {
      await this.#remove(client);
    }
  }

  /** The canary's address. Shown to listen on both ports by {@link assertListening}. */
  async address(clock: Deadline): Promise<string> {
    return (await this.#listening(clock)).address;
  }

  /** What was not reached was there to be reached. */
  async assertListening(clock: Deadline): Promise<void> {
    const { name } = await this.#listening(clock);
    const dial = this.#dialFrom(name);
    for (const port of Object.values(PORTS)) {
      if (await dial("127.0.0.1", port, clock)) continue;
      const message = `the canary ${name} does not listen on port ${port}, so that a box that cannot reach it proves nothing; try again`;
      throw new RuntimeError({ code: "ERR_BACKEND", driver: DRIVER, operation: "start", message });
    }
  }

  /** Removes what was started for proofs. */
  async close(): Promise<void> {
    const canary = await this.#canary?.catch(() => undefined);
    this.#canary = undefined;
    if (canary !== undefined) await this.#remove(canary);
  }

  async #listening(clock: Deadline): Promise<RunningPod> {
    const known = await this.#canary?.catch(() => undefined);
    if (known !== undefined) {
      const pod = await readPod(this.#cluster, clock, known.name);
      if (pod?.metadata?.uid === known.uid && pod.status?.phase === "Running") return known;
    }
    const argv = ["listen", ...Object.values(PORTS).map(String)];
    // Of several that ask at once, one starts it.
    if (known !== undefined || this.#canary === undefined) {
      const doing = { operation: "probe", what: "starting the canary" };
      this.#canary = operate(undefined, doing, (own) => this.#start(own, argv, CANARY_ROLE, null, CANARY_LIFETIME_MS));
      this.#canary.catch(() => {
        this.#canary = undefined;
      });
    }
    return clock.race(this.#canary);
  }

  async #start(
    clock: Deadline,
    argv: readonly string[],
    role: PodIdentity["role"],
    network: string | null,
    lifetimeMs: number,
  ): Promise<RunningPod> {
    const name = `breakwater-${role}-${randomBytes(8).toString("hex")}`;
    const identity = { name, role, trial: null, expiresAtMs: Date.now() + lifetimeMs, network };
    const created = await createPod(this.#cluster, "probe", helperPod(argv, identity, lifetimeMs, this.#settings));
    const id = { name, uid: created.metadata?.uid ?? "" };
    try {
      const { scheduleTimeoutMs } = this.#settings;
      const running: V1Pod = await awaitStart(this.#cluster, clock, created, { operation: "probe", scheduleTimeoutMs });
      return { ...id, address: podAddress(running) };
    } catch (error) {
      await this.#remove(id).catch(() => undefined);
      throw error;
    }
  }

  #dialFrom(pod: string): Dial {
    return async (address, port, clock) => {
      const target = { pod, container: BOX_CONTAINER, argv: [BOX_HELPER_PATH, ...probeArgv(address, port)] };
      const answer = await ask(this.#cluster, target, this.#settings.execProtocols, this.#slots, clock);
      return parseDial(answer, `in ${pod}`, "probe");
    };
  }

  #remove(pod: PodId): Promise<Proof> {
    const doing = { operation: "probe", what: `removing the pod ${pod.name}` };
    return operate(undefined, doing, (clock) => removeUntilGone(this.#cluster, clock, pod), REMOVE_TIMEOUT_MS);
  }
}
