import { readFile, stat } from "node:fs/promises";
import { posix } from "node:path";
import { BOX_HELPER_PATH } from "@breakwater/box-helper";
import {
  isRuntimeError,
  MAIN_SERVICE,
  type NetworkPolicy,
  type OperationOptions,
  parseRuntimeSpec,
  type Proof,
  type Runtime,
  type RuntimeCapabilities,
  RuntimeError,
  type RuntimeErrorCode,
  type RuntimeService,
  type RuntimeSpec,
  type ServiceSpec,
} from "@breakwater/runtime-api";
import { type BoxImage, createBox, type Deadline, HOLD_START_EXIT_CODE } from "@breakwater/driver-kit";
import { packDirectory } from "@breakwater/tar";
import type Dockerode from "dockerode";
import { type BoxContext, type Companions, DockerBox } from "./box.ts";
import { DRIVER } from "./errors.ts";
import { ServiceNetworks } from "./service-networks.ts";
import { JoinedNetwork, type NetworkOfBox, SharedNetwork } from "./shared-network.ts";
import { BoxVolumes } from "./volumes.ts";

/** The role of a service in its labels. */
export const SERVICE_ROLE = "service";
/** For people: what the service is called in its box. */
const SERVICE_LABEL = "breakwater.service";

/** A box's lifetime counts from its own start; what was made before it ends after it. */
const SPARE_LIFETIME_MS = 10 * 60 * 1000;
const PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 500;
const GO_FILE = "go";
const LOST = "ERR_NETWORK_LOST";
const UNKNOWN_END = { endedBy: "unknown" } as const;
/** Of single files: they are held in memory. */
const MAX_FILE_BYTES = 64 * 1024 * 1024;
const MAX_PROBE_OUTPUT_BYTES = 2000;

type Probe = (options?: OperationOptions) => Promise<RuntimeCapabilities>;

/** The backend's side of a box with all that its spec puts beside it. */
export function dockerBox(id: string, spec: RuntimeSpec, context: BoxContext, probe: Probe): DockerBox {
  if (spec.services.length + spec.volumes.length === 0) return new DockerBox(id, spec, context);
  const services = new BoxServices(id, spec, context, probe);
  return new DockerBox(id, spec, context, {
    network: new JoinedNetwork(services.network),
    companions: services,
    adjust: (options) => Promise.resolve(withSharedNames(services.volumes.mount(options, spec.volumes))),
  });
}

/**
 * What is beside a main box: the network that it shares, its services, each a box of its own whose first process is our hold, and their networks and
 * volumes. In the order in which they come.
 */
class BoxServices implements Companions {
  readonly network: SharedNetwork;
  readonly volumes: BoxVolumes;
  readonly #boxId: string;
  readonly #spec: RuntimeSpec;
  readonly #context: BoxContext;
  readonly #probe: Probe;
  readonly #networks: ServiceNetworks;
  readonly #boxes = new Map<string, Runtime>();
  readonly #backends = new Map<string, DockerBox>();
  readonly #hasEnded = new Set<string>();
  /** The first service that could not be started: the others are given up. */
  #failure: RuntimeError | null = null;
  readonly #lifetimeMs: number;

