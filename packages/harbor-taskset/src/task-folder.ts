import { constants } from "node:fs";
import { lstat, open, readdir, readlink, realpath, stat } from "node:fs/promises";
import { join, posix, sep } from "node:path";
import ignore, { type Ignore } from "ignore";

import type { TaskFolder, TaskFolderEntry } from "./task.ts";

/** More is no task's tests or solution, but a folder that was put there by mistake. */
export interface FolderLimits {
  readonly maxEntries: number;
  readonly maxBytes: number;
}

/** Why a file or folder of a task cannot be used. */
export class FolderProblem extends Error {
  /** Relative to the task's folder. */
  readonly file: string;
  readonly advice: string;

  constructor(file: string, message: string, advice: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.file = file;
    this.advice = advice;
  }
}

const LINK_ADVICE = "put the files themselves into the task's folder";

/** Harbor's name for it: what is listed here, in the manner of `.gitignore`, does not travel. It never does itself. */
export const IGNORE_FILE = ".harborignore";
const MAX_IGNORE_BYTES = 1024 ** 2;

/** Rules of a folder, for what is below it. */
interface IgnoreRules {
  /** The folder, relative to the listed one; empty = that one itself. */
  readonly folder: string;
  readonly rules: Ignore;
}

/** Whether rules leave a path out: the innermost that say anything about it decide. */
function isIgnored(path: string, isFolder: boolean, levels: readonly IgnoreRules[]): boolean {
  let ignored = false;
  for (const { folder, rules } of levels) {
    const below = folder === "" ? path : path.slice(folder.length + 1);
    const says = rules.test(isFolder ? `${below}/` : below);
    if (says.ignored || says.unignored) ignored = says.ignored;
  }
  return ignored;
}

/** The real place of a path of the task; `null` if nothing is there. Throws `FolderProblem` if a link leads out of the task's folder. */
export async function resolveInside(taskDirectory: string, relative: string): Promise<string | null> {
  let resolved: string;
  try {
    resolved = await realpath(join(taskDirectory, relative));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ENOTDIR") {
      if ((await kindOf(join(taskDirectory, relative))) === "link") {
        throw new FolderProblem(relative, "is a link that leads nowhere", LINK_ADVICE);
      }
      return null;
    }
    throw unreadable(relative, error);
  }
  if (!isInside(resolved, taskDirectory))
    throw new FolderProblem(relative, "is a link that leads out of the task's folder", LINK_ADVICE);
  return resolved;
}

/** A regular file of at most `maxBytes`; `null` if nothing is there. */
export async function readTaskFile(
  taskDirectory: string,
  relative: string,
  maxBytes: number,
): Promise<Uint8Array | null> {
  const path = await resolveInside(taskDirectory, relative);
  if (path === null) return null;
  try {
    // O_NONBLOCK: opening a FIFO must not wait for a writer.
    const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const about = await file.stat();
      const { size } = about;
      if (!about.isFile()) throw new FolderProblem(relative, "is not a regular file", "put a file there");
      if (size > maxBytes)
        throw new FolderProblem(relative, `has ${size} bytes, more than ${maxBytes}`, "make it smaller");
      const content = new Uint8Array(size + 1);
      let length = 0;
      for (;;) {
        const { bytesRead } = await file.read(content, length, content.length - length, length);
        length += bytesRead;
        if (bytesRead === 0 || length === content.length) break;
      }
      if (length > size)
        throw new FolderProblem(relative, "grew while it was read", "load the task when nobody writes to it");
      return content.subarray(0, length);
    } finally {
      await file.close();
    }
  } catch (error) {
    throw error instanceof FolderProblem ? error : unreadable(relative, error);
  }
}

/** True for a regular file of the task, reached without leaving its folder. */
export async function isTaskFile(taskDirectory: string, relative: string): Promise<boolean> {
  const path = await resolveInside(taskDirectory, relative);
  return path !== null && (await stat(path)).isFile();
}

/** True for a folder of the task, reached without leaving its folder. */
export async function isTaskFolder(taskDirectory: string, relative: string): Promise<boolean> {
  const path = await resolveInside(taskDirectory, relative);
  return path !== null && (await stat(path)).isDirectory();
}

/**
 * Everything below a folder of the task, as it will travel; `null` if the folder does not exist. With `withRules`, what its `.harborignore` files list is left
 * out, and not looked at. Relative links that stay in the
 * folder travel as links. Links to elsewhere in the task's folder are followed: their content travels. Everything else that is not a
 * file or a folder, a link out of the task's folder, and folders that contain themselves by links are a `FolderProblem`.
 */
