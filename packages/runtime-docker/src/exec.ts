import type { Readable } from "node:stream";
import type { OutputStream } from "@breakwater/runtime-api";
import type { BoxExec, Deadline, ProgramOutcome } from "@breakwater/driver-kit";
import type Dockerode from "dockerode";
import type { Engine, HijackedConnection } from "./engine.ts";
import { isStatus } from "./errors.ts";

const HEADER_BYTES = 8;
const STREAMS: Readonly<Record<number, OutputStream>> = { 1: "stdout", 2: "stderr" };

export interface OutputChunk {
  readonly stream: OutputStream;
  readonly chunk: Uint8Array;
}

/** The connection broke the engine's framing: bytes may be missing. */
export class FramingError extends Error {
  override readonly name = "FramingError";
}

/**
 * Takes the engine's multiplexed output apart: an 8-byte header (stream, three zeros, length) before each piece. Holds back nothing but
 * headers, so memory stays flat whatever a header claims.
 */
export class Demultiplexer {
  #header: Buffer = Buffer.alloc(0);
  #stream: OutputStream = "stdout";
  #remaining = 0;

  push(data: Uint8Array): readonly OutputChunk[] {
    const pieces: OutputChunk[] = [];
    let at = 0;
    while (at < data.length) {
      if (this.#remaining > 0) {
        const chunk = data.subarray(at, at + this.#remaining);
        pieces.push({ stream: this.#stream, chunk });
        this.#remaining -= chunk.length;
        at += chunk.length;
        continue;
      }
      const missing = HEADER_BYTES - this.#header.length;
      this.#header = Buffer.concat([this.#header, data.subarray(at, at + missing)]);
      at += missing;
      if (this.#header.length === HEADER_BYTES) this.#startFrame();
    }
    return pieces;
  }

  /** Throws if the stream ended inside a frame. */
  end(): void {
    if (this.#remaining > 0)
      throw new FramingError(`truncated: ${this.#remaining} bytes of the last frame are missing`);
    if (this.#header.length > 0) throw new FramingError("truncated: the stream ended inside a header");
  }

  #startFrame(): void {
    const type = this.#header[0] ?? 0;
    const stream = STREAMS[type];
    if (stream === undefined || this.#header.readUIntBE(1, 3) !== 0) {
      throw new FramingError(`no output frame: header ${this.#header.toString("hex")}`);
    }
    this.#stream = stream;
    this.#remaining = this.#header.readUInt32BE(4);
    this.#header = Buffer.alloc(0);
  }
}

/** How much of the first output is kept: the engine writes there why it could not start a program. */
const FIRST_OUTPUT_BYTES = 500;

/** The engine's hijacked connection as the transport of a program. */
export class EngineExec implements BoxExec {
  readonly output: AsyncIterable<OutputChunk>;
  readonly #connection: HijackedConnection;
  readonly #inspect: (clock: Deadline) => Promise<ExecInspection | null>;
  #closed = false;
  #first: Buffer = Buffer.alloc(0);

  constructor(connection: HijackedConnection, inspect: (clock: Deadline) => Promise<ExecInspection | null>) {
    this.#connection = connection;
    this.#inspect = inspect;
    this.output = this.#read(connection.output);
    // A broken connection is found by whoever reads or writes.
    connection.input.on("error", () => undefined);
    connection.output.on("error", () => undefined);
  }

  async outcome(clock: Deadline): Promise<ProgramOutcome | null> {
    const inspection = await this.#inspect(clock);
    return inspection === null ? null : programOutcome(inspection, this.#first.toString("utf8").trim());
  }

  write(bytes: Uint8Array): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#connection.input.write(bytes, (error) => {
        if (error) reject(error);
        else resolve();
      });
    });
  }

  close(): void {
    this.#closed = true;
    this.#connection.output.destroy();
    this.#connection.input.destroy();
  }

  async *#read(output: Readable): AsyncGenerator<OutputChunk> {
    const frames = new Demultiplexer();
    try {
      for await (const data of output as AsyncIterable<Buffer>) {
        for (const piece of frames.push(data)) {
          this.#keepFirst(piece.chunk);
          yield piece;
        }
      }
    } catch (error) {
      if (this.#closed) return;
      throw error;
    }
    if (!this.#closed) frames.end();
  }

  #keepFirst(chunk: Uint8Array): void {
    const room = FIRST_OUTPUT_BYTES - this.#first.length;
    if (room > 0) this.#first = Buffer.concat([this.#first, chunk.subarray(0, room)]);
  }
}

/** Starts a program by two calls, create and start. Creating may be repeated, as nothing runs by it; starting never. */
export async function openExec(
  engine: Engine,
  clock: Deadline,
  container: string,
  options: Dockerode.ExecCreateOptions,
): Promise<EngineExec> {
  const { Id: execId } = await engine.json<{ readonly Id: string }>(
    clock,
    { method: "POST", path: `/containers/${container}/exec`, body: options },
    { idempotent: true },
  );
  const call = { method: "POST", path: `/exec/${execId}/start`, body: { Detach: false, Tty: false } } as const;
  return new EngineExec(await engine.hijack(clock.signal, call), async (asking) => {
    try {
      return await engine.json<ExecInspection>(asking, { method: "GET", path: `/exec/${execId}/json` });
    } catch (error) {
      if (isStatus(error, 404)) return null;
      throw error;
    }
  });
}

/** The part of the engine's description of an exec that counts. */
export interface ExecInspection {
  readonly Running: boolean;
  readonly ExitCode: number | null;
  readonly Pid: number;
}

/** What the engine knows of a program. `firstOutput` is the beginning of what came, as text for people. */
export function programOutcome(inspection: ExecInspection, firstOutput: string): ProgramOutcome {
  const exitCode = inspection.Running ? null : inspection.ExitCode;
  // The engine reports that a program could not be started as output and exit code 126 or 127; such a program never had a process id.
  // (Podman forgets the process id of every program that has ended.)
  const neverStarted = (exitCode === 126 || exitCode === 127) && inspection.Pid === 0;
  return { exitCode, ...(neverStarted ? { startFailure: firstOutput || `exit code ${exitCode}` } : {}) };
}
