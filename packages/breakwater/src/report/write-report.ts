import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createWriteStream } from "node:fs";
import { rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { finished } from "node:stream/promises";

import { pageParts } from "../page.ts";
import { readJob, readTrial, type StoredJob } from "./job-folder.ts";
import { junitXml } from "./junit.ts";
import { summaryMarkdown } from "./summary.ts";
import { totalsOf, type Totals } from "./totals.ts";
import { detailsJson } from "./trial-details.ts";
import { trialRow, type TrialRow } from "./trial-row.ts";

/** For the details of all trials, and at most for those of one. */
const DETAILS_BYTES = 32 * 1024 * 1024;
const MAX_TRIAL_BYTES = 512 * 1024;

export interface WrittenReport {
  readonly totals: Totals;
  /** `report.html`, absolute; the others beside it. */
  readonly html: string;
  readonly summary: string;
  readonly junit: string;
}

/**
 * Writes `report.html`, `summary.md` and `junit.xml` into a job's folder, each whole or not at all. The report needs no network. A trial is read and written before the next, so that a large
 * job needs little memory. Rejects with a `RangeError` if there is no trial.
 */
export async function writeReport(directory: string): Promise<WrittenReport> {
  const job = await readJob(directory);
  if (job.trials.length === 0) throw new RangeError(`${directory}: there is no trial in it`);
  const html = join(directory, "report.html");
  const { rows, totals } = await whole(html, async (file) => await writePage(job, file));
  const summary = join(directory, "summary.md");
  await whole(summary, (file) => writeFile(file, summaryMarkdown(job.name, totals, rows)));
  const junit = join(directory, "junit.xml");
  await whole(junit, (file) => writeFile(file, junitXml(job.name, totals, rows)));
  return { totals, html, summary, junit };
}

async function writePage(
  job: StoredJob,
  file: string,
): Promise<{ readonly rows: readonly TrialRow[]; readonly totals: Totals }> {
  const page = pageParts();
  const out = createWriteStream(file, { flags: "wx" });
  const done = finished(out);
  // It is awaited at the end, or a write has told.
  done.catch(() => undefined);
  const write = async (text: string): Promise<void> => {
    if (!out.write(text)) await Promise.race([once(out, "drain"), done]);
  };
  try {
    await write(page.begin);
    const rows: TrialRow[] = [];
    const maxBytes = Math.min(MAX_TRIAL_BYTES, Math.floor(DETAILS_BYTES / job.trials.length));
    for (const [index, name] of job.trials.entries()) {
      const trial = await readTrial(job, name);
      rows.push(trialRow(trial));
      await write(page.data(`trial-${index}`, detailsJson(trial, maxBytes)));
    }
    const totals = totalsOf(job, rows);
    const shown = rows.map((row) => ({ ...row, outputEnd: undefined }));
    await write(page.data("job", JSON.stringify({ name: job.name, totals, trials: shown })));
    out.end(page.end);
    await done;
    return { rows, totals };
  } finally {
    out.destroy();
  }
}

async function whole<T>(file: string, write: (unfinished: string) => Promise<T>): Promise<T> {
  const unfinished = `${file}.${randomUUID()}.tmp`;
  try {
    const result = await write(unfinished);
    await rename(unfinished, file);
    return result;
  } catch (error) {
    await rm(unfinished, { force: true });
    throw error;
  }
}
