import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { currentOwner, type Owner } from "@breakwater/runtime-api";
import { afterEach, beforeEach, expect, it } from "vitest";

import { JobLock } from "./job-lock.ts";

let directory = "";
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "breakwater-lock-"));
});
afterEach(() => rm(directory, { recursive: true, force: true }));

async function replaceOwner(changes: Partial<Owner>): Promise<string> {
  const folder = join(directory, ".lock");
  const [name = ""] = await readdir(folder);
  await writeFile(join(folder, name), JSON.stringify({ ...currentOwner(), session: "another", ...changes }));
  return join(folder, name);
}

it("is one process's at a time, and can be had again once it was given back", async () => {
  {
    await using _lock = await JobLock.take(directory);
    await expect(JobLock.take(directory)).rejects.toMatchObject({
      code: "ERR_JOB_LOCKED",
      message: expect.stringContaining(`process ${process.pid} runs this job`) as unknown,
    });
  }
  await using _again = await JobLock.take(directory);
  await expect(JobLock.take(directory)).rejects.toMatchObject({ code: "ERR_JOB_LOCKED" });
});

it("is taken over from a process that has ended, by one of many", async () => {
  await JobLock.take(directory);
  const child = spawn(process.execPath, ["-e", ""]);
  await once(child, "exit");
  await replaceOwner({ pid: child.pid ?? 0, startedAt: "1" });
  const taken = await Promise.allSettled(Array.from({ length: 20 }, () => JobLock.take(directory)));
  expect(taken.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
  const refused = taken.flatMap((outcome) => (outcome.status === "rejected" ? [outcome.reason as unknown] : []));
  expect(refused).toEqual(
    Array.from({ length: 19 }, () => expect.objectContaining({ code: "ERR_JOB_LOCKED" }) as unknown),
  );
  expect(await readdir(join(directory, ".lock"))).toHaveLength(1);
});

it("is not taken over from a process that cannot be seen; the message says what to do", async () => {
  await JobLock.take(directory);
  const file = await replaceOwner({ host: "elsewhere" });
  await expect(JobLock.take(directory)).rejects.toMatchObject({
    code: "ERR_JOB_LOCKED",
    message: expect.stringContaining(`host elsewhere may still run this job`) as unknown,
  });
  await rm(file);
  await using _lock = await JobLock.take(directory);
  expect(await readFile(file, "utf8")).toContain(String(process.pid));
});
