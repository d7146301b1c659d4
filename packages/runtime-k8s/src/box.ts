import type { V1Pod } from "@kubernetes/client-node";
import {
  type BackendBox,
  type BoxEnd,
  type BoxExec,
  type BoxOperation,
  type Deadline,
  type HelperContext,
  killProcesses,
  proofOf,
  type StartedBox,
  type StoppedBox,
  UNKNOWN_USAGE,
} from "@breakwater/driver-kit";
import { type Proof, RuntimeError, type RuntimeErrorCode, type RuntimeSpec } from "@breakwater/runtime-api";
import type { Cluster } from "./cluster.ts";
import type { Enforcement } from "./enforcement.ts";
import { DRIVER, toRuntimeError } from "./errors.ts";
import { openExec, type PodExec, StartSlots } from "./exec.ts";
import type { Images } from "./images.ts";
import { becomes, dialFrom, type Policies } from "./network.ts";
import type { Settings } from "./options.ts";
import { awaitStart, boxStatus, createPod, isOurs, readPod } from "./pods.ts";
import { classifyEnd } from "./report.ts";
import { removeUntilGone } from "./teardown.ts";
import { BOX_CONTAINER, boxPod } from "./translate.ts";

const PAUSE_MS = 50;

/** What a box needs of its driver. */
export interface BoxContext {
  readonly cluster: Cluster;
  readonly settings: Settings;
  readonly images: Images;
  readonly policies: Policies;
  readonly enforcement: Enforcement;
  /** Whether the cluster enforces network policies; known once `probe` has answered. */
  readonly isEnforced: () => boolean;
}

/** One pod. The order of the methods is the order of a box's life. */
export class PodBox implements BackendBox {
  readonly #name: string;
  readonly #spec: RuntimeSpec;
  readonly #context: BoxContext;
  readonly #slots = new StartSlots();
  /** The cluster's id, once it has answered. */
  #uid: string | null = null;
  #creating = false;
  #stopping = false;
  readonly #execs = new Set<PodExec>();

  constructor(id: string, spec: RuntimeSpec, context: BoxContext) {
    this.#name = id;
    this.#spec = spec;
    this.#context = context;
  }

  get handle(): string {
    return this.#uid === null ? `pod/${this.#name}` : `pod/${this.#name} ${this.#uid}`;
  }

  async start(clock: Deadline): Promise<StartedBox> {
    const { cluster, settings, images, policies } = this.#context;
    const spec = this.#spec;
    const image = await images.facts(clock, spec.image);
    clock.throwIfOver();
    const identity = {
      name: this.#name,
      role: "box",
      trial: spec.trial,
      expiresAtMs: Date.now() + spec.lifetimeMs,
      network: policies.labelFor(spec.network.initial.mode),
    } as const;
    this.#creating = true;
    const created = await createPod(cluster, "start", boxPod(spec, image, identity, settings));
    this.#uid = created.metadata?.uid ?? null;
    const { scheduleTimeoutMs } = settings;
    const running = await awaitStart(cluster, clock, created, { operation: "start", scheduleTimeoutMs });
    await images.checkUnchanged(spec.image, running);
    return { image, startedAtMs: Date.now() };
  }

  /** A new pod was seen to connect for the first moments under any policy: nothing of the image or of a caller runs before this. */
  async prove(inside: HelperContext, clock: Deadline): Promise<void> {
    const { enforcement, isEnforced } = this.#context;
    const { mode } = this.#spec.network.initial;
    if (!isEnforced()) return;
    const address = await enforcement.address(clock);
    const holds = await becomes(dialFrom(inside), address, mode, clock);
    await enforcement.assertListening(clock);
    if (holds) return;
    const message = `the policy is ${mode}, and from within the box it is not so; see what enforces network policies on its node`;
    throw this.#error(inside.operation, "ERR_NETWORK_CHANGE", message);
  }

