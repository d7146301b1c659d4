/** Where the volume with a folder for each box is mounted, in the gateway and in the forwarders. */
export const BOXES_DIRECTORY = "/breakwater/boxes";
/** Where the gateway's control socket is: in its own container only. */
export const CONTROL_DIRECTORY = "/breakwater/control";
export const BUNDLE_PATH = "/breakwater/gateway.mjs";
/** Whom the gateway runs as; its image says so. Forwarders are somebody else, and find no folder but their own. */
export const GATEWAY_USER = "65532:65532";

const DEFAULT_ORPHAN_MS = 5 * 60_000;

/**
 * The arguments of the gateway's container. It ends by itself after `lifetimeMs`, and when no control session has been open for
 * `orphanMs` (default: 5 minutes): then its owner is dead.
 */
export function gatewayArgv(options: {
  readonly lifetimeMs: number;
  readonly orphanMs?: number | undefined;
}): string[] {
  const { lifetimeMs, orphanMs = DEFAULT_ORPHAN_MS } = options;
  return ["serve", "--lifetime-ms", String(Math.ceil(lifetimeMs)), "--orphan-ms", String(Math.ceil(orphanMs))];
}

/**
 * What a gateway's container is to have. The kernel's buffers are bounded so that no box can make it take more than that: without them one connection may
 * hold megabytes, which hosts with cgroup v2 count. A quarter of a MiB is in flight at most for each connection: 10 MiB/s at 20 ms.
 */
export const GATEWAY_RESOURCES: {
  readonly memoryBytes: number;
  readonly sysctls: Readonly<Record<string, string>>;
} = {
  memoryBytes: 1280 * 1024 * 1024,
  sysctls: { "net.ipv4.tcp_rmem": "4096 65536 262144", "net.ipv4.tcp_wmem": "4096 16384 131072" },
};

/** What a forwarder's container is to have, in bytes: more than all of its connections want at once. */
export const FORWARDER_MEMORY_BYTES: number = 256 * 1024 * 1024;

/** The program that opens a control session when it is run in the gateway's container. */
export const CONTROL_ARGV: readonly string[] = ["node", BUNDLE_PATH, "control"];

/** The arguments of a forwarder's container. `folder` comes from `addBox`. */
export function forwarderArgv(options: { readonly folder: string; readonly lifetimeMs: number }): string[] {
  return ["--sockets", `${BOXES_DIRECTORY}/${options.folder}`, "--lifetime-ms", String(Math.ceil(options.lifetimeMs))];
}

/** The name server of a box behind a forwarder. */
export const RESOLVER_ADDRESS = "127.0.0.1";

/** What tells programs of a box about the proxy. In the environment of every program, not only of the first. */
export const PROXY_ENVIRONMENT: Readonly<Record<string, string>> = {
  HTTP_PROXY: "http://127.0.0.1:3128",
  HTTPS_PROXY: "http://127.0.0.1:3128",
  http_proxy: "http://127.0.0.1:3128",
  https_proxy: "http://127.0.0.1:3128",
  NO_PROXY: "localhost,127.0.0.1,::1",
  no_proxy: "localhost,127.0.0.1,::1",
  NODE_USE_ENV_PROXY: "1",
};
