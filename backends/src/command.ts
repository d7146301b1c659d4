import { spawn } from "node:child_process";

import { BackendError } from "./errors.ts";

export interface CommandOptions {
  /** The whole run; the process group is killed at the end of it. */
  readonly timeoutMs: number;
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly input?: string;
  /** Exit codes that are answers, not failures. Default: only 0. */
  readonly okExitCodes?: readonly number[];
}

export interface CommandResult {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** What is kept of each stream; enough for any listing that is read here, and for the end of a failed log. */
const maxOutputCharacters = 4 * 1024 * 1024;

/**
 * Runs one program without a shell and waits for it.
 *
 * Errors: `MISSING_TOOL` (no such program), `TIMEOUT`, `COMMAND_FAILED` (with the last lines that it wrote).
 */
export async function runCommand(
  argv: readonly [string, ...string[]],
  options: CommandOptions,
): Promise<CommandResult> {
  const [program, ...args] = argv;
  const child = spawn(program, args, {
    cwd: options.cwd,
    env: { ...process.env, LC_ALL: "C.UTF-8", ...options.env },
    stdio: ["pipe", "pipe", "pipe"],
    detached: true,
  });
  let stdout = "";
  let stderr = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => (stdout = (stdout + text).slice(-maxOutputCharacters)));
  child.stderr.setEncoding("utf8").on("data", (text: string) => (stderr = (stderr + text).slice(-maxOutputCharacters)));
  // A program that ends before it has read its input is judged by its exit code.
  child.stdin.on("error", () => {});
  child.stdin.end(options.input ?? "");

  let timedOut = false;
  const exitCode = await new Promise<number>((resolve, reject) => {
    const timer = setTimeout(() => {
      timedOut = true;
      if (child.pid !== undefined) process.kill(-child.pid, "SIGKILL");
    }, options.timeoutMs);
    child.once("error", (cause) => {
      clearTimeout(timer);
      reject(new BackendError("MISSING_TOOL", `${program} could not be started: ${cause.message}`, { cause }));
    });
    child.once("close", (code) => {
      clearTimeout(timer);
      resolve(code ?? 128);
    });
  });
  if (timedOut) throw new BackendError("TIMEOUT", `${argv.join(" ")} did not end within ${options.timeoutMs} ms`);
  if (!(options.okExitCodes ?? [0]).includes(exitCode)) {
    throw new BackendError(
      "COMMAND_FAILED",
      `${argv.join(" ")} ended with ${exitCode}:\n${lastLines(stderr || stdout, 15)}`,
    );
  }
  return { exitCode, stdout, stderr };
}

export function lastLines(text: string, count: number): string {
  return text.trimEnd().split("\n").slice(-count).join("\n");
}
