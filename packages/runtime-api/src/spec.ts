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
  readonly services?: readonly ServiceSpec[] | undefined;
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
  readonly lifetimeMs: number;
  readonly entrypoint: boolean;
  readonly operatingSystem: "linux" | "windows";
  readonly trial: string | null;
}

/** A further box beside the main one, reachable from it by name. In the words of compose files. */
export interface ServiceSpec {
  readonly name: string;
  readonly image: string;
  readonly entrypoint?: readonly string[] | undefined;
  readonly command?: readonly string[] | undefined;
  readonly env?: Readonly<Record<string, string>> | undefined;
  readonly workdir?: string | undefined;
  readonly user?: string | undefined;
  readonly healthcheck?: ServiceHealthcheck | undefined;
  readonly dependsOn?: Readonly<Record<string, "started" | "healthy" | "completed">> | undefined;
  readonly networks?: readonly string[] | undefined;
  readonly volumes?:
    | readonly { readonly volume: string; readonly path: string; readonly readOnly: boolean }[]
    | undefined;
}

export interface ServiceHealthcheck {
  readonly argv: readonly string[];
  readonly intervalMs: number;
  readonly timeoutMs: number;
  readonly startPeriodMs: number;
  readonly retries: number;
}

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
    lifetimeMs: input.lifetimeMs ?? DEFAULT_LIFETIME_MS,
    entrypoint: input.entrypoint ?? true,
    operatingSystem: input.operatingSystem ?? "linux",
    trial: input.trial ?? null,
  });
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
