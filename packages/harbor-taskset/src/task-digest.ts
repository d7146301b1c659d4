import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";

import { FolderProblem, isTaskFile, listTaskFolder, type FolderLimits } from "./task-folder.ts";
import type { Task } from "./task.ts";

const LIMITS: FolderLimits = { maxEntries: 100_000, maxBytes: 8 * 1024 ** 3 };
const FILES = ["task.toml", "instruction.md", "README.md", "trajectory.json"];
const FOLDERS = ["environment", "tests", "solution", "steps"];

/**
 * Harbor's digest of a task: SHA-256 over a line for each file, sorted by path, with the SHA-256 of its content (`publisher/packager.py`). Of ignore files only
 * `.harborignore` counts here. 64 hexadecimal digits; `null` if the folder cannot be read any more.
 */
export async function digestTask(directory: string): Promise<string | null> {
  const paths = new Map<string, string>();
  try {
    for (const file of FILES) if (await isTaskFile(directory, file)) paths.set(file, `${directory}/${file}`);
    for (const folder of FOLDERS) {
      const listed = await listTaskFolder(directory, folder, LIMITS, folder !== "environment");
      for (const entry of listed?.entries ?? []) {
        if (entry.kind === "file") paths.set(`${folder}/${entry.path}`, entry.hostPath);
      }
    }
    const digest = createHash("sha256");
    for (const [path, hostPath] of [...paths].sort(([a], [b]) => (a < b ? -1 : 1))) {
      digest.update(`${path}\0${await digestFile(hostPath)}\n`);
    }
    return digest.digest("hex");
  } catch (error) {
    if (error instanceof FolderProblem || (error as NodeJS.ErrnoException).code !== undefined) return null;
    throw error;
  }
}

const digests = new WeakMap<Task, Promise<string | null>>();

/** `digestTask` of a loaded task, worked out once for all its trials. */
export function digestOf(task: Task): Promise<string | null> {
  const digest = digests.get(task) ?? digestTask(task.directory);
  digests.set(task, digest);
  return digest;
}

async function digestFile(path: string): Promise<string> {
  const hash = createHash("sha256");
  for await (const chunk of createReadStream(path)) hash.update(chunk as Buffer);
  return hash.digest("hex");
}
