import { chmod, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";

/** Content of a file, or where a link points to. `null` leaves out a file of the default task. */
export type FakeFile = string | Uint8Array | { readonly link: string } | null;

/** A task that loads: shared, an image, a script. */
export const SMALL_TASK: Readonly<Record<string, FakeFile>> = {
  "task.toml": 'schema_version = "1.4"\n[environment]\ndocker_image = "agent:1"\n',
  "instruction.md": "Do it.\n",
  "tests/test.sh": "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n",
};

/** Task folders for tests, all below one temporary folder that `dispose` removes. */
export class TaskFolders {
  readonly #root: Promise<string> = mkdtemp(join(tmpdir(), "breakwater-tasks-"));
  #count = 0;

  /** A folder with the files of `SMALL_TASK` and these. */
  async write(files: Readonly<Record<string, FakeFile>> = {}, name: string = `task-${this.#count++}`): Promise<string> {
    const directory = join(await this.#root, name);
    for (const [path, content] of Object.entries({ ...SMALL_TASK, ...files })) {
      if (content === null) continue;
      const file = join(directory, path);
      await mkdir(path.endsWith("/") ? file : dirname(file), { recursive: true });
      if (path.endsWith("/")) continue;
      if (typeof content === "object" && "link" in content) await symlink(content.link, file);
      else {
        await writeFile(file, content);
        await chmod(file, path.endsWith(".sh") ? 0o755 : 0o644);
      }
    }
    return directory;
  }

  async dispose(): Promise<void> {
    await rm(await this.#root, { recursive: true, force: true });
  }
}
