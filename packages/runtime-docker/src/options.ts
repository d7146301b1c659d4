import { constants } from "node:fs";
import { access, readFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";

/** What `dockerDriver` takes. Every key has a default; nothing is contacted before the first operation. */
export interface DockerDriverOptions {
  /**
   * The engine: `unix:///path`, `tcp://host:port`, `https://host:port` or `ssh://user@host`. Default is `DOCKER_HOST`, else the first
   * socket that exists of: Docker's, Docker Desktop's, a rootless Docker's, Podman's.
   */
  readonly host?: string | undefined;
  /** A folder with `ca.pem`, `cert.pem` and `key.pem` for `https`. Default is `DOCKER_CERT_PATH`. */
  readonly certPath?: string | undefined;
  /** Where logins of registries are read from. Default is `$DOCKER_CONFIG/config.json`, else `~/.docker/config.json`. */
  readonly registryConfigPath?: string | undefined;
  /** The bridge that all boxes with the network policy `public` share; made on first use. Default is `breakwater-public`. */
  readonly publicNetwork?: string | undefined;
  /**
   * How boxes with the network policy `public` get out. `bridge`: every protocol and port; services bound to the host's own addresses and a cloud's metadata
   * address are in reach. `gateway`: through the egress gateway, which dials public addresses only; TCP to ports 80 and 443. Default is `bridge`.
   */
  readonly publicVia?: "bridge" | "gateway" | undefined;
  /**
   * The image that the egress gateway's own is built on, when the first box with an allowlist is started: any with `node` (22.19 or newer) in its PATH. Default is
   * `BREAKWATER_EGRESS_BASE_IMAGE`, else Node's own from Docker's registry.
   */
  readonly egressBaseImage?: string | undefined;
}

/** The variables of the environment that count; a parameter, so that the rules can be tested. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** How to connect, and what to call it in messages. */
export interface EngineAddress {
  readonly label: string;
  /** What dockerode takes (`DockerOptions`). Not by its type: who uses this package may not have that, and needs no more than the rest of this file. */
  readonly connection: Readonly<Record<string, unknown>>;
}

/** The sockets that are tried when nothing names an engine, in order. */
export function defaultSockets(environment: Environment, home: string = homedir()): readonly string[] {
  const runtimeDirectory = environment["XDG_RUNTIME_DIR"];
  return [
    "/var/run/docker.sock",
    join(home, ".docker/run/docker.sock"),
    ...(runtimeDirectory ? [join(runtimeDirectory, "docker.sock"), join(runtimeDirectory, "podman/podman.sock")] : []),
    "/run/podman/podman.sock",
  ];
}

/** Finds the engine. Gives `null` if nothing names one and no socket of `defaultSockets` exists. Throws `TypeError` for an address that is none. */
export async function findEngine(
  options: DockerDriverOptions,
  environment: Environment = process.env,
): Promise<EngineAddress | null> {
  const named = options.host ?? environment["DOCKER_HOST"];
  if (named) return engineAddress(named, options, environment);
  for (const socketPath of defaultSockets(environment)) {
    try {
      await access(socketPath, constants.R_OK | constants.W_OK);
      return await engineAddress(`unix://${socketPath}`, options, environment);
    } catch {
      // Not there, or not ours to use: the next one.
    }
  }
  return null;
}

/** An address in the words of `DOCKER_HOST`. Throws `TypeError` for one that is none. */
export async function engineAddress(
  host: string,
  options: DockerDriverOptions = {},
  environment: Environment = process.env,
): Promise<EngineAddress> {
  // dockerode fills absent keys from DOCKER_HOST, so every key that decides where to connect is given.
  const nothing = { socketPath: undefined, host: undefined, port: undefined, protocol: undefined } as const;
  if (host.startsWith("unix://") || host.startsWith("/")) {
    const socketPath = host.startsWith("/") ? host : host.slice("unix://".length);
    if (!socketPath.startsWith("/")) throw badAddress(host);
    return { label: `unix://${socketPath}`, connection: { ...nothing, socketPath } };
  }
  if (host.startsWith("npipe://")) {
    return {
      label: host,
      connection: { ...nothing, socketPath: host.slice("npipe://".length) },
    };
  }
  let url: URL;
  try {
    url = new URL(host.includes("://") ? host : `tcp://${host}`);
  } catch {
    throw badAddress(host);
  }
  const address = { ...nothing, host: url.hostname };
  if (url.protocol === "ssh:") {
    const sshOptions = { agent: environment["SSH_AUTH_SOCK"] };
    const connection = { ...address, protocol: "ssh", port: url.port || 22, username: url.username, sshOptions };
    return { label: host, connection };
  }
  if (!["tcp:", "http:", "https:"].includes(url.protocol) || url.hostname === "") throw badAddress(host);
  const verified = Boolean(environment["DOCKER_TLS_VERIFY"]) && environment["DOCKER_TLS_VERIFY"] !== "0";
  const certPath = options.certPath ?? environment["DOCKER_CERT_PATH"];
  const secure = url.protocol === "https:" || url.port === "2376" || (url.protocol === "tcp:" && verified);
  const port = Number(url.port || (secure ? 2376 : 2375));
  if (!secure) return { label: host, connection: { ...address, port, protocol: "http" } };
  const certificates =
    certPath === undefined
      ? {}
      : {
          ca: await readFile(join(certPath, "ca.pem")),
          cert: await readFile(join(certPath, "cert.pem")),
          key: await readFile(join(certPath, "key.pem")),
        };
  return {
    label: host,
    connection: { ...address, port, protocol: "https", ...certificates },
  };
}

function badAddress(host: string): TypeError {
  return new TypeError(
    `Docker host ${JSON.stringify(host)}: expected unix:///path, tcp://host:port, https://host:port or ssh://user@host`,
  );
}

/** Where the logins of registries are. */
export function registryConfigPath(options: DockerDriverOptions, environment: Environment = process.env): string {
  return options.registryConfigPath ?? join(environment["DOCKER_CONFIG"] ?? join(homedir(), ".docker"), "config.json");
}
