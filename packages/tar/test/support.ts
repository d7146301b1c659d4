import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { encodeHeader, type RawHeader } from "../src/header.ts";
import { packTar, type PackMember } from "../src/pack.ts";
import { readTar, type MemberType } from "../src/read.ts";

/** A folder that is gone at the end of the block. */
export async function temporaryFolder(): Promise<AsyncDisposable & { readonly path: string }> {
  const path = await mkdtemp(join(tmpdir(), "breakwater-tar-"));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

export async function bytesOf(stream: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
}

export const packed = (...members: readonly PackMember[]): Promise<Buffer> => bytesOf(packTar(members));

/** The bytes in chunks of this size. */
export async function* inChunks(bytes: Uint8Array, chunkBytes: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += chunkBytes) yield bytes.subarray(at, at + chunkBytes);
}

export interface ReadMember {
  readonly path: string;
  readonly type: MemberType;
  readonly mode: number;
  readonly linkTarget: string | null;
  readonly content: string;
}

export async function membersOf(archive: Uint8Array, chunkBytes = 65_536): Promise<readonly ReadMember[]> {
  const members: ReadMember[] = [];
  for await (const member of readTar(inChunks(archive, chunkBytes))) {
    const { path, type, mode, linkTarget } = member;
    members.push({ path, type, mode, linkTarget, content: (await bytesOf(member.content)).toString() });
  }
  return members;
}

const PLAIN: RawHeader = {
  path: Buffer.from("f"),
  linkTarget: Buffer.alloc(0),
  typeflag: "0",
  mode: 0o644,
  uid: 0,
  gid: 0,
  size: 0,
  mtime: 0,
};

/** One member by hand, for what no packer of ours writes. */
export function rawMember(
  header: Omit<Partial<RawHeader>, "path" | "linkTarget"> & { readonly path?: string; readonly linkTarget?: string },
  content: Uint8Array | string = "",
): Buffer {
  const body = Buffer.from(content);
  const blocks = encodeHeader({
    ...PLAIN,
    size: body.length,
    ...header,
    path: Buffer.from(header.path ?? "f"),
    linkTarget: Buffer.from(header.linkTarget ?? ""),
  });
  return Buffer.concat([blocks, body, Buffer.alloc((512 - (body.length % 512)) % 512)]);
}

/** The archive with its end mark. */
export function archiveOf(...members: readonly Uint8Array[]): Buffer {
  return Buffer.concat([...members, Buffer.alloc(1024)]);
}

/** The block with a field changed and its checksum right again. */
export function patched(archive: Buffer, at: number, bytes: string | Uint8Array): Buffer {
  const copy = Buffer.from(archive);
  Buffer.from(bytes).copy(copy, at);
  let sum = 8 * 0x20;
  for (let index = 0; index < 512; index++) if (index < 148 || index >= 156) sum += copy[index] ?? 0;
  copy.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return copy;
}

/** The system's own tar, as a reader and writer that we did not write. Rejects if it is not there or fails. */
export function systemTar(args: readonly string[], input: Uint8Array = new Uint8Array(0)): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const program = spawn("tar", args, { stdio: ["pipe", "pipe", "pipe"], env: { ...process.env, LC_ALL: "C.UTF-8" } });
    const output: Buffer[] = [];
    const errors: Buffer[] = [];
    program.stdout.on("data", (chunk: Buffer) => output.push(chunk));
    program.stderr.on("data", (chunk: Buffer) => errors.push(chunk));
    program.stdin.on("error", () => undefined);
    program.on("error", reject);
    program.on("close", (code) => {
      if (code === 0) resolve(Buffer.concat(output));
      else reject(new Error(`tar ${args.join(" ")} ended with ${String(code)}: ${Buffer.concat(errors).toString()}`));
    });
    program.stdin.end(input);
  });
}

/** One record of a PAX header, its length in front. */
export function paxRecord(text: string): string {
  let length = text.length + 3;
  while (`${length} ${text}\n`.length !== length) length = `${length} ${text}\n`.length;
  return `${length} ${text}\n`;
}
