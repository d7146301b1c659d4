import fc from "fast-check";
import { link, mkdir, open, symlink, writeFile } from "node:fs/promises";
import { describe, expect, it } from "vitest";
import { isTarError } from "./errors.ts";
import { readTar } from "./read.ts";
import {
  archiveOf,
  bytesOf,
  inChunks,
  membersOf,
  packed,
  patched,
  paxRecord,
  rawMember,
  systemTar,
  temporaryFolder,
} from "../test/support.ts";

const pax = (...records: readonly string[]): Buffer =>
  rawMember({ path: "pax", typeflag: "x" }, records.map(paxRecord).join(""));

describe("what other programs write", () => {
  it.each(["gnu", "posix", "ustar"])("reads the %s format of the system's tar", async (format) => {
    await using folder = await temporaryFolder();
    const long = format === "ustar" ? "long" : "long-".repeat(45);
    await mkdir(`${folder.path}/in/${long}`, { recursive: true });
    await writeFile(`${folder.path}/in/${long}/file`, "content");
    await writeFile(`${folder.path}/in/new\nline`, "x");
    await link(`${folder.path}/in/new\nline`, `${folder.path}/in/zz`);
    await symlink(`${long}/file`, `${folder.path}/in/s`);
    const archive = await systemTar(["-c", `--format=${format}`, "--sort=name", "-C", folder.path, "in"]);
    const members = await membersOf(archive, 1000);
    expect(members.map(({ path, type, linkTarget, content }) => [path, type, linkTarget, content])).toEqual([
      ["in/", "directory", null, ""],
      [`in/${long}/`, "directory", null, ""],
      [`in/${long}/file`, "file", null, "content"],
      ["in/new\nline", "file", null, "x"],
      ["in/s", "link", `${long}/file`, ""],
      ["in/zz", "hard-link", "in/new\nline", ""],
    ]);
  });

  it("tells a file with holes in PAX form from a plain one", async () => {
    await using folder = await temporaryFolder();
    const file = await open(`${folder.path}/hole`, "w");
    await file.truncate(1024 * 1024);
    await file.close();
    const archive = await systemTar(["-c", "-S", "--format=posix", "-C", folder.path, "hole"]);
    expect((await membersOf(archive)).map(({ type }) => type)).toEqual(["sparse"]);
    const old = await systemTar(["-c", "-S", "--format=gnu", "-C", folder.path, "hole"]);
    await expect(membersOf(old)).rejects.toMatchObject({ code: "ERR_TAR_INVALID" });
  });

  it("takes a comment of git for what it is", async () => {
    const archive = archiveOf(
      rawMember({ path: "pax_global_header", typeflag: "g" }, paxRecord("comment=abc")),
      rawMember({}, "x"),
    );
    expect(await membersOf(archive)).toMatchObject([{ path: "f", content: "x" }]);
  });
});

describe("a stream that lies", () => {
  const file = rawMember({ path: "f" }, "content");
  const invalid: Readonly<Record<string, Buffer>> = {
    "a wrong checksum": Buffer.concat([Buffer.from("g"), archiveOf(file).subarray(1)]),
    "an unknown format": patched(archiveOf(file), 257, "mystery\0"),
    "a size that is not octal": patched(archiveOf(file), 124, "0000000009x\0"),
    "a negative size": patched(archiveOf(file), 124, Buffer.alloc(12, 0xff)),
    "a size beyond all numbers": patched(
      archiveOf(file),
      124,
      Buffer.concat([Buffer.from([0x80]), Buffer.alloc(11, 0xff)]),
    ),
    "a directory with content": archiveOf(rawMember({ path: "d/", typeflag: "5" }, "content")),
    "a link with content": archiveOf(rawMember({ path: "l", typeflag: "2", linkTarget: "x" }, "content")),
    "a hard link with content": archiveOf(rawMember({ path: "l", typeflag: "1", linkTarget: "x" }, "content")),
    "a PAX size that is no number": archiveOf(pax("size=7e1"), file),
    "a negative PAX size": archiveOf(pax("size=-7"), file),
    "a PAX record with a negative length": archiveOf(rawMember({ typeflag: "x" }, "-5 a=b\n"), file),
    "a PAX record that is too long": archiveOf(rawMember({ typeflag: "x" }, "99 path=b\n"), file),
    "a PAX record with a length in hex": archiveOf(rawMember({ typeflag: "x" }, "0xb path=b\n"), file),
    "a PAX record without an end": archiveOf(rawMember({ typeflag: "x" }, "10 path=bc"), file),
    "a PAX key twice": archiveOf(pax("path=a", "path=b"), file),
    "two PAX headers in a row": archiveOf(pax("path=a"), pax("path=b"), file),
    "a name by PAX and by GNU": archiveOf(pax("path=a"), rawMember({ typeflag: "L" }, "b\0"), file),
    "a global PAX header with a path": archiveOf(rawMember({ typeflag: "g" }, paxRecord("path=x")), file),
    "an extension of nothing": archiveOf(file, pax("path=a")),
    "members after the end mark": Buffer.concat([archiveOf(file), archiveOf(file)]),
    "a single block of zeros, then members": Buffer.concat([file, Buffer.alloc(512), archiveOf(file)]),
    "a compressed archive": Buffer.concat([Buffer.from([0x1f, 0x8b, 8, 0]), Buffer.alloc(1020)]),
  };
  it.each(Object.entries(invalid))("refuses %s", async (_name, archive) => {
    await expect(membersOf(archive)).rejects.toMatchObject({ name: "TarError", code: "ERR_TAR_INVALID" });
  });

  it("says which compression it met", async () => {
    const zstd = Buffer.concat([Buffer.from([0x28, 0xb5, 0x2f, 0xfd]), Buffer.alloc(1020)]);
    await expect(membersOf(zstd)).rejects.toThrow("zstd");
  });

  it("does not read the bytes after a NUL in a name", async () => {
    const archive = patched(archiveOf(rawMember({ path: "name" }, "x")), 5, "\nother");
    expect(await membersOf(archive)).toMatchObject([{ path: "name" }]);
  });

  it("takes every cut for a cut", async () => {
    const archive = archiveOf(pax("path=long"), file, rawMember({ path: "g" }, Buffer.alloc(700)));
    expect(await membersOf(archive)).toHaveLength(2);
    for (let bytes = 0; bytes < archive.length; bytes += 100) {
      await expect(membersOf(archive.subarray(0, bytes))).rejects.toMatchObject({ code: "ERR_TAR_TRUNCATED" });
    }
  });

  it.each(["x", "L", "K", "g"])("does not keep an extension of type %s that says 8 GiB", async (typeflag) => {
    let asked = 0;
    async function* endless(): AsyncGenerator<Uint8Array> {
      yield rawMember({ typeflag, size: 8 * 1024 ** 3 - 1 });
      for (;;) {
        asked += 1;
        yield Buffer.alloc(65_536);
      }
    }
    await expect(bytesOf(contents(endless()))).rejects.toMatchObject({ code: "ERR_TAR_LIMIT" });
    expect(asked).toBeLessThan(32);
  });
});

