import { appendFile } from "node:fs/promises";
import { join } from "node:path";
import { packTar, readTar } from "@breakwater/tar";
import { afterAll, describe, expect, it } from "vitest";

import { TaskFolders } from "../test/write-task.ts";
import { loadTask } from "./load-task.ts";
import { differences, manifestOf, packTaskFolder, type Manifest } from "./task-folder-archive.ts";
import type { TaskFolder } from "./task.ts";

const folders = new TaskFolders();
afterAll(() => folders.dispose());

async function testsOf(files: Parameters<TaskFolders["write"]>[0]): Promise<TaskFolder> {
  const { files: found } = await loadTask(await folders.write(files));
  if (found.testFiles === null) throw new Error("the task has no tests");
  return found.testFiles;
}

/** As a box has it: below `/tests`, with the folder itself. */
async function* asDownloaded(folder: TaskFolder): AsyncGenerator<Uint8Array> {
  yield* packTar(
    (async function* () {
      yield { type: "directory", path: "tests" } as const;
      for await (const { type, path, size, mode, linkTarget, content } of readTar(packTaskFolder(folder))) {
        const name = `tests/${path.replace(/\/$/, "")}`;
        if (type === "file") yield { type, path: name, size, mode, content } as const;
        else if (type === "directory") yield { type, path: name } as const;
        else yield { type: "link", path: name, linkTarget: linkTarget ?? "" } as const;
      }
    })(),
  );
}

async function send(folder: TaskFolder): Promise<Manifest> {
  const sent: Manifest = new Map();
  for await (const chunk of packTaskFolder(folder, sent)) void chunk;
  return sent;
}

describe("a folder of the task on its way into a box", () => {
  const FILES = { "tests/deep/cases.txt": "one\ntwo\n", "tests/alias": { link: "deep/cases.txt" } };

  it("is found again as it was sent", async () => {
    const folder = await testsOf(FILES);
    const sent = await send(folder);
    expect([...sent.keys()].sort()).toEqual(["alias", "deep", "deep/cases.txt", "test.sh"]);
    expect(differences(sent, await manifestOf(asDownloaded(folder), "/tests"))).toEqual([]);
  });

  it("is not the same with other content of the same size, with more or with less", async () => {
    const sent = await send(await testsOf(FILES));
    const other = await testsOf({ ...FILES, "tests/deep/cases.txt": "one\ntwO\n" });
    expect(differences(sent, await manifestOf(asDownloaded(other), "/tests"))).toEqual(["deep/cases.txt"]);
    const more = await testsOf({ ...FILES, "tests/conftest.py": "" });
    expect(differences(sent, await manifestOf(asDownloaded(more), "/tests"))).toEqual(["conftest.py"]);
    const less = await testsOf({ ...FILES, "tests/alias": null });
    expect(differences(sent, await manifestOf(asDownloaded(less), "/tests"))).toEqual(["alias"]);
    const otherKind = await testsOf({ ...FILES, "tests/alias": "one\ntwo\n" });
    expect(differences(sent, await manifestOf(asDownloaded(otherKind), "/tests"))).toEqual(["alias"]);
  });

  it("can be read by everybody, and scripts can be run", async () => {
    const modes: Record<string, number> = {};
    for await (const { path, mode } of readTar(packTaskFolder(await testsOf(FILES)))) modes[path] = mode;
    expect(modes).toMatchObject({ "test.sh": 0o755, "deep/": 0o755, "deep/cases.txt": 0o644 });
  });

  it("takes a file as it is when it is sent, never a part of it", async () => {
    const folder = await testsOf(FILES);
    await appendFile(join(folder.path, "deep/cases.txt"), "three\n");
    expect((await send(folder)).get("deep/cases.txt")).toMatch(/^file of 14 bytes/);
  });
});
