import { PassThrough } from "node:stream";
import {
  type DownloadLimits,
  type ExecOptions,
  type ExecResult,
  type KillReport,
  type PathComponent,
  type RuntimeError,
} from "@breakwater/runtime-api";
import type { BoxUsage, OpenArchive } from "./backend-box.ts";
import { codeOfErrno, transferError } from "./transfer-errors.ts";

/** Our helper in a box that runs, and what its calls are part of, for their errors. */
export interface HelperContext {
  readonly driver: string;
  readonly boxId: string;
  readonly operation: string;
  /** Runs it as root, with these arguments after its own path. */
  readonly runHelper: (argv: readonly string[], options?: ExecOptions) => Promise<ExecResult>;
}

const MAX_ANSWER_BYTES = 4 * 1024 * 1024;

/** Every component of a path as it is. */
export async function inspectPath(
  context: HelperContext,
  path: string,
  options?: ExecOptions,
): Promise<readonly PathComponent[]> {
  const [answer] = await askHelper<{ readonly components: readonly HelperComponent[] }>(
    context,
    ["stat", path],
    options,
  );
  return (answer?.components ?? []).map(({ path: at, type, mode, uid, gid, linkTarget }) => ({
    path: at,
    kind: type,
    mode,
    uid,
    gid,
    linkTarget,
  }));
}

interface HelperComponent extends Omit<PathComponent, "kind"> {
  readonly type: PathComponent["kind"];
}

export async function removePaths(
  context: HelperContext,
  paths: readonly string[],
  options?: ExecOptions,
): Promise<void> {
  await askHelper(context, ["remove", ...paths], options);
}

export async function killProcesses(context: HelperContext, options?: ExecOptions): Promise<KillReport> {
  const [report] = await askHelper<KillReport>(context, ["kill-all"], options);
  return { killed: report?.killed ?? 0, remaining: report?.remaining ?? [] };
}

/** The names of the network interfaces that programs of the box see. */
export async function interfaces(context: HelperContext, options?: ExecOptions): Promise<readonly string[]> {
  const entries = await askHelper<{ readonly path: string; readonly type: string }>(
    context,
    ["manifest", "/sys/class/net"],
    options,
  );
  return entries.filter(({ type }) => type === "link").map(({ path }) => path);
}

/** What the box has used until now, by the counters of its control group; `null` where they cannot be seen. */
export async function usage(context: HelperContext, options?: ExecOptions): Promise<BoxUsage> {
  const [answer] = await askHelper<BoxUsage>(context, ["usage"], options);
  return {
    oomKills: answer?.oomKills ?? null,
    memoryPeakBytes: answer?.memoryPeakBytes ?? null,
    cpuMs: answer?.cpuMs ?? null,
  };
}

/** A mount point that programs of the box see. */
export interface Mount {
  readonly path: string;
  /** Its files are memory. */
  readonly isMemory: boolean;
}

const MEMORY_FILE_SYSTEMS: ReadonlySet<string> = new Set(["tmpfs", "ramfs", "devtmpfs", "shm"]);

/** The box's mounts, later ones over earlier ones. What is below /proc and /sys holds no files of anybody, and is left out. */
export async function mounts(context: HelperContext, options?: ExecOptions): Promise<readonly Mount[]> {
  const found = await askHelper<{ readonly path: string; readonly fileSystem: string }>(context, ["mounts"], options);
  return found
    .filter(({ path }) => !/^\/(?:proc|sys)(?:\/|$)/.test(path))
    .map(({ path, fileSystem }) => ({ path, isMemory: MEMORY_FILE_SYSTEMS.has(fileSystem) }));
}

/** The mount points whose files are memory. */
export function memoryMounts(all: readonly Mount[]): readonly string[] {
  const paths = all.filter(({ isMemory }) => isMemory).map(({ path }) => path);
  return [...new Set(paths)].toSorted();
}

/** Whether the files at a path are memory: those of the innermost mount that has it. */
export function isOnMemory(path: string, all: readonly Mount[]): boolean {
  let innermost: Mount = { path: "/", isMemory: false };
  for (const mount of all) {
    const has = mount.path === "/" || path === mount.path || path.startsWith(`${mount.path}/`);
    if (has && mount.path.length >= innermost.path.length) innermost = mount;
  }
  return innermost.isMemory;
}

