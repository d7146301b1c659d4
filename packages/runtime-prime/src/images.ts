import type { Deadline } from "@breakwater/driver-kit";
import {
  type ImageSource,
  type OperationOptions,
  parseRuntimeSpec,
  type PreparedImage,
  RuntimeError,
  type RuntimeErrorCode,
} from "@breakwater/runtime-api";
import { type BoxContext, PrimeBox } from "./box.ts";
import { type Doing, DRIVER, operate } from "./errors.ts";

/** The service builds an image for VMs when it is first used. */
const PREPARE_TIMEOUT_MS = 30 * 60 * 1000;
const REMOVE_TIMEOUT_MS = 60_000;
const LIFETIME_MS = 40 * 60 * 1000;

/** Images by reference. What is known of one is kept: an image is looked at once. */
export class Images {
  readonly #context: BoxContext;
  readonly #known = new Map<string, Promise<PreparedImage>>();
  #count = 0;

  constructor(context: BoxContext) {
    this.#context = context;
  }

  /**
   * Asks the service whether it can pull the image, and starts a small box of it: only that shows that it can, and what the image declares. Nothing is pinned.
   * Throws `ERR_UNSUPPORTED` for a build definition, `ERR_IMAGE_NOT_FOUND`, `ERR_IMAGE_PULL`, and what starting a box throws.
   */
  async prepare(source: ImageSource, options?: OperationOptions): Promise<PreparedImage> {
    if ("context" in source) {
      throw this.#error(
        "ERR_UNSUPPORTED",
        `${source.name} has a build definition, and this driver does not build; build and push the image and name it in the task`,
      );
    }
    const { reference } = source;
    let looking = this.#known.get(reference);
    if (looking === undefined) {
      looking = this.#look(reference);
      this.#known.set(reference, looking);
      looking.catch(() => this.#known.delete(reference));
    }
    const asked = looking;
    return operate(options, preparing(reference), (clock) => clock.race(asked), PREPARE_TIMEOUT_MS);
  }

  #look(reference: string): Promise<PreparedImage> {
    const look = async (clock: Deadline): Promise<PreparedImage> => {
      const { accessible, details } = await this.#context.service.canPull(clock, reference);
      if (!accessible) {
        throw this.#error(
          "ERR_IMAGE_NOT_FOUND",
          `Prime cannot pull ${reference}: ${details}; check the name, and whether it is public`,
        );
      }
      this.#count += 1;
      const spec = parseRuntimeSpec({ image: reference, lifetimeMs: LIFETIME_MS });
      const box = new PrimeBox(`breakwater-look-${process.pid}-${Date.now()}-${this.#count}`, spec, this.#context);
      try {
        const { image } = await box.start(clock);
        return { ...image, reference };
      } finally {
        const removing = { operation: "prepareImage", what: "removing the box that looked at an image" };
        await operate(undefined, removing, (own) => box.remove(own), REMOVE_TIMEOUT_MS);
      }
    };
    return operate(undefined, preparing(reference), look, PREPARE_TIMEOUT_MS);
  }

  #error(code: RuntimeErrorCode, message: string): RuntimeError {
    return new RuntimeError({ code, driver: DRIVER, operation: "prepareImage", message });
  }
}

function preparing(reference: string): Doing {
  return { operation: "prepareImage", what: `preparing the image ${reference}` };
}
