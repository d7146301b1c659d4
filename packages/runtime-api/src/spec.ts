import { parseNetworkPolicy, sameNetworkPolicy, type NetworkPolicy } from "./network.ts";

/** What a caller asks of a box; every absent key gets its default in `parseRuntimeSpec`. */
export interface RuntimeSpecInput {
  /** An image reference, or the `id` of a `PreparedImage`. */
  readonly image: string;
  /** Environment of every program in the box, on top of the image's. Values are data, byte for byte. Default is empty. */
  readonly env?: Readonly<Record<string, string>> | undefined;
  /** Default working directory of `exec`, absolute. Default is the image's, else `/`. */
  readonly workdir?: string | undefined;
  /** Default user of `exec`: a name, an id, or `user:group`. Default is the image's, else root. */
  readonly user?: string | undefined;
  /** Cores, fractions allowed. Default is no limit of our own. */
  readonly cpus?: number | undefined;
  /** Mebibytes, swap included. Default is no limit of our own. */
  readonly memoryMb?: number | undefined;
  /** Mebibytes of writable disk; enforced where the driver claims it, else reported as not enforced. */
  readonly storageMb?: number | undefined;
  /** Processes and threads, our own few included. Default is 4096. */
  readonly pidsLimit?: number | undefined;
  readonly gpus?: number | undefined;
  /** Default is `public` with no later policies. */
  readonly network?:
    | { readonly initial: NetworkPolicy; readonly later?: readonly NetworkPolicy[] | undefined }
    | undefined;
  /** Further boxes beside the main one, which start and go with it. Default is none. */
  readonly services?: readonly ServiceSpec[] | undefined;
  /** What the main box waits for; those services that are not waited for start before it all the same. Default is nothing. */
  readonly dependsOn?: ServiceSpec["dependsOn"];
  /** Of the main box: folders that it shares with services. Default is none. */
  readonly volumes?: readonly VolumeMount[] | undefined;
  /** The box ends by itself after this time, also when nobody is left to ask for it. Default is 6 hours. */
  readonly lifetimeMs?: number | undefined;
  /** Whether the image's ENTRYPOINT is started beside the hold. Default is `true`. */
  readonly entrypoint?: boolean | undefined;
  readonly operatingSystem?: "linux" | "windows" | undefined;
  /** The trial that the box belongs to, for labels and reports. At most 200 characters. */
  readonly trial?: string | undefined;
}

/** A complete, frozen spec: what drivers get. `null` means "not asked for". */
export interface RuntimeSpec {
  readonly image: string;
  readonly env: Readonly<Record<string, string>>;
  readonly workdir: string | null;
  readonly user: string | null;
  readonly cpus: number | null;
  readonly memoryMb: number | null;
  readonly storageMb: number | null;
  readonly pidsLimit: number;
  readonly gpus: number;
  readonly network: { readonly initial: NetworkPolicy; readonly later: readonly NetworkPolicy[] };
  readonly services: readonly ServiceSpec[];
  readonly dependsOn: NonNullable<ServiceSpec["dependsOn"]>;
  readonly volumes: readonly VolumeMount[];
  readonly lifetimeMs: number;
  readonly entrypoint: boolean;
  readonly operatingSystem: "linux" | "windows";
  readonly trial: string | null;
}

/**
 * A further box beside the main one, in the words of compose files. Its program is the image's, or what `entrypoint` and `command` say; when that ends, the service
 * has ended. Services start before the main box, each after those that it depends on; a service that depends on `main` starts after it. `start` of the main box
 * returns when all have started and those with a healthcheck are healthy.
 */
export interface ServiceSpec {
  /** What other boxes reach it by: letters, digits, `_`, `.` and `-`, a letter or digit first. `main` is the main box. */
  readonly name: string;
  /** An image reference, or the `id` of a `PreparedImage`. */
  readonly image: string;
  /** In place of the image's ENTRYPOINT; the image's CMD does not count then. */
  readonly entrypoint?: readonly string[] | undefined;
  /** In place of the image's CMD. */
  readonly command?: readonly string[] | undefined;
  /** On top of the image's. */
  readonly env?: Readonly<Record<string, string>> | undefined;
  readonly workdir?: string | undefined;
  readonly user?: string | undefined;
  readonly healthcheck?: ServiceHealthcheck | undefined;
  /** Names of services, or `main` (only `started`). `completed`: its program has ended with exit code 0. */
  readonly dependsOn?: Readonly<Record<string, "started" | "healthy" | "completed">> | undefined;
  /**
   * Names of networks. Without any, the service shares the main box's network with all its policies: programs of both listen on one loopback, so two cannot
   * have the same port. With some, it is on those only, whatever the main box's policy: it reaches the internet and the services on the same ones by their
   * names, and neither reaches the main box nor is reached by it.
   */
  readonly networks?: readonly string[] | undefined;
  readonly volumes?: readonly VolumeMount[] | undefined;
  /** Files and folders of the host that are copied in before the program starts: root's, readable by all. */
  readonly copies?: readonly { readonly source: string; readonly path: string }[] | undefined;
}

