import { execFile } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { createReadStream } from "node:fs";
import { open, readFile, rename, stat, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { type BoxImage, boxImage, type Deadline, type ImageConfig, withDeadline } from "@breakwater/driver-kit";
import { RuntimeError, type RuntimeErrorCode } from "@breakwater/runtime-api";
import type { Folders } from "./folders.ts";
import { runAsRoot } from "./namespace.ts";

const UNPACK_TIMEOUT_MS = 30 * 60 * 1000;

/** A tar archive, with its SHA-256 where the image says it. */
interface Layer {
  readonly file: string;
  readonly sha256?: string;
  readonly compression?: string;
}

interface Source {
  /** 64 hexadecimal digits that change with the content. */
  readonly hash: string;
  readonly layers: readonly Layer[];
  readonly config?: ImageConfig;
}

interface Descriptor {
  readonly mediaType?: string;
  readonly digest: string;
  readonly platform?: { readonly os: string; readonly architecture: string };
}

/** What a layer takes away: `.wh.NAME`, and `.wh..wh..opq` for all that was in a folder. */
const TAKE_AWAY = `tar -t "$@" | { grep -E '(^|/)[.]wh[.]' || true; } | while read -r path; do
  folder=$(dirname "./$path"); name=$(basename "$path")
  if [ "$name" = .wh..wh..opq ]; then find "$folder" -mindepth 1 -delete; else rm -rf "$folder/\${name#.wh.}"; fi
done`;
/** What it brings. After it the folders that we mount on have to be folders. */
const BRING = `tar -xp "$@" --numeric-owner --same-owner --exclude='dev/*' --exclude='./dev/*' --exclude='.wh.*' || exit
for name in proc dev .breakwater; do [ -d "$name" ] && [ ! -L "$name" ] || { rm -rf "$name" && mkdir "$name"; } || exit; done`;

/** Images by path: an OCI layout, a folder with a root file system, or a tar archive of one (as `docker export` writes it). */
export class Images {
  readonly folders: Folders;
  /** Hashes of what was unpacked, or is. */
  readonly #unpacked = new Map<string, Promise<string>>();

  constructor(folders: Folders) {
    this.folders = folders;
  }

  /** `reference` is a path, or the id of an image that was prepared. Its files are in `folder` afterwards. */
  async prepare(reference: string, clock: Deadline): Promise<{ readonly image: BoxImage; readonly folder: string }> {
    const hash = /^sha256:([0-9a-f]{64})$/.exec(reference)?.[1] ?? (await this.#unpackOnce(resolve(reference), clock));
    const folder = join(this.folders.images, hash);
    const image = readFile(join(folder, "image.json"), "utf8").then(JSON.parse) as Promise<BoxImage>;
    return { image: await image.catch((cause: unknown) => notFound(reference, cause)), folder: join(folder, "root") };
  }

  /** Shared by everybody who needs the image now, so that nobody's deadline ends it for others. A file that has not changed is not read again. */
  async #unpackOnce(path: string, clock: Deadline): Promise<string> {
    const facts = await stat(path).catch((cause: unknown) => notFound(path, cause));
    const key = [path, facts.ino, facts.size, facts.mtimeMs].join(" ");
    const unpacking = this.#unpacked.get(key) ?? this.#unpack(path, facts.isDirectory());
    this.#unpacked.set(key, unpacking);
    const forget = (): unknown => this.#unpacked.delete(key);
    unpacking.then(facts.isDirectory() ? forget : undefined, forget);
    return clock.race(unpacking);
  }

  async #unpack(path: string, isDirectory: boolean): Promise<string> {
    const about = { driver: "bubblewrap", operation: "prepareImage", what: `unpacking ${path}` };
    return withDeadline(undefined, UNPACK_TIMEOUT_MS, about, async (clock) => {
      const name = `unpack-${randomBytes(8).toString("hex")}`;
      const labels = { role: "image", trial: null, expiresAtMs: Date.now() + UNPACK_TIMEOUT_MS };
      const work = await this.folders.make(name, ["root"], labels);
      try {
        const { hash, layers, config } = await openImage(path, isDirectory, join(work, "packed.tar"), clock);
        const final = join(this.folders.images, hash);
        if (await stat(final).catch(() => null)) return hash;
        for (const layer of layers) await addLayer(layer, join(work, "root"), clock);
        await writeFile(join(work, "image.json"), JSON.stringify(boxImage(`sha256:${hash}`, config)));
        // Another process may be faster.
        await rename(work, final).catch(() => stat(final));
        return hash;
      } catch (cause) {
        clock.throwIfOver();
        throw failure("ERR_IMAGE_UNFIT", `${path} cannot be unpacked: ${(cause as Error).message}`, cause);
      } finally {
        await this.folders.remove(name, clock);
      }
    });
  }
}

