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
  type RuntimeSpecInput,
  type SweepOptions,
  type SweepReport,
} from "@breakwater/runtime-api";
import { createBox, remembered } from "@breakwater/driver-kit";
import type { BoxContext } from "./box.ts";
import { Engine, operate } from "./engine.ts";
import { DRIVER } from "./errors.ts";
import { packHelper } from "./helper-archive.ts";
import { DEFAULT_EGRESS_BASE_IMAGE } from "@breakwater/egress-gateway";
import { EgressImages } from "./egress-images.ts";
import { Gateways } from "./gateway.ts";
import { Images } from "./images.ts";
import { askNameServers } from "./name-servers.ts";
import { PublicNetwork } from "./networks.ts";
import { type DockerDriverOptions, registryConfigPath } from "./options.ts";
import { askEngine, CAPABILITIES, describeEngine, enforced, type EngineFacts } from "./probe.ts";
import { dockerBox } from "./services.ts";
import { sweep } from "./sweep.ts";

const PROBE_TIMEOUT_MS = 30_000;
const SWEEP_TIMEOUT_MS = 10 * 60 * 1000;
const DISPOSE_TIMEOUT_MS = 10_000;
const DEFAULT_PUBLIC_NETWORK = "breakwater-public";

/**
 * Boxes as containers of a Docker Engine (20.10 or newer) or of Podman's Docker API. Does no I/O; the engine is looked for with the first
 * operation. Throws a `TypeError` there for an address that is none, `ERR_BACKEND_UNAVAILABLE` if there is no engine.
 */
export function dockerDriver(options: DockerDriverOptions = {}): RuntimeDriver {
  return new DockerDriver(options);
}

class DockerDriver implements RuntimeDriver {
  readonly name: string = DRIVER;
  readonly capabilities: RuntimeCapabilities = CAPABILITIES;
  readonly #engine: Engine;
  readonly #images: Images;
  readonly #publicNetwork: PublicNetwork;
  readonly #gateways: Gateways;
  readonly #box: BoxContext;
  readonly #facts: () => Promise<EngineFacts>;

  constructor(options: DockerDriverOptions) {
    this.#engine = new Engine(options);
    this.#images = new Images(this.#engine, registryConfigPath(options));
    const publicNetwork = options.publicNetwork ?? DEFAULT_PUBLIC_NETWORK;
    this.#publicNetwork = new PublicNetwork(this.#engine, publicNetwork, { isShared: true });
    const kind = async (): Promise<EngineFacts["kind"]> => (await this.#facts()).kind;
    const baseImage =
      options.egressBaseImage ?? (process.env["BREAKWATER_EGRESS_BASE_IMAGE"] || DEFAULT_EGRESS_BASE_IMAGE);
    const architecture = async (): Promise<string> => (await this.#facts()).version.Arch ?? "";
    const inCommon = {
      engine: this.#engine,
      images: new EgressImages(this.#engine, this.#images, baseImage, architecture),
      publicNetwork: this.#publicNetwork,
    };
    this.#gateways = new Gateways({ ...inCommon, sharesBridge: async () => (await kind()) === "docker" });
    this.#facts = remembered(() =>
      operate(
        undefined,
        { operation: "probe", what: "asking the engine what it can do", subject: "other" },
        (clock) => askEngine(this.#engine, clock),
        PROBE_TIMEOUT_MS,
      ),
    );
    this.#box = {
      engine: this.#engine,
      images: this.#images,
      network: {
        engine: this.#engine,
        publicNetwork: this.#publicNetwork,
        egress: { ...inCommon, gateways: this.#gateways },
        publicVia: options.publicVia ?? "bridge",
        nameServers: remembered((image) => askNameServers(this, image)),
      },
      kind,
      helperArchive: remembered(async () => packHelper(await architecture())),
    };
  }

  async probe(options?: OperationOptions): Promise<RuntimeCapabilities> {
    return operate(
      options,
      { operation: "probe", what: "asking the engine what it can do", subject: "other" },
      async (clock) => enforced(await clock.race(this.#facts())),
    );
  }

  async *doctor(options?: OperationOptions): AsyncGenerator<DoctorLine> {
    try {
      const doing = { operation: "doctor", what: "asking the engine", subject: "other" } as const;
      const [label, facts] = await operate(
        options,
        doing,
        async (clock) => [await this.#engine.label(), await askEngine(this.#engine, clock)] as const,
      );
      yield* describeEngine(label, facts);
    } catch (error) {
      yield {
        status: "failed",
        what: (error as Error).message,
        advice: "start Docker or Podman, or name an engine with DOCKER_HOST",
      };
    }
  }

  create(spec: RuntimeSpecInput): Runtime {
    const parsed = parseRuntimeSpec(spec);
    return createBox({
      driver: DRIVER,
      spec: parsed,
      probe: (options) => this.probe(options),
      backend: (id) => dockerBox(id, parsed, this.#box, (options) => this.probe(options)),
    });
  }

  async prepareImage(source: ImageSource, options?: PrepareImageOptions): Promise<PreparedImage> {
    return this.#images.prepare(source, options);
  }

  async sweep(options?: SweepOptions): Promise<SweepReport> {
    return operate(
      options,
      { operation: "sweep", what: "removing what dead owners left", subject: "other" },
      (clock) => sweep(this.#engine, clock, options),
      SWEEP_TIMEOUT_MS,
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#gateways[Symbol.asyncDispose]();
    if (this.#publicNetwork.used) {
      const doing = { operation: "dispose", what: "removing the public network", subject: "network" } as const;
      // Best effort: what is left, sweep finds.
      await operate(undefined, doing, (clock) => this.#publicNetwork.removeIfUnused(clock), DISPOSE_TIMEOUT_MS).catch(
        () => undefined,
      );
    }
    await this.#engine[Symbol.asyncDispose]();
  }
}
