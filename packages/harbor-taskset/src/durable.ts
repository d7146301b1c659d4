import { randomBytes } from "node:crypto";
import { open, readFile, rename, rm } from "node:fs/promises";
import { dirname } from "node:path";

/** Writes a file so that it is there whole or not at all, also after the machine has lost its power: temporary file, fsync, rename, fsync of the folder. */
export async function writeDurably(file: string, text: string): Promise<void> {
  const unfinished = `${file}.${randomBytes(6).toString("hex")}.tmp`;
  try {
    const handle = await open(unfinished, "wx", 0o644);
    try {
      await handle.writeFile(text);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(unfinished, file);
  } catch (error) {
    await rm(unfinished, { force: true });
    throw error;
  }
  await syncToDisk(dirname(file));
}

/** Indented, as people read it. */
export async function writeJsonDurably(file: string, value: unknown): Promise<void> {
  await writeDurably(file, `${JSON.stringify(value, undefined, 2)}\n`);
}

/** Has what was written to a file, or the names in a folder, on disk. */
export async function syncToDisk(path: string): Promise<void> {
  const handle = await open(path, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** `null` if there is no such file, or if it is no JSON: what was written by `writeDurably` never is only a part. */
export async function readJson(file: string): Promise<unknown> {
  try {
    return JSON.parse(await readFile(file, "utf8")) as unknown;
  } catch (error) {
    if (error instanceof SyntaxError || isMissing(error)) return null;
    throw error;
  }
}

export function isMissing(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === "ENOENT" || code === "ENOTDIR";
}
