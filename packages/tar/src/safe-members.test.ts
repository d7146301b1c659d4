import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { packTar, type PackMember } from "./pack.ts";
import { safeMembers, type LeftOutMember, type SafeMembersOptions } from "./safe-members.ts";
import { archiveOf, bytesOf, inChunks, packed, paxRecord, rawMember } from "../test/support.ts";

const GENEROUS = { root: "/app/out", maxBytes: 1_000_000, maxEntries: 1000 };

/** What is kept, one line each, and what is left out. */
async function judged(
  archive: Uint8Array | readonly PackMember[],
  options: Partial<SafeMembersOptions> = {},
): Promise<{ readonly kept: readonly string[]; readonly leftOut: readonly string[] }> {
  const kept: string[] = [];
  const leftOut: LeftOutMember[] = [];
  const stream = archive instanceof Uint8Array ? inChunks(archive, 700) : packTar(archive);
  const members = safeMembers(stream, { ...GENEROUS, onLeftOut: (member) => leftOut.push(member), ...options });
  for await (const member of members) {
    const mode = member.mode.toString(8);
    switch (member.type) {
      case "directory":
        kept.push(`${member.path}/ ${mode}`);
        break;
      case "file":
        kept.push(`${member.path} ${mode} "${(await bytesOf(member.content)).toString()}"`);
        break;
      case "copy":
        kept.push(`${member.path} ${mode} = ${member.copyOf}`);
        break;
      case "link":
        kept.push(`${member.path} -> ${member.linkTarget}`);
    }
  }
  return { kept, leftOut: leftOut.map(({ path, reason }) => `${path}: ${reason}`) };
}

const file = (path: string, content: string | Uint8Array = "x", mode = 0o644): PackMember => ({
  type: "file",
  path,
  content,
  mode,
});
const directory = (path: string, mode = 0o755): PackMember => ({ type: "directory", path, mode });
const link = (path: string, linkTarget: string): PackMember => ({ type: "link", path, linkTarget });
const hardLink = (path: string, linkTarget: string): PackMember => ({ type: "hard-link", path, linkTarget });

describe("what crosses over", () => {
  it("is files, directories and links that stay inside, links last", async () => {
    const found = await judged([
      directory("app/out", 0o700),
      link("app/out/first", "sub/file"),
      directory("app/out/sub"),
      file("app/out/sub/file", "content", 0o600),
      link("app/out/sub/up", "../sub/./file"),
      link("app/out/dangling", "nowhere/at/all"),
      file("app/out/empty", ""),
    ]);
    expect(found).toEqual({
      kept: [
        "out/ 700",
        "out/sub/ 755",
        'out/sub/file 600 "content"',
        'out/empty 644 ""',
        "out/first -> sub/file",
        "out/sub/up -> ../sub/./file",
        "out/dangling -> nowhere/at/all",
      ],
      leftOut: [],
    });
  });

  it("may be a single file", async () => {
    expect(await judged([file("app/out", "x")])).toEqual({ kept: ['out 644 "x"'], leftOut: [] });
  });

  it("has the directories that are only implied", async () => {
    expect((await judged([file("app/out/a/b/c", "x"), directory("app/out/a", 0o700)])).kept).toEqual([
      "out/ 755",
      "out/a/ 755",
      "out/a/b/ 755",
      'out/a/b/c 644 "x"',
    ]);
  });

  it("has no setuid, setgid and sticky bits", async () => {
    const { kept } = await judged([directory("app/out", 0o3777), file("app/out/su", "x", 0o6755)]);
    expect(kept).toEqual(["out/ 777", 'out/su 755 "x"']);
  });

  it("is not from the future", async () => {
    const stream = packTar([{ ...file("app/out"), mtime: 2 ** 40 }]);
    for await (const member of safeMembers(stream, { ...GENEROUS, onLeftOut: () => undefined })) {
      expect(member.mtime).toBeLessThanOrEqual(Date.now() / 1000);
      expect(member.mtime).toBeGreaterThan(Date.now() / 1000 - 60);
    }
  });

  it("tells names apart that differ in case or in the form of a letter", async () => {
    const names = ["readme", "README", "\u00e9", "e\u0301"];
    const { kept } = await judged(names.map((name) => file(`app/out/${name}`)));
    expect(kept).toEqual(["out/ 755", ...names.map((name) => `out/${name} 644 "x"`)]);
  });

  it("has hard links as copies, also of copies", async () => {
    const found = await judged([
      file("app/out/a", "content"),
      hardLink("app/out/b", "app/out/a"),
      hardLink("app/out/c", "app/out/b"),
    ]);
    expect(found.kept.slice(2)).toEqual(["out/b 644 = out/a", "out/c 644 = out/a"]);
    expect(found.leftOut).toEqual([]);
  });
});

