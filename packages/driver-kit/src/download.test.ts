import { packTar, readTar, type PackMember } from "@breakwater/tar";
import { describe, expect, it } from "vitest";
import { joinArchives, readSingleFile, type PathArchive } from "./download.ts";

const context = { driver: "test", boxId: "box", operation: "download" } as const;
const GENEROUS = { maxBytes: 1000, maxEntries: 100 };
const archive = (path: string, members: readonly PackMember[], name?: string): PathArchive => ({
  path,
  name,
  stream: packTar(members),
});
const file = (path: string | Uint8Array, content = "x"): PackMember => ({ type: "file", path, content });

async function joined(archives: readonly PathArchive[], limits = GENEROUS): Promise<readonly string[]> {
  const lines: string[] = [];
  for await (const member of readTar(joinArchives(archives, limits, context))) {
    const chunks: Uint8Array[] = [];
    for await (const chunk of member.content) chunks.push(chunk);
    const name = Buffer.from(member.pathBytes).toString("latin1");
    lines.push(
      [
        name,
        member.type,
        member.mode.toString(8),
        `${member.uid}:${member.gid}`,
        member.linkTarget ?? Buffer.concat(chunks).toString(),
      ].join(" "),
    );
  }
  return lines;
}

describe("archives of paths", () => {
  it("become one with the names of the paths, all members as they are", async () => {
    const out: readonly PackMember[] = [
      { type: "directory", path: "out", mode: 0o1770, uid: 5, gid: 6 },
      file("out/a", "content"),
      { type: "hard-link", path: "out/h", linkTarget: "out/a" },
      { type: "link", path: "out/s", linkTarget: "out/a" },
      { type: "fifo", path: "out/p" },
      { type: "character-device", path: "out/null" },
      file(Buffer.from("out/\xff", "latin1"), ""),
    ];
    expect(await joined([archive("/app/out", out), archive("/var/log/one.log", [file("one.log", "log")])])).toEqual([
      "app/out/ directory 1770 5:6 ",
      "app/out/a file 644 0:0 content",
      "app/out/h hard-link 644 0:0 app/out/a",
      "app/out/s link 777 0:0 out/a",
      "app/out/p fifo 644 0:0 ",
      "app/out/null character-device 644 0:0 ",
      "app/out/\xff file 644 0:0 ",
      "var/log/one.log file 644 0:0 log",
    ]);
  });

  it("may name the path in their own way", async () => {
    expect(await joined([archive("/app/out", [file("app/out/a")], "app/out")])).toEqual(["app/out/a file 644 0:0 x"]);
  });

  it("are refused when they have something else in them", async () => {
    for (const other of ["outside", "other/a", "../out"]) {
      await expect(joined([archive("/app/out", [file(other)])])).rejects.toMatchObject({ code: "ERR_TRANSFER" });
    }
  });

  it("are within limits all together", async () => {
    const two = (): readonly PathArchive[] => [
      archive("/a", [file("a", "12345")]),
      archive("/b", [file("b", "12345")]),
    ];
    expect(await joined(two(), { maxBytes: 10, maxEntries: 2 })).toHaveLength(2);
    await expect(joined(two(), { maxBytes: 9, maxEntries: 2 })).rejects.toMatchObject({
      code: "ERR_LIMIT",
      path: "/b",
    });
    await expect(joined(two(), { maxBytes: 10, maxEntries: 1 })).rejects.toMatchObject({ code: "ERR_LIMIT" });
    expect(() => joinArchives([], { maxBytes: -1, maxEntries: 1 }, context)).toThrow(TypeError);
  });

  it("that are cut are no archive", async () => {
    async function* cut(): AsyncGenerator<Uint8Array> {
      for await (const chunk of packTar([file("a")])) yield chunk.subarray(0, 700);
    }
    await expect(joined([{ path: "/a", stream: cut() }])).rejects.toMatchObject({
      code: "ERR_TRANSFER",
      driver: "test",
    });
  });
});

describe("the archive of one file", () => {
  const read = async (...members: readonly PackMember[]): Promise<string> =>
    Buffer.from(
      await readSingleFile(
        archive("/logs/reward.json", members),
        { maxBytes: 5 },
        { ...context, operation: "readBounded" },
      ),
    ).toString();

  it("gives its content, up to the limit", async () => {
    expect(await read(file("reward.json", "12345"))).toBe("12345");
    expect(await read(file("reward.json", ""))).toBe("");
    await expect(read(file("reward.json", "123456"))).rejects.toMatchObject({
      code: "ERR_LIMIT",
      path: "/logs/reward.json",
    });
  });

  it.each<[PackMember, string]>([
    [{ type: "link", path: "reward.json", linkTarget: "/etc/passwd" }, "ERR_PATH_LINK"],
    [{ type: "directory", path: "reward.json" }, "ERR_PATH_KIND"],
    [{ type: "fifo", path: "reward.json" }, "ERR_PATH_KIND"],
    [{ type: "character-device", path: "reward.json" }, "ERR_PATH_KIND"],
  ])("that is %o is %s", async (member, code) => {
    await expect(read(member)).rejects.toMatchObject({ code, operation: "readBounded" });
  });

  it("may not be empty or have more", async () => {
    await expect(read()).rejects.toMatchObject({ code: "ERR_PATH_KIND" });
    await expect(read(file("a"), file("b"))).rejects.toMatchObject({ code: "ERR_PATH_KIND" });
  });
});
