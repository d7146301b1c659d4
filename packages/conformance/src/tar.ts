import { Buffer } from "node:buffer";

/*
 * Just enough tar to judge drivers: written and read here on purpose, so that the suite does not trust the code that it tests.
 */

export interface TarMember {
  readonly name: string;
  readonly type: "file" | "directory" | "symlink" | "hardlink" | "other";
  readonly mode: number;
  readonly uid: number;
  readonly size: number;
  readonly linkTarget: string;
  readonly content: Buffer;
}

const BLOCK = 512;
const TYPES: Readonly<Record<string, TarMember["type"]>> = {
  "\0": "file",
  "0": "file",
  "1": "hardlink",
  "2": "symlink",
  "5": "directory",
};

/** One member in ustar form; names of at most 100 bytes. */
export function tarMember(
  member: {
    readonly name: string;
    readonly type?: string;
    readonly mode?: number;
    readonly uid?: number;
    readonly linkTarget?: string;
  },
  content: Uint8Array | string = "",
): Buffer {
  const body = Buffer.from(content);
  const header = Buffer.alloc(BLOCK);
  header.write(member.name, 0, 100);
  header.write(octal(member.mode ?? 0o644, 8), 100);
  header.write(octal(member.uid ?? 0, 8), 108);
  header.write(octal(member.uid ?? 0, 8), 116);
  header.write(octal(body.length, 12), 124);
  header.write(octal(1_700_000_000, 12), 136);
  header.write(" ".repeat(8), 148);
  header.write(member.type ?? "0", 156);
  header.write(member.linkTarget ?? "", 157, 100);
  header.write("ustar\u000000", 257);
  header.write(
    `${octal(
      header.reduce((sum, byte) => sum + byte, 0),
      7,
    )}\u0000 `,
    148,
    8,
    "latin1",
  );
  return Buffer.concat([header, body, Buffer.alloc((BLOCK - (body.length % BLOCK)) % BLOCK)]);
}

/** What ends an archive. */
export const TAR_END: Buffer = Buffer.alloc(2 * BLOCK);

function octal(value: number, width: number): string {
  return value.toString(8).padStart(width - 1, "0");
}

/** Everything that a stream has, in memory: for small archives. */
export async function collect(stream: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** Members of a small plain archive, in order. Throws if it is not one or is cut. */
export async function readTar(stream: AsyncIterable<Uint8Array>): Promise<readonly TarMember[]> {
  const archive = await collect(stream);
  const members: TarMember[] = [];
  let extra: Record<string, string> = {};
  let offset = 0;
  for (;;) {
    const header = archive.subarray(offset, offset + BLOCK);
    if (header.length < BLOCK) throw new Error(`the archive is cut at byte ${offset}`);
    if (header.every((byte) => byte === 0)) return members;
    if (header.toString("latin1", 257, 262) !== "ustar") throw new Error(`there is no tar header at byte ${offset}`);
    const type = header.toString("latin1", 156, 157);
    const size = extra["size"] === undefined ? readNumber(header, 124, 12) : Number(extra["size"]);
    const hasContent = !"123456".includes(type);
    const end = offset + BLOCK + (hasContent ? size : 0);
    if (end > archive.length) throw new Error(`the archive is cut inside the member at byte ${offset}`);
    const content = archive.subarray(offset + BLOCK, end);
    offset = BLOCK * Math.ceil(end / BLOCK);
    if (type === "x") extra = { ...extra, ...paxRecords(content) };
    else if (type === "L") extra = { ...extra, path: readText(content, 0, content.length) };
    else if (type === "K") extra = { ...extra, linkpath: readText(content, 0, content.length) };
    else if (type !== "g") {
      const prefix = header.toString("latin1", 257, 263) === "ustar\0" ? readText(header, 345, 155) : "";
      const name = readText(header, 0, 100);
      members.push({
        name: extra["path"] ?? (prefix === "" ? name : `${prefix}/${name}`),
        type: TYPES[type] ?? "other",
        mode: readNumber(header, 100, 8),
        uid: readNumber(header, 108, 8),
        size,
        linkTarget: extra["linkpath"] ?? readText(header, 157, 100),
        content,
      });
      extra = {};
    }
  }
}

function readText(bytes: Buffer, start: number, length: number): string {
  const field = bytes.subarray(start, start + length);
  const end = field.indexOf(0);
  return field.toString("utf8", 0, end === -1 ? field.length : end);
}

/** Octal digits, or base 256 when the first bit is set. */
function readNumber(bytes: Buffer, start: number, length: number): number {
  if (((bytes[start] ?? 0) & 0x80) === 0) return Number.parseInt(readText(bytes, start, length).trim() || "0", 8);
  return Number(BigInt(`0x${bytes.toString("hex", start + 1, start + length)}`));
}

function paxRecords(content: Buffer): Record<string, string> {
  const records: Record<string, string> = {};
  let offset = 0;
  while (offset < content.length) {
    const blank = content.indexOf(" ", offset);
    const length = Number(content.toString("latin1", offset, blank));
    if (!(length > 0)) throw new Error("a PAX record has no length");
    const record = content.toString("utf8", blank + 1, offset + length - 1);
    const equals = record.indexOf("=");
    records[record.slice(0, equals)] = record.slice(equals + 1);
    offset += length;
  }
  return records;
}