async function openImage(path: string, isDirectory: boolean, packed: string, clock: Deadline): Promise<Source> {
  if (!isDirectory) return { hash: await sha256Of(path, clock), layers: [{ file: path }] };
  const index = await readFile(join(path, "index.json"), "utf8").catch(() => null);
  if (index !== null) return openLayout(path, JSON.parse(index) as ImageIndex);
  // A folder becomes a tar archive first: then what is hashed is what is unpacked.
  const owner = process.getuid?.() === 0 ? [] : ["--owner=0", "--group=0"];
  const argv = ["-cf", packed, "--sort=name", "--format=posix", "--numeric-owner", ...owner, "-C", path, "."];
  await promisify(execFile)("tar", argv, { signal: clock.signal });
  return { hash: await sha256Of(packed, clock), layers: [{ file: packed }] };
}

async function addLayer({ file, sha256, compression }: Layer, root: string, clock: Deadline): Promise<void> {
  if (sha256 !== undefined && (await sha256Of(file, clock)) !== sha256)
    throw new Error(`${file} is not what its name says`);
  // A layer may lead its own later parts astray with links: only the folder that is filled can be written to.
  const bwrap = `bwrap --die-with-parent --unshare-net --ro-bind / / --dev /dev --chdir ${root} --bind ${root} ${root}`;
  for (const script of [TAKE_AWAY, BRING]) {
    const command = [...bwrap.split(" "), "sh", "-c", script, "sh", ...(compression ? [compression] : [])];
    await using input = await open(file);
    await runAsRoot(command, clock, input.fd);
  }
}

interface ImageIndex {
  readonly manifests: readonly Descriptor[];
}

/** An OCI layout: the first image of its index that is for this machine. */
async function openLayout(path: string, index: ImageIndex): Promise<Source> {
  const architecture = process.arch === "x64" ? "amd64" : process.arch;
  const blob = (digest: string): string => {
    if (/^sha256:[0-9a-f]{64}$/.test(digest)) return join(path, "blobs/sha256", digest.slice(7));
    throw failure("ERR_IMAGE_UNFIT", `${path}: ${JSON.stringify(digest)} is not a SHA-256 digest`);
  };
  const json = async <T>({ digest }: Descriptor): Promise<T> => JSON.parse(await readFile(blob(digest), "utf8")) as T;
  const manifest = index.manifests.find(
    ({ platform }) => platform === undefined || (platform.os === "linux" && platform.architecture === architecture),
  );
  if (manifest === undefined) throw failure("ERR_IMAGE_UNFIT", `${path} has no image for linux/${architecture}`);
  if (manifest.mediaType?.includes("index") === true) return openLayout(path, await json<ImageIndex>(manifest));
  const { config, layers } = await json<{ config: Descriptor; layers: readonly Descriptor[] }>(manifest);
  return {
    hash: manifest.digest.slice(7),
    config: (await json<{ config?: ImageConfig }>(config)).config ?? {},
    layers: layers.map(({ digest, mediaType = "" }) => ({
      file: blob(digest),
      sha256: digest.slice(7),
      compression: mediaType.endsWith("gzip") ? "-z" : mediaType.endsWith("zstd") ? "--zstd" : "",
    })),
  };
}

async function sha256Of(file: string, { signal }: Deadline): Promise<string> {
  const hash = createHash("sha256");
  for await (const chunk of createReadStream(file, { signal, highWaterMark: 1024 * 1024 }))
    hash.update(chunk as Buffer);
  return hash.digest("hex");
}

function notFound(reference: string, cause: unknown): never {
  const advice = "name an OCI layout, a tar archive of a root file system, or a folder with one";
  throw failure("ERR_IMAGE_NOT_FOUND", `there is no image at ${reference}; ${advice}`, cause);
}

function failure(code: RuntimeErrorCode, message: string, cause?: unknown): RuntimeError {
  return new RuntimeError({ code, driver: "bubblewrap", operation: "prepareImage", message, cause });
}