/** The archive of one path, sent by the helper as fast as it is read. To be read to its end, or given up with `close`. */
export function archiveThroughHelper(
  context: HelperContext,
  path: string,
  limits: DownloadLimits,
  signal: AbortSignal,
): OpenArchive {
  const argv = [
    "tar-out",
    "--max-bytes",
    String(limits.maxBytes),
    "--max-entries",
    String(limits.maxEntries),
    path,
  ] as const;
  const stream = new PassThrough();
  const enough = new AbortController();
  let wake = (): void => undefined;
  for (const event of ["drain", "close"]) stream.on(event, () => wake());
  const room = (): Promise<void> => new Promise((resolve) => (wake = resolve));
  const sending = context
    .runHelper(argv, {
      signal: AbortSignal.any([signal, enough.signal]),
      // The caller's deadline, by its signal, is the only one.
      timeoutMs: Infinity,
      maxOutputBytes: 64 * 1024,
      onOutput: async (from, chunk) => {
        if (from === "stdout" && !stream.destroyed && !stream.write(chunk)) await room();
      },
    })
    .then(
      (result) => {
        const said = lines(result.stderr);
        const failure = failureOf(context, argv, result, said, path) ?? skipped(context, path, said);
        if (failure === null) stream.end();
        else stream.destroy(failure);
      },
      (error: unknown) => {
        stream.destroy(error as Error);
      },
    );
  // A failure is seen by whoever reads; nobody may read any more.
  stream.on("error", () => undefined);
  const close = async (): Promise<void> => {
    stream.destroy();
    enough.abort();
    await sending;
  };
  return { path, name: path.slice(1), stream, close };
}

/**
 * The answer of one of the helper's verbs, one value a line. Throws the error that it reports, by the system's name of it, `ERR_TIMEOUT`, and what `exec`
 * throws.
 */
export async function askHelper<T>(
  context: HelperContext,
  argv: readonly string[],
  options?: ExecOptions,
): Promise<readonly T[]> {
  const result = await context.runHelper(argv, { maxOutputBytes: MAX_ANSWER_BYTES, ...options });
  const answer = lines(result.stdout);
  const failure = failureOf(context, argv, result, answer);
  if (failure !== null) throw failure;
  return answer as readonly T[];
}

interface HelperProblem {
  readonly code: string;
  readonly path?: string | undefined;
  readonly message: string;
}

function failureOf(
  { driver, boxId, operation }: HelperContext,
  argv: readonly string[],
  result: ExecResult,
  answer: readonly unknown[],
  about?: string,
): RuntimeError | null {
  const context = { driver, boxId, operation };
  if (result.timedOut) return transferError(context, "ERR_TIMEOUT", `our helper's ${argv[0]} did not end in time`);
  const problem = answer
    .map((line) => (line as { readonly error?: HelperProblem }).error)
    .find((it) => it !== undefined);
  if (problem !== undefined) {
    const { code: errno, path, message } = problem;
    const code = errno === "ERR_LIMIT" ? "ERR_LIMIT" : codeOfErrno(errno);
    const said = `${path ?? argv.at(-1)} in the box: ${message} (${errno})`;
    return transferError(context, code, said, { errno, path: about ?? path });
  }
  if (result.exitCode === 0 && !(result.truncated && argv[0] !== "tar-out")) return null;
  const said = Buffer.from(result.stderr).toString("utf8").slice(0, 500);
  // Something in the box may have ended it: not the backend's doing, as for an upload that ends without a word.
  const end = `our helper's ${argv[0]} ended with ${result.exitCode}${said === "" ? "" : `: ${said}`}`;
  return transferError(context, "ERR_TRANSFER", end);
}

/** Whether the path itself is what the helper leaves out of archives. */
function skipped(
  { driver, boxId, operation }: HelperContext,
  path: string,
  said: readonly unknown[],
): RuntimeError | null {
  if (!said.some((line) => (line as { readonly skipped?: string }).skipped === path)) return null;
  const message = `${path} is neither a file, a directory nor a link`;
  return transferError({ driver, boxId, operation }, "ERR_PATH_KIND", message, { path });
}

function lines(bytes: Uint8Array): readonly unknown[] {
  const found: unknown[] = [];
  for (const line of Buffer.from(bytes).toString("utf8").split("\n")) {
    try {
      if (line.trim() !== "") found.push(JSON.parse(line));
    } catch {
      // Not the helper's word: root in the box may have ended it. Its exit code says so.
    }
  }
  return found;
}