describe("what is left out, and the rest kept", () => {
  const cases: readonly (readonly [string, readonly PackMember[], string])[] = [
    ["an absolute name", [file("/app/out/x")], "/app/out/x: absolute name"],
    ["a name with ..", [file("app/out/../../tests/test.sh")], "app/out/../../tests/test.sh: name with .."],
    ["a name with .. at its end", [directory("app/out/..")], "app/out/../: name with .."],
    ["a name with .", [file("app/out/./x")], "app/out/./x: name that is not canonical"],
    ["a name with an empty component", [file("app/out//x")], "app/out//x: name that is not canonical"],
    ["a name with NUL", [file("app/out/x\0y")], "app/out/x\0y: name that is not canonical"],
    [
      "a component that no file system takes",
      [file(`app/out/${"x".repeat(256)}`)],
      `app/out/${"x".repeat(256)}: name that is not canonical`,
    ],
    [
      "a name that is not UTF-8",
      [{ ...file(""), path: Buffer.from("app/out/\xff", "latin1") }],
      "app/out/\ufffd: name that is not UTF-8",
    ],
    ["what nobody declared", [file("app/other")], "app/other: outside of the declared path"],
    ["what only begins like the root", [file("app/outside")], "app/outside: outside of the declared path"],
    ["what is above the root", [directory("app")], "app/: outside of the declared path"],
    ["a device", [{ type: "character-device", path: "app/out/null" }], "app/out/null: device"],
    ["a FIFO", [{ type: "fifo", path: "app/out/answer" }], "app/out/answer: FIFO"],
    ["an unknown type", [{ type: "unknown", path: "app/out/odd" }], "app/out/odd: unknown type"],
    ["a second file of a name", [file("app/out/kept", "other")], "app/out/kept: second member of this name"],
    ["a directory in the place of a file", [directory("app/out/kept")], "app/out/kept/: second member of this name"],
    [
      "a link in the place of a directory",
      [directory("app/out/d"), link("app/out/d", "kept")],
      "app/out/d: second member of this name",
    ],
    ["a member below a file", [file("app/out/kept/x")], "app/out/kept/x: parent is not a directory"],
    ["a member below a link", [link("app/out/s", "."), file("app/out/s/x")], "app/out/s/x: parent is not a directory"],
    ["an absolute link", [link("app/out/s", "/tests")], "app/out/s: absolute link"],
    ["an absolute link into the root", [link("app/out/s", "/app/out/kept")], "app/out/s: absolute link"],
    ["a link that leaves", [link("app/out/s", "../../tests")], "app/out/s: link that leaves the declared path"],
    [
      "a link that leaves and comes back",
      [link("app/out/s", "../out/kept")],
      "app/out/s: link that leaves the declared path",
    ],
    [
      "a link that leaves through nothing",
      [link("app/out/s", "no/../../x")],
      "app/out/s: link that leaves the declared path",
    ],
    ["an empty link", [link("app/out/s", "")], "app/out/s: name that is not canonical"],
    ["a link to itself", [link("app/out/s", "s")], "app/out/s: link that leads to itself"],
    [
      "a hard link to the outside",
      [hardLink("app/out/h", "etc/passwd")],
      "app/out/h: hard link to nothing that was kept",
    ],
    [
      "a hard link to the future",
      [hardLink("app/out/h", "app/out/later"), file("app/out/later")],
      "app/out/h: hard link to nothing that was kept",
    ],
    [
      "a hard link to a link",
      [link("app/out/s", "kept"), hardLink("app/out/h", "app/out/s")],
      "app/out/h: hard link to nothing that was kept",
    ],
    ["a hard link to a directory", [hardLink("app/out/h", "app/out")], "app/out/h: hard link to nothing that was kept"],
    [
      "a hard link with ..",
      [hardLink("app/out/h", "app/out/../../etc/passwd")],
      "app/out/h: hard link to nothing that was kept",
    ],
  ];
  it.each(cases)("%s", async (_title, hostile, reason) => {
    const { kept, leftOut } = await judged([file("app/out/kept", "good"), ...hostile, file("app/out/last", "good")]);
    expect(leftOut).toEqual([reason]);
    expect(kept).toContain('out/kept 644 "good"');
    expect(kept).toContain('out/last 644 "good"');
  });

  it("a declared path that is a link", async () => {
    expect(await judged([link("app/out", "sub")])).toEqual({
      kept: [],
      leftOut: ["app/out: the declared path is a link"],
    });
  });

  it("a file with holes", async () => {
    const record = paxRecord("GNU.sparse.realsize=1000000");
    const archive = archiveOf(rawMember({ typeflag: "x" }, record), rawMember({ path: "app/out/hole" }, "x"));
    expect((await judged(archive)).leftOut).toEqual(["app/out/hole: file with holes"]);
  });

  it("a link that leaves by way of another link, in either order", async () => {
    const up = link("app/out/d/up", "..");
    const out = link("app/out/s", "d/up/../x");
    for (const members of [
      [directory("app/out/d"), up, out],
      [out, up],
    ]) {
      const { kept, leftOut } = await judged(members);
      expect(leftOut).toEqual(["app/out/s: link that leaves the declared path"]);
      expect(kept).toContain("out/d/up -> ..");
    }
  });

  it("two links that lead to each other", async () => {
    const { leftOut } = await judged([link("app/out/a", "b"), link("app/out/b", "a")]);
    expect(leftOut).toHaveLength(2);
  });
});

