import { randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { assertNoWayOut, fakeInternet, runInside } from "@breakwater/backends/network";
import type { Runtime } from "@breakwater/runtime-api";
import { dockerHost, image } from "./backend.ts";
import { Stranger } from "./engine.ts";

/** Why a test of networks is not run here; `null` = it can be. What may be reached is tried on sealed engines only. */
export const notSealed: string | null =
  process.env["BREAKWATER_HOST_ADDRESS"] === undefined
    ? "not run: no sealed engine with a fake internet (npm run backends -- network up)"
    : null;

export { assertNoWayOut, fakeInternet };

/** One try to get somewhere, in the words of `probes.py`. */
export interface Probe {
  readonly kind: "tcp" | "connect" | "udp" | "icmp" | "raw" | "frame" | "dns" | "resolve" | "http" | "configure";
  readonly host?: string;
  readonly port?: number;
  readonly name?: string;
  readonly device?: string;
  readonly source?: string;
  readonly tcp?: boolean;
  readonly dontRoute?: boolean;
}

const PROGRAM: string = await readFile(join(import.meta.dirname, "probes.py"), "utf8");
const PROBES_TIMEOUT_MS = 120_000;

/** Tells a box's packets from all others. */
export function newToken(): string {
  return `probe-${randomBytes(8).toString("hex")}`;
}

/** Runs the probes in a box as root. */
export async function tryFrom(box: Runtime, probes: readonly Probe[], token: string): Promise<readonly string[]> {
  const argv = ["python3", "-c", PROGRAM, json(probes, token)];
  const { exitCode, stdout, stderr } = await box.exec(argv, { user: "root", timeoutMs: PROBES_TIMEOUT_MS });
  if (exitCode !== 0) throw new Error(`probes ended with ${exitCode}: ${Buffer.from(stderr).toString("utf8")}`);
  return JSON.parse(Buffer.from(stdout).toString("utf8")) as string[];
}

/** Runs the probes in a container that is not ours, on the engine's default bridge: what the same image can do without this driver. */
export async function tryFromStranger(
  probes: readonly Probe[],
  token: string,
  hostConfig: object = {},
): Promise<readonly string[]> {
  const stranger = new Stranger(dockerHost);
  const { Id: id } = (await stranger.call("POST", "/containers/create", {
    Image: image,
    Cmd: ["python3", "-c", PROGRAM, json(probes, token)],
    Tty: true,
    HostConfig: { NetworkMode: "bridge", ...hostConfig },
  })) as { readonly Id: string };
  try {
    await stranger.call("POST", `/containers/${id}/start`);
    await stranger.call("POST", `/containers/${id}/wait`);
    const said = await stranger.call("GET", `/containers/${id}/logs?stdout=1&stderr=1`);
    if (!Array.isArray(said)) throw new Error(`probes of a stranger: ${String(said)}`);
    return said as readonly string[];
  } finally {
    await stranger.call("DELETE", `/containers/${id}?force=1&v=1`);
  }
}

function json(probes: readonly Probe[], token: string): string {
  return JSON.stringify(probes.map((probe) => ({ host: "0.0.0.0", token, ...probe })));
}

/** Every address of a bridge of the engine's host. */
export async function bridgeAddresses(): Promise<readonly string[]> {
  const { stdout } = await runInside(["ip", "-json", "address", "show", "type", "bridge"], { timeoutMs: 30_000 });
  const links = JSON.parse(stdout) as readonly { readonly addr_info: readonly { local: string; scope: string }[] }[];
  return links.flatMap(({ addr_info: addresses }) =>
    addresses.filter(({ scope }) => scope === "global").map(({ local }) => local),
  );
}
