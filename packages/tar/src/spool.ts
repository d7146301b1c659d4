import { createHash } from "node:crypto";
import { constants } from "node:fs";
import { mkdir, open, rm, symlink, utimes, type FileHandle } from "node:fs/promises";
import { join } from "node:path";
import { chunksOf } from "./directory.ts";
import { TarError } from "./errors.ts";
import { padding } from "./header.ts";
import { END_OF_ARCHIVE, packHeader, type PackMember } from "./pack.ts";
import { readTar } from "./read.ts";
import { safeMembers, type LeftOutMember, type SafeMember, type SafeMembersOptions } from "./safe-members.ts";

/** A validated tree on its way from one box to the next: a plain tar file on the host. */
export interface Spool {
  readonly file: string;
  /** The path in the box that it was taken from. */
  readonly root: string;
  /** What the root is; `null` if nothing was kept. */
  readonly kind: "file" | "directory" | null;
  /** Of the spool file. */
  readonly sha256: string;
  /** Members that were kept, and their content. */
  readonly entries: number;
  readonly bytes: number;
  readonly leftOut: readonly LeftOutMember[];
}

export interface SpoolOptions extends Omit<SafeMembersOptions, "onLeftOut"> {
  /** Must not exist; is written with mode 0600. Its folder must exist. */
  readonly file: string;
  /**
   * `kept`: permission bits as they are. `readable`: in addition everybody may read (and enter, and run what its owner may run), and
   * only the owner may write: another box's user has to get at what this box's user could. Default is `readable`.
   */
  readonly modes?: "kept" | "readable" | undefined;
}

/**
 * Writes what `safeMembers` keeps of an archive to a file, in one pass. The names in it begin with the last component of the root, so that its
 * restore is an upload into the folder above. Leaves no file when it throws; throws what `safeMembers` throws.
 */
export async function spoolArtifact(stream: AsyncIterable<Uint8Array>, options: SpoolOptions): Promise<Spool> {
  const leftOut: LeftOutMember[] = [];
  const base = options.root.replace(/\/+$/, "").split("/").at(-1) ?? "";
  const handle = await open(options.file, constants.O_RDWR | constants.O_CREAT | constants.O_EXCL, 0o600);
  try {
    const writer = new SpoolWriter(handle);
    let kind: Spool["kind"] = null;
    let entries = 0;
    let bytes = 0;
    const members = safeMembers(stream, { ...options, onLeftOut: (member) => leftOut.push(member) });
    for await (const member of members) {
      entries += 1;
      if ("size" in member) bytes += member.size;
      if (member.path === base) kind = member.type === "directory" ? "directory" : "file";
      await writer.add(options.modes === "kept" ? member : { ...member, mode: readableMode(member) });
    }
    const sha256 = await writer.end();
    return { file: options.file, root: options.root, kind, sha256, entries, bytes, leftOut };
  } catch (error) {
    await rm(options.file, { force: true });
    throw error;
  } finally {
    await handle.close();
  }
}

/** The spool as a stream, for `Runtime.upload` into the folder above its root. Throws if the file is not what was written. */
export async function* readSpool(spool: Spool): AsyncGenerator<Uint8Array, void, undefined> {
  const handle = await open(spool.file, constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0));
  try {
    const hash = createHash("sha256");
    for await (const chunk of chunksOf(handle, 0, (await handle.stat()).size)) {
      hash.update(chunk);
      yield chunk;
    }
    if (hash.digest("hex") !== spool.sha256) throw foreign(spool, "was changed after it was written");
  } finally {
    await handle.close();
  }
}

/**
 * Writes a spool to the host: the root becomes `hostPath`, which must not exist and whose folder must. Directories get 0700, files 0600 (0700 where their owner may run them) and never
 * the owner's bits of a box; links are written as they are. Returns what the host's file system would not take (a name that is too long, or that
 * differs from another in case only).
 */
