import { type ChildProcess, execFile, spawn } from "node:child_process";
import { closeSync, constants, fchmodSync, openSync } from "node:fs";
import { rm } from "node:fs/promises";
import { Socket } from "node:net";
import { promisify } from "node:util";
import type { OutputStream } from "@breakwater/runtime-api";
import type { ExecTransport } from "@breakwater/driver-kit";

interface Piece {
  readonly stream: OutputStream;
  readonly chunk: Uint8Array;
}

/**
 * Starts a program whose stdout and stderr are pipes. Node would give it sockets, which programs cannot open as `/dev/stdout`; so named pipes are made, opened
 * and removed again. `prefix` is a path on the host for
 * them. `inherited` becomes descriptor 3.
 */
export async function spawnWithPipes(
  command: readonly string[],
  prefix: string,
  inherited: number,
): Promise<BoxProcess> {
  const paths = [`${prefix}.out`, `${prefix}.err`];
  await promisify(execFile)("mkfifo", ["-m", "600", ...paths]);
  const readers = paths.map((path) => openSync(path, constants.O_RDONLY | constants.O_NONBLOCK));
  const writers = paths.map((path) => openSync(path, constants.O_WRONLY));
  await Promise.all(paths.map((path) => rm(path, { force: true })));
  // Every user of the box may open them by `/dev/stdout`, nobody else any more by their names.
  for (const writer of writers) fchmodSync(writer, 0o666);
  const [program = "", ...argv] = command;
  const child = spawn(program, argv, { stdio: ["pipe", ...writers, inherited], detached: true, cwd: "/" });
  for (const writer of writers) closeSync(writer);
  const [stdout, stderr] = readers.map((fd) => new Socket({ fd, readable: true, writable: false }));
  return new BoxProcess(child, { stdout: stdout as Socket, stderr: stderr as Socket });
}

/** A program of ours in a box as the transport of driver-kit's exec session. */
export class BoxProcess implements ExecTransport {
  readonly child: ChildProcess;
  readonly streams: Readonly<Record<OutputStream, Socket>>;
  readonly output: AsyncIterable<Piece>;
  #closed = false;

  constructor(child: ChildProcess, streams: Readonly<Record<OutputStream, Socket>>) {
    this.child = child;
    this.streams = streams;
    this.output = this.#merge();
    // A broken connection is found by whoever reads or writes.
    for (const stream of [child, child.stdin, streams.stdout, streams.stderr]) stream?.on("error", () => undefined);
  }

  write(bytes: Uint8Array): Promise<void> {
    return new Promise((resolve, reject) => {
      this.child.stdin?.write(bytes, (error) => (error ? reject(error) : resolve()));
    });
  }

  close(): void {
    this.#closed = true;
    this.child.stdin?.destroy();
    this.streams.stdout.destroy();
    this.streams.stderr.destroy();
  }

  /** Whatever comes first, one piece of each stream at a time: who does not read holds the program back. */
  async *#merge(): AsyncGenerator<Piece, void, undefined> {
    const pieces: Piece[] = [];
    let open = 2;
    let wake = (): void => undefined;
    let broken: Error | undefined;
    for (const stream of ["stdout", "stderr"] as const) {
      const socket = this.streams[stream];
      socket.on("data", (chunk: Uint8Array) => {
        socket.pause();
        pieces.push({ stream, chunk });
        wake();
      });
      socket.on("error", (error) => (broken = error));
      socket.on("close", () => {
        open -= 1;
        wake();
      });
    }
    for (;;) {
      const piece = pieces.shift();
      if (piece !== undefined) {
        yield piece;
        this.streams[piece.stream].resume();
      } else if (open > 0) await new Promise<void>((resolve) => (wake = resolve));
      else break;
    }
    if (broken !== undefined && !this.#closed) throw broken;
  }
}
