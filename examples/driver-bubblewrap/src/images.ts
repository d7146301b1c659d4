import { spawn } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { createReadStream } from "node:fs";
import { type FileHandle, open, readFile, rename, stat, unlink, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import type { PreparedImage } from "@breakwater/runtime-api";
import { type Deadline, withDeadline } from "@breakwater/driver-kit";
import { DRIVER, failure } from "./errors.ts";
import type { Folders } from "./folders.ts";
import { ended, type Ids, runAsRoot } from "./namespace.ts";

const UNPACK_TIMEOUT_MS = 30 * 60 * 1000;

/** One tar archive of an image. */
interface Layer {
  readonly file: string;
  /** Its SHA-256, where the image says so. */
  readonly sha256: string | null;
  /** How it is compressed, for `tar`. */
  readonly options: readonly string[];
}

interface Source {
  /** 64 hexadecimal digits that change with the content. */
  readonly hash: string;
  readonly layers: readonly Layer[];
  readonly config: ImageConfig;
  readonly spool?: FileHandle;
}

/** The part of an OCI image's configuration that counts. */
interface ImageConfig {
  readonly Env?: readonly string[] | null;
  readonly Entrypoint?: readonly string[] | null;
  readonly WorkingDir?: string;
  readonly User?: string;
}

interface Descriptor {
  readonly mediaType?: string;
  readonly digest: string;
  readonly platform?: { readonly os: string; readonly architecture: string };
}

/** Removes what a layer says is no longer there: `.wh.NAME`, and `.wh..wh..opq` for all that was in a folder. */
const APPLY_WHITEOUTS = `tar -t "$@" | { grep -E '(^|/)[.]wh[.]' || true; } | while read -r path; do
  folder=$(dirname "./$path"); name=$(basename "$path")
  if [ "$name" = .wh..wh..opq ]; then find "$folder" -mindepth 1 -delete; else rm -rf "$folder/\${name#.wh.}"; fi
done`;

/** The folders that we mount on have to be folders, whatever the image has there. */
const MAKE_MOUNT_POINTS =
  'for name in proc dev .breakwater; do [ -d "$name" ] && [ ! -L "$name" ] || { rm -rf "$name" && mkdir "$name"; } || exit 1; done';

/** Images by path: an OCI layout, a folder with a root file system, or a tar archive of one (as `docker export` writes it). */
export class Images {
  readonly #folders: Folders;
  readonly #unpacking = new Map<string, Promise<void>>();
  readonly #hashes = new Map<string, string>();

  constructor(folders: Folders) {
    this.#folders = folders;
  }

  /** `reference` is a path, or the id of an image that was prepared. The image is at `folder` afterwards. */
  async prepare(
    reference: string,
    ids: Ids,
    clock: Deadline,
  ): Promise<{ readonly image: PreparedImage; readonly folder: string }> {
    let hash = /^sha256:([0-9a-f]{64})$/.exec(reference)?.[1];
    if (hash === undefined) {
      const source = await this.#open(resolve(reference), clock);
      hash = source.hash;
      // Shared by everybody who needs this image now, so that nobody's deadline ends it for others.
      const unpacking = this.#unpacking.get(hash) ?? this.#unpack(source, ids);
      this.#unpacking.set(hash, unpacking);
      await clock.race(unpacking.finally(() => this.#unpacking.delete(source.hash)));
    }
    const folder = join(this.#folders.images, hash);
    try {
      const image = JSON.parse(await readFile(join(folder, "image.json"), "utf8")) as Omit<PreparedImage, "reference">;
      return { image: { ...image, reference }, folder: join(folder, "root") };
    } catch (cause) {
      throw notFound(reference, cause);
    }
  }

  async #open(path: string, clock: Deadline): Promise<Source> {
    const facts = await stat(path).catch((cause: unknown) => {
      throw notFound(path, cause);
    });
    if (facts.isDirectory()) {
      const index = await readFile(join(path, "index.json"), "utf8").catch(() => null);
      return index === null ? this.#pack(path, clock) : openLayout(path, JSON.parse(index) as ImageIndex);
    }
    const key = [path, facts.ino, facts.size, facts.mtimeMs].join(" ");
    const hash = this.#hashes.get(key) ?? (await sha256Of(path, clock));
    this.#hashes.set(key, hash);
    return { hash, layers: [{ file: path, sha256: null, options: [] }], config: {} };
  }

  /** A folder becomes a tar archive first: then what is hashed is what is unpacked. */
  async #pack(path: string, clock: Deadline): Promise<Source> {
    const file = join(this.#folders.images, `pack-${randomBytes(8).toString("hex")}.tar`);
    const spool = await open(file, "wx+");
    await unlink(file);
    const owner = process.getuid?.() === 0 ? [] : ["--owner=0", "--group=0"];
    const argv = ["-c", "--sort=name", "--format=posix", "--numeric-owner", ...owner, "-C", path, "."];
    const { exitCode, said } = await ended(spawn("tar", argv, { stdio: ["ignore", spool.fd, "pipe"] }), clock);
    if (exitCode !== 0) throw unfit(path, `tar ended with ${exitCode}: ${said}`);
    const still = `/proc/${process.pid}/fd/${spool.fd}`;
    return {
      hash: await sha256Of(still, clock),
      layers: [{ file: still, sha256: null, options: [] }],
      config: {},
      spool,
    };
  }

  async #unpack(source: Source, ids: Ids): Promise<void> {
    const about = { driver: DRIVER, operation: "prepareImage", what: "unpacking the image" };
    await withDeadline(undefined, UNPACK_TIMEOUT_MS, about, async (clock) => {
      const { hash, layers, config } = source;
      const final = join(this.#folders.images, hash);
      if (
        await stat(final).then(
          () => true,
          () => false,
        )
      )
        return;
      const name = `unpack-${randomBytes(8).toString("hex")}`;
      const labels = { role: "image", trial: null, expiresAtMs: Date.now() + UNPACK_TIMEOUT_MS };
      const work = await this.#folders.make(name, ["root"], ids, labels);
      try {
        const root = join(work, "root");
        // A layer may lead its own later parts astray with links: only the folder that is filled can be written to.
        const inside = [
          "bwrap",
          "--ro-bind",
          "/",
          "/",
          "--dev",
          "/dev",
          "--bind",
          root,
          root,
          "--unshare-net",
          "--chdir",
          root,
        ];
        for (const { file, sha256, options } of layers) {
          if (sha256 !== null && (await sha256Of(file, clock)) !== sha256)
            throw unfit(file, "its content is not what its name says");
          await withFile(file, (fd) =>
            runAsRoot(ids, [...inside, "sh", "-c", APPLY_WHITEOUTS, "sh", ...options], clock, fd),
          );
          const extract = [
            "tar",
            "-xp",
            ...options,
            "--numeric-owner",
            "--same-owner",
            "--exclude=dev/*",
            "--exclude=./dev/*",
            "--exclude=.wh.*",
          ];
          await withFile(file, (fd) => runAsRoot(ids, [...inside, ...extract], clock, fd));
        }
        await runAsRoot(ids, [...inside, "sh", "-c", MAKE_MOUNT_POINTS], clock);
        await writeFile(join(work, "image.json"), JSON.stringify(describe(hash, config)));
        await rename(work, final).catch((error: unknown) => {
          // Another process was faster.
          if (!["ENOTEMPTY", "EEXIST"].includes((error as NodeJS.ErrnoException).code ?? "")) throw error;
        });
      } catch (cause) {
        throw unfit(hash, (cause as Error).message, cause);
      } finally {
        await this.#folders.remove(name, ids, clock);
        await source.spool?.close();
      }
    });
  }
}

interface ImageIndex {
  readonly manifests: readonly Descriptor[];
}

/** An OCI layout: the first image of its index that is for this machine. */
async function openLayout(path: string, index: ImageIndex): Promise<Source> {
  const architecture = process.arch === "x64" ? "amd64" : process.arch;
  const blob = (digest: string): string => {
    const [, hash] = /^sha256:([0-9a-f]{64})$/.exec(digest) ?? [];
    if (hash === undefined) throw unfit(path, `${JSON.stringify(digest)} is not a SHA-256 digest`);
    return join(path, "blobs/sha256", hash);
  };
  const json = async <T>({ digest }: Descriptor): Promise<T> => JSON.parse(await readFile(blob(digest), "utf8")) as T;
  const manifest = index.manifests.find(
    ({ platform }) => platform === undefined || (platform.os === "linux" && platform.architecture === architecture),
  );
  if (manifest === undefined) throw unfit(path, `it has no image for linux/${architecture}`);
  if (manifest.mediaType?.includes("index") === true) return openLayout(path, await json<ImageIndex>(manifest));
  const { config, layers } = await json<{ config: Descriptor; layers: readonly Descriptor[] }>(manifest);
  return {
    hash: manifest.digest.slice(7),
    config: (await json<{ config?: ImageConfig }>(config)).config ?? {},
    layers: layers.map(({ digest, mediaType = "" }) => ({
      file: blob(digest),
      sha256: digest.slice(7),
      options: mediaType.endsWith("gzip") ? ["-z"] : mediaType.endsWith("zstd") ? ["--zstd"] : [],
    })),
  };
}

function describe(hash: string, config: ImageConfig): Omit<PreparedImage, "reference"> {
  const pairs = (config.Env ?? []).map((entry) => [
    entry.slice(0, entry.indexOf("=")),
    entry.slice(entry.indexOf("=") + 1),
  ]);
  return {
    id: `sha256:${hash}`,
    entrypoint: config.Entrypoint ?? [],
    workdir: config.WorkingDir || null,
    user: config.User || null,
    env: Object.fromEntries(pairs) as Record<string, string>,
  };
}

async function sha256Of(file: string, { signal }: Deadline): Promise<string> {
  const hash = createHash("sha256");
  for await (const chunk of createReadStream(file, { signal, highWaterMark: 1024 * 1024 }))
    hash.update(chunk as Buffer);
  return hash.digest("hex");
}

async function withFile(file: string, use: (fd: number) => Promise<void>): Promise<void> {
  const handle = await open(file);
  try {
    await use(handle.fd);
  } finally {
    await handle.close();
  }
}

const preparing = { operation: "prepareImage" };

function notFound(reference: string, cause: unknown): Error {
  const advice = "name an OCI layout, a tar archive of a root file system, or a folder with one";
  return failure(preparing, "ERR_IMAGE_NOT_FOUND", `there is no image at ${reference}; ${advice}`, { cause });
}

function unfit(path: string, why: string, cause?: unknown): Error {
  return failure(preparing, "ERR_IMAGE_UNFIT", `the image ${path} cannot be used: ${why}`, { cause });
}
