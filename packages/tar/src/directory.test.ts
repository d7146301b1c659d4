import { spawnSync } from "node:child_process";
import { chmod, mkdir, symlink, truncate, utimes, writeFile } from "node:fs/promises";
import { describe, expect, it } from "vitest";
import { packDirectory } from "./directory.ts";
import { readTar } from "./read.ts";
import { bytesOf, membersOf, temporaryFolder } from "../test/support.ts";

async function folderWith(files: Readonly<Record<string, string>>): ReturnType<typeof temporaryFolder> {
  const folder = await temporaryFolder();
  for (const [path, content] of Object.entries(files)) {
    await mkdir(`${folder.path}/${path}`.replace(/\/[^/]*$/, ""), { recursive: true });
    if (!path.endsWith("/")) await writeFile(`${folder.path}/${path}`, content);
  }
  return folder;
}

it("packs the contents in the order of their names, without the folder's own", async () => {
  await using folder = await folderWith({ "b/x": "x", "a.txt": "a", "empty/": "", B: "" });
  await symlink("b/x", `${folder.path}/s`);
  const members = await membersOf(await bytesOf(packDirectory(folder.path)));
  expect(members.map(({ path, type }) => [path, type])).toEqual([
    ["B", "file"],
    ["a.txt", "file"],
    ["b/", "directory"],
    ["b/x", "file"],
    ["empty/", "directory"],
    ["s", "link"],
  ]);
});

it("decides modes itself and takes no ids from the host", async () => {
  await using folder = await folderWith({ "run.sh": "", script: "#!/bin/sh\n", data: "", private: "", tool: "" });
  for (const [name, mode] of Object.entries({
    "run.sh": 0o666,
    script: 0o644,
    data: 0o666,
    private: 0o600,
    tool: 0o711,
  })) {
    await chmod(`${folder.path}/${name}`, mode);
  }
  await utimes(`${folder.path}/data`, 5, 1_000_000_000.7);
  const found: Record<string, string> = {};
  for await (const { path, mode, uid, gid, mtime } of readTar(packDirectory(folder.path))) {
    found[path] = path === "data" ? `${mode.toString(8)} at ${mtime}` : mode.toString(8);
    expect([uid, gid]).toEqual([0, 0]);
  }
  expect(found).toEqual({ "run.sh": "755", script: "755", data: "644 at 1000000000", private: "644", tool: "755" });
});

it("leaves out what the filter does not want, a directory with all below it", async () => {
  await using folder = await folderWith({ "keep/a": "", "keep/b.pyc": "", "skip/c": "" });
  const asked: string[] = [];
  const filter = (path: string): boolean => {
    asked.push(path);
    return path !== "skip" && !path.endsWith(".pyc");
  };
  const members = await membersOf(await bytesOf(packDirectory(folder.path, { filter })));
  expect(members.map(({ path }) => path)).toEqual(["keep/", "keep/a"]);
  expect(asked).toEqual(["keep", "keep/a", "keep/b.pyc", "skip"]);
});

describe("links", () => {
  const packedWith = async (target: string): Promise<Buffer> => {
    await using folder = await folderWith({ "in/sub/file": "x", outside: "secret" });
    await symlink("..", `${folder.path}/in/sub/up`);
    await symlink(target, `${folder.path}/in/link`);
    return await bytesOf(packDirectory(`${folder.path}/in`));
  };
  it.each(["sub/file", "./sub/../sub/file", "sub/up/sub/file", "dangling", "sub/up"])("keeps %s", async (target) => {
    const found = (await membersOf(await packedWith(target))).find(({ path }) => path === "link");
    expect(found).toMatchObject({ type: "link", linkTarget: target });
  });
  it.each(["../outside", "/etc/passwd", "sub/../../outside", "..", "sub/up/../outside"])(
    "refuses %s",
    async (target) => {
      await expect(packedWith(target)).rejects.toMatchObject({ code: "ERR_TAR_SOURCE" });
    },
  );
});

it("refuses a FIFO without waiting for it", async () => {
  await using folder = await temporaryFolder();
  expect(spawnSync("mkfifo", [`${folder.path}/fifo`]).status).toBe(0);
  await expect(bytesOf(packDirectory(folder.path))).rejects.toMatchObject({ code: "ERR_TAR_SOURCE" });
});

it("refuses what is no folder", async () => {
  await using folder = await folderWith({ file: "" });
  await expect(bytesOf(packDirectory(`${folder.path}/file`))).rejects.toMatchObject({ code: "ERR_TAR_SOURCE" });
  await expect(bytesOf(packDirectory(`${folder.path}/missing`))).rejects.toMatchObject({ code: "ENOENT" });
});

it("notices a file that becomes shorter while it is packed", async () => {
  await using folder = await folderWith({ log: "x".repeat(3_000_000) });
  const stream = packDirectory(folder.path);
  await stream.next();
  await truncate(`${folder.path}/log`, 1_000_000);
  await expect(bytesOf(stream)).rejects.toMatchObject({ code: "ERR_TAR_SOURCE" });
});
