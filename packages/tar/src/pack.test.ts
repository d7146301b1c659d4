import fc from "fast-check";
import { readFile, stat } from "node:fs/promises";
import { describe, expect, it } from "vitest";
import { packTar, type PackMember } from "./pack.ts";
import { readTar } from "./read.ts";
import { bytesOf, inChunks, membersOf, packed, systemTar, temporaryFolder } from "../test/support.ts";

/** Names as Linux allows them: any characters but NUL, and `/` only between components. */
const component = fc.string({ unit: "binary", minLength: 1, maxLength: 130 }).filter((text) => !/[/\0]/.test(text));
const path = fc.array(component, { minLength: 1, maxLength: 4 }).map((components) => components.join("/"));
const mode = fc.integer({ min: 0, max: 0o7777 });
const member: fc.Arbitrary<PackMember> = fc.oneof(
  fc.record({ type: fc.constant("file" as const), path, mode, content: fc.uint8Array({ maxLength: 1500 }) }),
  fc.record({ type: fc.constant("directory" as const), path, mode }),
  fc.record({ type: fc.constant("link" as const), path, linkTarget: path }),
);

describe("round trip", () => {
  it("keeps every name, mode, target and byte", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(member, { maxLength: 6 }),
        fc.integer({ min: 1, max: 3000 }),
        async (members, chunkBytes) => {
          const read: PackMember[] = [];
          for await (const found of readTar(inChunks(await bytesOf(packTar(members)), chunkBytes))) {
            const { mode, linkTarget } = found;
            const common = { path: found.path };
            if (found.type === "file")
              read.push({ ...common, type: "file", mode, content: await bytesOf(found.content) });
            if (found.type === "directory") read.push({ type: "directory", path: found.path.slice(0, -1), mode });
            if (found.type === "link") read.push({ ...common, type: "link", linkTarget: linkTarget ?? "" });
          }
          expect(read).toEqual(
            members.map((given) =>
              given.type === "file" ? { ...given, content: Buffer.from(given.content as Uint8Array) } : given,
            ),
          );
        },
      ),
      { numRuns: 150 },
    );
  });

  it("keeps names that are no text", async () => {
    const name = Buffer.from([0x66, 0xff, 0x0a, 0x20]);
    for await (const found of readTar(packTar([{ type: "file", path: name, content: "" }]))) {
      expect(Buffer.from(found.pathBytes)).toEqual(name);
    }
  });

  it("keeps ids, times and sizes that no octal field can hold", async () => {
    const large = { uid: 2 ** 31, gid: 2 ** 40, mtime: 2 ** 35 };
    const archive = await packed({ type: "directory", path: "d", ...large });
    for await (const found of readTar(inChunks(archive, 512))) expect(found).toMatchObject(large);
  });
});

it("gives the system's tar what it can extract", async () => {
  await using folder = await temporaryFolder();
  const long = "ü".repeat(120);
  const archive = await packed(
    { type: "directory", path: "d", mode: 0o700 },
    { type: "file", path: `d/${long}`, content: "long", mode: 0o751, mtime: 1_000_000_000 },
    { type: "file", path: "d/new\nline", content: "x" },
    { type: "link", path: "d/l", linkTarget: long },
    { type: "hard-link", path: "d/h", linkTarget: `d/${long}` },
  );
  await systemTar(["-x", "-C", folder.path], archive);
  expect(await readFile(`${folder.path}/d/l`, "utf8")).toBe("long");
  const status = await stat(`${folder.path}/d/h`);
  expect([status.mode & 0o777, status.mtimeMs, status.nlink]).toEqual([0o751, 1_000_000_000_000, 2]);
  expect((await stat(`${folder.path}/d`)).mode & 0o777).toBe(0o700);
  expect(await readFile(`${folder.path}/d/new\nline`, "utf8")).toBe("x");
});

it("gives the same bytes for the same members", async () => {
  const members: readonly PackMember[] = [{ type: "file", path: "é", content: "x" }];
  expect(await packed(...members)).toEqual(await packed(...members));
});

describe("what cannot be packed", () => {
  it.each([0o10000, -1, 1.5, Number.NaN])("refuses mode %d", async (wrong) => {
    await expect(packed({ type: "file", path: "f", content: "", mode: wrong })).rejects.toThrow(TypeError);
  });

  it.each([
    [4, "shorter"],
    [6, "longer"],
  ])("notices a stream that is not %d bytes long", async (size) => {
    const content = inChunks(Buffer.from("12345"), 2);
    await expect(packed({ type: "file", path: "f", size, content })).rejects.toMatchObject({
      code: "ERR_TAR_SOURCE",
      path: "f",
    });
  });

  it("refuses a file that readers would take for a directory", async () => {
    await expect(packed({ type: "file", path: "f/", content: "" })).rejects.toThrow(TypeError);
  });

  it("needs the size of a stream", async () => {
    await expect(packed({ type: "file", path: "f", content: inChunks(Buffer.from("1"), 1) })).rejects.toThrow(
      TypeError,
    );
  });
});

it("sends small members together", async () => {
  const members = Array.from({ length: 1000 }, (_, index) => ({
    type: "file" as const,
    path: `f${index}`,
    content: "x",
  }));
  let chunks = 0;
  for await (const chunk of packTar(members)) chunks += chunk.length > 0 ? 1 : 0;
  expect(chunks).toBeLessThan(20);
  expect(await membersOf(await packed(...members))).toHaveLength(1000);
});
