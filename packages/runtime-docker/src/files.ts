import type { IncomingHttpHeaders } from "node:http";
import type { Deadline, LocatedPath, OpenArchive } from "@breakwater/driver-kit";
import { packTar, readTar } from "@breakwater/tar";
import type { Engine } from "./engine.ts";
import { isStatus } from "./errors.ts";
import type { EngineFacts } from "./probe.ts";

/** One path in a container as the archive API describes it, links not followed. */
export interface PathStat {
  readonly kind: "file" | "directory" | "link" | "other";
  readonly size: number;
  /** A link that leads to itself. */
  readonly isLoop: boolean;
}

/** A container, and what kind of engine it is on. */
export interface ContainerFiles {
  readonly container: string;
  readonly kind: EngineFacts["kind"];
}

const PATH_STAT_HEADER = "x-docker-container-path-stat";
/** The bits of Go's `os.FileMode` that say what a file is. */
const MODE_DIRECTORY = 2 ** 31;
const MODE_LINK = 2 ** 27;
const OTHER_KINDS = [
  2 ** 26 /* device */,
  2 ** 25 /* FIFO */,
  2 ** 24 /* socket */,
  2 ** 21 /* character device */,
  2 ** 19 /* irregular */,
] as const;

/**
 * Looks at a canonical path one component after the other. The engine follows links on the way to the last component, so every one before it is
 * asked about by itself: a link there is found, not followed. Throws a 404 `EngineError` if there is no such container.
 */
export async function locate(
  engine: Engine,
  clock: Deadline,
  files: ContainerFiles,
  path: string,
): Promise<LocatedPath> {
  const components = path.split("/").filter((component) => component !== "");
  let stat = pathStat("directory");
  for (let depth = 1; depth <= components.length; depth++) {
    const at = `/${components.slice(0, depth).join("/")}`;
    const found = await statPath(engine, clock, files.container, at);
    if (found === null) return { at: "missing", path: at };
    stat = found;
    if (depth < components.length) {
      if (stat.kind === "link") return { at: "link", path: at };
      if (stat.kind !== "directory") return { at: "missing", path: `/${components.slice(0, depth + 1).join("/")}` };
    }
  }
  const { kind, size } = stat;
  return { at: "found", kind, size, open: () => openArchive(engine, clock.signal, files, path, stat) };
}

async function openArchive(
  engine: Engine,
  signal: AbortSignal,
  { container, kind }: ContainerFiles,
  path: string,
  stat: PathStat,
): Promise<OpenArchive> {
  // A link that leads to itself no engine can send, and Podman sends what a link leads to: then the folder that it is in is sent.
  const inFolder = stat.isLoop || (stat.kind === "link" && kind === "podman");
  const sent = inFolder ? parentOf(path) : path;
  const query = { path: sent };
  const response = await engine.send(signal, { method: "GET", path: `/containers/${container}/archive`, query });
  const close = (): void => void response.destroy();
  if (inFolder) return { path, stream: onlyMember(response, path.slice(path.lastIndexOf("/") + 1)), close };
  return { path, ...(path === "/" ? { name: "" } : {}), stream: response, close };
}

function parentOf(path: string): string {
  return path.slice(0, path.lastIndexOf("/")) || "/";
}

async function statPath(engine: Engine, clock: Deadline, container: string, path: string): Promise<PathStat | null> {
  try {
    return parsePathStat(await engine.head(clock, { path: `/containers/${container}/archive`, query: { path } }));
  } catch (error) {
    // Podman looks where a link leads, and describes the link all the same when there is nothing.
    if (isStatus(error, 404) && isPathStat(error.headers)) return parsePathStat(error.headers);
    if (isStatus(error, 404)) {
      await engine.done(clock, { method: "GET", path: `/containers/${container}/json` });
      return null;
    }
    // A link that leads to itself is an internal error to the engine. If it can tell about the folder, the path is to blame.
    if (isStatus(error, 500) && path !== "/") {
      await engine.head(clock, { path: `/containers/${container}/archive`, query: { path: parentOf(path) } });
      return { kind: "link", size: 0, isLoop: true };
    }
    throw error;
  }
}

function isPathStat(headers: IncomingHttpHeaders): boolean {
  return headers[PATH_STAT_HEADER] !== undefined;
}

/** The header `X-Docker-Container-Path-Stat`: base64 of JSON, the mode in Go's bits. */
export function parsePathStat(headers: IncomingHttpHeaders): PathStat {
  const header = headers[PATH_STAT_HEADER];
  if (typeof header !== "string")
    throw new Error("the engine did not describe the path (X-Docker-Container-Path-Stat is missing)");
  const { mode, size } = JSON.parse(Buffer.from(header, "base64").toString("utf8")) as { mode: number; size: number };
  const has = (bit: number): boolean => Math.floor(mode / bit) % 2 === 1;
  if (has(MODE_DIRECTORY)) return pathStat("directory");
  if (has(MODE_LINK)) return pathStat("link");
  return OTHER_KINDS.some(has) ? pathStat("other") : pathStat("file", size);
}

function pathStat(kind: PathStat["kind"], size = 0): PathStat {
  return { kind, size, isLoop: false };
}

/** The one member of this name out of the archive of the folder that it is in. */
export async function* onlyMember(
  archive: AsyncIterable<Uint8Array>,
  name: string,
): AsyncGenerator<Uint8Array, void, undefined> {
  for await (const { type, pathBytes, linkTargetBytes, uid, gid, mtime } of readTar(archive)) {
    const path = Buffer.from(pathBytes.buffer, pathBytes.byteOffset, pathBytes.byteLength);
    const below = path.subarray(path.indexOf("/") + 1);
    if (type !== "link" || !below.equals(Buffer.from(name))) continue;
    yield* packTar([{ type, path: name, linkTarget: linkTargetBytes ?? "", uid, gid, mtime }]);
    return;
  }
}
