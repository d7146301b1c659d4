import { type BoxImage, holdArgv, type ImageConfig, programEnvironment } from "@breakwater/driver-kit";
import type { RuntimeSpec } from "@breakwater/runtime-api";
import type Dockerode from "dockerode";

/** The label with our id of a box: tells a box from a container that somebody made of an image of a box, labels included. */
export const BOX_LABEL = "breakwater.box";
/** The smallest share of a core that the engine takes. */
const MIN_NANO_CPUS = 10_000_000;

/** The part of the engine's image description that counts. */
export interface ImageInspection {
  readonly Id: string;
  readonly Os?: string;
  readonly Architecture?: string;
  readonly Config?: ImageConfig | null;
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
  image: BoxImage,
  identity: BoxIdentity,
  network: { readonly mode: string; readonly nameServers: readonly string[] },
): Dockerode.ContainerCreateOptions {
  const memoryBytes = spec.memoryMb === null ? undefined : spec.memoryMb * 1024 * 1024;
  return {
    name: identity.name,
    Image: image.id,
    Labels: { ...identity.labels },
    Entrypoint: [...holdArgv(spec, image)],
    Cmd: [],
    User: "0:0",
    WorkingDir: spec.workdir ?? image.workdir ?? "/",
    Env: Object.entries(programEnvironment(spec, image)).map(([name, value]) => `${name}=${value}`),
    Tty: false,
    OpenStdin: false,
    AttachStdin: false,
    AttachStdout: false,
    AttachStderr: false,
    // The image's health check would run programs of the image that nobody asked for.
    Healthcheck: { Test: ["NONE"] },
    HostConfig: {
      NetworkMode: network.mode,
      ...(network.nameServers.length === 0 ? {} : { Dns: [...network.nameServers] }),
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

/** The exec of a program of ours. Its working directory is the root: the box's own may be gone. */
export function execOptions(argv: readonly string[]): Dockerode.ExecCreateOptions {
  return { ...ownExecOptions(argv), User: "0:0", WorkingDir: "/" };
}

/** The same in a container of ours, as its own user. */
export function ownExecOptions(argv: readonly string[]): Dockerode.ExecCreateOptions {
  return { AttachStdin: true, AttachStdout: true, AttachStderr: true, Tty: false, Privileged: false, Cmd: [...argv] };
}

/** What every container of ours may have that runs nothing of a box. */
export function ownContainer(memoryBytes: number): Readonly<Record<string, unknown>> {
  return {
    CapDrop: ["ALL"],
    SecurityOpt: ["no-new-privileges"],
    PidsLimit: 64,
    Memory: memoryBytes,
    MemorySwap: memoryBytes,
    RestartPolicy: { Name: "no" },
    LogConfig: { Type: "json-file", Config: { "max-size": "1m", "max-file": "1" } },
  };
}
