import { rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";

import { harborConfig, harborLock, harborResult, type HarborFacts } from "./harbor-files.ts";
import type { Redactor } from "./redact.ts";
import type { TrialResult } from "./result.ts";
import type { TrialFolder } from "./trial-folder.ts";

/** Writes down what came of a trial, where Harbor has it; `result.json` last, and whole or not at all. */
export async function writeResult(
  folder: TrialFolder,
  result: TrialResult,
  facts: HarborFacts,
  redactor: Redactor,
): Promise<void> {
  if (folder.directory === null) return;
  await folder.writeJson("config.json", redactor.value(harborConfig(result, facts)));
  await folder.writeJson("lock.json", redactor.value(harborLock(result, facts)));
  if (result.error !== null) {
    const { code, message, causes } = result.error;
    await writeFile(join(folder.directory, "exception.txt"), [`${code}: ${message}`, ...causes, ""].join("\n"));
  }
  const harbor = redactor.value(harborResult(result, facts));
  // One key is both Harbor's and ours; its readers pass over what they do not know.
  const verifier =
    harbor["verifier"] === null ? result.verifier : { ...(harbor["verifier"] as object), ...result.verifier };
  await writeWhole(join(folder.directory, "result.json"), { ...harbor, ...result, verifier });
}

async function writeWhole(file: string, value: unknown): Promise<void> {
  const unfinished = `${file}.tmp`;
  try {
    await writeFile(unfinished, `${JSON.stringify(value, undefined, 2)}\n`, { flag: "wx" });
    await rename(unfinished, file);
  } catch (error) {
    await rm(unfinished, { force: true });
    throw error;
  }
}
