import { spawn } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const root: string = fileURLToPath(new URL("../../", import.meta.url));

export interface CommandOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly timeoutMs: number;
  /** `show` passes output on as it comes; `capture` keeps the last 256 KiB of each stream; `show-stdout` does one of each. */
  readonly output: "show" | "capture" | "show-stdout";
  /** Relative to the root of the repository. */
  readonly cwd?: string;
}

export interface CommandResult {
  /** 128 + the signal's number when a signal ended it, as in a shell. */
  readonly exitCode: number;
  readonly timedOut: boolean;
  readonly stdout: string;
  readonly stderr: string;
  readonly durationMs: number;
}

const KEPT_CHARACTERS = 256 * 1024;

/** Runs a program in the root of the repository, without standard input. A non-zero exit is a result. */
export async function command(argv: readonly [string, ...string[]], options: CommandOptions): Promise<CommandResult> {
  const started = performance.now();
  const child = spawn(argv[0], argv.slice(1), {
    cwd: join(root, options.cwd ?? "."),
    env: { ...process.env, ...options.env },
    stdio: [
      "ignore",
      options.output === "capture" ? "pipe" : "inherit",
      options.output === "show" ? "inherit" : "pipe",
    ],
  });
  const stdout = lastOf(child.stdout);
  const stderr = lastOf(child.stderr);
  let timedOut = false;
  const timer = setTimeout(() => {
    timedOut = true;
    child.kill("SIGTERM");
    setTimeout(() => child.kill("SIGKILL"), 10_000).unref();
  }, options.timeoutMs);
  const forward = (signal: NodeJS.Signals): boolean => child.kill(signal);
  process.on("SIGTERM", forward);
  try {
    const exitCode = await new Promise<number>((resolve, reject) => {
      child.on("error", reject);
      child.on("close", (code, signal) => resolve(code ?? 128 + (signal === "SIGKILL" ? 9 : 15)));
    });
    return { exitCode, timedOut, stdout: stdout(), stderr: stderr(), durationMs: performance.now() - started };
  } finally {
    clearTimeout(timer);
    process.off("SIGTERM", forward);
  }
}

function lastOf(stream: NodeJS.ReadableStream | null): () => string {
  let kept = "";
  stream?.setEncoding("utf8").on("data", (text: string) => {
    kept = (kept + text).slice(-KEPT_CHARACTERS);
  });
  return () => kept;
}

/** The command line of a TypeScript file of the repository that imports packages by their sources. */
export function source(file: string, ...args: readonly string[]): [string, ...string[]] {
  return [process.execPath, "--conditions=@breakwater/source", file, ...args];
}

export function seconds(durationMs: number): string {
  return `${(durationMs / 1000).toFixed(1)} s`;
}
