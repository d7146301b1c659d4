import { Readable } from "node:stream";
import { forwarderImage, gatewayImage, type ImageRecipe } from "@breakwater/egress-gateway";
import { RuntimeError } from "@breakwater/runtime-api";
import { type Deadline, remembered } from "@breakwater/driver-kit";
import { type Engine, operate } from "./engine.ts";
import { DRIVER, EngineError } from "./errors.ts";
import { boxArchitecture } from "./helper-archive.ts";
import { followProgress, type Images, ProgressError } from "./images.ts";

const BUILD_TIMEOUT_MS = 10 * 60 * 1000;

/** The images of gateways and forwarders on one engine: built on first use, and called by the hash of what is in them. */
export class EgressImages {
  readonly #engine: Engine;
  readonly #images: Images;
  readonly #baseImage: string;
  readonly #forwarder: () => Promise<ImageRecipe>;

  constructor(engine: Engine, images: Images, baseImage: string, architecture: () => Promise<string>) {
    this.#engine = engine;
    this.#images = images;
    this.#baseImage = baseImage;
    this.#forwarder = remembered(async () => forwarderImage(boxArchitecture(await architecture())));
  }

  /** Gives the image's id. */
  async gateway(clock: Deadline): Promise<string> {
    const base = await this.#images.findOrPull(clock, this.#baseImage);
    return this.#ensure(clock, await gatewayImage({ baseImage: this.#baseImage, baseId: base.id }));
  }

  /** Gives the image's id. */
  async forwarder(clock: Deadline): Promise<string> {
    return this.#ensure(clock, await this.#forwarder());
  }

  async #ensure(clock: Deadline, recipe: ImageRecipe): Promise<string> {
    const found = await this.#images.find(clock, recipe.tag);
    if (found !== null) return found.id;
    await clock.race(this.#images.once(`build ${recipe.tag}`, () => this.#build(recipe)));
    const built = await this.#images.find(clock, recipe.tag);
    if (built !== null) return built.id;
    throw unbuilt(recipe.tag, "the engine does not have it although it was built; see the engine's log");
  }

  async #build(recipe: ImageRecipe): Promise<void> {
    const { tag } = recipe;
    const doing = { operation: "start", what: `building the image ${tag}`, subject: "image" } as const;
    await operate(
      undefined,
      doing,
      async (clock) => {
        try {
          const response = await this.#engine.send(clock.signal, {
            method: "POST",
            path: "/build",
            query: { t: tag, rm: true, forcerm: true, networkmode: "none" },
            file: Readable.from(recipe.context(), { objectMode: false }),
          });
          await followProgress(response);
        } catch (error) {
          clock.throwIfOver();
          if (error instanceof EngineError) throw unbuilt(tag, error.detail, error);
          if (error instanceof ProgressError) throw unbuilt(tag, error.message, error);
          throw error;
        }
      },
      BUILD_TIMEOUT_MS,
    );
  }
}

function unbuilt(tag: string, reason: string, cause?: unknown): RuntimeError {
  const message = `the image ${tag} for allowlists could not be built: ${reason}; see the option egressBaseImage`;
  return new RuntimeError({ code: "ERR_IMAGE_BUILD", driver: DRIVER, operation: "start", message, cause });
}
