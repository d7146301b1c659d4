import { TarError } from "./errors.ts";

/** A tar stream is made of blocks of this size. */
export const BLOCK_BYTES = 512;

/** What one header block says. Names are bytes: only Linux knows what they mean. */
export interface RawHeader {
  readonly path: Buffer;
  readonly linkTarget: Buffer;
  /** The type as a character, `0` for the old NUL. */
  readonly typeflag: string;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly size: number;
  /** Unix time in seconds. */
  readonly mtime: number;
}

const MAGIC = { at: 257, posix: Buffer.from("ustar\0" + "00"), gnu: Buffer.from("ustar  \0") };
const CHECKSUM = { at: 148, end: 156 };

/** Reads a header block; `null` for a block of zeros, the end mark. Throws `ERR_TAR_INVALID`. */
export function decodeHeader(block: Buffer): RawHeader | null {
  const sum = checksum(block);
  if (sum === 8 * 0x20 && block.every((byte) => byte === 0)) return null;
  if (number(block, CHECKSUM.at, 8, "checksum") !== sum) throw invalid("a header's checksum is wrong");

  const magic = block.subarray(MAGIC.at, MAGIC.at + 8);
  const posix = magic.equals(MAGIC.posix);
  if (!posix && !magic.equals(MAGIC.gnu)) throw invalid("a header is of neither the POSIX nor the GNU format");
  const name = text(block, 0, 100);
  const prefix = posix ? text(block, 345, 155) : Buffer.alloc(0);
  const path = prefix.length === 0 ? name : Buffer.concat([prefix, Buffer.from("/"), name]);
  const typeflag = block[156] === 0 ? "0" : String.fromCharCode(block[156] ?? 0);
  const size = number(block, 124, 12, "size");
  if (size < 0) throw invalid("a header's size is negative");
  return {
    path,
    linkTarget: text(block, 157, 100),
    typeflag,
    mode: number(block, 100, 8, "mode") & 0o7777,
    uid: number(block, 108, 8, "uid"),
    gid: number(block, 116, 8, "gid"),
    size,
    mtime: number(block, 136, 12, "mtime"),
  };
}

/** The blocks before a member's content: its header, after a PAX header if its values do not fit. Deterministic. */
export function encodeHeader(header: RawHeader): Buffer {
  const records: Buffer[] = [];
  const path = fit(header.path, "path", records);
  const linkTarget = fit(header.linkTarget, "linkpath", records);
  const whole = (value: number, digits: number, key: string): number => {
    if (Number.isSafeInteger(value) && value >= 0 && value < 8 ** digits) return value;
    records.push(paxRecord(key, Buffer.from(String(value))));
    return 0;
  };
  const fitted: RawHeader = {
    ...header,
    path,
    linkTarget,
    uid: whole(header.uid, 7, "uid"),
    gid: whole(header.gid, 7, "gid"),
    size: whole(header.size, 11, "size"),
    mtime: whole(header.mtime, 11, "mtime"),
  };
  if (records.length === 0) return encodeBlock(fitted);
  const pax = Buffer.concat(records);
  const paxHeader = { ...EMPTY_HEADER, path: Buffer.from("PaxHeaders/0"), typeflag: "x", size: pax.length };
  return Buffer.concat([encodeBlock(paxHeader), pax, Buffer.alloc(padding(pax.length)), encodeBlock(fitted)]);
}

/** How many zeros fill content of this size up to a whole block. */
export function padding(size: number): number {
  return (BLOCK_BYTES - (size % BLOCK_BYTES)) % BLOCK_BYTES;
}

/** The values of a PAX header, as bytes. Throws `ERR_TAR_INVALID` for anything that readers would read differently. */
export function decodePax(body: Buffer): ReadonlyMap<string, Buffer> {
  const records = new Map<string, Buffer>();
  for (let at = 0; at < body.length;) {
    const blank = body.indexOf(" ", at);
    const digits = blank < 0 ? "" : body.toString("latin1", at, blank);
    const end = /^[1-9]\d{0,9}$/.test(digits) ? at + Number(digits) : Number.NaN;
    const equals = body.indexOf("=", blank);
    if (!(end <= body.length) || body[end - 1] !== 0x0a || equals < 0 || equals >= end) {
      throw invalid("a PAX header has a record that is not one");
    }
    const key = body.toString("latin1", blank + 1, equals);
    if (records.has(key)) throw invalid(`a PAX header has ${JSON.stringify(key)} twice`);
    records.set(key, body.subarray(equals + 1, end - 1));
    at = end;
  }
  return records;
}

