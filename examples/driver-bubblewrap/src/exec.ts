import { execFile, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { closeSync, constants, fchmodSync, openSync } from "node:fs";
import { rm } from "node:fs/promises";
import { Socket } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";
import { type BoxExec, streamTransport } from "@breakwater/driver-kit";

/**
 * Starts a program whose stdout and stderr are pipes. Node would give it sockets, which programs cannot open as `/dev/stdout`; so named pipes are made in
 * a folder, opened and removed again. `inherited` becomes descriptor 3.
 */
export async function spawnWithPipes(command: readonly string[], folder: string, inherited: number): Promise<BoxExec> {
  const name = join(folder, randomBytes(8).toString("hex"));
  const paths = [`${name}.out`, `${name}.err`];
  await promisify(execFile)("mkfifo", ["-m", "600", ...paths]);
  const readers = paths.map((path) => openSync(path, constants.O_RDONLY | constants.O_NONBLOCK));
  const writers = paths.map((path) => openSync(path, constants.O_WRONLY));
  for (const path of paths) await rm(path);
  // Every user of the box may open them by `/dev/stdout`, nobody else any more by their names.
  for (const writer of writers) fchmodSync(writer, 0o666);
  const [program = "", ...argv] = command;
  const child = spawn(program, argv, { stdio: ["pipe", ...writers, inherited], detached: true, cwd: "/" });
  child.on("error", () => undefined);
  for (const writer of writers) closeSync(writer);
  const [stdout, stderr] = readers.map((fd) => new Socket({ fd, readable: true, writable: false }));
  return {
    ...streamTransport(child.stdin as NonNullable<typeof child.stdin>, stdout as Socket, stderr as Socket),
    outcome: async () => ({ exitCode: child.exitCode ?? (child.signalCode === null ? null : 137) }),
  };
}
