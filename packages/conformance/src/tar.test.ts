import { Buffer } from "node:buffer";
import { expect, test } from "vitest";
import { readTar, TAR_END, tarMember } from "./tar.ts";

async function* streamOf(...chunks: readonly Buffer[]): AsyncIterable<Buffer> {
  yield* chunks;
}

test("what is written is read back", async () => {
  const archive = Buffer.concat([
    tarMember({ name: "a/b", mode: 0o755, uid: 7 }, "content"),
    tarMember({ name: "d/", type: "5" }),
    tarMember({ name: "l", type: "2", linkTarget: "a/b" }),
    TAR_END,
  ]);
  const halves = [archive.subarray(0, 700), archive.subarray(700)];
  expect(await readTar(streamOf(...halves))).toMatchObject([
    { name: "a/b", type: "file", mode: 0o755, uid: 7, size: 7, content: Buffer.from("content") },
    { name: "d/", type: "directory" },
    { name: "l", type: "symlink", linkTarget: "a/b" },
  ]);
});

test("PAX and GNU names of any length are read", async () => {
  const long = "n".repeat(300);
  const record = `${`310 path=${long}\n`}`;
  const archive = [
    tarMember({ name: "pax", type: "x" }, record),
    tarMember({ name: "short" }, "1"),
    tarMember({ name: "gnu", type: "L" }, `${long}\0`),
    tarMember({ name: "short" }, "2"),
    tarMember({ name: "after" }, "3"),
    TAR_END,
  ];
  expect((await readTar(streamOf(...archive))).map((it) => it.name)).toEqual([long, long, "after"]);
  expect(record.length).toBe(310);
});

test("a cut archive and one that is none are errors", async () => {
  const member = tarMember({ name: "a" }, "x".repeat(1000));
  await expect(readTar(streamOf(member))).rejects.toThrow(/cut/);
  await expect(readTar(streamOf(member.subarray(0, 900)))).rejects.toThrow(/cut/);
  await expect(readTar(streamOf(Buffer.alloc(1024, "x")))).rejects.toThrow(/no tar header/);
});
