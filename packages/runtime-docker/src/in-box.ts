import { PassThrough } from "node:stream";
import {
  type DownloadLimits,
  type ExecOptions,
  type ExecResult,
  type KillReport,
  type PathComponent,
  RuntimeError,
} from "@breakwater/runtime-api";
import { codeOfErrno, type PathArchive } from "@breakwater/driver-kit";
import { DRIVER } from "./errors.ts";
import type { Usage } from "./report.ts";

/** Runs our helper in a box as root, with these arguments after its own path. */
export type RunHelper = (argv: readonly string[], options?: ExecOptions) => Promise<ExecResult>;

/** What the calls below are part of, for their errors. */
export interface HelperContext {
  readonly boxId: string;
  readonly operation: string;
  readonly runHelper: RunHelper;
}

const MAX_ANSWER_BYTES = 4 * 1024 * 1024;

/** Every component of a path as it is. */
export async function inspectPath(
  context: HelperContext,
  path: string,
  options?: ExecOptions,
): Promise<readonly PathComponent[]> {
  const [answer] = await ask<{ readonly components: readonly HelperComponent[] }>(context, ["stat", path], options);
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
  await ask(context, ["remove", ...paths], options);
}

export async function killProcesses(context: HelperContext, options?: ExecOptions): Promise<KillReport> {
  const [report] = await ask<KillReport>(context, ["kill-all"], options);
  return { killed: report?.killed ?? 0, remaining: report?.remaining ?? [] };
}

/** The names of the network interfaces that programs of the box see. */
export async function interfaces(context: HelperContext, options?: ExecOptions): Promise<readonly string[]> {
  const entries = await ask<{ readonly path: string; readonly type: string }>(
    context,
    ["manifest", "/sys/class/net"],
    options,
  );
  return entries.filter(({ type }) => type === "link").map(({ path }) => path);
}

/** What the box has used until now, by the counters of its control group; `null` where they cannot be seen. */
export async function usage(context: HelperContext, options?: ExecOptions): Promise<Usage> {
  const [answer] = await ask<Usage>(context, ["usage"], options);
  return {
    oomKills: answer?.oomKills ?? null,
    memoryPeakBytes: answer?.memoryPeakBytes ?? null,
    cpuMs: answer?.cpuMs ?? null,
  };
}

const MEMORY_FILE_SYSTEMS: ReadonlySet<string> = new Set(["tmpfs", "ramfs", "devtmpfs", "shm"]);

/** The mount points whose files are memory. What is below /proc and /sys holds no files of anybody. */
export async function memoryMounts(context: HelperContext, options?: ExecOptions): Promise<readonly string[]> {
  const mounts = await ask<{ readonly path: string; readonly fileSystem: string }>(context, ["mounts"], options);
  const paths = mounts
    .filter(({ fileSystem }) => MEMORY_FILE_SYSTEMS.has(fileSystem))
    .map(({ path }) => path)
    .filter((path) => !/^\/(?:proc|sys)(?:\/|$)/.test(path));
  return [...new Set(paths)].toSorted();
}

/** The archive of one path, sent by the helper as fast as it is read. To be read to its end, or given up with `close`. */
export function archiveThroughHelper(
  context: HelperContext,
  path: string,
  limits: DownloadLimits,
  signal: AbortSignal,
): { readonly archive: PathArchive; readonly close: () => Promise<void> } {
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
  const room = async (): Promise<void> => {
    await new Promise<void>((resolve) => {
      stream.once("drain", resolve);
      stream.once("close", resolve);
    });
  };
  const sending = context
    .runHelper(argv, {
      signal: AbortSignal.any([signal, enough.signal]),
      maxOutputBytes: 64 * 1024,
      onOutput: async (from, chunk) => {
        if (from === "stdout" && !stream.destroyed && !stream.write(chunk)) await room();
      },
    })
    .then(
      (result) => {
        const said = lines(result.stderr);
        const failure = failureOf(context, argv, result, said) ?? skipped(context, path, said);
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
  return { archive: { path, name: path.slice(1), stream }, close };
}

/** The helper's answer, one value a line. Throws the error that it reports, by the system's name of it. */
async function ask<T>(context: HelperContext, argv: readonly string[], options?: ExecOptions): Promise<readonly T[]> {
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
  { boxId, operation }: HelperContext,
  argv: readonly string[],
  result: ExecResult,
  answer: readonly unknown[],
): RuntimeError | null {
  const fail = (details: {
    readonly code: RuntimeError["code"];
    readonly message: string;
    readonly path?: string | undefined;
    readonly errno?: string;
  }): RuntimeError => new RuntimeError({ ...details, driver: DRIVER, operation, boxId });
  if (result.timedOut) return fail({ code: "ERR_TIMEOUT", message: `our helper's ${argv[0]} did not end in time` });
  const problem = answer
    .map((line) => (line as { readonly error?: HelperProblem }).error)
    .find((it) => it !== undefined);
  if (problem !== undefined) {
    const { code: errno, path, message } = problem;
    const code = errno === "ERR_LIMIT" ? "ERR_LIMIT" : codeOfErrno(errno);
    return fail({ code, errno, path, message: `${path ?? argv.at(-1)} in the box: ${message} (${errno})` });
  }
  if (result.exitCode === 0 && !(result.truncated && argv[0] !== "tar-out")) return null;
  const said = Buffer.from(result.stderr).toString("utf8").slice(0, 500);
  return fail({
    code: "ERR_BACKEND",
    message: `our helper's ${argv[0]} ended with ${result.exitCode}${said === "" ? "" : `: ${said}`}`,
  });
}

/** Whether the path itself is what the helper leaves out of archives. */
function skipped({ boxId, operation }: HelperContext, path: string, said: readonly unknown[]): RuntimeError | null {
  if (!said.some((line) => (line as { readonly skipped?: string }).skipped === path)) return null;
  return new RuntimeError({
    code: "ERR_PATH_KIND",
    driver: DRIVER,
    operation,
    boxId,
    path,
    message: `${path} is neither a file, a directory nor a link`,
  });
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
