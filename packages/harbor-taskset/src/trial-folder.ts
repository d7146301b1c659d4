import { randomBytes } from "node:crypto";
import { lstat, mkdir, mkdtemp, readdir, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { extractSpool, type Spool } from "@breakwater/tar";

import type { TasksetProblem } from "./problems.ts";

/** As Harbor names trials: the beginning of the task's name and seven random characters. */
export function makeTrialName(taskName: string): string {
  const base = taskName
    .replace(/[^A-Za-z0-9._-]+/g, "-")
    .replace(/^[^A-Za-z0-9]+/, "")
    .slice(0, 32);
  const characters = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789";
  const random = Array.from(randomBytes(7), (byte) => characters[byte % characters.length]).join("");
  return `${base === "" ? "task" : base}__${random}`;
}

/** A name that is one component of a path everywhere and fits into labels. Throws a `TypeError`. */
export function checkTrialName(name: string): void {
  if (!/^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$/.test(name)) {
    throw new TypeError(
      `trialName: ${JSON.stringify(name)} is not 1 to 200 letters, digits, ".", "_" and "-", beginning with a letter or digit`,
    );
  }
}

const SPOOLS = ".spools";

/** Room that all steps of a trial share. */
interface Spools {
  readonly folder: string;
  count: number;
}

/** Where a trial is written down, and the room for what is on its way from one box to the next. */
export class TrialFolder implements AsyncDisposable {
  /** Absolute; `null` if nothing is kept. */
  readonly directory: string | null;
  /** Whether what was on its way from one box to the next outlives this process's part of the trial. Set by who may grade it again. */
  keepsSpools = false;
  readonly #spools: Spools;

  private constructor(directory: string | null, spools: Spools) {
    this.directory = directory;
    this.#spools = spools;
  }

  /** The place of one of the task's steps in it, as Harbor has it. Only this one is to be disposed. */
  ofStep(name: string): TrialFolder {
    return new TrialFolder(this.directory === null ? null : join(this.directory, "steps", name), this.#spools);
  }

  /** Rejects if the folder exists, or cannot be made. */
  static async create(outputDir: string | undefined, trialName: string): Promise<TrialFolder> {
    if (outputDir === undefined) {
      return new TrialFolder(null, { folder: await mkdtemp(join(tmpdir(), "breakwater-trial-")), count: 0 });
    }
    const directory = resolve(outputDir, trialName);
    await mkdir(dirname(directory), { recursive: true });
    await mkdir(directory);
    const spools = join(directory, SPOOLS);
    await mkdir(spools, { mode: 0o700 });
    return new TrialFolder(directory, { folder: spools, count: 0 });
  }

  /** The folder of a trial that was begun before. Rejects if there is none. */
  static async reopen(outputDir: string, trialName: string): Promise<TrialFolder> {
    const directory = resolve(outputDir, trialName);
    const folder = join(directory, SPOOLS);
    const count = Math.max(0, ...(await readdir(folder)).filter((name) => /^\d+$/.test(name)).map(Number));
    return new TrialFolder(directory, { folder, count });
  }

  /** A file of this name among the spools: it lives as long as they. */
  spoolFile(name: string): string {
    return join(this.#spools.folder, name);
  }

  /** The path of a file or folder of the trial, its parents made; `null` if nothing is kept. */
  async path(relativePath: string): Promise<string | null> {
    if (this.directory === null) return null;
    const path = join(this.directory, relativePath);
    await mkdir(dirname(path), { recursive: true });
    return path;
  }

  /** A path that does not exist yet, outside of what is kept. */
  newSpoolFile(): string {
    return join(this.#spools.folder, `${(this.#spools.count += 1)}`);
  }

  /**
   * Puts a spool's content to a place below the trial's folder. What is there stays: entries that overlap share their files. Gives what the host's
   * file system would not take.
   */
  async place(spool: Spool, relativePath: string): Promise<readonly TasksetProblem[]> {
    const path = await this.path(relativePath);
    if (path === null || spool.kind === null) return [];
    const unpacked = this.newSpoolFile();
    const refused = await extractSpool(spool, unpacked);
    await merge(unpacked, path);
    await rm(unpacked, { recursive: true, force: true });
    return refused.map((member) => ({
      file: relativePath,
      key: null,
      message: `${JSON.stringify(member.path)} of ${spool.root} could not be written on the host (${member.code})`,
      advice: "the verifier got it; rename it to have it on this host, too",
    }));
  }

  async writeJson(relativePath: string, value: unknown): Promise<void> {
    const path = await this.path(relativePath);
    if (path !== null) await writeFile(path, `${JSON.stringify(value, undefined, 2)}\n`);
  }

  /** Removes a file or folder of the trial, if it is there. */
  async removeTree(relativePath: string): Promise<void> {
    if (this.directory !== null) await rm(join(this.directory, relativePath), { recursive: true, force: true });
  }

  /** What was on its way has arrived: its room is needed no more. Best effort: nothing of a trial depends on it. */
  async removeSpools(): Promise<void> {
    const names = await readdir(this.#spools.folder).catch(() => []);
    for (const name of names)
      await rm(join(this.#spools.folder, name), { recursive: true, force: true }).catch(() => undefined);
  }

  /** Removes the spools, unless they are kept. Best effort: nothing of a trial depends on it. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.keepsSpools) return;
    await rm(this.#spools.folder, { recursive: true, force: true }).catch(() => undefined);
  }
}

/** Moves a tree to where parts of it may be already. */
async function merge(from: string, to: string): Promise<void> {
  const there = await lstat(to).catch(() => null);
  if (there === null) {
    await rename(from, to);
    return;
  }
  if (!there.isDirectory() || !(await lstat(from)).isDirectory()) return;
  for (const name of await readdir(from)) await merge(join(from, name), join(to, basename(name)));
}
