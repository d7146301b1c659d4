import fc from "fast-check";
import { lstat, readdir, readFile, readlink, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { packTar, type PackMember } from "./pack.ts";
import { extractSpool, readSpool, spoolArtifact, type Spool, type SpoolOptions } from "./spool.ts";
import { bytesOf, membersOf, rawMember, temporaryFolder } from "../test/support.ts";

const LIMITS = { root: "/app/out", maxBytes: 100_000_000, maxEntries: 1000 };
const spooled = (folder: string, members: readonly PackMember[], options: Partial<SpoolOptions> = {}): Promise<Spool> =>
  spoolArtifact(packTar(members), { ...LIMITS, file: join(folder, "spool.tar"), ...options });

const TREE: readonly PackMember[] = [
  { type: "directory", path: "app/out", mode: 0o700 },
  { type: "file", path: "app/out/secret", content: "secret", mode: 0o600, mtime: 1_000_000_000 },
  { type: "file", path: "app/out/run", content: Buffer.alloc(300_000, "r"), mode: 0o4777 },
  { type: "hard-link", path: "app/out/again", linkTarget: "app/out/run", mode: 0o700 },
  { type: "link", path: "app/out/s", linkTarget: "secret" },
  { type: "fifo", path: "app/out/fifo" },
];

describe("a spool", () => {
  it("holds what was kept, readable for the next box's user", async () => {
    await using folder = await temporaryFolder();
    const spool = await spooled(folder.path, TREE);
    expect(spool).toMatchObject({ root: "/app/out", kind: "directory", entries: 5, bytes: 600_006 });
    expect(spool.leftOut).toEqual([{ path: "app/out/fifo", reason: "FIFO" }]);
    expect((await stat(spool.file)).mode & 0o777).toBe(0o600);

    const members = await membersOf(await bytesOf(readSpool(spool)));
    expect(members.map(({ path, type, mode }) => [path, type, mode.toString(8)])).toEqual([
      ["out/", "directory", "755"],
      ["out/secret", "file", "644"],
      ["out/run", "file", "755"],
      ["out/again", "file", "755"],
      ["out/s", "link", "777"],
    ]);
    expect(members[3]?.content).toBe("r".repeat(300_000));
  });

  it("keeps modes when asked to", async () => {
    await using folder = await temporaryFolder();
    const spool = await spooled(folder.path, TREE, { modes: "kept" });
    const modes = (await membersOf(await bytesOf(readSpool(spool)))).map(({ mode }) => mode.toString(8));
    expect(modes).toEqual(["700", "600", "777", "700", "777"]);
  });

  it.each([
    [0o600, 0o644],
    [0o400, 0o444],
    [0o000, 0o444],
    [0o666, 0o644],
    [0o711, 0o755],
    [0o700, 0o755],
  ])("makes the mode %o readable as %o", async (mode, readable) => {
    await using folder = await temporaryFolder();
    const spool = await spooled(folder.path, [{ type: "file", path: "app/out", content: "x", mode }]);
    expect(spool.kind).toBe("file");
    expect((await membersOf(await bytesOf(readSpool(spool))))[0]?.mode).toBe(readable);
  });

  it("says so if nothing was kept", async () => {
    await using folder = await temporaryFolder();
    expect(await spooled(folder.path, [{ type: "fifo", path: "app/out" }])).toMatchObject({ kind: null, entries: 0 });
  });

  it("is not left behind when a limit is passed or the stream is cut", async () => {
    await using folder = await temporaryFolder();
    await expect(spooled(folder.path, TREE, { maxBytes: 600_005 })).rejects.toMatchObject({ code: "ERR_TAR_LIMIT" });
    const cut = [rawMember({ path: "app/out", size: 1000 }), Buffer.alloc(10)];
    const file = join(folder.path, "spool.tar");
    await expect(spoolArtifact(toStream(cut), { ...LIMITS, file })).rejects.toMatchObject({
      code: "ERR_TAR_TRUNCATED",
    });
    expect(await readdir(folder.path)).toEqual([]);
  });

  it("overwrites nothing", async () => {
    await using folder = await temporaryFolder();
    await writeFile(join(folder.path, "spool.tar"), "mine");
    await expect(spooled(folder.path, TREE)).rejects.toMatchObject({ code: "EEXIST" });
    expect(await readFile(join(folder.path, "spool.tar"), "utf8")).toBe("mine");
  });

  it("is not used when it was changed", async () => {
    await using folder = await temporaryFolder();
    const spool = await spooled(folder.path, TREE);
    const bytes = await readFile(spool.file);
    bytes[700] = 0x21;
    await writeFile(spool.file, bytes);
    await expect(bytesOf(readSpool(spool))).rejects.toMatchObject({ code: "ERR_TAR_SOURCE" });
  });

  it("comes out as it was, whatever files and links there were", async () => {
    const name = fc.constantFrom("a", "b", "c", "d");
    const content = fc.uint8Array({ maxLength: 2000 });
    await fc.assert(
      fc.asyncProperty(
        fc.uniqueArray(fc.record({ name, content }), { selector: (file) => file.name }),
        async (files) => {
          await using folder = await temporaryFolder();
          const members = files.flatMap((file): PackMember[] => [
            { type: "file", path: `app/out/${file.name}`, content: file.content },
            { type: "hard-link", path: `app/out/${file.name}2`, linkTarget: `app/out/${file.name}` },
          ]);
          const spool = await spooled(folder.path, members);
          if (files.length === 0) return;
          await extractSpool(spool, join(folder.path, "host"));
          for (const file of files) {
            expect(await readFile(join(folder.path, "host", file.name))).toEqual(Buffer.from(file.content));
            expect(await readFile(join(folder.path, "host", `${file.name}2`))).toEqual(Buffer.from(file.content));
          }
        },
      ),
      { numRuns: 30 },
    );
  });
});

describe("on the host", () => {
  it("a tree becomes the path it is given, private", async () => {
    await using folder = await temporaryFolder();
    const spool = await spooled(folder.path, TREE);
    const target = join(folder.path, "renamed");
    expect(await extractSpool(spool, target)).toEqual([]);
    expect((await stat(target)).mode & 0o777).toBe(0o700);
    const secret = await stat(join(target, "secret"));
    expect([secret.mode & 0o7777, secret.mtimeMs]).toEqual([0o600, 1_000_000_000_000]);
    // Who grades the tree again needs to know what its owner may run.
    expect((await stat(join(target, "run"))).mode & 0o7777).toBe(0o700);
    expect((await lstat(join(target, "s"))).isSymbolicLink()).toBe(true);
    expect(await readlink(join(target, "s"))).toBe("secret");
  });

  it("a file becomes the path it is given", async () => {
    await using folder = await temporaryFolder();
    const spool = await spooled(folder.path, [{ type: "file", path: "app/out", content: "x" }]);
    await extractSpool(spool, join(folder.path, "model.patch"));
    expect(await readFile(join(folder.path, "model.patch"), "utf8")).toBe("x");
  });

  it("nothing that exists is written to", async () => {
    await using folder = await temporaryFolder();
    const spool = await spooled(folder.path, TREE);
    await writeFile(join(folder.path, "there"), "mine");
    await expect(extractSpool(spool, join(folder.path, "there"))).rejects.toMatchObject({ code: "EEXIST" });
    expect(await readFile(join(folder.path, "there"), "utf8")).toBe("mine");
  });

  it("what the file system does not take is named, and the rest written", async () => {
    await using folder = await temporaryFolder();
    // Each is fine in the box; below a host folder that is deep already the whole is too long.
    const deep = Array.from({ length: 19 }, () => "x".repeat(200)).join("/");
    const spool = await spooled(
      folder.path,
      [
        { type: "file", path: `app/out/${deep}/${"y".repeat(200)}`, content: "x" },
        { type: "file", path: "app/out/good", content: "x" },
      ],
      { maxPathBytes: 5000 },
    );
    const refused = await extractSpool(spool, join(folder.path, "h".repeat(250)));
    expect(refused.length).toBeGreaterThan(0);
    expect(refused[0]?.code).toBe("ENAMETOOLONG");
    expect(await readFile(join(folder.path, "h".repeat(250), "good"), "utf8")).toBe("x");
  });
});

async function* toStream(chunks: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* chunks;
}
