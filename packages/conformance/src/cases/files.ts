import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import { type DownloadLimits, isRuntimeError, type Runtime, type UploadEntry } from "@breakwater/runtime-api";
import {
  assertAnswers,
  given,
  memoryGrowth,
  mistake,
  PATIENCE_MS,
  perl,
  expectedError,
  rejection,
  shell,
  text,
  tree,
  uniqueSeconds,
  until,
  untilSleeping,
} from "../box-tools.ts";
import type { ConformanceCase } from "../case.ts";
import { anyUser, freezes, readsAfterStop } from "../needs.ts";
import { collect, readTar, TAR_END, type TarMember, tarMember } from "../tar.ts";

const MiB = 1024 * 1024;
const AMPLE: DownloadLimits = { maxBytes: 64 * MiB, maxEntries: 10_000 };

const sha256 = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");

/** A folder for one case in a shared box. */
function folder(): string {
  return `/var/tmp/case-${uniqueSeconds()}`;
}

async function* streamOf(...chunks: readonly Uint8Array[]): AsyncIterable<Uint8Array> {
  yield* chunks;
}

async function download(
  box: Runtime,
  paths: readonly string[],
  limits: DownloadLimits = AMPLE,
): Promise<ReadonlyMap<string, TarMember>> {
  const members = await readTar(box.download(paths, limits, { timeoutMs: 2 * PATIENCE_MS }));
  return new Map(members.map((member) => [member.name.replace(/\/$/, ""), member]));
}

/** A refusal is fine, as long as it is one. */
function anyRuntimeError(error: unknown): void {
  if (!(error instanceof TypeError) && !isRuntimeError(error)) throw error;
}

