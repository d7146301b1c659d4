import { readFile, stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import { z } from "zod";

/*
 * A finished trial as it lies on disk, in Harbor's layout: our own, or one that Harbor has written. Only what grading it again needs is looked at; whatever
 * else is there is passed on as it is.
 */

type Json = Readonly<Record<string, unknown>>;

/** Larger files are no results. */
const MAX_FILE_BYTES = 64 * 1024 ** 2;

const table = z.record(z.string(), z.unknown());
const rewards = z.object({ rewards: z.record(z.string(), z.number()).nullish() }).nullish();
/** What a result, and each of its steps, has about one round of work and grading. */
const round = {
  agent_result: table.nullish(),
  agent_execution: table.nullish(),
  verifier_result: rewards,
  exception_info: z.looseObject({ exception_type: z.string(), occurred_at: z.string() }).nullish(),
  verifier: z.looseObject({ started_at: z.string().nullish() }).nullish(),
};
const resultFile = z.looseObject({
  id: z.string().optional(),
  task_name: z.string().min(1),
  trial_name: z.string().min(1),
  source: z.string().nullish(),
  config: z.looseObject({ artifacts: z.array(z.unknown()).optional(), agent: table.optional() }),
  agent_info: table,
  step_results: z.array(z.looseObject({ step_name: z.string(), ...round })).nullish(),
  ...round,
});
const manifestFile = z.array(
  z.looseObject({
    source: z.string(),
    destination: z.string(),
    type: z.enum(["file", "directory"]),
    status: z.enum(["ok", "failed", "empty", "skipped"]),
    service: z.string().nullish(),
    exclude: z.array(z.string()).nullish(),
    breakwater: z.looseObject({ status: z.string().optional() }).optional(),
  }),
);

/** What `result.json` says of one round, in Harbor's words, as far as a later grading keeps it. */
export interface RecordedRound {
  readonly agent_result?: Json | null | undefined;
  readonly agent_execution?: Json | null | undefined;
  readonly exception_info?: { readonly exception_type: string; readonly occurred_at: string } | null | undefined;
  readonly verifier?: { readonly started_at?: string | null | undefined } | null | undefined;
  readonly verifier_result?:
    | { readonly rewards?: Readonly<Record<string, number>> | null | undefined }
    | null
    | undefined;
}

export interface RecordedStep extends RecordedRound {
  readonly name: string;
}

/** One entry of a list of artifacts. */
export interface RecordedArtifact {
  readonly source: string;
  readonly destination: string;
  readonly type: "file" | "directory";
  readonly status: "ok" | "failed" | "empty" | "skipped";
  readonly service?: string | null | undefined;
  readonly exclude?: readonly string[] | null | undefined;
  /** Where we wrote the list. */
  readonly breakwater?: { readonly status?: string | undefined } | undefined;
}

export interface RecordedTrial {
  /** Absolute. */
  readonly directory: string;
  /** As the record names it. */
  readonly name: string;
  /** `null`: the record has none. */
  readonly id: string | null;
  readonly task: string;
  /** The whole of `result.json`. */
  readonly result: Json;
  readonly round: RecordedRound;
  /** In order; `null`: a trial of a task without steps. */
  readonly steps: readonly RecordedStep[] | null;
  /** `task` of `lock.json`: what the trial was run with; `null` = not known. */
  readonly lockedTask: Json | null;
  /** Entries that the caller of the trial had added. */
  readonly artifacts: readonly unknown[];
  /** `config.agent`; `null` = not known. */
  readonly agentConfig: Json | null;
}

/** `null`: there is no `result.json` that could be one. Whatever is wrong with it, it is not this function's to say. */
export async function readRecordedTrial(directory: string): Promise<RecordedTrial | null> {
  const root = resolve(directory);
  const json = await readJsonFile(join(root, "result.json"));
  const parsed = resultFile.safeParse(json);
  if (!parsed.success) return null;
  const { id, task_name: task, trial_name: name, config, step_results: steps } = parsed.data;
  const lock = table.safeParse(await readJsonFile(join(root, "lock.json")));
  const lockedTask = table.safeParse(lock.data?.["task"]);
  return {
    directory: root,
    name,
    id: id ?? null,
    task,
    result: parsed.data,
    round: roundOf(parsed.data),
    steps: steps?.map((step) => ({ name: step.step_name, ...roundOf(step) })) ?? null,
    lockedTask: lockedTask.data ?? null,
    artifacts: config.artifacts ?? [],
    agentConfig: config.agent ?? null,
  };
}

/** Of the trial, or of one of its steps. `null`: there is none, or it is not one. */
export async function readRecordedArtifacts(
  { directory }: RecordedTrial,
  step: string | null,
): Promise<readonly RecordedArtifact[] | null> {
  const folder = step === null ? directory : join(directory, "steps", step);
  const parsed = manifestFile.safeParse(await readJsonFile(join(folder, "artifacts/manifest.json")));
  return parsed.data ?? null;
}

/** `undefined`: there is no such file, or it is no JSON. */
async function readJsonFile(path: string): Promise<unknown> {
  try {
    const { size } = await stat(path);
    return size > MAX_FILE_BYTES ? undefined : (JSON.parse(await readFile(path, "utf8")) as unknown);
  } catch {
    return undefined;
  }
}

function roundOf(from: RecordedRound): RecordedRound {
  const { agent_result, agent_execution, verifier_result, exception_info, verifier } = from;
  return { agent_result, agent_execution, verifier_result, exception_info, verifier };
}