/** A folder that boxes of one spec share; it goes with them. A new one has what the first image that has it mounted has there. */
export interface VolumeMount {
  readonly volume: string;
  /** Absolute. */
  readonly path: string;
  readonly readOnly: boolean;
}

/** A program that succeeds in a healthy service. Failures within the start period do not count. */
export interface ServiceHealthcheck {
  readonly argv: readonly string[];
  readonly intervalMs: number;
  readonly timeoutMs: number;
  readonly startPeriodMs: number;
  /** Consecutive failures that make it unhealthy. */
  readonly retries: number;
}

/** The name of the main box among its services. */
export const MAIN_SERVICE = "main";

/** The default of `RuntimeSpecInput.lifetimeMs`: 6 hours. */
export const DEFAULT_LIFETIME_MS: number = 6 * 60 * 60 * 1000;
/** The default of `RuntimeSpecInput.pidsLimit`. */
export const DEFAULT_PIDS_LIMIT = 4096;

/** The names of environment variables: no `=`, no NUL, not empty. */
export function isEnvironmentName(name: string): boolean {
  return name !== "" && !name.includes("=") && !name.includes("\0");
}

/** Checks a spec and fills every default, once. Throws a `TypeError` that lists all mistakes. */
export function parseRuntimeSpec(input: RuntimeSpecInput): RuntimeSpec {
  const mistakes: string[] = [];
  const check = (ok: boolean, mistake: string): void => {
    if (!ok) mistakes.push(mistake);
  };
  const whole = (value: number): boolean => Number.isSafeInteger(value) && value > 0;
  const env = { ...input.env };

  check(typeof input.image === "string" && input.image.trim() !== "", "image: expected an image reference");
  for (const [name, value] of Object.entries(env)) {
    check(isEnvironmentName(name), `env: ${JSON.stringify(name)} is not a name (empty, or with "=" or NUL)`);
    check(typeof value === "string" && !value.includes("\0"), `env.${name}: expected text without NUL`);
  }
  if (input.workdir !== undefined) check(isAbsolutePath(input.workdir), "workdir: expected an absolute path");
  if (input.user !== undefined) check(isUser(input.user), 'user: expected a name, an id, or "user:group"');
  if (input.cpus !== undefined) check(Number.isFinite(input.cpus) && input.cpus > 0, "cpus: expected a number above 0");
  if (input.memoryMb !== undefined) check(whole(input.memoryMb), "memoryMb: expected a whole number above 0");
  if (input.storageMb !== undefined) check(whole(input.storageMb), "storageMb: expected a whole number above 0");
  if (input.pidsLimit !== undefined) check(whole(input.pidsLimit), "pidsLimit: expected a whole number above 0");
  if (input.gpus !== undefined)
    check(Number.isSafeInteger(input.gpus) && input.gpus >= 0, "gpus: expected a whole number");
  if (input.lifetimeMs !== undefined)
    check(whole(input.lifetimeMs), "lifetimeMs: expected a whole number of milliseconds above 0");
  if (input.trial !== undefined)
    check(input.trial !== "" && input.trial.length <= 200, "trial: expected 1 to 200 characters");

  mistakes.push(...serviceMistakes(input.services ?? [], input.dependsOn), ...volumeMistakes("volumes", input.volumes));

  const policy = (value: NetworkPolicy, key: string): NetworkPolicy => {
    try {
      return parseNetworkPolicy(value);
    } catch (error) {
      mistakes.push(`${key}: ${(error as Error).message}`);
      return { mode: "no-network" };
    }
  };
  const initial = policy(input.network?.initial ?? { mode: "public" }, "network.initial");
  const later: NetworkPolicy[] = [];
  for (const [index, value] of (input.network?.later ?? []).entries()) {
    const parsed = policy(value, `network.later[${index}]`);
    if (![initial, ...later].some((known) => sameNetworkPolicy(known, parsed))) later.push(parsed);
  }

  if (mistakes.length > 0) throw new TypeError(`invalid RuntimeSpec: ${mistakes.join("; ")}`);
  return deepFreeze({
    image: input.image.trim(),
    env,
    workdir: input.workdir ?? null,
    user: input.user ?? null,
    cpus: input.cpus ?? null,
    memoryMb: input.memoryMb ?? null,
    storageMb: input.storageMb ?? null,
    pidsLimit: input.pidsLimit ?? DEFAULT_PIDS_LIMIT,
    gpus: input.gpus ?? 0,
    network: { initial, later },
    services: structuredClone(input.services ?? []),
    dependsOn: { ...input.dependsOn },
    volumes: structuredClone(input.volumes ?? []),
    lifetimeMs: input.lifetimeMs ?? DEFAULT_LIFETIME_MS,
    entrypoint: input.entrypoint ?? true,
    operatingSystem: input.operatingSystem ?? "linux",
    trial: input.trial ?? null,
  });
}

