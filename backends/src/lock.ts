import { createHash } from "node:crypto";
import { createServer, type Server } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

import { BackendError } from "./errors.ts";

/**
 * Runs `work` while nobody else on this machine holds the lock of the same name.
 *
 * The lock is a listening socket in Linux' abstract namespace: the kernel takes it back the moment its owner dies, so there is
 * no stale lock to recognise and no file to remove. It is seen by everybody in the same network namespace.
 *
 * Error: `TIMEOUT` after `waitMs`.
 */
export async function withLock<T>(name: string, waitMs: number, work: () => Promise<T>): Promise<T> {
  const deadline = Date.now() + waitMs;
  const address = `\0breakwater-${createHash("sha256").update(name).digest("hex").slice(0, 32)}`;
  let server = await listen(address);
  while (server === undefined) {
    if (Date.now() > deadline) {
      throw new BackendError("TIMEOUT", `another process has held the lock "${name}" for ${waitMs} ms`, {
        advice: "wait for the other `backends` command or end it",
      });
    }
    await sleep(100);
    server = await listen(address);
  }
  try {
    return await work();
  } finally {
    server.close();
  }
}

function listen(address: string): Promise<Server | undefined> {
  return new Promise((resolve, reject) => {
    const server = createServer((socket) => socket.destroy());
    server.once("error", (error: NodeJS.ErrnoException) =>
      error.code === "EADDRINUSE" ? resolve(undefined) : reject(error),
    );
    server.listen(address, () => resolve(server));
  });
}