export async function extractSpool(
  spool: Spool,
  hostPath: string,
): Promise<readonly { readonly path: string; readonly code: string }[]> {
  const refused: { path: string; code: string }[] = [];
  for await (const member of readTar(readSpool(spool))) {
    const path = member.path.replace(/\/$/, "");
    const [, ...below] = path.split("/");
    if (below.some((component) => component === "" || component === "." || component === "..")) {
      throw foreign(spool, `has the name ${JSON.stringify(path)}, which was never written to it`);
    }
    const target = join(hostPath, ...below);
    try {
      if (member.type === "directory") {
        await mkdir(target, { mode: 0o700 });
      } else if (member.type === "link") {
        await symlink(member.linkTarget ?? "", target);
      } else {
        await writeNew(target, member.content, (member.mode & 0o100) === 0 ? 0o600 : 0o700);
        await utimes(target, member.mtime, member.mtime);
      }
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code !== "ENAMETOOLONG" && code !== "EEXIST" && code !== "ENOENT" && code !== "EINVAL") throw error;
      // ENOENT: below a directory that was refused. For the root itself nothing is left to go on with.
      if (below.length === 0) throw error;
      refused.push({ path, code });
    }
  }
  return refused;
}

/** Writes validated members one after the other, and finds what it wrote again. */
class SpoolWriter {
  readonly #handle: FileHandle;
  readonly #hash = createHash("sha256");
  readonly #contents = new Map<string, number>();
  #pending: Uint8Array[] = [];
  #pendingBytes = 0;
  #position = 0;

  constructor(handle: FileHandle) {
    this.#handle = handle;
  }

  async add(member: SafeMember): Promise<void> {
    if (member.type !== "file" && member.type !== "copy") {
      await this.#write(packHeader(member));
      return;
    }
    const content = member.type === "file" ? member.content : await this.#writtenBefore(member.copyOf, member.size);
    await this.#write(packHeader(fileMember(member, content)));
    this.#contents.set(member.path, this.#position);
    for await (const chunk of content) await this.#write(chunk);
    await this.#write(Buffer.alloc(padding(member.size)));
  }

  async end(): Promise<string> {
    await this.#write(END_OF_ARCHIVE);
    await this.#flush();
    return this.#hash.digest("hex");
  }

  async #writtenBefore(path: string, size: number): Promise<AsyncIterable<Uint8Array>> {
    await this.#flush();
    return chunksOf(this.#handle, this.#contents.get(path) ?? 0, size);
  }

  async #write(bytes: Uint8Array): Promise<void> {
    this.#hash.update(bytes);
    this.#position += bytes.length;
    this.#pending.push(bytes);
    this.#pendingBytes += bytes.length;
    if (this.#pendingBytes >= 256 * 1024) await this.#flush();
  }

  /** As they are, without a copy: what is given away at once costs memory until the collector finds it. */
  async #flush(): Promise<void> {
    let rest = this.#pending;
    let at = this.#position - this.#pendingBytes;
    this.#pending = [];
    this.#pendingBytes = 0;
    while (rest.length > 0) {
      let { bytesWritten } = await this.#handle.writev(rest, at);
      at += bytesWritten;
      rest = rest.flatMap((bytes) => {
        const written = Math.min(bytes.length, bytesWritten);
        bytesWritten -= written;
        return written === bytes.length ? [] : [bytes.subarray(written)];
      });
    }
  }
}

function fileMember(member: SafeMember & { readonly size: number }, content: AsyncIterable<Uint8Array>): PackMember {
  const { path, mode, mtime, size } = member;
  return { type: "file", path, mode, mtime, size, content };
}

function readableMode({ type, mode }: SafeMember): number {
  if (type === "link") return mode;
  const everybody = type === "directory" || (mode & 0o100) !== 0 ? 0o555 : 0o444;
  return (mode & 0o755) | everybody;
}

async function writeNew(path: string, content: AsyncIterable<Uint8Array>, mode: number): Promise<void> {
  const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | (constants.O_NOFOLLOW ?? 0);
  const handle = await open(path, flags, mode);
  try {
    for await (const chunk of content) {
      for (let at = 0; at < chunk.length;) at += (await handle.write(chunk, at)).bytesWritten;
    }
  } finally {
    await handle.close();
  }
}

function foreign(spool: Spool, what: string): TarError {
  return new TarError({ code: "ERR_TAR_SOURCE", path: spool.file, message: `${JSON.stringify(spool.file)} ${what}` });
}
