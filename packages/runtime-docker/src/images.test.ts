import { Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import { followProgress, isImageId, ProgressError, splitReference } from "./images.ts";

describe("a reference", () => {
  it.each([
    ["debian", "debian", "latest"],
    ["debian:12", "debian", "12"],
    ["registry:5000/debian", "registry:5000/debian", "latest"],
    ["registry:5000/team/debian:12", "registry:5000/team/debian", "12"],
    ["debian@sha256:abc", "debian", "sha256:abc"],
    ["registry:5000/debian:12@sha256:abc", "registry:5000/debian", "sha256:abc"],
  ])("%s is a name and a tag", (reference, name, tag) => {
    expect(splitReference(reference)).toEqual({ name, tag });
  });

  it("may be an id, which cannot be pulled", () => {
    expect(isImageId(`sha256:${"a".repeat(64)}`)).toBe(true);
    expect(isImageId("a".repeat(64))).toBe(true);
    expect(isImageId("debian")).toBe(false);
    expect(isImageId(`debian@sha256:${"a".repeat(64)}`)).toBe(false);
  });
});

describe("the engine's progress", () => {
  const follow = async (...pieces: readonly string[]): Promise<readonly string[]> => {
    const lines: string[] = [];
    await followProgress(Readable.from(pieces.map((piece) => Buffer.from(piece))), (line) => void lines.push(line));
    return lines;
  };

  it("is one line for people after the other, however it is cut", async () => {
    expect(await follow('{"stream":"Step 1\\n"}\r\n{"sta', 'tus":"Pulling","id":"ab"}\n', '{"stream":"\\n"}')).toEqual([
      "Step 1",
      "ab: Pulling",
    ]);
  });

  it("leaves out the bars", async () => {
    const bar = '{"status":"Downloading","id":"ab","progressDetail":{"current":1,"total":9}}\n';
    expect(await follow(bar, '{"status":"Done"}\n')).toEqual(["Done"]);
  });

  it("may say in a 200 that it failed", async () => {
    await expect(
      follow('{"stream":"x"}\n', '{"errorDetail":{"message":"no space"},"error":"no space"}\n'),
    ).rejects.toThrow(ProgressError);
    await expect(follow('{"error":"plain"}\n')).rejects.toThrow("plain");
  });

  it("has lines of a bounded length", async () => {
    await expect(follow("x".repeat(2 * 1024 * 1024))).rejects.toThrow(ProgressError);
  });
});
