import { packTar, readTar } from "@breakwater/tar";
import { describe, expect, it } from "vitest";
import { onlyMember, parsePathStat } from "./files.ts";

describe("the engine's description of a path", () => {
  const described = (mode: number): ReturnType<typeof parsePathStat> => {
    const json = JSON.stringify({ name: "x", size: 12, mode, mtime: "", linkTarget: "" });
    return parsePathStat({ "x-docker-container-path-stat": Buffer.from(json).toString("base64") });
  };

  it.each([
    ["a file", 0o644, "file", 12],
    ["a setuid file", 2 ** 23 + 0o755, "file", 12],
    ["a folder", 2 ** 31 + 0o755, "directory", 0],
    ["a link", 2 ** 27 + 0o777, "link", 0],
    ["a FIFO", 2 ** 25 + 0o600, "other", 0],
    ["a socket", 2 ** 24 + 0o600, "other", 0],
    ["a device", 2 ** 26 + 0o600, "other", 0],
    ["a character device", 2 ** 26 + 2 ** 21 + 0o600, "other", 0],
  ])("may be of %s", (_what, mode, kind, size) => {
    expect(described(mode)).toEqual({ kind, size, isLoop: false });
  });

  it("has to be there", () => {
    expect(() => parsePathStat({})).toThrow(/did not describe/);
  });
});

describe("one link out of a folder's archive", () => {
  const taken = async (name: string): Promise<readonly (readonly [string, string, string])[]> => {
    const archive = packTar([
      { type: "directory", path: "folder" },
      { type: "file", path: "folder/loop.txt", content: "x" },
      { type: "link", path: "folder/sub/loop", linkTarget: "elsewhere" },
      { type: "link", path: "folder/loop", linkTarget: "loop" },
    ]);
    const found: (readonly [string, string, string])[] = [];
    for await (const { type, path, linkTargetBytes } of readTar(onlyMember(archive, name))) {
      found.push([type, path, Buffer.from(linkTargetBytes ?? []).toString()]);
    }
    return found;
  };

  it("is the one of that name, right below the folder", async () => {
    expect(await taken("loop")).toEqual([["link", "loop", "loop"]]);
  });
});
