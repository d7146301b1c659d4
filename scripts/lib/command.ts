import { spawn } from "node:child_process";
import { constants } from "node:os";
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

const interrupts = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
const STREAMS_GRACE_MS = 1_000;
const KEPT_CHARACTERS = 256 * 1024;

/** Runs a program in the root of the repository, without standard input. A non-zero exit is a result. */
export async function command(argv: readonly [string, ...string[]], options: CommandOptions): Promise<CommandResult> {
  const started = performance.now();
  // Before the child is there: a signal must not end us and leave it behind.
  let interruptedBy: NodeJS.Signals | undefined;
  const interrupt = (signal: NodeJS.Signals): void => {
    interruptedBy = signal;
    // A Ctrl-C reaches the child from the terminal too.
    if (signal !== "SIGINT" || !process.stdin.isTTY) child.kill(signal);
  };
  for (const signal of interrupts) process.on(signal, interrupt);
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
  try {
    const exitCode = await new Promise<number>((resolve, reject) => {
      child.on("error", reject);
      const ended = (code: number | null, signal: NodeJS.Signals | null): void =>
        resolve(code ?? signalExitCode(signal));
      child.on("close", ended);
      // A daemon that it started may hold its output open for ever.
      child.on("exit", (code, signal) => setTimeout(ended, STREAMS_GRACE_MS, code, signal).unref());
    });
    child.stdout?.destroy();
    child.stderr?.destroy();
    // Whoever interrupts us does not want the next part; the child had the time that it needed to end well.
    if (interruptedBy !== undefined) process.exit(signalExitCode(interruptedBy));
    return { exitCode, timedOut, stdout: stdout(), stderr: stderr(), durationMs: performance.now() - started };
  } finally {
    clearTimeout(timer);
    for (const signal of interrupts) process.off(signal, interrupt);
  }
}

function signalExitCode(signal: NodeJS.Signals | null): number {
  return 128 + (signal === null ? 0 : constants.signals[signal]);
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
