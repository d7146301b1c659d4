import { isIPv6 } from "node:net";

export interface NameRecord {
  readonly v4?: string;
  readonly v6?: string;
}

/** By lower-case name without a final dot, and the type of the question. A map will do. */
export interface NameTable {
  get(name: string, type: number): NameRecord | undefined;
}

/** Every name below `below` has the first record until it has been asked for by IPv4, and the second one from then on. */
export interface Rebinding {
  readonly below: string;
  readonly first: NameRecord;
  readonly later: NameRecord;
}

const typeA = 1;
const maxRebound = 10_000;

export function rebindingTable(records: NameTable, { below, first, later }: Rebinding): NameTable {
  const asked = new Set<string>();
  return {
    get: (name, type) => {
      if (!name.endsWith(`.${below}`)) return records.get(name, type);
      if (asked.has(name)) return later;
      if (type === typeA && asked.size < maxRebound) asked.add(name);
      return first;
    },
  };
}

const typeAaaa = 28;

/**
 * Answers one DNS query (RFC 1035) from a table: A and AAAA, an empty answer for other types of a known name, else NXDOMAIN.
 * `undefined` for what is no query with exactly one question.
 */
export function answerQuery(
  query: Buffer,
  records: NameTable,
): { readonly name: string; readonly message: Buffer } | undefined {
  if (query.length < 17 || (query.readUInt16BE(2) & 0x8000) !== 0 || query.readUInt16BE(4) !== 1) return undefined;
  const labels: string[] = [];
  let offset = 12;
  for (let length = query[offset] ?? 0; length !== 0; length = query[offset] ?? 0) {
    if (length > 63 || offset + 1 + length >= query.length) return undefined;
    labels.push(query.toString("latin1", offset + 1, offset + 1 + length));
    offset += 1 + length;
  }
  const questionEnd = offset + 5;
  if (questionEnd > query.length) return undefined;
  const name = labels.join(".").toLowerCase();
  const type = query.readUInt16BE(offset + 1);
  const record = records.get(name, type);
  const data =
    type === typeA && record?.v4
      ? addressBytes(record.v4)
      : type === typeAaaa && record?.v6
        ? addressBytes(record.v6)
        : undefined;

  const header = Buffer.alloc(12);
  query.copy(header, 0, 0, 2);
  // An authoritative response that also offers recursion; the question's wish for it is repeated.
  const noSuchName = 3;
  header.writeUInt16BE(0x8480 | (query.readUInt16BE(2) & 0x0100) | (record === undefined ? noSuchName : 0), 2);
  header.writeUInt16BE(1, 4);
  header.writeUInt16BE(data === undefined ? 0 : 1, 6);
  return {
    name,
    message: Buffer.concat([
      header,
      query.subarray(12, questionEnd),
      ...(data === undefined ? [] : [answer(type, data)]),
    ]),
  };
}

function answer(type: number, data: Buffer): Buffer {
  const head = Buffer.alloc(12);
  head.writeUInt16BE(0xc00c, 0); // the name stands at offset 12
  head.writeUInt16BE(type, 2);
  head.writeUInt16BE(1, 4); // IN
  head.writeUInt32BE(1, 6); // seconds to live
  head.writeUInt16BE(data.length, 10);
  return Buffer.concat([head, data]);
}

/** 4 or 16 bytes. */
export function addressBytes(address: string): Buffer {
  if (!isIPv6(address)) return Buffer.from(address.split(".").map(Number));
  const dotted = /^(.*:)(\d+)\.(\d+)\.(\d+)\.(\d+)$/.exec(address);
  const text =
    dotted === null
      ? address
      : `${dotted[1]}${(Number(dotted[2]) * 256 + Number(dotted[3])).toString(16)}:${(Number(dotted[4]) * 256 + Number(dotted[5])).toString(16)}`;
  const [head = "", tail] = text.split("::");
  const groups = (part: string): number[] =>
    part === "" ? [] : part.split(":").map((group) => Number.parseInt(group, 16));
  const before = groups(head);
  const after = groups(tail ?? "");
  const all = [...before, ...Array.from<number>({ length: 8 - before.length - after.length }).fill(0), ...after];
  const bytes = Buffer.alloc(16);
  all.forEach((group, index) => bytes.writeUInt16BE(group, index * 2));
  return bytes;
}