/** The number of a PAX record: decimal, fractions (of times) are dropped. */
export function paxNumber(key: string, value: Buffer): number {
  const digits = /^(-?\d{1,16})(?:\.\d*)?$/.exec(value.toString("latin1"))?.[1];
  if (digits === undefined) throw invalid(`a PAX header's ${key} is not a number`);
  return Number(digits);
}

export function invalid(message: string): TarError {
  return new TarError({ code: "ERR_TAR_INVALID", message });
}

const EMPTY_HEADER: RawHeader = {
  path: Buffer.alloc(0),
  linkTarget: Buffer.alloc(0),
  typeflag: "0",
  mode: 0o644,
  uid: 0,
  gid: 0,
  size: 0,
  mtime: 0,
};

/** What goes into a field of 100 bytes; what does not, or is not ASCII, goes into a record and is only hinted at in the field. */
function fit(bytes: Buffer, key: string, records: Buffer[]): Buffer {
  if (bytes.length <= 100 && bytes.every((byte) => byte > 0 && byte < 0x80)) return bytes;
  records.push(paxRecord(key, bytes));
  const hint = Buffer.from(bytes.subarray(0, 100).map((byte) => (byte > 0 && byte < 0x80 ? byte : 0x5f)));
  return bytes.at(-1) === 0x2f ? Buffer.concat([hint.subarray(0, 99), Buffer.from("/")]) : hint;
}

function paxRecord(key: string, value: Buffer): Buffer {
  const rest = Buffer.concat([Buffer.from(` ${key}=`), value, Buffer.from("\n")]);
  let length = rest.length + 1;
  while (String(length).length + rest.length !== length) length = String(length).length + rest.length;
  return Buffer.concat([Buffer.from(String(length)), rest]);
}

function encodeBlock(header: RawHeader): Buffer {
  const block = Buffer.alloc(BLOCK_BYTES);
  const octal = (value: number, at: number, digits: number): void => {
    block.write(value.toString(8).padStart(digits, "0"), at, "latin1");
  };
  header.path.copy(block, 0, 0, 100);
  octal(header.mode & 0o7777, 100, 7);
  octal(header.uid, 108, 7);
  octal(header.gid, 116, 7);
  octal(header.size, 124, 11);
  octal(header.mtime, 136, 11);
  block.write(header.typeflag, 156, "latin1");
  header.linkTarget.copy(block, 157, 0, 100);
  MAGIC.posix.copy(block, MAGIC.at);
  octal(0, 329, 7);
  octal(0, 337, 7);
  octal(checksum(block), CHECKSUM.at, 6);
  block.write("\0 ", CHECKSUM.at + 6, "latin1");
  return block;
}

/** The sum of all bytes, the checksum itself counted as blanks. */
function checksum(block: Buffer): number {
  let sum = 8 * 0x20;
  for (let at = 0; at < BLOCK_BYTES; at++) {
    if (at < CHECKSUM.at || at >= CHECKSUM.end) sum += block[at] ?? 0;
  }
  return sum;
}

function text(block: Buffer, at: number, length: number): Buffer {
  const field = block.subarray(at, at + length);
  const end = field.indexOf(0);
  return Buffer.from(end < 0 ? field : field.subarray(0, end));
}

function number(block: Buffer, at: number, length: number, name: string): number {
  const field = block.subarray(at, at + length);
  const first = field[0] ?? 0;
  if ((first & 0x80) !== 0) {
    // Base 256, two's complement; the top bit only says that it is.
    const bits = BigInt(8 * length - 1);
    const value = BigInt.asIntN(Number(bits), BigInt(`0x${field.toString("hex")}`));
    if (value > Number.MAX_SAFE_INTEGER || value < Number.MIN_SAFE_INTEGER)
      throw invalid(`a header's ${name} is out of range`);
    return Number(value);
  }
  const digits = /^ *([0-7]*)[\0 ]*$/.exec(field.toString("latin1"))?.[1];
  if (digits === undefined) throw invalid(`a header's ${name} is not an octal number`);
  return digits === "" ? 0 : Number.parseInt(digits, 8);
}