  constructor(boxId: string, spec: RuntimeSpec, context: BoxContext, probe: Probe) {
    this.#boxId = boxId;
    this.#spec = spec;
    this.#context = context;
    this.#probe = probe;
    this.#lifetimeMs = spec.lifetimeMs + SPARE_LIFETIME_MS;
    const sharing = spec.services.filter(({ networks = [] }) => networks.length === 0);
    this.network = new SharedNetwork(boxId, spec, [MAIN_SERVICE, ...sharing.map(({ name }) => name)], context);
    const owned = { boxId, trial: spec.trial, lifetimeMs: this.#lifetimeMs };
    this.volumes = new BoxVolumes(context.engine, owned);
    this.#networks = new ServiceNetworks(context.engine, owned);
    for (const service of spec.services) this.#boxes.set(service.name, this.#createBox(service));
  }

  #createBox(service: ServiceSpec): Runtime {
    const { networks = [] } = service;
    const network = networks.length === 0 ? new JoinedNetwork(this.network) : this.#networks.of(service);
    return createBox({
      driver: DRIVER,
      spec: this.#specOf(service),
      probe: this.#probe,
      backend: (id) => {
        const backend = new DockerBox(id, this.#specOf(service), this.#context, {
          role: SERVICE_ROLE,
          network,
          adjust: (options, image, clock) => this.#adjust(service, network, options, image, clock),
        });
        this.#backends.set(service.name, backend);
        return backend;
      },
    });
  }

  #specOf({ image, env, workdir, user, networks = [] }: ServiceSpec): RuntimeSpec {
    const ownNetwork: NetworkPolicy = { mode: "public" };
    return parseRuntimeSpec({
      image,
      ...(env === undefined ? {} : { env }),
      ...(workdir === undefined ? {} : { workdir }),
      ...(user === undefined ? {} : { user }),
      network: { initial: networks.length === 0 ? this.#spec.network.initial : ownNetwork },
      lifetimeMs: this.#lifetimeMs,
      ...(this.#spec.trial === null ? {} : { trial: this.#spec.trial }),
    });
  }

  /** A service's first process is our hold as well; it runs the service's program when it is told to, and ends with it. */
  async #adjust(
    service: ServiceSpec,
    network: NetworkOfBox,
    options: Dockerode.ContainerCreateOptions,
    image: BoxImage,
    clock: Deadline,
  ): Promise<Dockerode.ContainerCreateOptions> {
    const program = await this.#programOf(service, image, clock);
    const user = service.user ?? image.user;
    const hold = [BOX_HELPER_PATH, "hold", "--lifetime-ms", String(this.#lifetimeMs), "--ends-with-program"];
    const place = [...(user === null ? [] : ["--user", user]), "--cwd", service.workdir ?? image.workdir ?? "/"];
    const mounted = this.volumes.mount(options, service.volumes ?? []);
    return {
      ...(network instanceof JoinedNetwork
        ? withSharedNames(mounted)
        : { ...mounted, ...this.#networks.endpoint(service) }),
      Entrypoint: [...hold, ...place, "--", ...program],
      Labels: { ...mounted.Labels, [SERVICE_LABEL]: service.name },
    };
  }

  /** As compose files have it: the image's command goes with the image's entrypoint only. */
  async #programOf({ name, entrypoint, command }: ServiceSpec, image: BoxImage, clock: Deadline): Promise<string[]> {
    const ofImage = entrypoint === undefined && command === undefined ? await this.#commandOf(image, clock) : [];
    const program = [...(entrypoint ?? image.entrypoint), ...(command ?? ofImage)];
    if (program.length > 0) return program;
    throw this.#error(name, "has no program: neither its image nor its entrypoint nor its command names one");
  }

  async #commandOf({ id }: BoxImage, clock: Deadline): Promise<readonly string[]> {
    const path = `/images/${encodeURIComponent(id)}/json`;
    const image = await this.#context.engine.json<{
      readonly Config?: { readonly Cmd?: readonly string[] | string | null } | null;
    }>(clock, { method: "GET", path });
    const command = image.Config?.Cmd ?? [];
    return typeof command === "string" ? [command] : command;
  }

  // Start.

  async before(clock: Deadline): Promise<void> {
    await this.network.open(clock, this.#lifetimeMs);
    const all = [...this.#spec.volumes, ...this.#spec.services.flatMap(({ volumes = [] }) => volumes)];
    await this.volumes.make(clock, new Set(all.map(({ volume }) => volume)));
    await this.#networks.make(clock);
    await this.#startAll(clock, (service) => !this.#followsMain(service));
    await this.#awaitAll(this.#spec.dependsOn, clock);
  }

  async after(clock: Deadline): Promise<void> {
    await this.#startAll(clock, (service) => this.#followsMain(service));
    // What is not healthy by now has not been waited for by any other.
    await all(this.#spec.services.map((service) => this.#untilHealthy(service, clock)));
  }

  #followsMain({ dependsOn = {} }: ServiceSpec): boolean {
    return Object.keys(dependsOn).some((name) => {
      const other = this.#spec.services.find((one) => one.name === name);
      return other === undefined || this.#followsMain(other);
    });
  }

  /** All at the same time, each when those are ready that it depends on. */
  async #startAll(clock: Deadline, isMeant: (service: ServiceSpec) => boolean): Promise<void> {
    const starting = new Map<string, Promise<void>>();
    const start = async (service: ServiceSpec): Promise<void> => {
      const { dependsOn = {} } = service;
      for (const other of this.#spec.services)
        if (Object.hasOwn(dependsOn, other.name) && isMeant(other)) await begin(other);
      await this.#awaitAll(dependsOn, clock);
      await this.#start(service, clock);
    };
    const begin = async (service: ServiceSpec): Promise<void> => {
      const begun = starting.get(service.name) ?? start(service);
      starting.set(service.name, begun);
      await begun;
    };
    await all(this.#spec.services.filter(isMeant).map(begin));
  }

  async #awaitAll(dependsOn: NonNullable<ServiceSpec["dependsOn"]>, clock: Deadline): Promise<void> {
    for (const service of this.#spec.services) {
      const condition = dependsOn[service.name];
      if (condition === "healthy") await this.#untilHealthy(service, clock);
      if (condition === "completed") await this.#untilCompleted(service, clock);
    }
  }

  async #start(service: ServiceSpec, clock: Deadline): Promise<void> {
    const { name, copies = [] } = service;
    const box = this.#box(name);
    const limits = (): OperationOptions => ({ signal: clock.signal, timeoutMs: clock.remainingMs() });
    let hasGone = false;
    try {
      this.#throwIfOver(clock);
      await box.start(limits());
      for (const { source, path } of copies) await copyIn(box, source, path, limits());
      await box.upload([{ path: GO_FILE, content: "" }], posix.dirname(BOX_HELPER_PATH), limits());
      hasGone = true;
      // Our hold takes the file away when the program runs.
      for (const go = `${posix.dirname(BOX_HELPER_PATH)}/${GO_FILE}`; ; await this.#pause(clock, PAUSE_MS)) {
        const found = (await box.inspectPath(go, limits())).at(-1);
        if (found?.path !== go || found.kind !== "file") break;
      }
    } catch (error) {
      clock.throwIfOver();
      // What the backend refuses says by itself what can be done about it.
      if (isRuntimeError(error) && /^ERR_(?:BACKEND|IMAGE)/.test(error.code)) throw (this.#failure ??= error);
      if (hasGone && isRuntimeError(error, "ERR_BOX_LOST", "ERR_BOX_STATE") && (await this.#hasRun(name))) return;
      throw this.#error(name, `could not be started: ${messageOf(error)}${await this.#lastWords(name, clock)}`, error);
    }
  }

  /** A program that has ended soon has run all the same. */
  async #hasRun(name: string): Promise<boolean> {
    const { endedBy, exitCode } = await this.#box(name).report();
    return endedBy === "contents" && exitCode !== HOLD_START_EXIT_CODE;
  }

  async #untilHealthy({ name, healthcheck }: ServiceSpec, clock: Deadline): Promise<void> {
    if (healthcheck === undefined) return;
    const { argv, intervalMs, timeoutMs, startPeriodMs, retries } = healthcheck;
    // Asked more often than the file says, and given up no sooner.
    const givesUpAt = performance.now() + startPeriodMs + retries * intervalMs;
    const pauseMs = Math.min(intervalMs, LONGEST_PAUSE_MS);
    for (let failures = 1; ; failures++) {
      let said: string;
      try {
        const check = await this.#box(name).exec(argv, {
          signal: clock.signal,
          timeoutMs: Math.min(timeoutMs, clock.remainingMs()),
          maxOutputBytes: MAX_PROBE_OUTPUT_BYTES,
        });
        if (check.exitCode === 0 && !check.timedOut) return;
        const output = Buffer.concat([check.stdout, check.stderr]).toString("utf8").trim();
        said = `${check.timedOut ? `no answer in ${timeoutMs} ms` : `exit code ${check.exitCode}`}${output === "" ? "" : `: ${output}`}`;
      } catch (error) {
        clock.throwIfOver();
        if (!isRuntimeError(error, "ERR_EXEC_START")) {
          throw this.#error(name, `is not healthy: ${messageOf(error)}${await this.#lastWords(name, clock)}`, error);
        }
        said = messageOf(error);
      }
      if (failures >= retries && performance.now() >= givesUpAt) {
        throw this.#error(name, `is not healthy: ${said}${await this.#lastWords(name, clock)}`);
      }
      await this.#pause(clock, pauseMs);
    }
  }

  async #untilCompleted({ name }: ServiceSpec, clock: Deadline): Promise<void> {
    while ((await this.#backend(name).look(clock)) === "running") await this.#pause(clock, PAUSE_MS);
    const { endedBy, exitCode } = await this.#box(name).report({ signal: clock.signal });
    if (endedBy === "contents" && exitCode === 0) return;
    throw this.#error(name, `ended with exit code ${exitCode} (${endedBy})${await this.#lastWords(name, clock)}`);
  }

  async #pause(clock: Deadline, ms: number): Promise<void> {
    this.#throwIfOver(clock);
    await clock.sleep(ms);
  }

  #throwIfOver(clock: Deadline): void {
    clock.throwIfOver();
    if (this.#failure !== null) throw this.#failure;
  }

  async #lastWords(name: string, clock: Deadline): Promise<string> {
    const said = await this.#backend(name)
      .lastWords(clock)
      .catch(() => "");
    return said === "" ? "" : `; its last lines: ${said}`;
  }

  // Afterwards.

  service(name: string): RuntimeService {
    const box = this.#box(name);
    return {
      name,
      exec: (argv, options) => box.exec(argv, options),
      download: (paths, limits, options) => box.download(paths, limits, options),
      readBounded: (path, limits, options) => box.readBounded(path, limits, options),
      stopConfirmed: (options) => box.stopConfirmed(options),
      report: (options) => box.report(options),
    };
  }

  /** A service that was ended from outside, or lost, is a failure of the backend and none of the work in the box. */
  async assertThere(clock: Deadline): Promise<void> {
    for (const [name, box] of this.#boxes) {
      const backend = this.#backend(name);
      // One that has ended as a program does is known to have.
      if (box.state !== "running" || this.#hasEnded.has(name)) continue;
      const seen = await backend.look(clock);
      if (seen === "running" || seen === "frozen") continue;
      const { endedBy } = seen === "gone" ? UNKNOWN_END : await backend.howItEnded(clock);
      // We may have stopped it meanwhile.
      if (this.#box(name).state !== "running") continue;
      if (endedBy === "outside" || endedBy === "unknown") {
        throw this.#error(name, `no longer runs, and neither its program nor we ended it (${endedBy})`, null, LOST);
      }
      this.#hasEnded.add(name);
    }
  }

  async remove(clock: Deadline): Promise<readonly Proof[]> {
    await this.network.close(clock);
    const proofs = await all(
      [...this.#boxes.values()].map((box) => box.teardownConfirmed({ timeoutMs: clock.remainingMs() })),
    );
    const keeper = await this.network.remove(clock);
    const others = await all([this.#networks.remove(clock), this.volumes.remove(clock)]);
    return [...proofs, ...(keeper === null ? [] : [keeper]), ...others.flat()];
  }

  #box(name: string): Runtime {
    return known(this.#boxes, name);
  }

  #backend(name: string): DockerBox {
    return known(this.#backends, name);
  }

  #error(name: string, what: string, cause: unknown = null, code: RuntimeErrorCode = "ERR_BOX_START"): RuntimeError {
    const operation = code === LOST ? "exec" : "start";
    const message = `the service ${name} ${what}`;
    const error = new RuntimeError({ code, driver: DRIVER, operation, boxId: this.#boxId, message, cause });
    this.#failure ??= code === LOST ? null : error;
    return error;
  }
}

/** The engine's own list, which ours takes the place of. */
const READ_ONLY_PATHS = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"] as const;

/** Who shares a network has one file of names with the others: nobody may lead them elsewhere. */
function withSharedNames(options: Dockerode.ContainerCreateOptions): Dockerode.ContainerCreateOptions {
  const ReadonlyPaths = [...READ_ONLY_PATHS, "/etc/hosts", "/etc/resolv.conf"];
  return { ...options, HostConfig: { ...options.HostConfig, ReadonlyPaths } };
}

/** A file, or what a folder contains. */
async function copyIn(box: Runtime, source: string, path: string, limits: OperationOptions): Promise<void> {
  const about = await stat(source);
  if (about.isDirectory()) return box.upload(packDirectory(source), path, limits);
  if (about.size > MAX_FILE_BYTES) throw new Error(`${source} has ${about.size} bytes, more than ${MAX_FILE_BYTES}`);
  const mode = (about.mode & 0o111) === 0 ? 0o644 : 0o755;
  const file = { path: posix.basename(path), content: await readFile(source), mode };
  await box.upload([file], posix.dirname(path), limits);
}

function known<T>(all: ReadonlyMap<string, T>, name: string): T {
  const one = all.get(name);
  if (one === undefined) throw new TypeError(`the spec has no service ${JSON.stringify(name)}`);
  return one;
}

/** When all have come to an end: what they gave, or the first error, with everything that any of them left. */
async function all<T>(promises: readonly Promise<T>[]): Promise<readonly T[]> {
  const settled = await Promise.allSettled(promises);
  const errors = settled.flatMap((one) => (one.status === "rejected" ? [one.reason as unknown] : []));
  const [first] = errors;
  if (errors.length === 0) return settled.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
  const leftovers = errors.flatMap((error) => (isRuntimeError(error) ? error.leftovers : []));
  if (!isRuntimeError(first, "ERR_TEARDOWN_UNCONFIRMED") || errors.length === 1) throw first;
  const { message, code, driver, operation } = first;
  throw new RuntimeError({ code, driver, operation, message, leftovers, cause: first });
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
