import { randomBytes } from "node:crypto";
import { link, mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { isOwnerAlive, ownerLabel, parseOwner, type Owner } from "@breakwater/runtime-api";

import { isMissing } from "./durable.ts";
import { JobError } from "./job-error.ts";

/** What the file of an owner that is done with the job says. */
const RELEASED = "released\n";
/** Each further one means that somebody else was faster than we. */
const MAX_ATTEMPTS = 10;

/**
 * A job's folder belongs to one process at a time. In `.lock` each owner has a file with the next number, made exclusively; the highest one counts. So of
 * several that find a dead owner's only one comes after it, and nobody ever takes away a file that may be another's by now.
 */
export class JobLock implements AsyncDisposable {
  readonly #file: string;

  private constructor(file: string) {
    this.#file = file;
  }

  /** Throws `ERR_JOB_LOCKED`. A dead owner's lock is taken over. The job's folder must exist. */
  static async take(jobDirectory: string): Promise<JobLock> {
    const folder = join(jobDirectory, ".lock");
    await mkdir(folder, { recursive: true });
    for (let attempt = 1; attempt <= MAX_ATTEMPTS; attempt++) {
      const last = await highest(folder);
      if (last > 0) await refuseIfHeld(jobDirectory, join(folder, String(last)));
      const file = join(folder, String(last + 1));
      if (!(await createWhole(file, `${ownerLabel()}\n`))) continue;
      // Whoever listed the folder while it was tidied may have seen nothing of it.
      if ((await highest(folder)) === last + 1) {
        await removeBelow(folder, last + 1);
        return new JobLock(file);
      }
      await rm(file);
    }
    throw new JobError("ERR_JOB_LOCKED", jobDirectory, "other processes are beginning this job at the same time");
  }

  /** The file stays and says so: without it, two could begin at number one. Best effort; a process that has ended holds nothing. */
  async [Symbol.asyncDispose](): Promise<void> {
    const unfinished = join(dirname(this.#file), temporaryName());
    try {
      await writeFile(unfinished, RELEASED);
      await rename(unfinished, this.#file);
    } catch {
      await rm(unfinished, { force: true }).catch(() => undefined);
    }
  }
}

async function refuseIfHeld(jobDirectory: string, file: string): Promise<void> {
  let text: string;
  try {
    text = await readFile(file, "utf8");
  } catch (error) {
    // Somebody was faster, and has tidied up.
    if (isMissing(error)) return;
    throw error;
  }
  if (text === RELEASED) return;
  const owner = parseOwner(text.trim());
  const state = owner === null ? "unknown" : isOwnerAlive(owner);
  if (state === "dead") return;
  throw new JobError(
    "ERR_JOB_LOCKED",
    jobDirectory,
    owner !== null && state === "alive"
      ? `process ${owner.pid} runs this job; wait for its end, or choose another folder`
      : `${describe(owner)} may still run this job, which cannot be seen from here; if it has ended, remove ${file}`,
  );
}

function describe(owner: Owner | null): string {
  return owner === null ? "somebody unknown" : `process ${owner.pid} of host ${owner.host}`;
}

/** `false` if it exists. Nobody ever sees a part of it. */
async function createWhole(file: string, text: string): Promise<boolean> {
  const unfinished = join(dirname(file), temporaryName());
  await writeFile(unfinished, text, { flag: "wx" });
  try {
    await link(unfinished, file);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw error;
  } finally {
    await rm(unfinished, { force: true });
  }
}

function temporaryName(): string {
  return `${randomBytes(8).toString("hex")}.tmp`;
}

/** 0 = none. */
async function highest(folder: string): Promise<number> {
  return Math.max(0, ...(await readdir(folder)).filter((name) => /^\d+$/.test(name)).map(Number));
}

async function removeBelow(folder: string, number: number): Promise<void> {
  for (const name of await readdir(folder)) {
    if (/^\d+$/.test(name) && Number(name) < number) await rm(join(folder, name), { force: true });
  }
}