describe("limits leave out everything", () => {
  const over = async (members: readonly PackMember[], options: Partial<SafeMembersOptions>): Promise<unknown> =>
    judged(members, options).then(
      () => null,
      (error: unknown) => (error as { limit?: string }).limit ?? error,
    );

  it.each([
    ["maxBytes", [file("app/out/a", "12345"), file("app/out/b", "12345")], { maxBytes: 10 }, { maxBytes: 9 }],
    ["maxBytes", [file("app/out/a", "12345"), hardLink("app/out/b", "app/out/a")], { maxBytes: 10 }, { maxBytes: 9 }],
    ["maxEntries", [file("app/out/a/b")], { maxEntries: 3 }, { maxEntries: 2 }],
    ["maxEntries", [file("app/out"), file("/x"), file("/x")], { maxEntries: 3 }, { maxEntries: 2 }],
    ["maxDepth", [file("app/out/a/b")], { maxDepth: 2 }, { maxDepth: 1 }],
    ["maxPathBytes", [file("app/out/é")], { maxPathBytes: 10 }, { maxPathBytes: 9 }],
    ["maxPathBytes", [link("app/out/s", "x".repeat(10))], { maxPathBytes: 10 }, { maxPathBytes: 9 }],
  ] as const)("%s", async (limit, members, enough, tooLittle) => {
    expect(await over(members, enough)).toBeNull();
    expect(await over(members, tooLittle)).toBe(limit);
  });

  it("counts a file before it is read", async () => {
    const archive = rawMember({ path: "app/out/hole", size: 300 * 1024 * 1024 });
    await expect(judged(archive, { maxBytes: 32 * 1024 * 1024 })).rejects.toMatchObject({ limit: "maxBytes" });
  });
});