  async lastWords(clock: Deadline): Promise<string> {
    const pod = await this.#pod(clock);
    return (pod === null ? undefined : boxStatus(pod)?.state?.terminated?.message) ?? "";
  }

  async look(clock: Deadline): Promise<"running" | "ended" | "gone"> {
    const pod = await this.#pod(clock);
    if (pod === null) return "gone";
    const { phase } = pod.status ?? {};
    const isOver = phase === "Failed" || phase === "Succeeded" || boxStatus(pod)?.state?.terminated !== undefined;
    return isOver ? "ended" : "running";
  }

  async openExec(argv: readonly string[], clock: Deadline): Promise<BoxExec> {
    const { cluster, settings } = this.#context;
    const target = { pod: this.#name, container: BOX_CONTAINER, argv };
    const isRunning = async (): Promise<boolean> => (await this.look(clock)) === "running";
    const exec = await openExec(cluster, target, settings.execProtocols, this.#slots, clock, isRunning);
    this.#execs.add(exec);
    void exec.closed.then(() => this.#execs.delete(exec));
    return exec;
  }

  /** Sealed: the pod goes on, and in it our hold alone, so that our helper can read what is there. */
  async stop(inside: HelperContext, clock: Deadline): Promise<StoppedBox> {
    // What runs for callers is cut off first: that it was killed is no result of it.
    if (!this.#stopping) for (const exec of this.#execs) exec.abort("the box was stopped");
    this.#stopping = true;
    for (;;) {
      const pod = await this.#pod(clock);
      if (pod === null) throw this.#error("stopConfirmed", "ERR_BOX_LOST", "the pod no longer exists");
      const terminated = boxStatus(pod)?.state?.terminated;
      if (terminated !== undefined) {
        const answer = `200 state.terminated: exitCode=${terminated.exitCode}, reason=${terminated.reason}`;
        const proof = this.#proof(`GET pods/${this.#name}`, answer);
        return { proof, exitCode: terminated.exitCode, endedBefore: true };
      }
      const { remaining } = await killProcesses(inside, { signal: clock.signal });
      if (remaining.length === 0) {
        const proof = this.#proof("box-helper kill-all", "remaining: [] (nothing but our hold, by a listing of /proc)");
        return { proof, exitCode: null, endedBefore: false };
      }
      await clock.sleep(PAUSE_MS);
    }
  }

  async howItEnded(clock: Deadline): Promise<BoxEnd> {
    const pod = await this.#pod(clock);
    return pod === null ? { endedBy: "unknown", exitCode: null, ...UNKNOWN_USAGE } : classifyEnd(pod);
  }

  async remove(clock: Deadline): Promise<Proof> {
    const { cluster } = this.#context;
    if (!this.#creating) return this.#proof("was a pod created for this box", "no create call was made");
    // The answer of the create call may have been lost.
    this.#uid ??= (await this.#pod(clock))?.metadata?.uid ?? null;
    if (this.#uid === null) return this.#proof(`GET pods/${this.#name}`, "404, or a pod that is not ours");
    return removeUntilGone(cluster, clock, { name: this.#name, uid: this.#uid });
  }

  toRuntimeError(error: unknown, doing: BoxOperation): unknown {
    return toRuntimeError(doing, error);
  }

  /** Our pod, not another one of its name. */
  async #pod(clock: Deadline): Promise<V1Pod | null> {
    const pod = await readPod(this.#context.cluster, clock, this.#name);
    if (pod === null) return null;
    const isIt = this.#uid === null ? isOurs(pod) : pod.metadata?.uid === this.#uid;
    return isIt ? pod : null;
  }

  #proof(question: string, answer: string): Proof {
    return proofOf(this.#uid ?? this.#name, question, answer);
  }

  #error(operation: string, code: RuntimeErrorCode, message: string): RuntimeError {
    return new RuntimeError({ code, driver: DRIVER, operation, boxId: this.#name, message });
  }
}
