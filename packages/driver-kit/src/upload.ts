import type { ExecOptions, ExecResult, UploadEntry, UploadOptions } from "@breakwater/runtime-api";
import { checkMode, isScript, packTar, readTar, type PackMember } from "@breakwater/tar";
import { archiveError, codeOfErrno, transferError, type TransferContext } from "./transfer-errors.ts";

/** The last member of an upload: its content is the number of members before it. Without it `tar-in` takes the upload for cut. */
const SENTINEL = ".breakwater-end";

export interface UploadArchive {
  /** A plain tar stream, to be read once. */
  readonly stream: AsyncIterable<Uint8Array>;
  /** What has gone into the stream so far, the sentinel left out. */
  sent(): { readonly entries: number; readonly bytes: number };
}

/**
 * What `Runtime.upload` was given as the tar stream that `box-helper tar-in` wants. Throws a `TypeError`, at once for entries and while it is
 * read for a stream, for a name that is not relative, a mode above 0o7777, two entries of one name, or a member that is neither a
 * file, a directory nor a link. `\` in the path of an entry is taken as `/`: people build paths on Windows. An entry without a mode gets 0644,
 * or 0755 for directories, `*.sh` and content that begins with `#!`. A stream's modes and times are kept, its owners are not.
 */
export function uploadArchive(
  files: readonly UploadEntry[] | AsyncIterable<Uint8Array>,
  options?: UploadOptions,
): UploadArchive {
  const { uid = 0, gid = 0 } = options?.owner ?? {};
  for (const id of [uid, gid]) {
    if (!Number.isSafeInteger(id) || id < 0)
      throw new TypeError(`owner: ${String(id)} is not the id of a user or group`);
  }
  const given = isEntries(files) ? membersOfEntries(files) : membersOfStream(files);
  const sent = { entries: 0, bytes: 0 };
  async function* members(): AsyncGenerator<PackMember, void, undefined> {
    for await (const member of given) {
      sent.entries += 1;
      if (member.type === "file") sent.bytes += byteLength(member);
      yield { ...member, uid, gid };
    }
    yield { type: "file", path: SENTINEL, content: String(sent.entries), uid, gid };
  }
  return { stream: packTar(members()), sent: () => ({ ...sent }) };
}

export interface HelperUpload {
  readonly context: TransferContext;
  readonly files: readonly UploadEntry[] | AsyncIterable<Uint8Array>;
  /** Absolute. */
  readonly directory: string;
  readonly options?: UploadOptions | undefined;
  /** Runs the helper in the box as root, with these arguments after its own path. */
  readonly runHelper: (argv: readonly string[], options: ExecOptions) => Promise<ExecResult>;
}

/**
 * Uploads through `box-helper tar-in`, which follows no link and answers only when everything is in place. Throws `TypeError` as
 * `uploadArchive`, `ERR_PATH_LINK`, `ERR_PATH_KIND`, `ERR_PATH_DENIED`, `ERR_DISK_FULL`, `ERR_TRANSFER`, and what `runHelper` throws.
 */
export async function uploadThroughHelper(upload: HelperUpload): Promise<void> {
  const { context, directory, options } = upload;
  const archive = uploadArchive(upload.files, options);
  const owner = options?.owner === undefined ? [] : ["--owner", `${options.owner.uid}:${options.owner.gid}`];
  let result: ExecResult;
  try {
    result = await upload.runHelper(["tar-in", "--directory", directory, ...owner], {
      signal: options?.signal,
      timeoutMs: options?.timeoutMs,
      stdin: archive.stream,
      maxOutputBytes: 64 * 1024,
    });
  } catch (error) {
    throw archiveError(context, error);
  }

  const answer = parseAnswer(result.stdout);
  if (result.timedOut) {
    throw transferError(
      context,
      "ERR_TIMEOUT",
      `the upload to ${directory} did not end in time; a part of it may be there`,
    );
  }
  if (answer.error !== undefined) {
    const { code, path, message } = answer.error;
    throw transferError(context, codeOfErrno(code), `${JSON.stringify(path ?? directory)} in the box: ${message}`, {
      path: path ?? directory,
      errno: code,
    });
  }
  const sent = archive.sent();
  if (result.exitCode !== 0 || answer.entries !== sent.entries || answer.bytes !== sent.bytes) {
    const said = Buffer.from(result.stderr).toString("utf8").slice(0, 300);
    throw transferError(
      context,
      "ERR_TRANSFER",
      `${sent.entries} entries with ${sent.bytes} bytes were sent to ${directory}, and our helper (exit ${result.exitCode}) confirmed ` +
        `${String(answer.entries)} with ${String(answer.bytes)}${said === "" ? "" : `: ${said}`}`,
      { path: directory },
    );
  }
}