describe("exclude", () => {
  const members = [
    directory("app/out"),
    file("app/out/a.py"),
    file("app/out/cache/deep/b", "12345"),
    file("app/out/keep/a.txt"),
  ];

  it("is relative to the root, and nothing is said of it", async () => {
    expect(await judged(members, { exclude: ["cache", "./keep/*.py", "*.py"] })).toEqual({
      kept: ["out/ 755", "out/keep/ 755", 'out/keep/a.txt 644 "x"'],
      leftOut: [],
    });
    // The names above the root are not matched against.
    expect((await judged(members, { exclude: ["app", "out"] })).kept).toHaveLength(7);
  });

  it("does not count towards limits", async () => {
    await expect(judged(members, { maxBytes: 2 })).rejects.toMatchObject({ limit: "maxBytes" });
    expect((await judged(members, { exclude: ["cache"], maxBytes: 2, maxDepth: 2 })).kept).toHaveLength(4);
    await expect(judged(members, { maxDepth: 2 })).rejects.toMatchObject({ limit: "maxDepth" });
  });

  it("does not apply to a single file", async () => {
    expect((await judged([file("app/out")], { exclude: ["out"] })).kept).toHaveLength(1);
  });
});

it.each(["", "/", "app/out", "/app/../out", "/app/./out", "/app//out"])("refuses the root %o", async (root) => {
  await expect(judged([], { root })).rejects.toThrow(TypeError);
});

it("never lets a name, a target or a bit through that it should not, whatever comes", async () => {
  const part = fc.constantFrom("a", "b", "s", "..", ".", "", "out", "app", "tests");
  const anyPath = fc.array(part, { minLength: 1, maxLength: 6 }).map((parts) => parts.join("/"));
  const path = fc.oneof(
    anyPath,
    anyPath.map((rest) => `app/out/${rest}`),
  );
  const noSlash = path.filter((text) => !text.endsWith("/"));
  const mode = fc.integer({ min: 0, max: 0o7777 });
  const member: fc.Arbitrary<PackMember> = fc.oneof(
    fc.record({ type: fc.constant("file" as const), path: noSlash, mode, content: fc.constant("x") }),
    fc.record({ type: fc.constant("directory" as const), path, mode }),
    fc.record({ type: fc.constant("link" as const), path: noSlash, linkTarget: anyPath }),
    fc.record({ type: fc.constant("hard-link" as const), path: noSlash, linkTarget: path }),
    fc.record({ type: fc.constantFrom("fifo" as const, "character-device" as const), path: noSlash }),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(member, { maxLength: 12 }), async (members) => {
      const types = new Map<string, string>();
      const targets = new Map<string, string>();
      const stream = inChunks(await packed(...members), 1000);
      for await (const kept of safeMembers(stream, { ...GENEROUS, onLeftOut: () => undefined })) {
        const parts = kept.path.split("/");
        expect(parts[0]).toBe("out");
        for (const name of parts) expect(["", ".", ".."]).not.toContain(name);
        expect(kept.mode & ~0o777).toBe(0);
        expect(types.has(kept.path)).toBe(false);
        const parent = parts.slice(0, -1).join("/");
        expect(parent === "" || types.get(parent) === "directory").toBe(true);
        types.set(kept.path, kept.type);
        if (kept.type === "link") targets.set(kept.path, kept.linkTarget);
      }
      for (const from of targets.keys()) expect(staysInside(from, targets)).toBe(true);
    }),
    { numRuns: 500 },
  );
});

/** Follows a link in the tree that was kept, in another way than the code does: by rewriting whole paths. */
function staysInside(from: string, targets: ReadonlyMap<string, string>): boolean {
  let walked: string[] = [];
  let rest = from.split("/");
  for (let steps = 0; rest.length > 0; steps++) {
    if (steps > 10_000) return false;
    const [next = "", ...others] = rest;
    rest = others;
    if (next === "..") walked = walked.slice(0, -1);
    else if (next !== "" && next !== ".") walked = [...walked, next];
    if (walked[0] !== "out") return false;
    const target = targets.get(walked.join("/"));
    if (target === undefined) continue;
    walked = walked.slice(0, -1);
    rest = [...target.split("/"), ...rest];
  }
  return true;
}