describe("limits", () => {
  it("allows exactly as much as it says", async () => {
    const archive = await packed(
      { type: "file", path: "a", content: "12345" },
      { type: "directory", path: "d" },
      { type: "file", path: "b", content: "12345" },
    );
    const read = (maxBytes: number, maxEntries: number): Promise<Buffer> =>
      bytesOf(contents(inChunks(archive, 100), { maxBytes, maxEntries }));
    expect((await read(10, 3)).toString()).toBe("1234512345");
    await expect(read(9, 3)).rejects.toMatchObject({ code: "ERR_TAR_LIMIT", limit: "maxBytes" });
    await expect(read(10, 2)).rejects.toMatchObject({ code: "ERR_TAR_LIMIT", limit: "maxEntries" });
  });

  it("passes 256 MiB on without keeping them", async () => {
    const size = 256 * 1024 * 1024;
    const chunk = Buffer.alloc(1024 * 1024);
    async function* large(): AsyncGenerator<Uint8Array> {
      yield rawMember({ path: "large", size });
      for (let at = 0; at < size; at += chunk.length) yield chunk;
      yield Buffer.alloc(1024);
    }
    const before = process.memoryUsage().rss;
    let bytes = 0;
    for await (const piece of contents(large())) bytes += piece.length;
    expect(bytes).toBe(size);
    expect(process.memoryUsage().rss - before).toBeLessThan(64 * 1024 * 1024);
  });
});

describe("content", () => {
  it("may be left unread, in part or whole", async () => {
    const archive = await packed(
      { type: "file", path: "a", content: Buffer.alloc(5000, "a") },
      { type: "file", path: "b", content: Buffer.alloc(5000, "b") },
      { type: "file", path: "c", content: "c" },
    );
    const seen: string[] = [];
    for await (const member of readTar(inChunks(archive, 777))) {
      if (member.path === "a") continue;
      for await (const chunk of member.content) {
        seen.push(Buffer.from(chunk.subarray(0, 1)).toString());
        break;
      }
    }
    expect(seen).toEqual(["b", "c"]);
  });

  it("cannot be read after its member has passed", async () => {
    const archive = await packed({ type: "file", path: "a", content: "a" }, { type: "file", path: "b", content: "b" });
    const late: AsyncIterable<Uint8Array>[] = [];
    for await (const member of readTar(inChunks(archive, 512))) late.push(member.content);
    await expect(bytesOf(late[0] ?? inChunks(new Uint8Array(0), 1))).rejects.toThrow(TypeError);
  });

  it("tells the stream when no more is wanted", async () => {
    let closed = false;
    async function* stream(): AsyncGenerator<Uint8Array> {
      try {
        for (;;) yield rawMember({}, "x");
      } finally {
        closed = true;
      }
    }
    for await (const member of readTar(stream())) {
      expect(member.path).toBe("f");
      break;
    }
    expect(closed).toBe(true);
  });
});

it("never does anything but yield or throw a TarError, whatever the bytes are", async () => {
  const valid = await packed(
    { type: "file", path: "é".repeat(90), content: "content" },
    { type: "link", path: "l", linkTarget: "t" },
  );
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.record({ at: fc.nat(valid.length - 1), byte: fc.nat(255) }), { minLength: 1, maxLength: 6 }),
      fc.integer({ min: 1, max: 2000 }),
      async (changes, chunkBytes) => {
        const archive = Buffer.from(valid);
        for (const { at, byte } of changes) archive[at] = byte;
        const error: unknown = await membersOf(archive, chunkBytes).then(
          () => null,
          (thrown: unknown) => thrown,
        );
        expect(error === null || isTarError(error)).toBe(true);
      },
    ),
    { numRuns: 300 },
  );
});

async function* contents(...args: Parameters<typeof readTar>): AsyncGenerator<Uint8Array> {
  for await (const member of readTar(...args)) yield* member.content;
}
