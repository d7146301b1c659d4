import type { ExecOptions, UploadEntry } from "@breakwater/runtime-api";
import { packTar, readTar, type PackMember } from "@breakwater/tar";
import { describe, expect, it } from "vitest";
import { uploadArchive, uploadThroughHelper } from "./upload.ts";

interface Read {
  readonly path: string;
  readonly mode: string;
  readonly content: string;
  readonly owner: string;
}

async function membersOf(stream: AsyncIterable<Uint8Array>): Promise<readonly Read[]> {
  const members: Read[] = [];
  for await (const { path, mode, uid, gid, linkTarget, content } of readTar(stream)) {
    const chunks: Uint8Array[] = [];
    for await (const chunk of content) chunks.push(chunk);
    const text = linkTarget === null ? Buffer.concat(chunks).toString() : `-> ${linkTarget}`;
    members.push({ path, mode: mode.toString(8), content: text, owner: `${uid}:${gid}` });
  }
  return members;
}

describe("an upload of entries", () => {
  it("becomes members with the modes that we decide, and a count at the end", async () => {
    const archive = uploadArchive([
      { path: "test.sh", content: "echo" },
      { path: "a\\b\\script", content: "#!/bin/sh\n" },
      { path: "data", content: Buffer.from([0, 255]) },
      { path: "secret", content: "x", mode: 0o600 },
      { path: "plain.sh", content: "", mode: 0o644 },
      { path: "d/", directory: true },
      { path: "s", linkTarget: "/etc/passwd" },
    ]);
    expect((await membersOf(archive.stream)).map(({ path, mode, content }) => `${path} ${mode} ${content}`)).toEqual([
      "test.sh 755 echo",
      "a/b/script 755 #!/bin/sh\n",
      "data 644 \0\ufffd",
      "secret 600 x",
      "plain.sh 644 ",
      "d/ 755 ",
      "s 777 -> /etc/passwd",
      ".breakwater-end 644 7",
    ]);
    expect(archive.sent()).toEqual({ entries: 7, bytes: 4 + 10 + 2 + 1 });
  });

  it("belongs to root or to the owner that is asked for", async () => {
    const files: readonly UploadEntry[] = [{ path: "f", content: "" }];
    expect((await membersOf(uploadArchive(files).stream))[0]?.owner).toBe("0:0");
    expect((await membersOf(uploadArchive(files, { owner: { uid: 7, gid: 8 } }).stream))[0]?.owner).toBe("7:8");
    expect(() => uploadArchive(files, { owner: { uid: -1, gid: 0 } })).toThrow(TypeError);
  });

  it.each(["", "/", "/abs", "..", "a/../b", "a//b", "./a", ".", "a\0b", "..\\a", ".breakwater-end"])(
    "cannot have the name %o",
    (path) => {
      expect(() => uploadArchive([{ path, content: "" }])).toThrow(TypeError);
    },
  );

  it("cannot have a mode that is none, a name twice or a link to nothing", () => {
    expect(() => uploadArchive([{ path: "f", content: "", mode: 0o10000 }])).toThrow(TypeError);
    expect(() => uploadArchive([{ path: "d", directory: true, mode: 1.5 }])).toThrow(TypeError);
    expect(() =>
      uploadArchive([
        { path: "f", content: "" },
        { path: "f", content: "" },
      ]),
    ).toThrow(TypeError);
    expect(() => uploadArchive([{ path: "f", linkTarget: "" }])).toThrow(TypeError);
  });
});

describe("an upload of a tar stream", () => {
  const uploaded = (...members: readonly PackMember[]): Promise<readonly Read[]> =>
    membersOf(uploadArchive(packTar(members)).stream);

  it("keeps modes and times, not owners", async () => {
    const found = await uploaded(
      { type: "directory", path: ".", mode: 0o700 },
      { type: "directory", path: "./d", mode: 0o1777, uid: 5 },
      { type: "file", path: "./d/f", content: "x", mode: 0o4755, uid: 5 },
      { type: "link", path: "s", linkTarget: "d/f" },
    );
    expect(found.map(({ path, mode, owner }) => `${path} ${mode} ${owner}`)).toEqual([
      "d/ 1777 0:0",
      "d/f 4755 0:0",
      "s 777 0:0",
      ".breakwater-end 644 0:0",
    ]);
    expect(found.at(-1)?.content).toBe("3");
  });

  it.each<PackMember>([
    { type: "file", path: "/etc/passwd", content: "" },
    { type: "file", path: "a/../../b", content: "" },
    { type: "file", path: Buffer.from([0xff]), content: "" },
    { type: "fifo", path: "f" },
    { type: "hard-link", path: "f", linkTarget: "g" },
    { type: "file", path: ".breakwater-end", content: "0" },
  ])("does not take %o", async (member) => {
    await expect(uploaded(member)).rejects.toThrow(TypeError);
  });
});

