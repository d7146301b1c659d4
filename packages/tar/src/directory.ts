import { constants, type Stats } from "node:fs";
import { lstat, open, readdir, readlink, realpath, type FileHandle } from "node:fs/promises";
import { basename, isAbsolute, join, posix, relative, sep } from "node:path";
import { TarError } from "./errors.ts";
import { packTar, type PackMember } from "./pack.ts";

export interface PackDirectoryOptions {
  /** False leaves a path out, a directory with all below it. Paths are relative to the folder, with `/`. Default is to take everything. */
  readonly filter?: ((path: string, type: "file" | "directory" | "link") => boolean) | undefined;
}

/** A plain tar stream of a host folder's contents; see `directoryMembers`. */
export function packDirectory(
  hostFolder: string,
  options?: PackDirectoryOptions,
): AsyncGenerator<Uint8Array, void, undefined> {
  return packTar(directoryMembers(hostFolder, options));
}

/**
 * The contents of a host folder as members, sorted by name. The host's ids are not taken over, nor its modes: 0755 for directories and for files that
 * are executable on the host, are called `*.sh` or begin with `#!` (hosts without modes lose the bit); 0644 for all others. Times are kept.
 * Links are kept as links and have to stay inside the folder. Throws `ERR_TAR_SOURCE` for a link that does not, for a special file
 * and for a file that changes meanwhile.
 */
export async function* directoryMembers(
  hostFolder: string,
  options?: PackDirectoryOptions,
): AsyncGenerator<PackMember, void, undefined> {
  const root = await realpath(hostFolder);
  if (!(await lstat(root)).isDirectory()) throw sourceError(hostFolder, "is not a folder");
  yield* contents(root, "", options?.filter ?? (() => true));
}

async function* contents(
  root: string,
  folder: string,
  filter: NonNullable<PackDirectoryOptions["filter"]>,
): AsyncGenerator<PackMember, void, undefined> {
  const names = await readdir(join(root, folder));
  for (const name of names.sort(byCodeUnits)) {
    const path = folder === "" ? name : `${folder}/${name}`;
    const hostPath = join(root, folder, name);
    const status = await lstat(hostPath);
    const mtime = Math.floor(status.mtimeMs / 1000);
    if (status.isDirectory()) {
      if (!filter(path, "directory")) continue;
      yield { type: "directory", path, mtime };
      yield* contents(root, path, filter);
    } else if (status.isSymbolicLink()) {
      if (!filter(path, "link")) continue;
      yield { type: "link", path, mtime, linkTarget: await containedTarget(root, path, hostPath) };
    } else if (status.isFile()) {
      if (filter(path, "file")) yield* fileMember(path, hostPath, mtime);
    } else if (filter(path, "file")) {
      throw sourceError(hostPath, "is neither a file, a directory nor a link");
    }
  }
}

async function* fileMember(path: string, hostPath: string, mtime: number): AsyncGenerator<PackMember, void, undefined> {
  const file = await open(hostPath, constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0));
  try {
    const status = await file.stat();
    if (!status.isFile()) throw sourceError(hostPath, "is no longer a regular file");
    const mode = (await isExecutable(path, file, status)) ? 0o755 : 0o644;
    yield { type: "file", path, mode, mtime, size: status.size, content: chunksOf(file, 0, status.size) };
  } finally {
    await file.close();
  }
}

async function isExecutable(path: string, file: FileHandle, status: Stats): Promise<boolean> {
  if ((status.mode & 0o111) !== 0 || path.endsWith(".sh")) return true;
  const { bytesRead, buffer } = await file.read(Buffer.alloc(2), 0, 2, 0);
  return isScript(buffer.subarray(0, bytesRead));
}

/** True for content that names its own interpreter. */
export function isScript(content: Uint8Array): boolean {
  return content[0] === 0x23 && content[1] === 0x21;
}

/** A part of an open file; shorter if the file is. */
export async function* chunksOf(
  file: FileHandle,
  start: number,
  bytes: number,
): AsyncGenerator<Uint8Array, void, undefined> {
  const chunkBytes = 64 * 1024;
  for (let at = start; at < start + bytes;) {
    const buffer = Buffer.allocUnsafe(Math.min(chunkBytes, start + bytes - at));
    const { bytesRead } = await file.read(buffer, 0, buffer.length, at);
    if (bytesRead === 0) return;
    at += bytesRead;
    yield buffer.subarray(0, bytesRead);
  }
}

/** The link's own text, if neither it nor what it leads to leaves the folder. */
async function containedTarget(root: string, path: string, hostPath: string): Promise<string> {
  const target = (await readlink(hostPath)).replaceAll(sep, "/");
  const lexical = posix.join(posix.dirname(path), target);
  const leaves = isAbsolute(target) || lexical === ".." || lexical.startsWith("../");
  const resolved = leaves ? null : await realpath(hostPath).catch(() => null);
  const inside = resolved === null ? "" : relative(root, resolved);
  if (leaves || inside === ".." || inside.startsWith(`..${sep}`) || isAbsolute(inside)) {
    throw sourceError(hostPath, `is a link to ${JSON.stringify(target)}, outside of ${JSON.stringify(basename(root))}`);
  }
  return target;
}

function sourceError(path: string, what: string): TarError {
  return new TarError({ code: "ERR_TAR_SOURCE", path, message: `${JSON.stringify(path)} ${what}` });
}

function byCodeUnits(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
