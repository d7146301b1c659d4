import { createHash } from "node:crypto";
import { mkdir, mkdtemp, rm, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readTar } from "@breakwater/tar";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { baseImages, buildTag, contentHash, packContext, readBuildDefinition } from "./build.ts";

let context: string;
beforeEach(async () => {
  context = await mkdtemp(join(tmpdir(), "context-"));
  await writeFile(join(context, "Dockerfile"), "FROM debian\nCOPY . /\n");
  await writeFile(join(context, "a"), "a");
});
afterEach(() => rm(context, { recursive: true }));

const definition = (name = "task"): ReturnType<typeof readBuildDefinition> => readBuildDefinition({ context, name });
const hashOf = async (baseIds: readonly string[] = []): Promise<string> => contentHash(await definition(), baseIds);

describe("the base images of a Dockerfile", () => {
  it.each([
    ["FROM debian", ["debian"]],
    ["from --platform=linux/amd64 debian:12 as build\nFROM build\nFROM alpine", ["debian:12", "alpine"]],
    ["FROM scratch", []],
    ["ARG X\nFROM ${X}\nRUN echo FROM debian", []],
    ["FROM a AS one\r\nFROM a\r\n", ["a"]],
  ])("%j", (text, bases) => {
    expect(baseImages(text)).toEqual(bases);
  });
});

describe("the hash of a build", () => {
  it("is the same for the same content, whenever it was written", async () => {
    const before = await hashOf();
    await utimes(join(context, "a"), 1, 1);
    expect(await hashOf()).toBe(before);
  });

  it("changes with content, names, modes, links and base images", async () => {
    const hashes = [await hashOf(), await hashOf(["sha256:1"]), await hashOf(["sha256:2"])];
    await writeFile(join(context, "a"), "b");
    hashes.push(await hashOf());
    await writeFile(join(context, "b"), "");
    hashes.push(await hashOf());
    await mkdir(join(context, "empty"));
    hashes.push(await hashOf());
    expect(new Set(hashes).size).toBe(hashes.length);
  });

  it("is part of a name that people can read", () => {
    expect(buildTag("Some Task/x", "0123456789abcdef0123456789abcdef")).toBe(
      "breakwater-build/some-task-x:0123456789abcdef01234567",
    );
    expect(buildTag("***", "0".repeat(64))).toMatch(/^breakwater-build\/image:/);
  });
});

describe("what the engine gets", () => {
  const names = async (): Promise<readonly string[]> => {
    const found: string[] = [];
    for await (const member of readTar(packContext(await definition(), createHash("sha256")))) {
      found.push(member.path.replace(/\/$/, ""));
    }
    return found.toSorted();
  };

  it("is the context, as plain tar", async () => {
    expect(await names()).toEqual(expect.arrayContaining(["Dockerfile", "a"]));
  });

  it("leaves out what .dockerignore says, with its exceptions, and never the Dockerfile", async () => {
    await writeFile(join(context, ".dockerignore"), "*\n!keep/inner\n");
    await mkdir(join(context, "keep"));
    await writeFile(join(context, "keep", "inner"), "");
    await writeFile(join(context, "keep", "other"), "");
    const sent = await names();
    expect(sent).toEqual(expect.arrayContaining(["Dockerfile", "keep/inner"]));
    expect(sent).not.toEqual(expect.arrayContaining(["a"]));
    expect(sent).not.toEqual(expect.arrayContaining(["keep/other"]));
  });
});

it.each([
  [{ context: "/nowhere", name: "x" }, /is not a folder/],
  [{ context: tmpdir(), dockerfile: "../Dockerfile", name: "x" }, /not inside/],
  [{ context: tmpdir(), dockerfile: "/etc/passwd", name: "x" }, /not inside/],
  [{ context: tmpdir(), dockerfile: "no-such-file", name: "x" }, /there is no/],
])("a definition that is none is a mistake: %j", async (source, message) => {
  await expect(readBuildDefinition(source)).rejects.toThrow(message);
  await expect(readBuildDefinition(source)).rejects.toThrow(TypeError);
});
