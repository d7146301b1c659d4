import { ByteSource } from "./byte-source.ts";
import { TarError } from "./errors.ts";
import { BLOCK_BYTES, decodeHeader, decodePax, invalid, padding, paxNumber, type RawHeader } from "./header.ts";

export type MemberType =
  | "file"
  | "directory"
  | "link"
  | "hard-link"
  | "character-device"
  | "block-device"
  | "fifo"
  /** A file with holes in PAX form: its content is not the file's. */
  | "sparse"
  | "unknown";

/** One member as the archive has it: nothing of it is to be believed. */
export interface TarMember {
  /** Not validated: may be absolute, have `..`, be empty. Not exact where the bytes are not UTF-8. */
  readonly path: string;
  readonly pathBytes: Uint8Array;
  readonly type: MemberType;
  /** 0 to 0o7777. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** Unix time, whole seconds. */
  readonly mtime: number;
  /** Bytes of content; 0 for all but files. */
  readonly size: number;
  /** Of a link, or the member that a hard link repeats; otherwise `null`. */
  readonly linkTarget: string | null;
  readonly linkTargetBytes: Uint8Array | null;
  /** To be read before the next member is asked for, or not at all. */
  readonly content: AsyncIterable<Uint8Array>;
}

export interface ReadTarLimits {
  /** Content of all members together. Default is no limit. */
  readonly maxBytes?: number | undefined;
  /** Members, PAX global headers included. Default is no limit. */
  readonly maxEntries?: number | undefined;
}

/** The most that a PAX header or a GNU long name may have. */
const MAX_EXTENSION_BYTES = 1024 * 1024;
/** Writers fill up to a record of 10 KiB; more than this after the end mark is not padding. */
const MAX_TRAILING_BYTES = 1024 * 1024;

const TYPES: Readonly<Record<string, MemberType>> = {
  "0": "file",
  "1": "hard-link",
  "2": "link",
  "3": "character-device",
  "4": "block-device",
  "5": "directory",
  "6": "fifo",
  "7": "file",
};

/**
 * The members of a plain tar stream (POSIX, PAX, GNU long names), one after the other with back-pressure; memory does not depend on
 * sizes. Strict, so that no other reader sees another archive: wrong checksums, extension headers that contradict, content where none can be,
 * and anything after the end mark are `ERR_TAR_INVALID`. Compressed streams too: nothing is ever decompressed. Names are not validated:
 * see `safeMembers`. Also throws `ERR_TAR_TRUNCATED` and `ERR_TAR_LIMIT`.
 */
export async function* readTar(
  stream: AsyncIterable<Uint8Array>,
  limits: ReadTarLimits = {},
): AsyncGenerator<TarMember, void, undefined> {
  const source = new ByteSource(stream);
  const { maxBytes = Number.POSITIVE_INFINITY, maxEntries = Number.POSITIVE_INFINITY } = limits;
  let bytes = 0;
  let entries = 0;
  try {
    for (;;) {
      const next = await nextHeader(source, () => {
        if (++entries > maxEntries) throw limitError("maxEntries", maxEntries, "members");
      });
      if (next === null) break;
      bytes += next.size;
      if (bytes > maxBytes) throw limitError("maxBytes", maxBytes, "bytes");

      const body = new MemberBody(source, next.size);
      yield memberOf(next, body);
      await body.skipRest();
    }
    await expectEnd(source);
  } finally {
    await source.close();
  }
}

export function limitError(limit: string, value: number, unit: string): TarError {
  return new TarError({
    code: "ERR_TAR_LIMIT",
    limit,
    message: `the archive has more than ${value} ${unit} (${limit})`,
  });
}

interface MemberHeader extends RawHeader {
  readonly type: MemberType;
}

/** The header of the next member with its PAX and GNU extensions; `null` at the end mark. */
async function nextHeader(source: ByteSource, count: () => void): Promise<MemberHeader | null> {
  const extensions = new Map<string, Buffer>();
  for (;;) {
    const header = decodeHeader(await headerBlock(source));
    if (header === null) {
      if (extensions.size > 0) throw invalid("the archive ends with an extension of no member");
      return null;
    }
    switch (header.typeflag) {
      case "x":
      case "L":
      case "K":
        if (extensions.has(header.typeflag)) throw invalid("a member has two extensions of the same kind");
        extensions.set(header.typeflag, await extensionBody(source, header));
        break;
      case "g":
        count();
        checkGlobal(decodePax(await extensionBody(source, header)));
        break;
      case "S":
        // The old GNU form has more headers after this one; what follows cannot be found safely.
        throw invalid("a member is sparse in the old GNU form; write it plain or in PAX form");
      default:
        count();
        return applyExtensions(header, extensions);
    }
  }
}

async function headerBlock(source: ByteSource): Promise<Buffer> {
  const block = await source.exactly(BLOCK_BYTES);
  const compressed = COMPRESSED.find(({ magic }) => block.subarray(0, magic.length).equals(magic));
  if (compressed !== undefined && block.subarray(257, 262).toString("latin1") !== "ustar") {
    throw invalid(`the archive is compressed (${compressed.name}); send it plain`);
  }
  return block;
}

