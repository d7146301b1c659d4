import { TarError } from "./errors.ts";
import { BLOCK_BYTES, encodeHeader, padding } from "./header.ts";

/** What every member to be written may have. Names given as text are written as UTF-8. */
interface PackBase {
  /** As it is to stand in the archive, without a slash at the end. */
  readonly path: string | Uint8Array;
  /** Default is 0. */
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
  /** Unix time in seconds, whole, 0 or more. Default is 0. */
  readonly mtime?: number | undefined;
}

export type PackMember =
  | (PackBase & {
      readonly type: "file";
      readonly content: string | Uint8Array | AsyncIterable<Uint8Array>;
      /** Needed where `content` is a stream, which then has to have exactly so many bytes. */
      readonly size?: number | undefined;
      /** Default is 0o644. */
      readonly mode?: number | undefined;
    })
  | (PackBase & { readonly type: "directory"; /** Default is 0o755. */ readonly mode?: number | undefined })
  | (PackBase & { readonly type: "link"; readonly linkTarget: string | Uint8Array })
  | (PackBase & {
      readonly type: "hard-link";
      readonly linkTarget: string | Uint8Array;
      readonly mode?: number | undefined;
    })
  | (PackBase & {
      readonly type: "fifo" | "character-device" | "block-device" | "unknown";
      readonly mode?: number | undefined;
    });

/** The end mark. */
export const END_OF_ARCHIVE: Uint8Array = Buffer.alloc(2 * BLOCK_BYTES);

const TYPEFLAGS: Readonly<Record<PackMember["type"], string>> = {
  file: "0",
  "hard-link": "1",
  link: "2",
  "character-device": "3",
  "block-device": "4",
  directory: "5",
  fifo: "6",
  // A file whose content cannot be told, for instance with holes, travels as an empty member that no reader takes for a file.
  unknown: "V",
};

/** Small pieces go out together, up to this size. */
const CHUNK_BYTES = 64 * 1024;

/**
 * A plain tar stream (POSIX, with PAX where a name or a number needs it) of the members, in their order. The same members give the same bytes.
 * Throws a `TypeError` for a mode above 0o7777 and `ERR_TAR_SOURCE` for a stream that is not as long as it says.
 */
export async function* packTar(
  members: AsyncIterable<PackMember> | Iterable<PackMember>,
): AsyncGenerator<Uint8Array, void, undefined> {
  let pending: Uint8Array[] = [];
  let pendingBytes = 0;
  for await (const piece of pieces(members)) {
    pending.push(piece);
    pendingBytes += piece.length;
    if (pendingBytes < CHUNK_BYTES) continue;
    yield pending.length === 1 ? piece : Buffer.concat(pending, pendingBytes);
    pending = [];
    pendingBytes = 0;
  }
  yield Buffer.concat(pending, pendingBytes);
}

async function* pieces(
  members: AsyncIterable<PackMember> | Iterable<PackMember>,
): AsyncGenerator<Uint8Array, void, undefined> {
  for await (const member of members) {
    yield packHeader(member);
    if (member.type === "file") {
      yield* exactContent(member);
      yield Buffer.alloc(padding(contentSize(member)));
    }
  }
  yield END_OF_ARCHIVE;
}

/** The blocks before the member's content. */
export function packHeader(member: PackMember): Buffer {
  const path = bytesOf(member.path);
  const mode = "mode" in member ? member.mode : undefined;
  const name = JSON.stringify(path.toString());
  if (mode !== undefined) checkMode(mode, name);
  // Readers take a file with such a name for a directory.
  if (member.type !== "directory" && path.at(-1) === 0x2f)
    throw new TypeError(`${name}: only a directory's path may end in "/"`);
  return encodeHeader({
    path: member.type === "directory" && path.at(-1) !== 0x2f ? Buffer.concat([path, Buffer.from("/")]) : path,
    linkTarget: "linkTarget" in member ? bytesOf(member.linkTarget) : Buffer.alloc(0),
    typeflag: TYPEFLAGS[member.type],
    mode: mode ?? DEFAULT_MODES[member.type] ?? 0o644,
    uid: member.uid ?? 0,
    gid: member.gid ?? 0,
    size: member.type === "file" ? contentSize(member) : 0,
    mtime: Math.max(0, Math.floor(member.mtime ?? 0)),
  });
}

/** Modes are octal: 666 in decimal has bits that no mode has. Throws a `TypeError`. */
export function checkMode(mode: number, name: string): void {
  if (!Number.isInteger(mode) || mode < 0 || mode > 0o7777) {
    throw new TypeError(`${name}: mode ${mode} is not one (0 to 0o7777; was it meant as octal?)`);
  }
}

const DEFAULT_MODES: Readonly<Partial<Record<PackMember["type"], number>>> = { directory: 0o755, link: 0o777 };

function contentSize(member: PackMember & { readonly type: "file" }): number {
  const { content, size } = member;
  if (typeof content === "string") return Buffer.byteLength(content);
  if (content instanceof Uint8Array) return content.length;
  if (size === undefined || !Number.isSafeInteger(size) || size < 0) {
    throw new TypeError(`${JSON.stringify(bytesOf(member.path).toString())}: a streamed file needs its size`);
  }
  return size;
}

/** The content, which has to be exactly what the header says: a stream that is longer or shorter is an error. */
async function* exactContent(
  member: PackMember & { readonly type: "file" },
): AsyncGenerator<Uint8Array, void, undefined> {
  const { content } = member;
  if (typeof content === "string" || content instanceof Uint8Array) {
    if (content.length > 0) yield typeof content === "string" ? Buffer.from(content) : content;
    return;
  }
  const size = contentSize(member);
  let bytes = 0;
  for await (const chunk of content) {
    bytes += chunk.length;
    if (bytes > size) throw notAsLong(member, size);
    if (chunk.length > 0) yield chunk;
  }
  if (bytes < size) throw notAsLong(member, size);
}

function notAsLong(member: PackMember, size: number): TarError {
  const path = bytesOf(member.path).toString();
  return new TarError({
    code: "ERR_TAR_SOURCE",
    path,
    message: `${JSON.stringify(path)} does not have the ${size} bytes that it had when it was looked at; it must not change while it is packed`,
  });
}

function bytesOf(name: string | Uint8Array): Buffer {
  return typeof name === "string" ? Buffer.from(name) : Buffer.from(name.buffer, name.byteOffset, name.byteLength);
}
