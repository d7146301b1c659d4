import type { Readable, Writable } from "node:stream";
import type { OutputStream } from "@breakwater/runtime-api";
import type { ExecTransport } from "./exec-session.ts";

interface Chunk {
  readonly stream: OutputStream;
  readonly chunk: Uint8Array;
}

/**
 * The three streams of a program that the backend gives as they are, for instance of a child process, as a transport. Whatever comes first is passed on first; of each stream
 * at most one chunk is waiting, so that who does not read holds the program back.
 */
export function streamTransport(stdin: Writable, stdout: Readable, stderr: Readable): ExecTransport {
  const streams = { stdout, stderr } as const;
  const chunks: Chunk[] = [];
  let open = 2;
  let closed = false;
  let broken: Error | undefined;
  let wake = (): void => undefined;
  for (const stream of ["stdout", "stderr"] as const) {
    streams[stream].on("data", (chunk: Uint8Array) => {
      streams[stream].pause();
      chunks.push({ stream, chunk });
      wake();
    });
    streams[stream].on("error", (error) => (broken ??= error));
    streams[stream].on("close", () => {
      open -= 1;
      wake();
    });
  }
  // A broken connection is found by whoever writes.
  stdin.on("error", () => undefined);

  async function* output(): AsyncGenerator<Chunk, void, undefined> {
    for (;;) {
      const next = chunks.shift();
      if (next !== undefined) {
        yield next;
        streams[next.stream].resume();
      } else if (open > 0) {
        await new Promise<void>((resolve) => (wake = resolve));
      } else break;
    }
    if (broken !== undefined && !closed) throw broken;
  }

  return {
    output: output(),
    write: (bytes) =>
      new Promise((resolve, reject) => {
        stdin.write(bytes, (error) => (error ? reject(error) : resolve()));
      }),
    close: () => {
      closed = true;
      for (const stream of [stdin, stdout, stderr]) stream.destroy();
    },
  };
}
