import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";

import { writeJsonDurably } from "./durable.ts";
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
  const exceptionFile = join(folder.directory, "exception.txt");
  if (result.error === null) {
    // An earlier attempt at grading may have left one.
    await rm(exceptionFile, { force: true });
  } else {
    const { code, message, causes } = result.error;
    await writeFile(exceptionFile, [`${code}: ${message}`, ...causes, ""].join("\n"));
  }
  const harbor = redactor.value(harborResult(result, facts));
  // One key is both Harbor's and ours; its readers pass over what they do not know.
  const verifier =
    harbor["verifier"] === null ? result.verifier : { ...(harbor["verifier"] as object), ...result.verifier };
  await writeJsonDurably(join(folder.directory, "result.json"), { ...harbor, ...result, verifier });
}
