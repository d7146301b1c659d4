import type { RuntimeSpec } from "@breakwater/runtime-api";
import type Dockerode from "dockerode";

/** Where the helper is in every box. */
export const HELPER_DIRECTORY = "/.breakwater";
export const HELPER_PATH = "/.breakwater/helper";
/** The label with our id of a box: tells a box from a container that somebody made of an image of a box, labels included. */
export const BOX_LABEL = "breakwater.box";
/** The exit code of our hold when the box's lifetime is over. */
export const HOLD_LIFETIME_EXIT_CODE = 73;

/** What the engine gives a program that runs in an image without PATH. */
const DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/** The smallest share of a core that the engine takes. */
const MIN_NANO_CPUS = 10_000_000;

/** What we need to know of an image. */
export interface ImageFacts {
  readonly id: string;
  readonly entrypoint: readonly string[];
  readonly workdir: string | null;
  readonly user: string | null;
  /** `NAME=value`. */
  readonly env: readonly string[];
}

/** The part of the engine's image description that counts. */
export interface ImageInspection {
  readonly Id: string;
  readonly Os?: string;
  readonly Architecture?: string;
  readonly Config?: {
    readonly Entrypoint?: readonly string[] | string | null;
    readonly WorkingDir?: string;
    readonly User?: string;
    readonly Env?: readonly string[] | null;
  } | null;
}

export function imageFacts(image: ImageInspection): ImageFacts {
  const config = image.Config ?? {};
  const entrypoint = config.Entrypoint ?? [];
  return {
    id: image.Id,
    entrypoint: typeof entrypoint === "string" ? [entrypoint] : [...entrypoint],
    workdir: config.WorkingDir ? config.WorkingDir : null,
    user: config.User ? config.User : null,
    env: [...(config.Env ?? [])],
  };
}

/** What a box is called and how it is marked on the engine. */
export interface BoxIdentity {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
}

/**
 * A box in the engine's words. The first process is our hold, as root; the image's ENTRYPOINT is its child. No mounts, no privileges
 * beyond the engine's default, and no raw sockets (with them a box can talk past the bridge's rules; `ping` is lost).
 */
export function containerOptions(
  spec: RuntimeSpec,
  image: ImageFacts,
  identity: BoxIdentity,
  networkMode: string,
): Dockerode.ContainerCreateOptions {
  const memoryBytes = spec.memoryMb === null ? undefined : spec.memoryMb * 1024 * 1024;
  return {
    name: identity.name,
    Image: image.id,
    Labels: { ...identity.labels },
    Entrypoint: [...holdArgv(spec, image)],
    Cmd: [],
    User: "0:0",
    WorkingDir: defaultWorkdir(spec, image),
    Env: Object.entries(programEnvironment(spec, image)).map(([name, value]) => `${name}=${value}`),
    Tty: false,
    OpenStdin: false,
    AttachStdin: false,
    AttachStdout: false,
    AttachStderr: false,
    // The image's health check would run programs of the image that nobody asked for.
    Healthcheck: { Test: ["NONE"] },
    HostConfig: {
      NetworkMode: networkMode,
      CapDrop: ["NET_RAW"],
      Init: false,
      Privileged: false,
      AutoRemove: false,
      IpcMode: "private",
      RestartPolicy: { Name: "no" },
      LogConfig: { Type: "json-file", Config: { "max-size": "1m", "max-file": "1" } },
      PidsLimit: spec.pidsLimit,
      ...(memoryBytes === undefined ? {} : { Memory: memoryBytes, MemorySwap: memoryBytes }),
      ...(spec.cpus === null ? {} : { NanoCpus: Math.max(MIN_NANO_CPUS, Math.round(spec.cpus * 1e9)) }),
    },
  };
}

/** Our hold, with the image's ENTRYPOINT as its child. */
export function holdArgv(spec: RuntimeSpec, image: ImageFacts): readonly string[] {
  const hold = [HELPER_PATH, "hold", "--lifetime-ms", String(spec.lifetimeMs)];
  if (!spec.entrypoint || image.entrypoint.length === 0) return hold;
  return [
    ...hold,
    ...(image.user === null ? [] : ["--user", image.user]),
    "--cwd",
    defaultWorkdir(spec, image),
    "--",
    ...image.entrypoint,
  ];
}

export function defaultWorkdir(spec: RuntimeSpec, image: ImageFacts): string {
  return spec.workdir ?? image.workdir ?? "/";
}

export function defaultUser(spec: RuntimeSpec, image: ImageFacts): string | null {
  return spec.user ?? image.user;
}

/** The environment of every program: the image's, then the spec's, then the call's. */
export function programEnvironment(
  spec: RuntimeSpec,
  image: ImageFacts,
  ofCall: Readonly<Record<string, string>> = {},
): Readonly<Record<string, string>> {
  const ofImage = image.env
    .map((entry) => [entry.slice(0, entry.indexOf("=")), entry.slice(entry.indexOf("=") + 1)] as const)
    .filter(([name]) => name !== "");
  return { PATH: DEFAULT_PATH, ...Object.fromEntries(ofImage), ...spec.env, ...ofCall };
}

/** Bodies of the exec that runs our helper. Its working directory is the root: the box's own may be gone. */
export function execOptions(helperArgv: readonly string[]): Dockerode.ExecCreateOptions {
  return {
    AttachStdin: true,
    AttachStdout: true,
    AttachStderr: true,
    Tty: false,
    Privileged: false,
    User: "0:0",
    WorkingDir: "/",
    Cmd: [HELPER_PATH, ...helperArgv],
  };
}