export async function listTaskFolder(
  taskDirectory: string,
  relative: string,
  limits: FolderLimits,
  withRules: boolean,
): Promise<TaskFolder | null> {
  const root = await resolveInside(taskDirectory, relative);
  if (root === null) return null;
  if (!(await stat(root)).isDirectory()) throw new FolderProblem(relative, "is not a folder", "make it one");

  const entries: TaskFolderEntry[] = [];
  let bytes = 0;
  const add = (entry: TaskFolderEntry): void => {
    entries.push(entry);
    if (entries.length > limits.maxEntries) {
      throw new FolderProblem(
        relative,
        `has more than ${limits.maxEntries} files and folders`,
        "take out what the task does not need",
      );
    }
    if (entry.kind !== "file") return;
    bytes += entry.bytes;
    if (bytes > limits.maxBytes)
      throw new FolderProblem(
        relative,
        `has more than ${limits.maxBytes} bytes`,
        "take out what the task does not need",
      );
  };

  const pathOf = (hostPath: string): string => hostPath.slice(taskDirectory.length + 1);
  /** `followed`: a link led here, so that relative links would mean something else where they arrive. */
  const walk = async (
    hostFolder: string,
    below: string,
    ancestors: readonly string[],
    followed: boolean,
    outerRules: readonly IgnoreRules[],
  ): Promise<void> => {
    const names = (await readdir(hostFolder)).sort();
    const levels = [...outerRules];
    if (withRules && names.includes(IGNORE_FILE)) {
      const text = await readTaskFile(taskDirectory, pathOf(join(hostFolder, IGNORE_FILE)), MAX_IGNORE_BYTES);
      levels.push({ folder: below, rules: ignore().add(Buffer.from(text ?? "").toString("utf8")) });
    }
    for (const name of names) {
      if (withRules && name === IGNORE_FILE) continue;
      let isFollowed = followed;
      const path = below === "" ? name : `${below}/${name}`;
      const file = `${relative}/${path}`;
      let hostPath = join(hostFolder, name);
      let about = await lstat(hostPath);
      if (isIgnored(path, about.isDirectory(), levels)) continue;
      if (about.isSymbolicLink()) {
        const target = await readlink(hostPath);
        const resolved = await resolveInside(taskDirectory, pathOf(hostPath)).catch((error: unknown) => {
          throw error instanceof FolderProblem ? new FolderProblem(file, error.message, error.advice) : error;
        });
        if (resolved === null) throw new FolderProblem(file, "is a link that leads nowhere", LINK_ADVICE);
        if (!followed && staysInside(path, target) && isInside(resolved, root)) {
          add({ kind: "link", path, target });
          continue;
        }
        hostPath = resolved;
        isFollowed = true;
        about = await stat(resolved);
      }
      const mode = about.mode & 0o777;
      if (about.isDirectory()) {
        const real = await realpath(hostPath);
        if (ancestors.includes(real))
          throw new FolderProblem(file, "is a link to a folder that contains it", LINK_ADVICE);
        if (path.split("/").length > 100)
          throw new FolderProblem(file, "lies more than 100 folders deep", "make the tree flatter");
        add({ kind: "directory", path, mode });
        await walk(hostPath, path, [...ancestors, real], isFollowed, levels);
      } else if (about.isFile()) {
        add({ kind: "file", path, mode, bytes: about.size, hostPath });
      } else {
        throw new FolderProblem(file, "is neither a file nor a folder", "take it out of the task");
      }
    }
  };
  try {
    await walk(root, "", [root], false, []);
  } catch (error) {
    throw error instanceof FolderProblem ? error : unreadable(relative, error);
  }
  return { path: root, entries, bytes };
}

/** True for a relative link whose text alone keeps it inside the folder, whatever the folder is called where it arrives. */
function staysInside(path: string, target: string): boolean {
  if (target === "" || target.startsWith("/") || target.includes("\\")) return false;
  const resolved = posix.normalize(posix.join(posix.dirname(path), target));
  return resolved !== ".." && !resolved.startsWith("../");
}

function isInside(path: string, directory: string): boolean {
  return path === directory || path.startsWith(directory.endsWith(sep) ? directory : directory + sep);
}

async function kindOf(path: string): Promise<"link" | "other"> {
  try {
    return (await lstat(path)).isSymbolicLink() ? "link" : "other";
  } catch {
    return "other";
  }
}

function unreadable(file: string, cause: unknown): FolderProblem {
  const { code } = cause as NodeJS.ErrnoException;
  if (typeof code !== "string") throw cause;
  const loop = code === "ELOOP";
  return new FolderProblem(
    file,
    loop ? "is a link that leads to itself" : `cannot be read (${code})`,
    loop ? LINK_ADVICE : "check its permissions",
    cause,
  );
}