interface HelperAnswer {
  readonly entries?: unknown;
  readonly bytes?: unknown;
  readonly error?: { readonly code: string; readonly path?: string | undefined; readonly message: string } | undefined;
}

function parseAnswer(stdout: Uint8Array): HelperAnswer {
  try {
    const answer: unknown = JSON.parse(Buffer.from(stdout).toString("utf8"));
    return typeof answer === "object" && answer !== null ? answer : {};
  } catch {
    return {};
  }
}

function isEntries(files: readonly UploadEntry[] | AsyncIterable<Uint8Array>): files is readonly UploadEntry[] {
  return Array.isArray(files);
}

function membersOfEntries(entries: readonly UploadEntry[]): readonly PackMember[] {
  const seen = new Set<string>();
  return entries.map((entry) => {
    const path = entry.path.replaceAll("\\", "/").replace(/\/+$/, "");
    checkName(path);
    if (seen.has(path)) throw new TypeError(`upload: ${JSON.stringify(path)} is there twice`);
    seen.add(path);
    if ("linkTarget" in entry) {
      if (entry.linkTarget === "" || entry.linkTarget.includes("\0")) {
        throw new TypeError(`upload: ${JSON.stringify(path)} is a link to nothing that can be`);
      }
      return { type: "link", path, linkTarget: entry.linkTarget };
    }
    if (entry.mode !== undefined) checkMode(entry.mode, JSON.stringify(path));
    if ("directory" in entry) return { type: "directory", path, mode: entry.mode };
    const content = typeof entry.content === "string" ? Buffer.from(entry.content) : entry.content;
    const mode = entry.mode ?? (path.endsWith(".sh") || isScript(content) ? 0o755 : 0o644);
    return { type: "file", path, content, mode };
  });
}

async function* membersOfStream(stream: AsyncIterable<Uint8Array>): AsyncGenerator<PackMember, void, undefined> {
  for await (const { path: given, pathBytes, type, mode, mtime, size, linkTargetBytes, content } of readTar(stream)) {
    const path = given.replace(/^\.\//, "").replace(/\/$/, "");
    // `tar -C folder .` begins with the folder itself.
    if (type === "directory" && (path === "." || path === "")) continue;
    checkName(path);
    if (Buffer.compare(Buffer.from(given), pathBytes) !== 0)
      throw new TypeError(`upload: ${JSON.stringify(given)} is not UTF-8`);
    if (type === "file") yield { type, path, mode, mtime, size, content };
    else if (type === "directory") yield { type, path, mode, mtime };
    else if (type === "link") yield { type, path, mtime, linkTarget: linkTargetBytes ?? "" };
    else
      throw new TypeError(
        `upload: ${JSON.stringify(path)} is of the type ${type}; only files, directories and links can be uploaded`,
      );
  }
}

function checkName(path: string): void {
  const canonical = path.split("/").every((component) => component !== "" && component !== "." && component !== "..");
  if (!canonical || path.includes("\0") || path === SENTINEL) {
    throw new TypeError(
      `upload: ${JSON.stringify(path)} is not a relative path without "." and ".." that an entry can have`,
    );
  }
}

function byteLength(member: PackMember & { readonly type: "file" }): number {
  const { content, size } = member;
  return typeof content === "string"
    ? Buffer.byteLength(content)
    : content instanceof Uint8Array
      ? content.length
      : (size ?? 0);
}
