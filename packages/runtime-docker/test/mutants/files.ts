import type { Runtime, UploadEntry } from "@breakwater/runtime-api";
import {
  changeHeader,
  collect,
  isEntries,
  type Mutant,
  onDownload,
  onEntries,
  onMembers,
  onRead,
  onUpload,
  splitArchive,
} from "./mutant.ts";

const MiB = 1024 * 1024;
const SUCCEEDED = /but it succeeded/;

const contentOf = (entry: UploadEntry | undefined): string | Uint8Array | undefined =>
  entry !== undefined && "content" in entry ? entry.content : undefined;

async function inBox(box: Runtime, script: string): Promise<void> {
  await box.exec(["sh", "-c", script]);
}

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}

export const filesMutants: readonly Mutant[] = [
  {
    id: "files.upload-tree",
    does: "gives every folder the mode 0755",
    says: /0750/,
    box: onEntries((entries) =>
      entries.map((it) => ("directory" in it && it.mode === 0o750 ? { ...it, mode: 0o755 } : it)),
    ),
  },
  {
    id: "files.upload-many",
    does: "loses one of thousands of files",
    says: /2999/,
    box: onEntries((entries) => (entries.length === 3000 ? entries.slice(1) : entries)),
  },
  {
    id: "files.upload-large",
    does: "flips a bit of a large file",
    says: /strictly equal/,
    box: onEntries((entries) =>
      entries.map((it) => {
        const content = contentOf(it);
        if (!(content instanceof Uint8Array) || content.length < 60 * MiB) return it;
        const copy = Uint8Array.from(content);
        copy[50 * MiB] = (copy[50 * MiB] ?? 0) ^ 1;
        return { path: it.path, content: copy };
      }),
    ),
  },
  {
    id: "files.upload-into",
    does: "puts the folder itself into one that exists",
    says: /deep-equal/,
    box: onUpload((upload, files, directory) =>
      upload(files, directory.endsWith("/present/") ? `${directory}present` : directory),
    ),
  },
  {
    id: "files.upload-twice",
    does: "keeps the mode of a file that it replaces",
    says: /0600/,
    box: onEntries((entries) => entries.map((it) => (contentOf(it) === "second" ? { ...it, mode: 0o644 } : it))),
  },
  {
    id: "files.upload-nothing",
    does: "does nothing when there is nothing to upload",
    says: /No such file/,
    box: onUpload(async (upload, files) => (isEntries(files) && files.length === 0 ? undefined : upload())),
  },
  {
    id: "files.upload-owner",
    does: "gives everything to root, whoever is asked for",
    says: /1234:4321/,
    box: onUpload((upload, files, directory, options) =>
      upload(files, directory, options?.owner?.uid === 1234 ? {} : options),
    ),
  },
  {
    id: "files.upload-readable-by-user",
    does: "does not give to the box's user what is that user's",
    says: /Permission denied/,
    box: onUpload((upload, files, directory, options) =>
      upload(files, directory, options?.owner?.uid === 1 ? {} : options),
    ),
  },
  {
    id: "files.upload-names",
    does: "drops a dot at the end of a name",
    says: /trailing/,
    box: onEntries((entries) => entries.map((it) => ({ ...it, path: it.path.replace(/^trailing\.$/, "trailing") }))),
  },
  {
    id: "files.upload-link-below",
    does: "writes through a link that is in the way",
    says: /untouched/,
    box: onUpload(async (upload, files, directory, _options, box) => {
      if (directory.endsWith("/in") && isEntries(files) && files.some((it) => it.path === "dangling"))
        await inBox(box, `echo new >${directory}/file`);
      await upload();
    }),
  },
  {
    id: "files.upload-link-on-the-way",
    does: "follows a link to the folder",
    says: SUCCEEDED,
    box: onUpload((upload, files, directory) => upload(files, directory.replace(/\/link$/, "/victim"))),
  },
  {
    id: "files.upload-file-on-the-way",
    does: "replaces a file by the folder",
    says: SUCCEEDED,
    box: onUpload(async (upload, _files, directory, _options, box) => {
      if (directory.endsWith("/file")) await box.removePaths([directory]);
      await upload();
    }),
  },
  {
    id: "files.upload-link-in-the-stream",
    does: "writes through a link that the same stream brought",
    says: /the engine wrote through the link/,
    box: onUpload(async (upload, files, _directory, _options, box) => {
      if (isEntries(files)) return upload();
      const stream = await collect(files);
      const target = /\/var\/tmp\/case-[\d.]+\/victim/.exec(stream.toString("latin1"))?.[0];
      if (target !== undefined) await inBox(box, `echo x >${target}/through`);
      await upload(once(stream));
    }),
  },
  {
    id: "files.upload-stays-inside",
    does: "joins the folder and the names of a stream",
    says: /outside the folder/,
    box: onUpload(async (upload, files, directory) => {
      if (isEntries(files)) return upload();
      const stream = await collect(files);
      if (!stream.toString("latin1", 0, 100).startsWith("../escaped")) return upload(once(stream));
      await upload([{ path: "escaped", content: "x" }], `${directory}/`.replace(/\/[^/]+\/+$/, ""));
    }),
  },
  {
    id: "files.upload-cut",
    does: "takes a stream that is cut for one that ended",
    says: /accepted/,
    box: onUpload(async (upload, files) => {
      if (isEntries(files)) return upload();
      await upload().catch(() => undefined);
    }),
  },
  {
    id: "files.upload-mistakes",
    does: "masks modes that are none",
    says: /expected a TypeError, but it succeeded/,
    box: onEntries((entries) =>
      entries.map((it) => ("mode" in it && it.mode !== undefined ? { ...it, mode: it.mode & 0o7777 } : it)),
    ),
  },
  {
    id: "files.upload-existing-folder",
    does: "makes a folder that exists anew",
    says: /kept/,
    box: onUpload(async (upload, files, directory, _options, box) => {
      const [first] = isEntries(files) ? files : [];
      if (first !== undefined && "directory" in first && first.path === "there")
        await box.removePaths([`${directory}/there`]);
      await upload();
    }),
  },
  {
    id: "files.inspect-path",
    does: "follows links on the way",
    says: /hop/,
    box: (box) => ({ inspectPath: (path, options) => box.inspectPath(path.replace("/hop/", "/real/"), options) }),
  },
  {
    id: "files.remove-paths",
    does: "removes what a link points to",
    says: /victim/,
    box: (box) => ({
      removePaths: async (paths, options) => {
        for (const path of paths.filter((it) => it.endsWith("/link")))
          await inBox(box, `rm -rf "$(readlink -f ${path})"`);
        await box.removePaths(paths, options);
      },
    }),
  },
  {
    id: "files.remove-mount-point",
    does: "leaves mount points as they are",
    says: /strictly equal/,
    box: (box) => ({
      removePaths: async (paths, options) =>
        box.removePaths(
          paths.filter((it) => it !== "/dev/shm"),
          options,
        ),
    }),
  },
  {
    id: "files.running-only",
    does: "finds nothing at a path of a stopped box",
    says: SUCCEEDED,
    box: (box) => ({
      inspectPath: async (path, options) => (box.state === "stopped" ? [] : box.inspectPath(path, options)),
    }),
  },
  {
    id: "files.leaves-no-trace",
    does: "leaves a file of its own behind",
    says: /the upload left something else/,
    box: onUpload(async (upload, _files, directory, _options, box) => {
      await upload();
      if (directory === "/work/in") await inBox(box, "echo x >/var/tmp/.upload");
    }),
  },
  {
    id: "files.memory-file-system",
    does: "writes under a memory file system, where no program sees it",
    says: /No such file/,
    box: onUpload(async (upload, _files, directory) => (directory.startsWith("/dev/shm/") ? undefined : upload())),
  },
  {
    id: "files.download-tree",
    does: "makes files readable",
    says: /file 0 /,
    box: onMembers((members) =>
      members.map((it) => (it.name.endsWith("/one/bytes") ? changeHeader(it, { mode: 0o644 }) : it)),
    ),
  },
  {
    id: "files.round-trip",
    does: "forgets one of many files",
    says: /many\/299/,
    box: onMembers((members) => members.filter((it) => !it.name.endsWith("/many/299"))),
  },
  {
    id: "files.download-plain",
    does: "compresses",
    says: /ustar/,
    box: onDownload(async function* (download, _paths, _limits, options) {
      if (options !== undefined) return yield* download();
      const { gzipSync } = await import("node:zlib");
      yield gzipSync(await collect(download()));
    }),
  },
  {
    id: "files.download-missing",
    does: "gives an empty archive for a path that is missing",
    says: SUCCEEDED,
    box: onDownload(async function* (download, paths) {
      if (paths.length === 1 && paths[0] === "/no/such/path") yield new Uint8Array(1024);
      else yield* download();
    }),
  },
  {
    id: "files.download-links",
    does: "follows a link on the way",
    says: SUCCEEDED,
    box: onDownload((download, paths) => download(paths.map((it) => it.replace("/hop/file", "/secret/file")))),
  },
  {
    id: "files.download-limit-bytes",
    does: "allows one byte more",
    says: SUCCEEDED,
    box: onDownload((download, paths, limits) =>
      download(paths, limits.maxBytes === 999 ? { ...limits, maxBytes: 1000 } : limits),
    ),
  },
  {
    id: "files.download-limit-entries",
    does: "allows one entry more",
    says: SUCCEEDED,
    box: onDownload((download, paths, limits) =>
      download(paths, limits.maxEntries === 5000 ? { ...limits, maxEntries: 5001 } : limits),
    ),
  },
  {
    id: "files.download-names",
    does: "leaves out names that are odd",
    says: /deep-equal/,
    box: onMembers((members) => members.filter((it) => !it.name.includes("\n"))),
  },
  {
    id: "files.download-special",
    does: "makes an empty file of a FIFO",
    says: /fifo travels as file/,
    box: onDownload(async function* (download, paths, _limits, _options, box) {
      const archive = await collect(download());
      const fifo = `${paths[0] ?? ""}/fifo`;
      if ((await box.exec(["test", "-p", fifo])).exitCode !== 0) return yield archive;
      const members = splitArchive(archive).filter(({ name }) => name !== fifo.slice(1));
      const [folder] = members;
      if (folder === undefined) throw new Error("an archive without its folder");
      const file = changeHeader(folder, { name: fifo.slice(1), type: "0", size: 0 });
      yield Buffer.concat([...members, file].map((it) => it.bytes));
      yield new Uint8Array(1024);
    }),
  },
  {
    id: "files.download-hard-links",
    does: "leaves out the second name of a file",
    says: /seen: /,
    box: onMembers((members) =>
      members.length === 3 && members.some((it) => it.name.endsWith("/a"))
        ? members.filter((it) => !it.name.endsWith("/b"))
        : members,
    ),
  },
  {
    id: "files.download-abandoned",
    does: "gives nothing more to a reader that has once left",
    says: /only 0 bytes came/,
    box: (box) => {
      let abandoned = false;
      return {
        download: (paths, limits, options) =>
          (async function* () {
            if (abandoned && limits.maxBytes === 300 * MiB) return;
            let complete = false;
            try {
              yield* box.download(paths, limits, options);
              complete = true;
            } finally {
              abandoned ||= !complete;
            }
          })(),
      };
    },
  },
  {
    id: "files.download-memory-flat",
    does: "keeps 300 MiB of what it passes on",
    says: /resident memory grew/,
    box: onDownload(async function* (download, paths) {
      const kept: Buffer[] = [];
      for await (const chunk of download()) {
        if (paths.some((it) => it.endsWith("/large")) && kept.length < 10_000) kept.push(Buffer.alloc(32 * 1024, 1));
        yield chunk;
      }
      kept.length = 0;
    }),
  },
  {
    id: "files.download-mistakes",
    does: "takes a limit that is no number for none",
    says: /expected a TypeError, but it succeeded/,
    box: onDownload((download, paths, limits) =>
      download(paths, Number.isNaN(limits.maxBytes) ? { ...limits, maxBytes: 64 * MiB } : limits),
    ),
  },
  {
    id: "files.aborted",
    does: "does not listen to the signal once a download has begun",
    says: SUCCEEDED,
    box: onDownload((download, paths, limits, options) => download(paths, limits, { ...options, signal: undefined })),
  },
  {
    id: "files.own-tools",
    does: "reads files with the box's cat",
    says: /sent/,
    box: onRead(async (read, path, _limits, box) => {
      if (!path.endsWith("/more")) return read();
      const result = await box.exec(["cat", path]).catch(() => undefined);
      return result?.stdout ?? new Uint8Array();
    }),
  },
  {
    id: "files.collect-race",
    does: "follows links in a frozen box",
    says: /the secret came out/,
    box: onDownload((download, paths, limits, options, box) =>
      download(
        box.state === "frozen" ? paths.map((it) => it.replace("/work/out/value", "/secret/value")) : paths,
        limits,
        options,
      ),
    ),
  },
  {
    id: "files.after-stop",
    does: "finds no file in a stopped box",
    says: /last/,
    box: onRead(async (read, path, _limits, box) => (box.state === "stopped" && path === "/work/file" ? null : read())),
  },
  {
    id: "files.no-shell",
    does: "uploads nothing where there is no shell",
    says: /sent/,
    box: onUpload(async (upload, _files, _directory, _options, box) =>
      box.spec.image.includes("no-shell") ? undefined : upload(),
    ),
  },
  {
    id: "files.while-programs-run",
    does: "mixes up parallel uploads",
    says: /deep-equal/,
    box: onEntries((entries) => entries.map((it) => (contentOf(it) === "7" ? { path: it.path, content: "0" } : it))),
  },
];
