import { randomUUID } from "node:crypto";
import type {
  NetworkMode,
  Runtime,
  RuntimeCapabilities,
  RuntimeDriver,
  RuntimeSpecInput,
  SweptObject,
} from "@breakwater/runtime-api";
import { type CaseContext, type ConformanceCase, DEFAULT_CASE_TIMEOUT_MS, type Prerequisite } from "./case.ts";
import type { DescribeRuntimeOptions } from "./options.ts";

const BOX_LIFETIME_MS = 30 * 60 * 1000;

/** What the cases of one run have in common: a driver, its probed capabilities, and one box for cases that do not destroy it. */
export class CaseEnvironment {
  readonly driver: RuntimeDriver;
  readonly capabilities: RuntimeCapabilities;
  readonly #options: DescribeRuntimeOptions;
  readonly #run: string = `conformance-${randomUUID().slice(0, 8)}`;
  readonly #retired: Runtime[] = [];
  #boxes = 0;
  #shared: Promise<Runtime> | undefined;

  constructor(driver: RuntimeDriver, capabilities: RuntimeCapabilities, options: DescribeRuntimeOptions) {
    this.driver = driver;
    this.capabilities = capabilities;
    this.#options = options;
  }

  /** Runs a case under its own deadline and removes the boxes that it made. Rejects with the assertion that failed. */
  async run(conformanceCase: ConformanceCase, outerSignal?: AbortSignal): Promise<void> {
    const timeoutMs = conformanceCase.timeoutMs ?? DEFAULT_CASE_TIMEOUT_MS;
    const deadline = new AbortController();
    const signal = outerSignal === undefined ? deadline.signal : AbortSignal.any([deadline.signal, outerSignal]);
    const boxes: Runtime[] = [];
    const timer = setTimeout(() => deadline.abort(), timeoutMs);
    const late = new Promise<never>((_resolve, reject) => {
      const onLate = (): void => reject(new Error(`the case was not over within ${timeoutMs} ms`));
      signal.addEventListener("abort", onLate, { once: true });
    });
    try {
      await Promise.race([conformanceCase.run(this.#context(boxes, signal)), late]);
    } finally {
      clearTimeout(timer);
      await Promise.all(boxes.map((box) => box[Symbol.asyncDispose]()));
    }
  }

  async close(): Promise<void> {
    const shared = await this.#shared?.catch(() => undefined);
    const boxes = shared === undefined ? this.#retired : [shared, ...this.#retired];
    await Promise.all(boxes.map((box) => box[Symbol.asyncDispose]()));
    await this.driver[Symbol.asyncDispose]();
  }

  #context(boxes: Runtime[], signal: AbortSignal): CaseContext {
    const { driver, capabilities } = this;
    const { image, images = {}, network = {}, sabotage = {}, driverModule } = this.#options;
    const newBox = (spec: Partial<RuntimeSpecInput> = {}): Runtime => {
      const box = driver.create(this.#spec(spec));
      boxes.push(box);
      return box;
    };
    return {
      driver,
      capabilities,
      image,
      images,
      network,
      sabotage,
      driverModule,
      newDriver: this.#options.driver,
      signal,
      newBox,
      ownBox: async (spec) => {
        const box = newBox(spec);
        await box.start({ signal });
        return box;
      },
      sharedBox: () => this.#sharedBox(),
      objectsOf: (box) => this.#objectsOfTrial(box.spec.trial),
      objectsOfTrial: (trial) => this.#objectsOfTrial(trial),
    };
  }

  async #objectsOfTrial(trial: string | null): Promise<readonly SweptObject[]> {
    const report = await this.driver.sweep({ dryRun: true });
    return [...report.kept, ...report.removed, ...report.failed].filter((object) => object.trial === trial);
  }

  /** Another one is made when a case left it unusable, so that only that case fails. */
  async #sharedBox(): Promise<Runtime> {
    const current = this.#shared;
    if (current !== undefined) {
      const box = await current.catch(() => undefined);
      if (box?.state === "running") return box;
      if (this.#shared !== current) return this.#sharedBox();
      if (box !== undefined) this.#retired.push(box);
    }
    this.#shared = (async () => {
      const box = this.driver.create(this.#spec({}));
      await box.start();
      return box;
    })();
    return this.#shared;
  }

  #spec(spec: Partial<RuntimeSpecInput>): RuntimeSpecInput {
    this.#boxes += 1;
    const quietest = this.capabilities.networkModes.includes("no-network") ? "no-network" : "public";
    return {
      image: this.#options.image,
      network: { initial: { mode: quietest } },
      lifetimeMs: Math.min(BOX_LIFETIME_MS, this.capabilities.maxLifetimeMs ?? BOX_LIFETIME_MS),
      trial: `${this.#run}-${this.#boxes}`,
      ...spec,
    };
  }
}

/** What the caller of the suite did not give and this case cannot do without. */
export function missing(
  conformanceCase: ConformanceCase,
  options: Omit<DescribeRuntimeOptions, "driver">,
): readonly Prerequisite[] {
  const forbiddenIn = (mode: NetworkMode): unknown =>
    options.network?.unreachable?.find((it) => (it.forbiddenIn ?? ["no-network"]).includes(mode));
  const given: Record<Prerequisite, unknown> = {
    "network.reachable": options.network?.reachable,
    "network.name": options.network?.name,
    "network.unreachable": forbiddenIn("no-network"),
    "network.unreachable for public boxes": forbiddenIn("public"),
    "network.datagrams": options.network?.datagrams,
    "network.resolver": options.network?.resolver,
    "network.allowlist": options.network?.allowlist,
    "images.entrypoint": options.images?.entrypoint,
    "images.entrypointThatEnds": options.images?.entrypointThatEnds,
    "images.nonRoot": options.images?.nonRoot,
    "images.path": options.images?.path,
    "images.noShell": options.images?.noShell,
    "sabotage.endBox": options.sabotage?.endBox,
    "sabotage.endService": options.sabotage?.endService,
    "sabotage.foreignBox": options.sabotage?.foreignBox,
    driverModule: options.driverModule,
  };
  return (conformanceCase.prerequisites ?? []).filter((prerequisite) => given[prerequisite] === undefined);
}
