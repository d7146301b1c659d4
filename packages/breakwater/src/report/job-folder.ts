import { constants } from "node:fs";
import { open, readdir, readFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { REWARD_FILES, type EgressLine, type TrialEvent, type TrialResult } from "@breakwater/harbor-taskset";

/*
 * What a job has left on disk. Parts of it were written by boxes and are hostile: nothing is followed, nothing blocks, and every file is read up to a bound. A
 * trial that cannot be read is one with a `problem`, and the others are read all the same.
 */

const MAX_RESULT_BYTES = 16 * 1024 * 1024;
const MAX_EVENTS_BYTES = 4 * 1024 * 1024;
const MAX_EGRESS_BYTES = 1024 * 1024;
const MAX_REWARD_BYTES = 4 * 1024;

/** `result.json`: ours, with two of Harbor's keys. */
export type StoredResult = TrialResult & {
  readonly source?: string | null;
  readonly agent_info?: { readonly name?: string } | null;
};

export interface StoredTrial {
  /** Of its folder. */
  readonly name: string;
  /** `null`: it has not ended, or `problem` says what is wrong. */
  readonly result: StoredResult | null;
  /** Why `result.json` could not be read; `null` if it could, or if there is none. */
  readonly problem: string | null;
  readonly events: readonly TrialEvent[];
  /** Connections that allowlists refused. */
  readonly egress: readonly EgressLine[];
  readonly rewardFiles: readonly StoredRewardFile[];
}

export interface StoredRewardFile {
  /** Relative to the trial's folder. */
  readonly path: string;
  /** Its beginning. */
  readonly text: string;
}

export interface StoredJob {
  readonly name: string;
  /** Absolute. */
  readonly directory: string;
  /** How many trials it was to have; `null` if nobody has written that down. */
  readonly expectedTrials: number | null;
  /** Names of the trials' folders, sorted. */
  readonly trials: readonly string[];
}

/** Finds the trials of a job: the folders that have events or a result. */
export async function readJob(directory: string): Promise<StoredJob> {
  const trials: string[] = [];
  for (const entry of await readdir(directory, { withFileTypes: true })) {
    if (!entry.isDirectory()) continue;
    const names = await readdir(join(directory, entry.name));
    if (names.includes("result.json") || names.includes("events.jsonl")) trials.push(entry.name);
  }
  const summary = await readFile(join(directory, "result.json"), "utf8").then(JSON.parse, () => null);
  const expected: unknown = isObject(summary) ? summary["n_total_trials"] : null;
  return {
    name: basename(directory),
    directory,
    expectedTrials: typeof expected === "number" ? expected : null,
    trials: trials.toSorted(),
  };
}

export async function readTrial(job: StoredJob, name: string): Promise<StoredTrial> {
  const folder = join(job.directory, name);
  let result: StoredResult | null = null;
  let problem: string | null = null;
  try {
    const text = await beginningOf(join(folder, "result.json"), MAX_RESULT_BYTES);
    if (text !== null) result = asResult(JSON.parse(text));
  } catch (error) {
    problem = `result.json: ${(error as Error).message}`;
  }
  const [events, egress] = await Promise.all([
    linesOf<TrialEvent>(join(folder, "events.jsonl"), MAX_EVENTS_BYTES),
    linesOf<EgressLine>(join(folder, "egress.jsonl"), MAX_EGRESS_BYTES),
  ]);
  return { name, result, problem, events, egress, rewardFiles: await rewardFilesOf(folder, result) };
}

async function rewardFilesOf(folder: string, result: StoredResult | null): Promise<readonly StoredRewardFile[]> {
  const rounds = result?.steps?.map(({ name }) => join("steps", name)) ?? [""];
  const files: StoredRewardFile[] = [];
  for (const path of rounds.flatMap((round) => REWARD_FILES.map((file) => join(round, "verifier", file)))) {
    const text = await beginningOf(join(folder, path), MAX_REWARD_BYTES).catch(() => null);
    if (text !== null) files.push({ path, text });
  }
  return files;
}

function asResult(value: unknown): StoredResult {
  const isOurs =
    isObject(value) && typeof value["trial"] === "string" && Array.isArray(value["artifacts"]) && "error" in value;
  if (!isOurs) throw new Error("was not written by Breakwater");
  return value as unknown as StoredResult;
}

async function linesOf<T>(file: string, maxBytes: number): Promise<readonly T[]> {
  const text = (await beginningOf(file, maxBytes).catch(() => null)) ?? "";
  return text.split("\n").flatMap((line) => {
    try {
      const value: unknown = JSON.parse(line);
      return isObject(value) ? [value as T] : [];
    } catch {
      // Empty, or cut: by our bound, or as its writer was killed.
      return [];
    }
  });
}

/** `null` if there is nothing of that name. Anything but a regular file is an error. */
async function beginningOf(path: string, maxBytes: number): Promise<string | null> {
  let file;
  try {
    file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  }
  try {
    const stat = await file.stat();
    if (!stat.isFile()) throw new Error("is not a regular file");
    const buffer = Buffer.alloc(Math.min(stat.size, maxBytes));
    const { bytesRead } = await file.read(buffer, 0, buffer.length, 0);
    return buffer.toString("utf8", 0, bytesRead);
  } finally {
    await file.close();
  }
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