const COMPRESSED = [
  { name: "gzip", magic: Buffer.from([0x1f, 0x8b]) },
  { name: "bzip2", magic: Buffer.from("BZh") },
  { name: "xz", magic: Buffer.from([0xfd, 0x37, 0x7a, 0x58, 0x5a]) },
  { name: "zstd", magic: Buffer.from([0x28, 0xb5, 0x2f, 0xfd]) },
];

async function extensionBody(source: ByteSource, header: RawHeader): Promise<Buffer> {
  if (header.size > MAX_EXTENSION_BYTES) {
    throw limitError("extension", MAX_EXTENSION_BYTES, "bytes in one extension header");
  }
  // A copy: it outlives the chunk.
  const body = Buffer.from(await source.exactly(header.size));
  await source.skip(padding(header.size));
  return body;
}

/** A global header may comment on the archive (git does), not change its members. */
function checkGlobal(records: ReadonlyMap<string, Buffer>): void {
  for (const key of ["path", "linkpath", "size"]) {
    if (records.has(key)) throw invalid(`a PAX global header sets ${key}`);
  }
}

function applyExtensions(header: RawHeader, extensions: ReadonlyMap<string, Buffer>): MemberHeader {
  const pax = decodePax(extensions.get("x") ?? Buffer.alloc(0));
  const longPath = untilNul(extensions.get("L"));
  const longTarget = untilNul(extensions.get("K"));
  if ((longPath !== undefined && pax.has("path")) || (longTarget !== undefined && pax.has("linkpath"))) {
    throw invalid("a member has its name by PAX and by GNU");
  }
  const paxValue = (key: string, otherwise: number): number => {
    const value = pax.get(key);
    return value === undefined ? otherwise : paxNumber(key, value);
  };
  const path = pax.get("path") ?? longPath ?? header.path;
  const size = paxValue("size", header.size);
  if (size < 0 || !Number.isSafeInteger(size)) throw invalid("a PAX header's size is out of range");

  const type = memberType(header.typeflag, path, pax);
  const hasContent = type === "file" || type === "sparse" || type === "unknown";
  if (!hasContent && size > 0) throw invalid(`a member of the type ${type} has content`);
  return {
    ...header,
    path,
    size,
    type,
    linkTarget: pax.get("linkpath") ?? longTarget ?? header.linkTarget,
    uid: paxValue("uid", header.uid),
    gid: paxValue("gid", header.gid),
    mtime: paxValue("mtime", header.mtime),
  };
}

function memberType(typeflag: string, path: Buffer, pax: ReadonlyMap<string, Buffer>): MemberType {
  const type = TYPES[typeflag] ?? "unknown";
  if (type !== "file") return type;
  if ([...pax.keys()].some((key) => key.startsWith("GNU.sparse."))) return "sparse";
  // The form before POSIX had no type for directories.
  return path.at(-1) === 0x2f ? "directory" : "file";
}

function untilNul(bytes: Buffer | undefined): Buffer | undefined {
  const end = bytes?.indexOf(0) ?? -1;
  return end < 0 ? bytes : bytes?.subarray(0, end);
}

function memberOf(header: MemberHeader, content: AsyncIterable<Uint8Array>): TarMember {
  const isLink = header.type === "link" || header.type === "hard-link";
  return {
    path: header.path.toString("utf8"),
    pathBytes: header.path,
    type: header.type,
    mode: header.mode,
    uid: header.uid,
    gid: header.gid,
    mtime: header.mtime,
    size: header.size,
    linkTarget: isLink ? header.linkTarget.toString("utf8") : null,
    linkTargetBytes: isLink ? header.linkTarget : null,
    content,
  };
}

class MemberBody implements AsyncIterable<Uint8Array> {
  readonly #source: ByteSource;
  readonly #size: number;
  #left: number;
  #passed = false;

  constructor(source: ByteSource, size: number) {
    this.#source = source;
    this.#size = size;
    this.#left = size;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    if (this.#passed) throw new TypeError("the content of a member has to be read before the next one is asked for");
    while (this.#left > 0) {
      const bytes = await this.#source.some(this.#left);
      if (bytes === null)
        throw new TarError({ code: "ERR_TAR_TRUNCATED", message: "the archive ends in the content of a member" });
      this.#left -= bytes.length;
      yield bytes;
    }
  }

  async skipRest(): Promise<void> {
    this.#passed = true;
    await this.#source.skip(this.#left + padding(this.#size));
    this.#left = 0;
  }
}

/** After the first block of zeros: nothing but zeros, and at least one more block of them. */
async function expectEnd(source: ByteSource): Promise<void> {
  const expectZeros = (bytes: Buffer): void => {
    if (bytes.some((byte) => byte !== 0)) throw invalid("the archive goes on after its end mark");
  };
  expectZeros(await source.exactly(BLOCK_BYTES));
  let trailing = 0;
  for (let bytes = await source.some(BLOCK_BYTES); bytes !== null; bytes = await source.some(64 * 1024)) {
    expectZeros(bytes);
    trailing += bytes.length;
    if (trailing > MAX_TRAILING_BYTES) throw invalid("the archive goes on after its end mark");
  }
}
