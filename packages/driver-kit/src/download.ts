import type { DownloadLimits } from "@breakwater/runtime-api";
import { packTar, readTar, type PackMember, type TarMember } from "@breakwater/tar";
import { archiveError, transferError, type TransferContext } from "./transfer-errors.ts";

/** One path of a download, as a backend sends it. */
export interface PathArchive {
  /** The path in the box, absolute, without a slash at the end. */
  readonly path: string;
  /** What that path is called in the archive. Default is its last component, as Docker names it. */
  readonly name?: string | undefined;
  readonly stream: AsyncIterable<Uint8Array>;
}

/**
 * The archives of several paths as the one that `Runtime.download` promises: names are the paths without the leading `/`, limits hold for all
 * together, nothing is kept in memory. Members are passed on as they are, whatever they are: they stay hostile. Throws `ERR_LIMIT`, and
 * `ERR_TRANSFER` for an archive that is cut or not what its backend documents.
 */
export function joinArchives(
  archives: AsyncIterable<PathArchive> | Iterable<PathArchive>,
  limits: DownloadLimits,
  context: TransferContext,
): AsyncGenerator<Uint8Array, void, undefined> {
  checkLimit("maxBytes", limits.maxBytes);
  checkLimit("maxEntries", limits.maxEntries);
  return translated(packTar(members(archives, limits, context)), context);
}

/**
 * The content of the one regular file that the archive of a path is, for `Runtime.readBounded`. Throws `ERR_PATH_KIND`, `ERR_PATH_LINK`,
 * `ERR_LIMIT`, `ERR_TRANSFER`.
 */
export async function readSingleFile(
  archive: PathArchive,
  limits: { readonly maxBytes: number },
  context: TransferContext,
): Promise<Uint8Array> {
  const { maxBytes } = limits;
  checkLimit("maxBytes", maxBytes);
  const { path } = archive;
  let content: Buffer | undefined;
  try {
    for await (const member of readTar(archive.stream)) {
      if (content !== undefined) throw kindError(context, path, "is more than one file");
      if (member.type === "link")
        throw transferError(context, "ERR_PATH_LINK", `${JSON.stringify(path)} is a link, and no link is followed`, {
          path,
        });
      if (member.type !== "file") throw kindError(context, path, `is of the type ${member.type}, not a regular file`);
      if (member.size > maxBytes) {
        throw transferError(
          context,
          "ERR_LIMIT",
          `${JSON.stringify(path)} has ${member.size} bytes, ${maxBytes} are allowed (maxBytes)`,
          { path },
        );
      }
      const chunks: Uint8Array[] = [];
      for await (const chunk of member.content) chunks.push(chunk);
      content = Buffer.concat(chunks, member.size);
    }
  } catch (error) {
    throw archiveError(context, error);
  }
  // Backends leave out of an archive what is neither a file, a directory nor a link.
  if (content === undefined) throw kindError(context, path, "is not a regular file");
  return content;
}

async function* members(
  archives: AsyncIterable<PathArchive> | Iterable<PathArchive>,
  limits: DownloadLimits,
  context: TransferContext,
): AsyncGenerator<PackMember, void, undefined> {
  const left = { bytes: limits.maxBytes, entries: limits.maxEntries };
  for await (const archive of archives) {
    const newPrefix = Buffer.from(archive.path.replace(/^\/+/, "").replace(/\/+$/, ""));
    const oldPrefix = Buffer.from(archive.name ?? archive.path.slice(archive.path.lastIndexOf("/") + 1));
    for await (const member of readTar(archive.stream)) {
      left.bytes -= member.size;
      left.entries -= 1;
      if (left.bytes < 0) throw tooMuch(context, archive.path, "bytes", limits.maxBytes, "maxBytes");
      if (left.entries < 0) throw tooMuch(context, archive.path, "entries", limits.maxEntries, "maxEntries");
      const path = renamed(member.pathBytes, oldPrefix, newPrefix);
      if (path === null) {
        const message = `the archive of ${JSON.stringify(archive.path)} has the member ${JSON.stringify(member.path)}`;
        throw transferError(context, "ERR_TRANSFER", message, { path: archive.path });
      }
      yield packed(member, path, (target) => renamed(target, oldPrefix, newPrefix) ?? target);
    }
  }
}

/** The member under another name, its owner and all else as it is. */
function packed(member: TarMember, path: Uint8Array, renameTarget: (target: Uint8Array) => Uint8Array): PackMember {
  const { uid, gid, mode, mtime, size, content } = member;
  const target = member.linkTargetBytes ?? new Uint8Array(0);
  const common = { path, uid, gid, mtime };
  switch (member.type) {
    case "file":
      return { ...common, type: "file", mode, size, content };
    case "directory":
      return { ...common, type: "directory", mode };
    case "link":
      return { ...common, type: "link", linkTarget: target };
    case "hard-link":
      return { ...common, type: "hard-link", mode, linkTarget: renameTarget(target) };
    case "fifo":
    case "character-device":
    case "block-device":
      return { ...common, type: member.type, mode };
    case "sparse":
    case "unknown":
      return { ...common, type: "unknown", mode };
  }
}

/** `out` and what is below it under the new name, byte for byte; `null` for anything else. A slash at a directory's end is dropped. */
function renamed(path: Uint8Array, oldPrefix: Buffer, newPrefix: Buffer): Uint8Array | null {
  const bytes = Buffer.from(path.buffer, path.byteOffset, path.byteLength);
  const name = bytes.at(-1) === SLASH ? bytes.subarray(0, -1) : bytes;
  if (!name.subarray(0, oldPrefix.length).equals(oldPrefix)) return null;
  const rest = name.subarray(oldPrefix.length);
  return rest.length === 0 || rest[0] === SLASH ? Buffer.concat([newPrefix, rest]) : null;
}

const SLASH = 0x2f;

async function* translated(
  stream: AsyncIterable<Uint8Array>,
  context: TransferContext,
): AsyncGenerator<Uint8Array, void, undefined> {
  try {
    yield* stream;
  } catch (error) {
    throw archiveError(context, error);
  }
}

function tooMuch(context: TransferContext, path: string, unit: string, limit: number, option: string): Error {
  return transferError(context, "ERR_LIMIT", `${JSON.stringify(path)} has more than ${limit} ${unit} (${option})`, {
    path,
  });
}

function kindError(context: TransferContext, path: string, what: string): Error {
  return transferError(context, "ERR_PATH_KIND", `${JSON.stringify(path)} ${what}`, { path });
}

function checkLimit(name: string, value: number): void {
  if (!Number.isSafeInteger(value) || value < 0)
    throw new TypeError(`${name}: expected a whole number, got ${String(value)}`);
}
