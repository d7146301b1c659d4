import { open } from "node:fs/promises";
import { join } from "node:path";
import type { Readable } from "node:stream";
import type { Box, Output, Program } from "./box.ts";

/** Exit codes of the scripts below. */
const MISSING = 44;
const NOT_A_FILE = 45;

export type FileError = "missing" | "not-a-file" | "refused";

/** Writes a file as root. Parents are not made. Gives its size, or what the box said. */
export async function writeFile(
  box: Box,
  path: string,
  content: Readable,
): Promise<{ readonly bytes: number } | { readonly refused: string }> {
  const program = await box.run(["/bin/sh", "-c", 'cat > "$1"', "sh", path], { stdin: true, user: "0:0", cwd: "/" });
  let bytes = 0;
  for await (const chunk of content as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    await program.write(chunk);
  }
  program.endInput();
  const said = await collected(program);
  return (await program.exitCode()) === 0 ? { bytes } : { refused: said.stderr.toString("utf8") };
}

/** The bytes of a file, as they come. */
export async function openFile(
  box: Box,
  path: string,
): Promise<{ readonly content: AsyncIterable<Buffer> } | { readonly error: FileError }> {
  const script = `[ -e "$1" ] || exit ${MISSING}; [ -f "$1" ] || exit ${NOT_A_FILE}; exec cat -- "$1"`;
  const program = await box.run(["/bin/sh", "-c", script, "sh", path], { user: "0:0", cwd: "/" });
  const output = program.output[Symbol.asyncIterator]();
  let first = await output.next();
  while (first.done !== true && first.value.stream === "stderr") first = await output.next();
  if (first.done === true) {
    const exitCode = await program.exitCode();
    if (exitCode !== 0) return { error: fileError(exitCode) };
  }
  async function* content(): AsyncGenerator<Buffer> {
    for (let next: IteratorResult<Output> = first; next.done !== true; next = await output.next()) {
      if (next.value.stream === "stdout") yield next.value.chunk;
    }
  }
  return { content: content() };
}

export interface FileWindow {
  readonly content: Buffer;
  readonly totalSize: number;
  readonly offset: number;
}

/** A part of a file. A negative offset counts from its end. `too-large`: the part has more than `maxBytes`. */
export async function readWindow(
  box: Box,
  path: string,
  window: { readonly offset: number; readonly length: number | null; readonly maxBytes: number },
): Promise<FileWindow | { readonly error: FileError | "too-large" }> {
  if (box.hostRoot !== undefined) return await readFromHost(join(box.hostRoot, path), window);
  const script = `[ -e "$1" ] || exit ${MISSING}; [ -f "$1" ] || exit ${NOT_A_FILE}
size=$(wc -c < "$1") || exit 1; at=$2; [ "$at" -ge 0 ] || at=$((size + at)); [ "$at" -ge 0 ] || at=0
printf '%d %d\\n' "$size" "$at"; tail -c +$((at + 1)) -- "$1" | head -c "$3"`;
  const limit = Math.min(window.length ?? Infinity, window.maxBytes + 1);
  const args = [path, String(window.offset), String(limit)];
  const program = await box.run(["/bin/sh", "-c", script, "sh", ...args], { user: "0:0", cwd: "/" });
  const { stdout } = await collected(program);
  const exitCode = await program.exitCode();
  if (exitCode !== 0) return { error: fileError(exitCode) };
  const end = stdout.indexOf("\n");
  const [totalSize = 0, offset = 0] = stdout.subarray(0, end).toString("latin1").split(" ").map(Number);
  const content = stdout.subarray(end + 1);
  return content.length > window.maxBytes ? { error: "too-large" } : { content, totalSize, offset };
}

async function readFromHost(
  path: string,
  window: { readonly offset: number; readonly length: number | null; readonly maxBytes: number },
): Promise<FileWindow | { readonly error: FileError | "too-large" }> {
  const file = await open(path, "r").catch(() => null);
  if (file === null) return { error: "missing" };
  try {
    const info = await file.stat();
    if (!info.isFile()) return { error: "not-a-file" };
    const offset = Math.max(0, window.offset < 0 ? info.size + window.offset : window.offset);
    const length = Math.max(0, Math.min(window.length ?? Infinity, window.maxBytes + 1, info.size - offset));
    const { buffer, bytesRead } = await file.read({ buffer: Buffer.alloc(length), position: offset });
    if (bytesRead > window.maxBytes) return { error: "too-large" };
    return { content: buffer.subarray(0, bytesRead), totalSize: info.size, offset };
  } finally {
    await file.close();
  }
}

/** The exit code that a background job has written, or `null`. */
export async function readJobExit(box: Box, jobId: string): Promise<number | null> {
  const found = await readWindow(box, `/tmp/job_${jobId}.exit`, { offset: 0, length: 100, maxBytes: 100 });
  if ("error" in found) return null;
  const text = found.content.toString("latin1").trim();
  return /^-?\d+$/.test(text) ? Number(text) : null;
}

/** All that a program writes. */
export async function collected(program: Program): Promise<{ readonly stdout: Buffer; readonly stderr: Buffer }> {
  const kept: Record<Output["stream"], Buffer[]> = { stdout: [], stderr: [] };
  for await (const { stream, chunk } of program.output) kept[stream].push(chunk);
  return { stdout: Buffer.concat(kept.stdout), stderr: Buffer.concat(kept.stderr) };
}

function fileError(exitCode: number): FileError {
  return exitCode === MISSING ? "missing" : exitCode === NOT_A_FILE ? "not-a-file" : "refused";
}
