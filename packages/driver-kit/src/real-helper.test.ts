import { packDirectory, packTar, readTar } from "@breakwater/tar";
import { isRuntimeError, type UploadEntry } from "@breakwater/runtime-api";
import { lstat, mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { execLocally, localHelper } from "../test/local-helper.ts";
import { joinArchives } from "./download.ts";
import { uploadThroughHelper } from "./upload.ts";

const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString();
const sh = (script: string): readonly string[] => ["sh", "-c", script];

/** Command lines of this machine's processes that have this in them. */
async function running(marker: string): Promise<readonly string[]> {
  const found: string[] = [];
  for (const pid of (await readdir("/proc")).filter((name) => /^\d+$/.test(name))) {
    const line = await readFile(`/proc/${pid}/cmdline`, "latin1").catch(() => "");
    if (line.includes(marker)) found.push(line);
  }
  return found;
}

async function until(condition: () => Promise<boolean>): Promise<void> {
  for (let tries = 0; tries < 200 && !(await condition()); tries++)
    await new Promise((resolve) => setTimeout(resolve, 10));
}

async function temporaryFolder(): Promise<AsyncDisposable & { readonly path: string }> {
  const path = await mkdtemp(join(tmpdir(), "breakwater-helper-"));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

describe.runIf(localHelper !== null)("with the real helper", () => {
  it("a program's output and exit arrive, whatever the exit is", async () => {
    for (const [script, exitCode] of [
      ["exit 0", 0],
      ["exit 126", 126],
      ["exit 255", 255],
      ["kill -9 $$", 137],
      ["kill -15 $$", 143],
    ] as const) {
      const result = await execLocally(sh(`echo out; echo err >&2; ${script}`));
      expect(result).toMatchObject({ exitCode, streamsClosed: true, truncated: false, timedOut: false });
      expect([text(result.stdout), text(result.stderr)]).toEqual(["out\n", "err\n"]);
    }
  });

  it("64 MiB on both streams and an exit by a signal are exact", async () => {
    const script = "head -c 33554432 /dev/zero; head -c 33554432 /dev/zero >&2; kill -9 $$";
    expect(await execLocally(sh(script), { maxOutputBytes: 10 })).toMatchObject({
      exitCode: 137,
      stdoutBytes: 33_554_432,
      stderrBytes: 33_554_432,
      truncated: true,
    });
  });

  it("3 MiB of input arrive, and what is said after its end too", async () => {
    const { stdout } = await execLocally(sh("wc -c; echo after"), { stdin: Buffer.alloc(3 * 1024 * 1024) });
    expect(text(stdout)).toBe("3145728\nafter\n");
  });

  it("a background child does not hold the result", async () => {
    const startedAt = performance.now();
    const result = await execLocally(sh("sleep 3.21 & echo hi; exit 3"));
    expect(result).toMatchObject({ exitCode: 3, streamsClosed: false });
    expect(performance.now() - startedAt).toBeLessThan(2500);
  });

  it("a deadline ends everything that was started, and nothing else", async () => {
    const marker = `43${process.pid}`;
    const bystander = execLocally(sh("sleep 1; echo ok"));
    const timed = execLocally(sh(`trap "" TERM; setsid env -i sleep ${marker} & sleep ${marker}`), { timeoutMs: 5000 });
    await until(async () => (await running(marker)).length >= 3);
    expect((await running(marker)).length).toBeGreaterThanOrEqual(3);
    expect(await timed).toMatchObject({ timedOut: true, exitCode: 137 });
    expect(await running(marker)).toEqual([]);
    expect(text((await bystander).stdout)).toBe("ok\n");
  });

  it("an abort ends everything before it rejects, also while the program does not read its input", async () => {
    const marker = `44${process.pid}`;
    const abort = new AbortController();
    const stdin = Buffer.alloc(8 * 1024 * 1024);
    const aborted = execLocally(sh(`setsid sleep ${marker} & sleep ${marker}`), { signal: abort.signal, stdin });
    aborted.catch(() => undefined);
    await until(async () => (await running(marker)).length >= 3);
    abort.abort();
    await expect(aborted).rejects.toMatchObject({ code: "ERR_ABORTED" });
    expect(await running(marker)).toEqual([]);
  });

  it.each([
    [["nope-xyz"], {}, "exec", "ENOENT"],
    [["/etc/passwd"], {}, "exec", "EACCES"],
    [["true"], { cwd: "/nope" }, "cwd", "ENOENT"],
    [["true"], { user: "nosuch" }, "user", undefined],
  ])("%o with %o cannot be started: %s", async (argv, options, step, errno) => {
    const error: unknown = await execLocally(argv, options).catch((thrown: unknown) => thrown);
    expect(isRuntimeError(error, "ERR_EXEC_START")).toBe(true);
    expect(error).toMatchObject({ step, ...(errno === undefined ? {} : { errno }) });
  });

  it("the environment arrives byte for byte", async () => {
    const env = { A: 'HAHA "x" $HOME \\n', B: "\n", C: "", D: "=", E: "-e", F: "é".repeat(200) };
    const { stdout } = await execLocally(sh('printf "%s|" "$A" "$B" "$C" "$D" "$E" "$F"'), { env });
    expect(text(stdout)).toBe(`${Object.values(env).join("|")}|`);
  });

  describe("files", () => {
    const upload = (files: readonly UploadEntry[] | AsyncIterable<Uint8Array>, directory: string): Promise<void> =>
      uploadThroughHelper({
        context: { driver: "local", boxId: "here", operation: "upload" },
        files,
        directory,
        runHelper: (argv, options) => execLocally([localHelper ?? "", ...argv], options),
      });

    it("go in, parents are made, and what is there is replaced but never written through", async () => {
      await using folder = await temporaryFolder();
      await writeFile(`${folder.path}/outside`, "mine");
      await mkdir(`${folder.path}/in`, { mode: 0o711 });
      await symlink("../outside", `${folder.path}/in/link`);
      await upload(
        [
          { path: "a/b/run.sh", content: "#!/bin/sh\n" },
          { path: "link", content: "new" },
          { path: "s", linkTarget: "a/b" },
        ],
        `${folder.path}/in`,
      );
      expect(await readFile(`${folder.path}/outside`, "utf8")).toBe("mine");
      expect(await readFile(`${folder.path}/in/link`, "utf8")).toBe("new");
      expect((await stat(`${folder.path}/in/s/run.sh`)).mode & 0o777).toBe(0o755);
      expect((await stat(`${folder.path}/in`)).mode & 0o777).toBe(0o711);
    });

    it("do not go through a link on the way", async () => {
      await using folder = await temporaryFolder();
      await mkdir(`${folder.path}/real`);
      await symlink("real", `${folder.path}/link`);
      const target = `${folder.path}/link/below`;
      await expect(upload([{ path: "f", content: "" }], target)).rejects.toMatchObject({ code: "ERR_PATH_LINK" });
      expect(await readdir(`${folder.path}/real`)).toEqual([]);
    });

    it("of a whole tree come back as they were", async () => {
      await using folder = await temporaryFolder();
      const long = "name-".repeat(40);
      const from = `${folder.path}/from`;
      await mkdir(`${from}/empty`, { recursive: true });
      await writeFile(`${from}/${long}`, Buffer.alloc(300_000, "é"));
      await writeFile(`${from}/new\nline ü`, "");
      await symlink("dangling", `${from}/s`);
      for (let index = 0; index < 300; index++) await writeFile(`${from}/empty/${index}`, String(index));
      const to = `${folder.path}/to`;
      await upload(packDirectory(from), to);

      const context = { driver: "local", boxId: "here", operation: "download" } as const;
      const { stdout } = await execLocally([localHelper ?? "", "tar-out", to]);
      const stream = joinArchives(
        [{ path: to, name: to.slice(1), stream: one(stdout) }],
        { maxBytes: 10 ** 7, maxEntries: 2000 },
        context,
      );
      const seen = new Map<string, string>();
      for await (const member of readTar(stream)) {
        let bytes = 0;
        for await (const chunk of member.content) bytes += chunk.length;
        seen.set(
          member.path.slice(to.length),
          `${member.type} ${member.mode.toString(8)} ${bytes} ${String(member.linkTarget)}`,
        );
      }
      expect(seen.size).toBe(305);
      expect(seen.get(long)).toBe("file 644 300000 null");
      expect(seen.get("new\nline ü")).toBe("file 644 0 null");
      expect(seen.get("empty/")).toBe("directory 755 0 null");
      expect(seen.get("s")).toBe("link 777 0 dangling");
      expect((await lstat(`${to}/s`)).isSymbolicLink()).toBe(true);
    });

    it("of a stream that is cut are no upload", async () => {
      await using folder = await temporaryFolder();
      async function* cut(): AsyncGenerator<Uint8Array> {
        for await (const chunk of packTar([{ type: "file", path: "f", content: "x" }])) yield chunk.subarray(0, 700);
      }
      await expect(upload(cut(), folder.path)).rejects.toMatchObject({ code: "ERR_TRANSFER" });
    });
  });
});

async function* one(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}