const SERVICE_NAME = /^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}$/;

/** True for what a service, a network or a volume of a spec can be called. */
export function isServiceName(name: string): boolean {
  return SERVICE_NAME.test(name);
}

function serviceMistakes(
  services: readonly ServiceSpec[],
  ofMain: NonNullable<ServiceSpec["dependsOn"]> = {},
): readonly string[] {
  const mistakes: string[] = [];
  const byName = new Map(services.map((service) => [service.name, service]));
  for (const [other, condition] of Object.entries(ofMain)) {
    const service = byName.get(other);
    if (service === undefined || (condition === "healthy" && service.healthcheck === undefined))
      mistakes.push(`dependsOn: ${JSON.stringify(other)} cannot be waited for`);
  }
  for (const [index, service] of services.entries()) {
    const { name, image, env = {}, workdir, user, dependsOn = {}, networks = [], copies = [] } = service;
    const check = (ok: boolean, key: string, mistake: string): void => {
      if (!ok) mistakes.push(`services[${index}].${key}: ${mistake}`);
    };
    check(isServiceName(name), "name", "expected letters, digits, _, . and -, a letter or digit first");
    check(name !== MAIN_SERVICE, "name", `"${MAIN_SERVICE}" is the main box`);
    check(byName.get(name) === service, "name", `${JSON.stringify(name)} is the name of another service`);
    check(typeof image === "string" && image.trim() !== "", "image", "expected an image reference");
    for (const [variable, value] of Object.entries(env))
      check(isEnvironmentName(variable) && !value.includes("\0"), "env", `${JSON.stringify(variable)} is no variable`);
    if (workdir !== undefined) check(isAbsolutePath(workdir), "workdir", "expected an absolute path");
    if (user !== undefined) check(isUser(user), "user", 'expected a name, an id, or "user:group"');
    check(networks.every(isServiceName), "networks", "expected names");
    check(
      copies.every(({ path }) => isAbsolutePath(path)),
      "copies",
      "expected absolute paths",
    );
    mistakes.push(...volumeMistakes(`services[${index}].volumes`, service.volumes));
    for (const [other, condition] of Object.entries(dependsOn)) {
      const isKnown = other === MAIN_SERVICE ? condition === "started" : byName.has(other);
      check(isKnown, "dependsOn", `${JSON.stringify(other)} cannot be waited for`);
      const isHealthy = condition !== "healthy" || byName.get(other)?.healthcheck !== undefined;
      check(isHealthy, "dependsOn", `${JSON.stringify(other)} has no healthcheck`);
    }
  }
  const main: ServiceSpec = { name: MAIN_SERVICE, image: "main", dependsOn: ofMain };
  const circle = findCircle(new Map([...byName, [MAIN_SERVICE, main]]));
  if (circle !== null) mistakes.push(`services: ${circle.join(" depends on ")}`);
  return mistakes;
}

/** Services that depend on each other in a circle, the first one again at its end; `null` = there is none. */
function findCircle(byName: ReadonlyMap<string, ServiceSpec>): readonly string[] | null {
  const done = new Set<string>();
  const walk = (name: string, way: readonly string[]): readonly string[] | null => {
    if (way.includes(name)) return [...way.slice(way.indexOf(name)), name];
    if (done.has(name)) return null;
    for (const other of Object.keys(byName.get(name)?.dependsOn ?? {})) {
      const circle = walk(other, [...way, name]);
      if (circle !== null) return circle;
    }
    done.add(name);
    return null;
  };
  for (const name of byName.keys()) {
    const circle = walk(name, []);
    if (circle !== null) return circle;
  }
  return null;
}

function volumeMistakes(key: string, volumes: readonly VolumeMount[] = []): readonly string[] {
  const isFit = volumes.every(({ volume, path }) => isServiceName(volume) && isAbsolutePath(path) && path !== "/");
  return isFit ? [] : [`${key}: expected names and absolute paths`];
}

/** True for a name, an id, or `user:group`, without blanks and NUL. */
export function isUser(user: string): boolean {
  return /^[^\s:\0]+(?::[^\s:\0]+)?$/.test(user);
}

/** True for a POSIX path from the root, without NUL and without `..`. */
export function isAbsolutePath(path: string): boolean {
  return path.startsWith("/") && !path.includes("\0") && !path.split("/").includes("..");
}

function deepFreeze<T>(value: T): T {
  if (typeof value === "object" && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const inner of Object.values(value)) deepFreeze(inner);
  }
  return value;
}
