import type { AgentContext } from "@breakwater/harbor-taskset";

/** What a model sees of one answer: a long one is cut in the middle. */
const MAX_ANSWER_CHARACTERS = 16_000;
const MAX_FILE_BYTES = 256 * 1024;
const EXEC_TIMEOUT_MS = 10 * 60_000;
const TRANSCRIPT_DIRECTORY = "/logs/agent";
const TRANSCRIPT_FILE = "transcript.jsonl";

export const SYSTEM: string =
  "You work in a Linux box by the tools exec, read and write. Do what the task says, check your work, and then answer without a tool.";

/**
 * Three tools for a box. Whatever goes wrong in it is an answer: the model decides what to do about it. Calls that are made at the same time are done one after the
 * other, in the order in which the model asked.
 */
export interface BoxTools {
  readonly exec: (input: { readonly command: string }) => Promise<string>;
  readonly read: (input: { readonly path: string }) => Promise<string>;
  readonly write: (input: { readonly path: string; readonly content: string }) => Promise<string>;
}

export function boxTools({ box, signal }: AgentContext): BoxTools {
  let before: Promise<unknown> = Promise.resolve();
  const answer = (work: () => Promise<string>): Promise<string> => {
    const done = before.then(() => attempt(work));
    before = done.catch(() => undefined);
    return done;
  };
  const attempt = async (work: () => Promise<string>): Promise<string> => {
    try {
      return shorten(await work());
    } catch (error) {
      signal.throwIfAborted();
      return `error: ${(error as Error).message}`;
    }
  };
  return {
    exec: ({ command }) =>
      answer(async () => {
        const { exitCode, stdout, stderr, timedOut } = await box.exec(["sh", "-c", command], {
          timeoutMs: EXEC_TIMEOUT_MS,
          maxOutputBytes: MAX_ANSWER_CHARACTERS,
        });
        const output = Buffer.concat([stdout, stderr]).toString("utf8");
        return `${timedOut ? "timed out" : `exit code ${exitCode}`}\n${output}`;
      }),
    read: ({ path }) =>
      answer(async () => {
        const content = await box.readBounded(path, { maxBytes: MAX_FILE_BYTES });
        return content === null ? `error: ${path} does not exist` : Buffer.from(content).toString("utf8");
      }),
    write: ({ path, content }) =>
      answer(async () => {
        const at = path.lastIndexOf("/");
        if (!path.startsWith("/") || at === path.length - 1) return "error: give the absolute path of a file";
        await box.upload([{ path: path.slice(at + 1), content }], path.slice(0, at) || "/");
        return `wrote ${Buffer.byteLength(content)} bytes`;
      }),
  };
}

function shorten(text: string): string {
  if (text.length <= MAX_ANSWER_CHARACTERS) return text;
  const half = MAX_ANSWER_CHARACTERS / 2;
  return `${text.slice(0, half)}\n[${text.length - 2 * half} characters left out]\n${text.slice(-half)}`;
}

/** Where the model is, from `--ae` or the environment of the process. */
export interface ModelSettings {
  readonly baseURL: string;
  readonly apiKey: string;
  readonly model: string;
  /** Answers of the model, each with the tools that it asks for. */
  readonly maxSteps: number;
}

export function modelSettings({ env }: AgentContext): ModelSettings {
  const setting = (name: string, fallback?: string): string => {
    const value = env[name] ?? process.env[name] ?? fallback;
    if (value === undefined) throw new Error(`${name} is not set; give it with --ae ${name}=...`);
    return value;
  };
  const maxSteps = Number(setting("MAX_STEPS", "50"));
  if (!Number.isSafeInteger(maxSteps) || maxSteps < 1) throw new Error("MAX_STEPS is not a whole number of at least 1");
  return {
    baseURL: setting("OPENAI_BASE_URL", "https://api.openai.com/v1"),
    apiKey: setting("OPENAI_API_KEY"),
    model: setting("MODEL"),
    maxSteps,
  };
}

/** What was said, one JSON line each, to the agent's log on the host and to `/logs/agent/transcript.jsonl`, which a task can declare as an artifact. */
export class Transcript implements AsyncDisposable {
  readonly #context: AgentContext;
  #text = "";

  constructor(context: AgentContext) {
    this.#context = context;
  }

  add(entry: unknown): void {
    const line = `${JSON.stringify(entry)}\n`;
    this.#text += line;
    this.#context.log(line);
  }

  /** Also what an agent has said that failed in the middle. If its time is over, the box takes nothing any more, and the log has it. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#context.signal.aborted) return;
    await this.#context.box.upload([{ path: TRANSCRIPT_FILE, content: this.#text }], TRANSCRIPT_DIRECTORY);
  }
}
