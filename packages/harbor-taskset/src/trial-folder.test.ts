import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { packTar, spoolArtifact, type PackMember, type Spool } from "@breakwater/tar";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

import { checkTrialName, makeTrialName, TrialFolder } from "./trial-folder.ts";

let outputDir = "";
beforeAll(async () => {
  outputDir = await mkdtemp(join(tmpdir(), "breakwater-folder-"));
});
afterAll(() => rm(outputDir, { recursive: true, force: true }));

async function spool(folder: TrialFolder, root: string, files: readonly string[]): Promise<Spool> {
  const members = files.map((path): PackMember => ({ type: "file", path: path.slice(1), content: path }));
  const limits = { maxBytes: 1000, maxEntries: 10 };
  return spoolArtifact(packTar(members), { file: folder.newSpoolFile(), root, ...limits });
}

describe("a trial's name", () => {
  it("is the beginning of the task's and seven characters, and another one each time", () => {
    const name = makeTrialName("hello");
    expect(name).toMatch(/^hello__[A-Za-z0-9]{7}$/);
    expect(makeTrialName("hello")).not.toBe(name);
    expect(makeTrialName("a/b c".repeat(20))).toMatch(/^[a-c-]{32}__[A-Za-z0-9]{7}$/);
    checkTrialName(makeTrialName("äöü"));
  });

  it.each(["", ".", "..", "a/b", "-a", "a b", "x".repeat(201)])("cannot be %j", (name) => {
    expect(() => checkTrialName(name)).toThrow(TypeError);
  });
});

describe("a trial's folder", () => {
  it("is never one that exists", async () => {
    await using first = await TrialFolder.create(outputDir, "twice");
    expect(first.directory).toBe(join(outputDir, "twice"));
    await expect(TrialFolder.create(outputDir, "twice")).rejects.toMatchObject({ code: "EEXIST" });
  });

  it("has artifacts that overlap once, whichever comes first, and no spool afterwards", async () => {
    for (const [name, order] of Object.entries({ outer: [0, 1], inner: [1, 0] })) {
      await using folder = await TrialFolder.create(outputDir, name);
      const spools = [
        [await spool(folder, "/app/out", ["/app/out/a", "/app/out/deep/b"]), "artifacts/app/out"],
        [await spool(folder, "/app/out/deep", ["/app/out/deep/b", "/app/out/deep/c"]), "artifacts/app/out/deep"],
      ] as const;
      for (const index of order) {
        const [one, place] = spools[index as 0 | 1];
        expect(await folder.place(one, place)).toEqual([]);
      }
      const at = join(outputDir, name, "artifacts/app/out");
      expect((await readdir(at, { recursive: true })).sort()).toEqual(["a", "deep", "deep/b", "deep/c"]);
      expect(await readFile(join(at, "deep/c"), "utf8")).toBe("/app/out/deep/c");
      await folder[Symbol.asyncDispose]();
      expect(await readdir(join(outputDir, name))).toEqual(["artifacts"]);
    }
  });

  it("is a temporary one if nothing is to be kept", async () => {
    await using folder = await TrialFolder.create(undefined, "unused");
    expect(folder.directory).toBeNull();
    const one = await spool(folder, "/app", ["/app/a"]);
    expect(await folder.place(one, "artifacts/app")).toEqual([]);
    await folder[Symbol.asyncDispose]();
    await expect(readFile(one.file)).rejects.toMatchObject({ code: "ENOENT" });
  });
});
