import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";

export type TaskFileContent = string | Uint8Array;

/** Writes a task's folder: paths (relative, with `/`) to contents. `*.sh` can be run. Gives the folder. */
export async function writeTask(folder: string, files: Readonly<Record<string, TaskFileContent>>): Promise<string> {
  for (const [path, content] of Object.entries(files)) {
    const file = join(folder, path);
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, content, { mode: path.endsWith(".sh") ? 0o755 : 0o644 });
  }
  return folder;
}
