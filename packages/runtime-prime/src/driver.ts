import { createBox, type Deadline, remembered } from "@breakwater/driver-kit";
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
import { type BoxContext, PrimeBox } from "./box.ts";
import { type Doing, DRIVER, operate } from "./errors.ts";
import { Connections } from "./http.ts";
import { Images } from "./images.ts";
import { type Account, findAccount, type PrimeDriverOptions } from "./options.ts";
import { CAPABILITIES, describeService } from "./probe.ts";
import { Service } from "./service.ts";
import { sweep } from "./sweep.ts";
import { kindOf, ROLE_LABEL } from "./translate.ts";

const PROBE_TIMEOUT_MS = 60_000;
const SWEEP_TIMEOUT_MS = 10 * 60 * 1000;
const PROBING: Doing = { operation: "probe", what: "asking Prime whether it lets us in" };
/** How long a service that does not answer is put up with when it is only asked whether it is there. */
const PROBE_PATIENCE_MS = 10_000;

/**
 * Boxes as sandboxes of Prime. Does no I/O; the key is looked for with the first operation, which throws `ERR_BACKEND_AUTH` if there is
 * none and `TypeError` for an address that is none.
 */
export function primeDriver(options: PrimeDriverOptions = {}): RuntimeDriver {
  return new PrimeDriver(options);
}

class PrimeDriver implements RuntimeDriver {
  readonly name: string = DRIVER;
  readonly capabilities: RuntimeCapabilities;
  readonly #options: PrimeDriverOptions;
  readonly #connections = new Connections();
  readonly #service: Service;
  readonly #box: BoxContext;
  readonly #images: Images;
  readonly #account: () => Promise<Account>;
  readonly #probed: () => Promise<number>;

  constructor(options: PrimeDriverOptions) {
    this.#options = options;
    this.capabilities = CAPABILITIES[kindOf(options)];
    this.#account = remembered(() => findAccount(options));
    this.#service = new Service(this.#connections, this.#account);
    this.#probed = remembered(() => operate(undefined, PROBING, (clock) => this.#countOurs(clock), PROBE_TIMEOUT_MS));
    this.#box = { service: this.#service, connections: this.#connections, options };
    this.#images = new Images(this.#box);
  }

  /** The service does not tell what it enforces; that it lets us in is what is asked. */
  async probe(options?: OperationOptions): Promise<RuntimeCapabilities> {
    await operate(options, PROBING, (clock) => clock.race(this.#probed()), PROBE_TIMEOUT_MS);
    return this.capabilities;
  }

  async *doctor(options?: OperationOptions): AsyncGenerator<DoctorLine> {
    try {
      const doing = { operation: "doctor", what: "asking Prime" };
      const ask = async (clock: Deadline): Promise<readonly [Account, number]> => [
        await this.#account(),
        await this.#countOurs(clock),
      ];
      const [account, active] = await operate(options, doing, ask, PROBE_TIMEOUT_MS);
      yield* describeService(account, kindOf(this.#options), active);
    } catch (error) {
      yield {
        status: "failed",
        what: (error as Error).message,
        advice: "set PRIME_API_KEY, or log in with Prime's command line; see whether the API is reachable",
      };
    }
  }

  create(spec: RuntimeSpecInput): Runtime {
    const parsed = parseRuntimeSpec(spec);
    return createBox({
      driver: DRIVER,
      spec: parsed,
      probe: (options) => this.probe(options),
      backend: (id) => new PrimeBox(id, parsed, this.#box),
    });
  }

  async prepareImage(source: ImageSource, options?: PrepareImageOptions): Promise<PreparedImage> {
    return this.#images.prepare(source, options);
  }

  async sweep(options?: SweepOptions): Promise<SweepReport> {
    const doing = { operation: "sweep", what: "removing what dead owners left" };
    return operate(options, doing, (clock) => sweep(this.#service, clock, options), SWEEP_TIMEOUT_MS);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#connections[Symbol.asyncDispose]();
  }

  async #countOurs(clock: Deadline): Promise<number> {
    return (await this.#service.listActive(clock, [ROLE_LABEL], { patienceMs: PROBE_PATIENCE_MS })).length;
  }
}