export const filesCases: readonly ConformanceCase[] = [
  {
    id: "files.upload-tree",
    level: "MUST",
    title: "put a whole tree in place: modes, exec bits, empty folders, links, empty files",
    promise: "upload: type and size of every entry; modes and exec bits kept.",
    covers: ["B25"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const to = folder();
      await box.upload(
        [
          { path: "run.sh", content: "#!/bin/sh\necho ran\n", mode: 0o755 },
          { path: "data/plain", content: "plain" },
          { path: "data/secret", content: "secret", mode: 0o000 },
          { path: "data/empty", content: "" },
          { path: "empty-folder", directory: true, mode: 0o750 },
          { path: "data/deep/er/bytes", content: Uint8Array.of(0, 255, 10, 13) },
          { path: "relative", linkTarget: "data/plain" },
          { path: "dangling", linkTarget: "no/such/file" },
        ],
        to,
      );
      const seen = await tree(box, to);
      const brief = Object.fromEntries(
        [...seen].map(([path, it]) => [
          path,
          `${it.type} ${it.type === "link" ? "" : it.mode} ${it.content ?? it.linkTarget ?? ""}`,
        ]),
      );
      assert.deepEqual(brief, {
        "run.sh": "file 0755 #!/bin/sh\necho ran\n",
        data: "directory 0755 ",
        "data/plain": "file 0644 plain",
        "data/secret": "file 0000 secret",
        "data/empty": "file 0644 ",
        "empty-folder": "directory 0750 ",
        "data/deep": "directory 0755 ",
        "data/deep/er": "directory 0755 ",
        "data/deep/er/bytes": "file 0644 \u0000\u00ff\n\r",
        relative: "link  data/plain",
        dangling: "link  no/such/file",
      });
      assert.equal(await shell(box, `${to}/run.sh`), "ran\n");
    },
  },
  {
    id: "files.upload-many",
    level: "MUST",
    title: "lose none of 3000 small files",
    promise: "upload is verified: type and size of every entry.",
    covers: ["B25"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const to = folder();
      const files = Array.from({ length: 3000 }, (_unused, index) => ({
        path: `d${index % 50}/f${index}`,
        content: `content of ${index}\n`,
      }));
      await box.upload(files, to, { timeoutMs: 2 * PATIENCE_MS });
      const lines = await shell(
        box,
        `cd ${to} && find . -type f | wc -l; find . -type f -exec cat {} + | sort | sha256sum`,
      );
      const [count, hash] = lines.split("\n");
      const sorted = files.map((file) => file.content).sort();
      assert.equal(count, "3000");
      const expected = await shell(box, "sort | sha256sum", { stdin: sorted.join("") });
      assert.equal(hash, expected.trim());
    },
  },
  {
    id: "files.upload-large",
    level: "MUST",
    title: "deliver a file of 64 MiB unchanged",
    promise: "upload is verified.",
    covers: ["B31"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const to = folder();
      const block = createHash("sha512").update("seed").digest();
      const content = Buffer.concat(Array.from({ length: 1024 }, () => Buffer.alloc(MiB / 16, block)));
      await box.upload([{ path: "large", content }], to, { timeoutMs: 2 * PATIENCE_MS });
      assert.equal((await shell(box, `sha256sum <${to}/large`)).slice(0, 64), sha256(content));
      await shell(box, `rm ${to}/large`);
    },
  },
  {
    id: "files.upload-into",
    level: "MUST",
    title: "make the entries contents of the folder, whether it exists or not, slash or not",
    promise: "The contents of A become contents of B.",
    covers: ["B33"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const to = folder();
      await shell(box, `mkdir -p ${to}/present; echo old >${to}/present/old`);
      for (const target of [`${to}/present`, `${to}/present/`, `${to}/missing`, `${to}/missing/`, `${to}/a/b/c`]) {
        await box.upload([{ path: "tests/test.sh", content: "x" }], target);
      }
      const files = [...(await tree(box, to))].filter(([, it]) => it.type === "file").map(([path]) => path);
      assert.deepEqual(files.sort(), [
        "a/b/c/tests/test.sh",
        "missing/tests/test.sh",
        "present/old",
        "present/tests/test.sh",
      ]);
    },
  },
  {
    id: "files.upload-twice",
    level: "MUST",
    title: "replace what a second upload brings again, and nothing else",
    promise: "The contents of A become contents of B.",
    covers: ["B33"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const to = folder();
      await box.upload(
        [
          { path: "a", content: "a much longer first content" },
          { path: "b", content: "b", mode: 0o755 },
        ],
        to,
      );
      await box.upload([{ path: "a", content: "second", mode: 0o600 }], to);
      const seen = await tree(box, to);
      assert.deepEqual([seen.get("a")?.content, seen.get("a")?.mode], ["second", "0600"]);
      assert.deepEqual([seen.get("b")?.content, seen.get("b")?.mode], ["b", "0755"]);
    },
  },
  {
    id: "files.upload-nothing",
    level: "MUST",
    title: "make the folder when there is nothing to put into it",
    promise: "directory is made when missing.",
    async run({ sharedBox }) {
      const box = await sharedBox();
      const to = folder();
      await box.upload([], `${to}/x/y`);
      assert.equal(await shell(box, `ls -A ${to}/x/y; stat -c '%F %a %u' ${to}/x/y`), "directory 755 0\n");
    },
  },
  {
    id: "files.upload-owner",
    level: "MUST",
    title: "own what arrives as root, or as the ids that are asked for, never as the host's",
    promise: "Owner root or the one asked for, never the host's uid.",
    covers: ["B26", "B27"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const to = folder();
      const entries: readonly UploadEntry[] = [
        { path: "d/file", content: "x" },
        { path: "link", linkTarget: "d/file" },
      ];
      await box.upload(entries, `${to}/root`);
      await box.upload(entries, `${to}/other`, { owner: { uid: 1234, gid: 4321 } });
      await box.upload(streamOf(tarMember({ name: "file", uid: 777 }, "x"), TAR_END), `${to}/tar`);
      const owners = Object.fromEntries([...(await tree(box, to))].map(([path, it]) => [path, it.owner]));
      for (const path of ["root/d", "root/d/file", "root/link", "tar/file"]) assert.equal(owners[path], "0:0", path);
      for (const path of ["other/d", "other/d/file", "other/link"]) assert.equal(owners[path], "1234:4321", path);
    },
  },
  {
    id: "files.upload-readable-by-user",
    level: "MUST",
    title: "let the box's user read what it was given",
    promise: "Modes are those asked for, 0644 and 0755 by default.",
    needs: [anyUser],
    covers: ["B26", "B28"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const to = folder();
      await box.upload(
        [
          { path: "some/where/file", content: "readable" },
          { path: "own", content: "mine", mode: 0o600 },
        ],
        `${to}/new`,
        { owner: { uid: 1, gid: 1 } },
      );
      await box.upload([{ path: "some/file", content: "readable" }], `${to}/roots`);
      assert.equal(
        await shell(box, `cat ${to}/new/some/where/file ${to}/new/own ${to}/roots/some/file`, { user: "daemon" }),
        "readableminereadable",
      );
    },
  },
  {
    id: "files.upload-names",
    level: "MUST",
    title: "keep names as they are: blanks, newlines, leading dashes, Unicode, very long ones",
    promise: "Paths arrive as they are.",
    covers: ["B114"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const to = folder();
      const long = `${"long-folder-name-".repeat(8)}/${"x".repeat(200)}/${"y".repeat(250)}`;
      const names = [
        "with blank",
        "new\nline",
        "-rf",
        "ünï€日本\u{1F6A2}",
        "quote'\"`$(id)",
        "..double",
        "trailing.",
        long,
      ];
      await box.upload(
        names.map((path) => ({ path, content: path })),
        to,
      );
      // In a stream a backslash is a character like any other.
      await box.upload(streamOf(tarMember({ name: "back\\slash" }, "x"), TAR_END), to);
      const files = [...(await tree(box, to))].filter(([, it]) => it.type === "file");
      assert.deepEqual(files.map(([path]) => path).sort(), [...names, "back\\slash"].sort());
    },
  },
  {
    id: "files.upload-from-windows",
    level: "SHOULD",
    title: "take a backslash in an entry's path for a separator, and run scripts that came without an exec bit",
    promise: "Archive names always have /; people build paths on Windows.",
    covers: ["B114"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const to = folder();
      await box.upload([{ path: "tests\\run.sh", content: "#!/bin/sh\necho ran\n" }], to);
      assert.deepEqual([...(await tree(box, to)).keys()].sort(), ["tests", "tests/run.sh"]);
      assert.equal(await shell(box, `${to}/tests/run.sh`), "ran\n");
    },
  },
  {
    id: "files.upload-link-below",
    level: "MUST",
    title: "replace a link that is in the way, and never write through it",
    promise: "Links inside the box's target path are not written through.",
    covers: ["B38"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const to = folder();
      await shell(
        box,
        `mkdir -p ${to}/in ${to}/victim; echo untouched >${to}/victim/file; ln -s ../victim/file ${to}/in/file; ln -s ../victim ${to}/in/folder; ln -s ${to}/victim/new ${to}/in/dangling`,
      );
      await box.upload(
        [
          { path: "file", content: "new" },
          { path: "folder/file", content: "new" },
          { path: "dangling", content: "new" },
        ],
        `${to}/in`,
      );
      const seen = await tree(box, to);
      assert.deepEqual(
        [...seen.keys()].filter((path) => path.startsWith("victim/")),
        ["victim/file"],
        "something was written through a link",
      );
      assert.equal(seen.get("victim/file")?.content, "untouched\n");
      for (const path of ["in/file", "in/folder/file", "in/dangling"])
        assert.deepEqual([seen.get(path)?.type, seen.get(path)?.content], ["file", "new"], path);
    },
  },
  {
    id: "files.upload-link-on-the-way",
    level: "MUST",
    title: "refuse a folder that is reached through a link",
    promise: "Nothing is written through a link on the way to directory (ERR_PATH_LINK).",
    covers: ["B93"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const to = folder();
      await shell(box, `mkdir -p ${to}/victim; ln -s victim ${to}/link; ln -s nowhere ${to}/dangling`);
      for (const target of [
        `${to}/link`,
        `${to}/link/`,
        `${to}/link/inner`,
        `${to}/dangling`,
        `${to}/dangling/inner`,
      ]) {
        await rejection(box.upload([{ path: "file", content: "x" }], target), "ERR_PATH_LINK");
      }
      assert.deepEqual(
        [...(await tree(box, to)).keys()].sort(),
        ["dangling", "link", "victim"],
        "something was written",
      );
    },
  },
  {
    id: "files.upload-file-on-the-way",
    level: "MUST",
    title: "refuse a folder whose place is taken by a file",
    promise: "ERR_PATH_KIND.",
    async run({ sharedBox }) {
      const box = await sharedBox();
      const to = folder();
      await shell(box, `mkdir ${to}; echo kept >${to}/file`);
      for (const target of [`${to}/file`, `${to}/file/inner`])
        await rejection(box.upload([{ path: "x", content: "x" }], target), "ERR_PATH_KIND");
      assert.equal(await shell(box, `cat ${to}/file`), "kept\n");
    },
  },
  {
    id: "files.upload-link-in-the-stream",
    level: "MUST",
    title: "not write through a link that the same upload brought",
    promise: "Nothing is written through a link below directory.",
    covers: ["B38"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const to = folder();
      await shell(box, `mkdir -p ${to}/victim`);
      const hostile = streamOf(
        tarMember({ name: "s", type: "2", linkTarget: `${to}/victim` }),
        tarMember({ name: "s/through" }, "x"),
        TAR_END,
      );
      const honest = streamOf(
        tarMember({ name: "s/", type: "5", mode: 0o755 }),
        tarMember({ name: "s/through" }, "x"),
        TAR_END,
      );
      await box.upload(honest, `${to}/proof`);
      assert.equal(await shell(box, `cat ${to}/proof/s/through`), "x", "the same stream with a folder does not arrive");
      await box.upload(hostile, `${to}/in`).catch(anyRuntimeError);
      assert.equal(await shell(box, `ls -A ${to}/victim`), "", "the engine wrote through the link");
    },
  },
  {
    id: "files.upload-stays-inside",
    level: "MUST",
    title: "put nothing outside the folder, whatever the stream's names say",
    promise: "The members become contents of directory.",
    covers: ["B38"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const to = folder();
      await box.upload(streamOf(tarMember({ name: "honest" }, "x"), TAR_END), `${to}/in`);
      for (const name of ["../escaped", `${to}/escaped`, "a/../../escaped"]) {
        await box.upload(streamOf(tarMember({ name }, "x"), TAR_END), `${to}/in`).catch(anyRuntimeError);
      }
      assert.equal(
        await shell(box, `ls -A ${to}; cat ${to}/in/honest`),
        "in\nx",
        "something was put outside the folder",
      );
      await mistake(() => box.upload([{ path: "../escaped", content: "x" }], `${to}/in`));
      await mistake(() => box.upload([{ path: "/escaped", content: "x" }], `${to}/in`));
    },
  },
  {
    id: "files.upload-cut",
    level: "MUST",
    title: "reject a stream that is cut, breaks, or is no archive",
    promise: "A sentinel member last: what arrived is what was sent, else ERR_TRANSFER.",
    covers: ["B31"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const whole = Buffer.concat([
        tarMember({ name: "one" }, "x".repeat(300)),
        tarMember({ name: "two" }, "y".repeat(3000)),
        TAR_END,
      ]);
      await box.upload(streamOf(whole), `${folder()}/whole`);
      const broken = (async function* () {
        yield whole.subarray(0, 1500);
        throw new Error("the source broke");
      })();
      for (const [what, stream] of [
        ["cut inside a member's header", streamOf(whole.subarray(0, 1100))],
        ["cut inside a member's content", streamOf(whole.subarray(0, 2000))],
        ["no archive at all", streamOf(Buffer.from("this is not a tar archive".repeat(100)))],
        ["a source that breaks", broken],
      ] as const) {
        await assert.rejects(box.upload(stream, folder(), { timeoutMs: PATIENCE_MS }), () => true, `accepted: ${what}`);
      }
      await assertAnswers(box);
    },
  },
  {
    id: "files.upload-mistakes",
    level: "MUST",
    title: "refuse impossible paths and modes as mistakes, before anything is written",
    promise: "Programming mistakes are bare TypeErrors.",
    covers: ["B26", "B36", "B46"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const to = folder();
      const fine: UploadEntry = { path: "fine", content: "x" };
      for (const path of ["", "..", "a/../b", "/absolute", "nul\0"])
        await mistake(() => box.upload([fine, { path, content: "x" }], to));
      // 666 written in decimal is above 0o7777 only by luck; 0o10000 never is a mode.
      await mistake(() => box.upload([fine, { path: "a", content: "x", mode: 0o10000 }], to));
      await mistake(() => box.upload([fine, { path: "a", content: "x", mode: -1 }], to));
      await mistake(() => box.upload([fine], "relative/path"));
      await mistake(() => box.upload([fine], "/var/../etc"));
      assert.equal(await shell(box, `[ -e ${to} ] || echo absent`), "absent\n");
    },
  },
  {
    id: "files.upload-existing-folder",
    level: "MUST",
    title: "keep a folder that exists, with the mode and owner of its entry",
    promise: "A directory that exists is kept and gets the mode and the owner of its entry.",
    async run({ sharedBox }) {
      const box = await sharedBox();
      const to = folder();
      await shell(
        box,
        `mkdir -p ${to}/there ${to}/other; chmod 0700 ${to}/there ${to}/other; echo kept >${to}/there/file`,
      );
      await box.upload(
        [
          { path: "there", directory: true, mode: 0o777 },
          { path: "other/file", content: "x" },
        ],
        to,
      );
      const seen = await tree(box, to);
      assert.deepEqual([seen.get("there")?.mode, seen.get("there/file")?.content], ["0777", "kept\n"]);
      assert.equal(seen.get("other")?.mode, "0700", "a folder without an entry of its own was changed");
    },
  },
  {
    id: "files.inspect-path",
    level: "MUST",
    title: "say what every component of a path is, and follow no link",
    promise:
      "inspectPath: it ends with the last that exists, or with the first that is no directory. Links are not followed.",
    covers: ["B44", "B93"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const at = folder();
      await shell(
        box,
        `mkdir -p ${at}/real/deep; chmod 2750 ${at}/real; chown 12:34 ${at}/real; echo x >${at}/real/file; ln -s real ${at}/hop; mkfifo ${at}/fifo`,
      );
      const seen = async (path: string): Promise<readonly string[]> =>
        (await box.inspectPath(`${at}${path}`))
          .slice(3)
          .map((it) => `${it.path.slice(at.length)} ${it.kind} ${it.linkTarget ?? ""}`.trim());
      assert.deepEqual(
        (await box.inspectPath(at)).map((it) => [it.path, it.kind]),
        [
          ["/var", "directory"],
          ["/var/tmp", "directory"],
          [at, "directory"],
        ],
      );
      assert.deepEqual(await seen("/real/deep"), ["/real directory", "/real/deep directory"]);
      assert.deepEqual(await seen("/real/deep/no/such"), ["/real directory", "/real/deep directory"]);
      assert.deepEqual(await seen("/real/file/below"), ["/real directory", "/real/file file"]);
      assert.deepEqual(await seen("/hop/deep"), ["/hop link real"]);
      assert.deepEqual(await seen("/fifo"), ["/fifo other"]);
      const real = (await box.inspectPath(`${at}/real`)).at(-1);
      assert.deepEqual([real?.mode, real?.uid, real?.gid], [0o2750, 12, 34]);
      await mistake(() => box.inspectPath("relative"));
    },
  },
  {
    id: "files.remove-paths",
    level: "MUST",
    title: "remove paths with all below them, links themselves and never what they point to",
    promise:
      "removePaths: no link is followed: one on the way is ERR_PATH_LINK, one as the last component is removed itself.",
    covers: ["B93"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const at = folder();
      await shell(
        box,
        `mkdir -p ${at}/gone/deep ${at}/victim; cd ${at}; echo x >gone/deep/file; chmod 0000 gone/deep/file; ln -s ../victim gone/out; echo kept >victim/file; ln -s victim link; ln -s victim hop; echo x >single`,
      );
      // What cannot be there, as a file is on the way, keeps nothing else from being removed.
      await box.removePaths([`${at}/single/below`, `${at}/gone`, `${at}/link`, `${at}/single`, `${at}/no/such/path`]);
      await rejection(box.removePaths([`${at}/hop/file`]), "ERR_PATH_LINK");
      assert.deepEqual([...(await tree(box, at)).keys()].sort(), ["hop", "victim", "victim/file"]);
      await mistake(() => box.removePaths(["relative"]));
      await mistake(() => box.removePaths([`${at}/../etc`]));
    },
  },
  {
    id: "files.remove-mount-point",
    level: "MUST",
    title: "empty a mount point that it cannot remove, and name what stays",
    promise: "removePaths: a mount point is emptied. Verified by looking; what is left is ERR_PATH_DENIED.",
    covers: ["B93"],
    async run({ ownBox }) {
      const box = await ownBox();
      await shell(box, "mkdir -p /dev/shm/a/b; echo x >/dev/shm/a/b/c");
      await box.removePaths(["/dev/shm"]);
      assert.equal(await shell(box, "ls -A /dev/shm"), "");
      const error = await rejection(box.removePaths(["/proc/self"]), "ERR_PATH_DENIED", "ERR_PATH_LINK");
      assert.ok(error.path?.startsWith("/proc"));
      await assertAnswers(box);
    },
  },
  {
    id: "files.running-only",
    level: "MUST",
    title: "look at, remove from and kill in a box only while it runs",
    promise: "inspectPath, removePaths, killProcesses: only while the box runs (ERR_BOX_STATE).",
    async run({ ownBox, capabilities }) {
      const box = await ownBox();
      const refusals = async (): Promise<void> => {
        await rejection(box.inspectPath("/etc"), "ERR_BOX_STATE");
        await rejection(box.removePaths(["/var/tmp/kept"]), "ERR_BOX_STATE");
        await rejection(box.killProcesses(), "ERR_BOX_STATE");
      };
      await shell(box, "echo kept >/var/tmp/kept");
      assert.equal((await box.inspectPath("/var/tmp/kept")).at(-1)?.kind, "file");
      await box.removePaths(["/var/tmp/absent"]);
      await box.killProcesses();
      if (freezes.claimed(capabilities)) {
        await box.freeze();
        await refusals();
        await box.thaw();
      }
      await box.stopConfirmed();
      await refusals();
      if (!readsAfterStop.claimed(capabilities)) return;
      assert.notEqual(await box.readBounded("/var/tmp/kept", { maxBytes: 10 }), null, "a refused removal took place");
    },
  },
  {
    id: "files.leaves-no-trace",
    level: "MUST",
    title: "leave nothing of a transfer in the box but what was asked for",
    promise: "upload: the entries become contents of directory; download and readBounded change nothing.",
    covers: ["B40", "B78"],
    async run({ ownBox }) {
      const box = await ownBox();
      await shell(box, "mkdir -p /work/in; echo x >/work/in/file; sleep 1; touch /var/tmp/mark; sleep 1");
      // Directories tell of files that came and went; the root of the box does not: newer engines make a folder there for a moment to read it.
      const changed = `find / -mindepth 1 -xdev \\( -path /proc -o -path /sys -o -path /dev \\) -prune -o -newer /var/tmp/mark -print | sort`;
      await box.download(["/work"], AMPLE)[Symbol.asyncIterator]().next();
      await download(box, ["/work", "/etc"]);
      await box.readBounded("/work/in/file", { maxBytes: 10 });
      await box.inspectPath("/work/in/file");
      assert.equal(await shell(box, changed), "", "reading changed the box");
      await box.upload([{ path: "new", content: "x" }], "/work/in");
      const seen = (await shell(box, changed)).split("\n").filter((path) => path !== "");
      assert.deepEqual(
        seen.filter((path) => !path.startsWith("/work")),
        [],
        "the upload left something else",
      );
      assert.deepEqual([...(await tree(box, "/work")).keys()].sort(), ["in", "in/file", "in/new"]);
    },
  },
  {
    id: "files.memory-file-system",
    level: "MUST",
    title: "reach a memory file system of the box, or say that it cannot",
    promise: "ERR_PATH_MEMORY: on a memory file system that the backend cannot reach.",
    covers: ["B29", "B30"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const to = `/dev/shm/case-${uniqueSeconds()}`;
      const refused = await box.upload([{ path: "file", content: "sent" }], to).then(
        () => false,
        async (error: unknown) => {
          expectedError(error, "ERR_PATH_MEMORY");
          return true;
        },
      );
      if (!refused)
        assert.equal(await shell(box, `cat ${to}/file`), "sent", "the upload succeeded, and programs do not see it");
      await shell(box, `mkdir -p ${to}; echo live >${to}/live`);
      const members = await download(box, [to]).catch(async (error: unknown) => {
        expectedError(error, "ERR_PATH_MEMORY");
        return undefined;
      });
      if (members !== undefined) assert.equal(members.get(`${to.slice(1)}/live`)?.content.toString(), "live\n");
    },
  },
  {
    id: "files.upload-denied",
    level: "SHOULD",
    title: "reject with a typed error where the box cannot be written",
    promise: "ERR_PATH_DENIED: read-only or forbidden.",
    covers: ["B29"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      await rejection(
        box.upload([{ path: "file", content: "x" }], "/proc/nothing", { timeoutMs: PATIENCE_MS }),
        "ERR_PATH_DENIED",
        "ERR_PATH_MEMORY",
        "ERR_PATH_KIND",
        "ERR_PATH_NOT_FOUND",
      );
      await assertAnswers(box);
    },
  },
  {
    id: "files.download-tree",
    level: "MUST",
    title: "give back everything below the paths: contents, modes, empty folders, links as links",
    promise: "download: regular files, directories and links as they are.",
    covers: ["B25"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const from = folder();
      await shell(
        box,
        `mkdir -p ${from}/one/deep ${from}/two ${from}/empty; cd ${from}; printf '\\000\\377' >one/bytes; : >one/nothing; echo run >one/deep/run; chmod 0755 one/deep/run; chmod 0000 one/bytes; chmod 0700 empty; ln -s ../two one/link; ln -s /etc/passwd one/absolute; echo two >two/file`,
      );
      const members = await download(box, [`${from}/one`, `${from}/empty`, `${from}/two/file`]);
      const at = from.slice(1);
      const brief = Object.fromEntries(
        [...members].map(([name, it]) => [
          name.slice(at.length + 1),
          `${it.type} ${it.type === "symlink" ? "" : it.mode.toString(8)} ${it.linkTarget}${it.content.toString("latin1")}`,
        ]),
      );
      assert.deepEqual(brief, {
        one: "directory 755 ",
        "one/bytes": "file 0 \u0000\u00ff",
        "one/nothing": "file 644 ",
        "one/deep": "directory 755 ",
        "one/deep/run": "file 755 run\n",
        "one/link": "symlink  ../two",
        "one/absolute": "symlink  /etc/passwd",
        empty: "directory 700 ",
        "two/file": "file 644 two\n",
      });
    },
  },
  {
    id: "files.round-trip",
    level: "MUST",
    title: "upload again what was downloaded, and have the same tree",
    promise: "download gives a plain tar stream; upload takes one.",
    covers: ["B25", "B31"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const [from, to] = [folder(), folder()];
      await box.upload(
        [
          { path: "run.sh", content: "#!/bin/sh\n", mode: 0o755 },
          { path: `${"n".repeat(90)}/${"m".repeat(90)}`, content: "long name" },
          { path: "empty", directory: true },
          { path: "link", linkTarget: "run.sh" },
          { path: "ünïcode", content: "é" },
          ...Array.from({ length: 300 }, (_unused, index) => ({ path: `many/${index}`, content: "x".repeat(index) })),
        ],
        from,
      );
      await box.upload(box.download([from], AMPLE), to);
      assert.deepEqual(await tree(box, `${to}${from}`), await tree(box, from));
    },
  },
  {
    id: "files.download-plain",
    level: "MUST",
    title: "give a plain tar stream, never a compressed one",
    promise: "Plain tar, never compressed.",
    covers: ["B34"],
    async run({ sharedBox }) {
      const archive = await collect((await sharedBox()).download(["/etc/passwd"], AMPLE));
      assert.equal(archive.toString("latin1", 257, 262), "ustar");
      assert.equal(archive.length % 512, 0);
    },
  },
  {
    id: "files.download-missing",
    level: "MUST",
    title: "reject for a path that is not there",
    promise: "A missing path is ERR_PATH_NOT_FOUND.",
    covers: ["B14", "B43"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      assert.equal((await download(box, ["/etc/passwd"])).size, 1);
      for (const path of ["/no/such/path", "/etc/no-such-file"]) {
        const error = await rejection(download(box, [path]), "ERR_PATH_NOT_FOUND");
        assert.equal(error.path, path);
      }
      await rejection(download(box, ["/etc/passwd", "/no/such/path"]), "ERR_PATH_NOT_FOUND");
    },
  },
  {
    id: "files.download-links",
    level: "MUST",
    title: "follow no link: one at the end travels as one, one before it is refused",
    promise: "A link as the last component travels as one, before that it is ERR_PATH_LINK.",
    covers: ["B44"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const from = folder();
      await shell(
        box,
        `mkdir -p ${from}/secret; cd ${from}; echo secret >secret/file; ln -s secret hop; ln -s secret/file flink; ln -s /proc/self self; ln -s loop loop; ln -s nowhere dangling`,
      );
      assert.equal((await download(box, [`${from}/secret/file`])).size, 1);
      for (const [name, target] of [
        ["hop", "secret"],
        ["flink", "secret/file"],
        ["self", "/proc/self"],
        ["loop", "loop"],
        ["dangling", "nowhere"],
      ] as const) {
        const members = [...(await download(box, [`${from}/${name}`])).values()];
        assert.deepEqual(
          members.map((it) => [it.type, it.linkTarget]),
          [["symlink", target]],
          name,
        );
      }
      for (const path of ["hop/file", "self/environ", "loop/x"])
        await rejection(download(box, [`${from}/${path}`]), "ERR_PATH_LINK");
      for (const path of ["hop/", "hop/."]) {
        const members = await download(box, [`${from}/${path}`]).catch(async (error: unknown) => {
          expectedError(error, "ERR_PATH_LINK");
          return new Map<string, TarMember>();
        });
        assert.ok(
          [...members.values()].every((it) => it.type === "symlink"),
          `${path} was followed`,
        );
      }
    },
  },
  {
    id: "files.download-limit-bytes",
    level: "MUST",
    title: "stop at maxBytes, a hole in a file counts in full",
    promise: "Hard limits: too much is ERR_LIMIT.",
    covers: ["B38", "B49"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const from = folder();
      await shell(
        box,
        `mkdir ${from}; cd ${from}; head -c 600 /dev/zero >a; head -c 400 /dev/zero >b; truncate -s 300M /var/tmp/hole-${from.slice(14)}`,
      );
      assert.equal((await download(box, [from], { maxBytes: 1000, maxEntries: 10 })).size, 3);
      await rejection(download(box, [from], { maxBytes: 999, maxEntries: 10 }), "ERR_LIMIT");
      let bytes = 0;
      const read = async (): Promise<void> => {
        const limits = { maxBytes: MiB, maxEntries: 10 };
        for await (const chunk of box.download([`/var/tmp/hole-${from.slice(14)}`], limits)) bytes += chunk.length;
      };
      await rejection(read(), "ERR_LIMIT");
      assert.ok(bytes < 2 * MiB, `${bytes} bytes of the hole came`);
      await shell(box, `rm /var/tmp/hole-${from.slice(14)}`);
    },
  },
  {
    id: "files.download-limit-entries",
    level: "MUST",
    title: "stop at maxEntries",
    promise: "Hard limits: too much is ERR_LIMIT.",
    covers: ["B49"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const from = folder();
      await perl(box, `mkdir $ARGV[0]; for (1..5000) { open(my $f, ">", "$ARGV[0]/$_") or die }`, [from]);
      assert.equal((await download(box, [from], { maxBytes: MiB, maxEntries: 5001 })).size, 5001);
      await rejection(download(box, [from], { maxBytes: MiB, maxEntries: 5000 }), "ERR_LIMIT");
      await rejection(download(box, [from], { maxBytes: MiB, maxEntries: 10 }), "ERR_LIMIT");
    },
  },
  {
    id: "files.download-names",
    level: "MUST",
    title: "keep hostile names as they are, for the reader to judge",
    promise: "Member names are the paths without the leading /.",
    covers: ["B48"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const from = folder();
      const names = ["new\nline", "..x", "-rf", "back\\slash", "C:", " ", "a".repeat(255), "ünï€"];
      await shell(box, `mkdir ${from}`);
      await box.exec(["sh", "-c", 'for name; do : >"./$name"; done', "sh", ...names], { cwd: from });
      const members = await download(box, [from]);
      assert.deepEqual(
        [...members.keys()].sort(),
        [from.slice(1), ...names.map((name) => `${from.slice(1)}/${name}`)].sort(),
      );
    },
  },
  {
    id: "files.download-special",
    level: "MUST",
    title: "neither wait for a FIFO or a socket nor make a file of it",
    promise: "download: regular files, directories and links as they are.",
    covers: ["B49"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const from = folder();
      await shell(
        box,
        `mkdir ${from}; cd ${from}; echo x >file; mkfifo fifo; mknod null c 1 3 2>/dev/null; perl -e 'use Socket; socket(my $s, AF_UNIX, SOCK_STREAM, 0); bind($s, sockaddr_un("socket")) or die $!'`,
      );
      const members = await download(box, [from]);
      const at = from.slice(1);
      assert.equal(members.get(`${at}/file`)?.content.toString(), "x\n");
      for (const name of ["fifo", "null", "socket"]) {
        const type = members.get(`${at}/${name}`)?.type;
        assert.ok(type === undefined || type === "other", `${name} travels as ${type}`);
      }
    },
  },
  {
    id: "files.download-hard-links",
    level: "MUST",
    title: "give both names of one file",
    promise: "download: regular files as they are.",
    covers: ["B49"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const from = folder();
      await shell(box, `mkdir ${from}; cd ${from}; echo shared >a; ln a b`);
      const members = await download(box, [from]);
      const at = from.slice(1);
      const [a, b] = [members.get(`${at}/a`), members.get(`${at}/b`)];
      const contents = [a, b].filter((it) => it?.type === "file").map((it) => it?.content.toString());
      const links = [a, b].filter((it) => it?.type === "hardlink").map((it) => it?.linkTarget);
      assert.equal(contents.length + links.length, 2, `seen: ${[...members.keys()].join(", ")}`);
      assert.ok(contents.length >= 1 && contents.every((it) => it === "shared\n"));
      assert.ok(links.every((it) => it === `${at}/a` || it === `${at}/b`));
    },
  },
  {
    id: "files.download-abandoned",
    level: "MUST",
    title: "go on when a reader leaves in the middle",
    promise: "Every operation ends; the box goes on.",
    async run({ sharedBox }) {
      const box = await sharedBox();
      const from = folder();
      await shell(box, `mkdir ${from}; truncate -s 200M ${from}/large`);
      for (let round = 0; round < 3; round += 1) {
        let bytes = 0;
        for await (const chunk of box.download([from], { maxBytes: 300 * MiB, maxEntries: 10 })) {
          bytes += chunk.length;
          if (bytes > 100_000) break;
        }
        assert.ok(bytes > 100_000, `only ${bytes} bytes came in round ${round}`);
      }
      await shell(box, `rm ${from}/large`);
      assert.equal((await download(box, [from])).size, 1);
      await assertAnswers(box);
    },
  },
  {
    id: "files.download-memory-flat",
    level: "MUST",
    title: "keep our memory flat for a file of 1 GiB",
    promise: "Memory stays flat.",
    covers: ["B38"],
    alone: true,
    timeoutMs: 900_000,
    async run({ sharedBox }) {
      const box = await sharedBox();
      const from = folder();
      await shell(box, `mkdir ${from}; truncate -s 64M ${from}/warm; truncate -s 1G ${from}/large`);
      const read = async (name: string): Promise<number> => {
        let bytes = 0;
        for await (const chunk of box.download(
          [`${from}/${name}`],
          { maxBytes: 1024 * MiB, maxEntries: 1 },
          { timeoutMs: 800_000 },
        ))
          bytes += chunk.length;
        return bytes;
      };
      await read("warm");
      let bytes = 0;
      const growth = await memoryGrowth(async () => {
        bytes = await read("large");
      });
      assert.ok(bytes > 1024 * MiB, `${bytes} bytes came`);
      assert.ok(growth <= 64 * MiB, `resident memory grew by ${Math.round(growth / MiB)} MiB`);
      await shell(box, `rm -r ${from}`);
    },
  },
  {
    id: "files.download-mistakes",
    level: "MUST",
    title: "refuse relative paths, .. and impossible limits as mistakes",
    promise: "Programming mistakes are bare TypeErrors.",
    covers: ["B36", "B46"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      for (const path of ["etc", "", "/etc/../etc", "/etc\0"]) await mistake(() => download(box, [path]));
      await mistake(() => download(box, ["/etc/passwd"], { maxBytes: Number.NaN, maxEntries: 1 }));
      await mistake(() => download(box, ["/etc/passwd"], { maxBytes: 1, maxEntries: -1 }));
    },
  },
  {
    id: "files.aborted",
    level: "MUST",
    title: "end a transfer on an abort",
    promise: "Every operation takes a signal and ends; ERR_ABORTED.",
    async run({ sharedBox }) {
      const box = await sharedBox();
      const from = folder();
      await shell(box, `mkdir ${from}; truncate -s 500M ${from}/large`);
      const abort = new AbortController();
      const reading = (async () => {
        for await (const chunk of box.download(
          [from],
          { maxBytes: 1024 * MiB, maxEntries: 10 },
          { signal: abort.signal },
        )) {
          if (chunk.length > 0) abort.abort();
        }
      })();
      await rejection(reading, "ERR_ABORTED");
      await rejection(box.upload([{ path: "x", content: "x" }], from, { signal: AbortSignal.abort() }), "ERR_ABORTED");
      assert.equal(await shell(box, `ls ${from}; rm ${from}/large`), "large\n");
      await assertAnswers(box);
    },
  },
  {
    id: "files.own-tools",
    level: "MUST",
    title: "transfer files with nothing that the box's owner could have replaced",
    promise: "It trusts nothing in the image.",
    covers: ["B48", "B78"],
    async run({ ownBox }) {
      const box = await ownBox();
      const to = folder();
      const liar = "#!/bin/false\nthis program lies\n";
      await shell(box, `mkdir -p ${to}; echo true >${to}/file`);
      await box.upload(
        ["tar", "cat", "base64", "ls", "stat", "find", "sh", "dd", "gzip", "head", "mkdir"].map((path) => ({
          path,
          content: liar,
          mode: 0o755,
        })),
        "/usr/bin",
      );
      assert.notEqual(
        (await box.exec(["/usr/bin/cat", `${to}/file`]).catch(() => ({ exitCode: 99 }))).exitCode,
        0,
        "cat was not replaced",
      );
      await box.upload([{ path: "more", content: "sent" }], to);
      const members = await download(box, [to]);
      const contents = [...members].map(([name, it]) => [name.slice(to.length), it.content.toString()]);
      assert.deepEqual(Object.fromEntries(contents), { "": "", file: "true\n", more: "sent" });
      assert.equal(text((await box.readBounded(`${to}/more`, { maxBytes: 10 })) ?? Buffer.alloc(0)), "sent");
    },
  },
  {
    id: "files.collect-race",
    level: "MUST",
    title: "read a frozen box without a race: a folder that is swapped for a link gives nothing away",
    promise: "No process of the box runs in between; download and readBounded work; links are not followed.",
    needs: [freezes],
    covers: ["B35"],
    async run({ ownBox }) {
      const box = await ownBox();
      await shell(box, "mkdir -p /work/out /secret; echo inside >/work/out/value; echo secret >/secret/value");
      const swap = `exit if fork; open(STDOUT, ">", "/dev/null"); open(STDERR, ">", "/dev/null"); open(STDIN, "<", "/dev/null"); chdir "/work";
for (;;) { rename "out", "real"; symlink "/secret", "out"; open(my $f, ">", "/work/round"); print $f $round++; close $f; unlink "out"; rename "real", "out" }`;
      await perl(box, swap);
      // Not by readBounded: a file that is written meanwhile may arrive cut, and is then refused.
      const rounds = (): Promise<string> => shell(box, "cat /work/round 2>/dev/null; true");
      const first = await rounds();
      await until("the swapping program at work", async () => (await rounds()) !== first);
      const seen = new Set<string>();
      for (let round = 0; round < 20; round += 1) {
        await box.freeze();
        for (const path of ["/work/out", "/work/out/value"]) {
          const content = await download(box, [path]).then(
            (members) => [...members.values()].map((it) => it.content.toString() || it.type).join(),
            async (error: unknown) => expectedError(error, "ERR_PATH_LINK", "ERR_PATH_NOT_FOUND").code,
          );
          seen.add(content);
        }
        await box.thaw();
      }
      assert.ok(![...seen].some((it) => it.includes("secret")), `the secret came out: ${[...seen].join(" | ")}`);
      assert.ok(seen.size > 0);
    },
  },
  {
    id: "files.after-stop",
    level: "MUST",
    title: "read a stopped box, what its programs wrote last included",
    promise: "stop halted or sealed: files are read through the backend.",
    needs: [readsAfterStop],
    covers: ["B35"],
    async run({ ownBox }) {
      const box = await ownBox();
      await shell(box, "mkdir /work; echo last >/work/file; ln -s /etc/passwd /work/link");
      await box.stopConfirmed();
      assert.equal(text((await box.readBounded("/work/file", { maxBytes: 100 })) ?? Buffer.alloc(0)), "last\n");
      assert.equal(await box.readBounded("/work/absent", { maxBytes: 100 }), null);
      await rejection(box.readBounded("/work/link", { maxBytes: 100 }), "ERR_PATH_LINK");
      const members = await download(box, ["/work"]);
      assert.deepEqual([...members.values()].map((it) => it.type).sort(), ["directory", "file", "symlink"]);
    },
  },
  {
    id: "files.no-shell",
    level: "MUST",
    title: "work with an image that has no shell and no tools",
    promise: "It trusts nothing in the image.",
    prerequisites: ["images.noShell"],
    covers: ["B78"],
    async run({ newBox, images }) {
      const { image, argv } = given(images.noShell);
      const box = newBox({ image });
      await box.start();
      assert.equal((await box.exec(argv)).exitCode, 0);
      const error = await rejection(box.exec(["sh", "-c", "true"]), "ERR_EXEC_START");
      assert.deepEqual([error.step, error.errno], ["exec", "ENOENT"]);
      await box.upload([{ path: "in/file", content: "sent" }], "/made");
      assert.equal(text((await box.readBounded("/made/in/file", { maxBytes: 10 })) ?? Buffer.alloc(0)), "sent");
      assert.equal((await download(box, ["/made"])).size, 3);
      await box.teardownConfirmed();
    },
  },
  {
    id: "files.while-programs-run",
    level: "MUST",
    title: "transfer files while programs run in the box",
    promise: "Concurrency on one box is allowed.",
    async run({ sharedBox }) {
      const box = await sharedBox();
      const marker = uniqueSeconds();
      const abort = new AbortController();
      const running = rejection(box.exec(["sleep", marker], { signal: abort.signal }), "ERR_ABORTED");
      await untilSleeping(box, 1, marker);
      const folders = Array.from({ length: 8 }, folder);
      await Promise.all(folders.map((to, index) => box.upload([{ path: "file", content: `${index}` }], to)));
      const contents = await Promise.all(folders.map((from) => box.readBounded(`${from}/file`, { maxBytes: 10 })));
      assert.deepEqual(
        contents.map((it) => text(it ?? Buffer.alloc(0))),
        folders.map((_unused, index) => `${index}`),
      );
      abort.abort();
      await running;
    },
  },
];
