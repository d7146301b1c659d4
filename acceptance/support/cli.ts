import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { text } from "node:stream/consumers";
import { until } from "./engine.ts";

const BIN: string = join(dirname(createRequire(import.meta.url).resolve("breakwater/package.json")), "src/bin.ts");
const TIMEOUT_MS = 400_000;

export interface CliResult {
  readonly exitCode: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface CliOptions {
  readonly cwd: string;
  readonly env?: Readonly<Record<string, string>>;
  /** Then it is killed. Default is 2 minutes. */
  readonly timeoutMs?: number;
}

/** The command line from source, as a process of its own. */
export class Cli {
  readonly #child: ChildProcess;
  readonly #result: Promise<CliResult>;

  constructor(args: readonly string[], options: CliOptions) {
    const child = spawn(process.execPath, ["--conditions=@breakwater/source", BIN, ...args], {
      cwd: options.cwd,
      env: { ...process.env, ...options.env, NODE_OPTIONS: "" },
      stdio: ["ignore", "pipe", "pipe"],
      timeout: options.timeoutMs ?? TIMEOUT_MS,
      killSignal: "SIGKILL",
    });
    this.#child = child;
    this.#result = (async () => {
      const ended = once(child, "close");
      const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr)]);
      const [exitCode, signal] = (await ended) as [number | null, NodeJS.Signals | null];
      return { exitCode, signal, stdout, stderr };
    })();
  }

  signal(name: NodeJS.Signals): void {
    this.#child.kill(name);
  }

  get running(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null;
  }

  result(): Promise<CliResult> {
    return this.#result;
  }
}

export async function cli(args: readonly string[], options: CliOptions): Promise<CliResult> {
  return new Cli(args, options).result();
}

/** Waits until a trial of the job has come to a step, and gives the trial's name. */
export async function trialAt(jobFolder: string, step: string): Promise<string> {
  let found: string | undefined;
  await until(
    `a trial in ${jobFolder} at ${step}`,
    async () => {
      const names = existsSync(jobFolder) ? await readdir(jobFolder) : [];
      for (const name of names) {
        const events = await readFile(join(jobFolder, name, "events.jsonl"), "utf8").catch(() => "");
        if (events.includes(`"type":"${step}"`)) found = name;
      }
      return found !== undefined;
    },
    180_000,
  );
  if (found === undefined) throw new Error("unreachable");
  return found;
}