describe("an upload through the helper", () => {
  const context = { driver: "test", boxId: "box", operation: "upload" } as const;
  interface Run {
    argv: readonly string[];
    input: readonly Read[];
  }
  async function upload(
    answer: unknown,
    more: {
      readonly exitCode?: number;
      readonly timedOut?: boolean;
      readonly files?: readonly UploadEntry[] | AsyncIterable<Uint8Array>;
      readonly owner?: { uid: number; gid: number };
    } = {},
  ): Promise<Run> {
    const run: Run = { argv: [], input: [] };
    await uploadThroughHelper({
      context,
      files: more.files ?? [{ path: "f", content: "123" }],
      directory: "/tests",
      options: { owner: more.owner },
      runHelper: async (argv, options: ExecOptions) => {
        run.argv = argv;
        run.input = await membersOf(options.stdin as AsyncIterable<Uint8Array>);
        const stdout = Buffer.from(typeof answer === "string" ? answer : JSON.stringify(answer));
        const { exitCode = 0, timedOut = false } = more;
        return {
          exitCode,
          stdout,
          stderr: Buffer.from("said"),
          stdoutBytes: stdout.length,
          stderrBytes: 4,
          truncated: false,
          timedOut,
          streamsClosed: true,
          durationMs: 1,
        };
      },
    });
    return run;
  }

  it("is done when the helper confirms what was sent", async () => {
    const run = await upload({ entries: 1, bytes: 3 }, { owner: { uid: 1, gid: 2 } });
    expect(run.argv).toEqual(["tar-in", "--directory", "/tests", "--owner", "1:2"]);
    expect(run.input.map(({ path }) => path)).toEqual(["f", ".breakwater-end"]);
    expect((await upload({ entries: 1, bytes: 3 })).argv).toEqual(["tar-in", "--directory", "/tests"]);
  });

  it.each([
    ["ELOOP", "ERR_PATH_LINK"],
    ["ENOTDIR", "ERR_PATH_KIND"],
    ["EROFS", "ERR_PATH_DENIED"],
    ["EACCES", "ERR_PATH_DENIED"],
    ["ENOSPC", "ERR_DISK_FULL"],
    ["EDQUOT", "ERR_DISK_FULL"],
    ["ETRUNCATED", "ERR_TRANSFER"],
  ])("that the box answers with %s is %s", async (errno, code) => {
    const answer = { error: { code: errno, path: "/tests/x", message: "no" } };
    await expect(upload(answer, { exitCode: 1 })).rejects.toMatchObject({
      code,
      errno,
      path: "/tests/x",
      operation: "upload",
    });
  });

  it.each([
    ["fewer bytes", { entries: 1, bytes: 2 }, 0],
    ["fewer entries", { entries: 0, bytes: 3 }, 0],
    ["a failure without a word", "", 1],
    ["no answer", "", 0],
    ["something else", "[]", 0],
    ["a failure", { entries: 1, bytes: 3 }, 1],
  ])("that is answered by %s is not done", async (_title, answer, exitCode) => {
    await expect(upload(answer, { exitCode })).rejects.toMatchObject({ code: "ERR_TRANSFER" });
  });

  it("that takes too long is a timeout", async () => {
    await expect(upload("", { exitCode: 137, timedOut: true })).rejects.toMatchObject({ code: "ERR_TIMEOUT" });
  });

  it("of a stream that is cut says so", async () => {
    async function* cut(): AsyncGenerator<Uint8Array> {
      for await (const chunk of packTar([{ type: "file", path: "f", content: "x" }])) yield chunk.subarray(0, 512);
    }
    await expect(upload({}, { files: cut() })).rejects.toMatchObject({ code: "ERR_TRANSFER" });
  });
});
