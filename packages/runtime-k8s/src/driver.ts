import {
  type DoctorLine,
  type ImageSource,
  type OperationOptions,
  parseRuntimeSpec,
  type PreparedImage,
  type PrepareImageOptions,
  type Runtime,
  type RuntimeCapabilities,
  type RuntimeDriver,
  RuntimeError,
  type RuntimeSpecInput,
  type SweepOptions,
  type SweepReport,
} from "@breakwater/runtime-api";
import { createBox, deadline, remembered } from "@breakwater/driver-kit";
import { type BoxContext, PodBox } from "./box.ts";
import { Cluster, operate } from "./cluster.ts";
import { Enforcement } from "./enforcement.ts";
import { DRIVER, toRuntimeError } from "./errors.ts";
import { Images } from "./images.ts";
import { Policies } from "./network.ts";
import { type K8sDriverOptions, parseOptions, type Settings } from "./options.ts";
import { askCluster, CAPABILITIES, type ClusterFacts, describeCluster, enforced } from "./probe.ts";
import { sweep } from "./sweep.ts";

const PROBE_TIMEOUT_MS = 10 * 60 * 1000;
const SWEEP_TIMEOUT_MS = 10 * 60 * 1000;

/**
 * Boxes as pods of a Kubernetes cluster, 1.30 or newer, in a namespace of their own. Does no I/O; the kubeconfig is read with the first operation.
 * Throws a `TypeError` for options that are none.
 */
export function k8sDriver(options: K8sDriverOptions = {}): RuntimeDriver {
  return new K8sDriver(parseOptions(options));
}

class K8sDriver implements RuntimeDriver {
  readonly name: string = DRIVER;
  readonly capabilities: RuntimeCapabilities = CAPABILITIES;
  readonly #settings: Settings;
  readonly #cluster: Cluster;
  readonly #images: Images;
  readonly #enforcement: Enforcement;
  readonly #box: BoxContext;
  readonly #askOnce: () => Promise<ClusterFacts> = remembered(() => this.#ask());
  #isEnforced = false;

  constructor(settings: Settings) {
    this.#settings = settings;
    this.#cluster = new Cluster(settings);
    this.#images = new Images(this.#cluster, settings);
    const policies = new Policies(this.#cluster, settings);
    this.#enforcement = new Enforcement(this.#cluster, settings, policies);
    this.#box = {
      cluster: this.#cluster,
      settings,
      images: this.#images,
      policies,
      enforcement: this.#enforcement,
      isEnforced: () => this.#isEnforced,
    };
  }

  async probe(options?: OperationOptions): Promise<RuntimeCapabilities> {
    const doing = { operation: "probe", what: "asking the cluster what it can do" };
    return operate(
      options,
      doing,
      async (clock) => enforced(await clock.race(this.#askOnce()), this.#settings),
      PROBE_TIMEOUT_MS,
    );
  }

  async *doctor(options?: OperationOptions): AsyncGenerator<DoctorLine> {
    const doing = { operation: "doctor", what: "asking the cluster" };
    using clock = deadline(options, PROBE_TIMEOUT_MS, { driver: DRIVER, ...doing });
    try {
      yield* describeCluster(this.#cluster, this.#enforcement, this.#settings, clock);
    } catch (error) {
      const { message } = toRuntimeError(doing, clock.translate(error)) as Error;
      yield {
        status: "failed",
        what: message,
        advice: "see whether the kubeconfig names a cluster that runs (KUBECONFIG)",
      };
    }
  }

  create(spec: RuntimeSpecInput): Runtime {
    const parsed = parseRuntimeSpec(spec);
    return createBox({
      driver: DRIVER,
      spec: parsed,
      probe: (options) => this.probe(options),
      backend: (id) => new PodBox(id, parsed, this.#box),
    });
  }

  async prepareImage(source: ImageSource, options?: PrepareImageOptions): Promise<PreparedImage> {
    this.#requireHelper("prepareImage");
    return this.#images.prepare(source, options);
  }

  async sweep(options?: SweepOptions): Promise<SweepReport> {
    const doing = { operation: "sweep", what: "removing what dead owners left" };
    return operate(options, doing, (clock) => sweep(this.#cluster, clock, options), SWEEP_TIMEOUT_MS);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Best effort: what is left, sweep finds.
    await this.#enforcement.close().catch(() => undefined);
    await this.#cluster.close().catch(() => undefined);
  }

  async #ask(): Promise<ClusterFacts> {
    this.#requireHelper("probe");
    const doing = { operation: "probe", what: "asking the cluster what it can do" };
    const ask = (own: Parameters<typeof askCluster>[2]): Promise<ClusterFacts> =>
      askCluster(this.#cluster, this.#enforcement, own);
    const facts = await operate(undefined, doing, ask, PROBE_TIMEOUT_MS);
    this.#isEnforced = facts.isEnforced;
    return facts;
  }

  #requireHelper(operation: string): void {
    if (this.#settings.helperImage !== "") return;
    const message =
      "no helper image is named; build it from deploy/helper.Dockerfile, and name it by BREAKWATER_HELPER_IMAGE or the option helperImage";
    throw new RuntimeError({ code: "ERR_IMAGE_NOT_FOUND", driver: DRIVER, operation, message });
  }
}
