import { Duplex, PassThrough } from "node:stream";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Demultiplexer, EngineExec, FramingError, type OutputChunk, programOutcome } from "./exec.ts";

function header(type: number, length: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes[0] = type;
  bytes.writeUInt32BE(length, 4);
  return bytes;
}

function frame(type: number, text: string): Buffer {
  return Buffer.concat([header(type, Buffer.byteLength(text)), Buffer.from(text)]);
}

/** What comes out when the bytes arrive in these pieces, neighbours of one stream joined. */
function demultiplexed(...pieces: readonly Uint8Array[]): readonly (readonly [string, string])[] {
  const frames = new Demultiplexer();
  const chunks = pieces.flatMap((piece) => frames.push(piece));
  frames.end();
  return joined(chunks);
}

function joined(chunks: readonly OutputChunk[]): readonly (readonly [string, string])[] {
  const runs: [string, string][] = [];
  for (const { stream, chunk } of chunks) {
    const last = runs.at(-1);
    const text = Buffer.from(chunk).toString("latin1");
    if (last?.[0] === stream) last[1] += text;
    else runs.push([stream, text]);
  }
  return runs;
}

describe("the engine's multiplexed output", () => {
  it("may have a header in two pieces", () => {
    const bytes = frame(1, "hello");
    expect(demultiplexed(bytes.subarray(0, 3), bytes.subarray(3))).toEqual([["stdout", "hello"]]);
  });

  it("may come byte by byte", () => {
    const bytes = Buffer.concat([frame(2, "error"), frame(1, "out")]);
    expect(demultiplexed(...[...bytes].map((byte) => Uint8Array.of(byte)))).toEqual([
      ["stderr", "error"],
      ["stdout", "out"],
    ]);
  });

  it("may have several frames in one piece, empty ones too", () => {
    expect(demultiplexed(Buffer.concat([frame(1, "a"), frame(1, ""), frame(2, "b"), frame(1, "c")]))).toEqual([
      ["stdout", "a"],
      ["stderr", "b"],
      ["stdout", "c"],
    ]);
  });

  it("comes out the same however it is cut", () => {
    const streams = fc.array(fc.tuple(fc.constantFrom(1, 2), fc.string({ maxLength: 40 })), { maxLength: 8 });
    fc.assert(
      fc.property(streams, fc.array(fc.nat(400), { maxLength: 10 }), (sent, cuts) => {
        const bytes = Buffer.concat(sent.map(([type, text]) => frame(type, text)));
        const at = [0, ...cuts.map((cut) => Math.min(cut, bytes.length)).toSorted((a, b) => a - b), bytes.length];
        const pieces = at.slice(1).map((end, index) => bytes.subarray(at[index], end));
        expect(demultiplexed(...pieces)).toEqual(demultiplexed(bytes));
      }),
    );
  });

  it.each([
    ["an unknown stream", header(7, 1)],
    ["bytes that are not zero where zeros have to be", Buffer.from([1, 0, 1, 0, 0, 0, 0, 1])],
    ["the output of a terminal", Buffer.from("plain text")],
  ])("is not guessed at: %s", (_what, bytes) => {
    expect(() => new Demultiplexer().push(bytes)).toThrow(FramingError);
  });

  it.each([
    ["in a frame", Buffer.concat([header(1, 100), Buffer.alloc(40)])],
    ["in a header", header(1, 100).subarray(0, 5)],
  ])("may not end %s", (_where, bytes) => {
    const frames = new Demultiplexer();
    frames.push(bytes);
    expect(() => frames.end()).toThrow(/truncated/);
  });

  it("keeps no memory for a length that was only claimed", () => {
    const frames = new Demultiplexer();
    expect(frames.push(header(1, 2 ** 32 - 1))).toEqual([]);
    expect(frames.push(Buffer.from("x"))).toHaveLength(1);
  });
});

describe("a connection to a program", () => {
  const connect = (): { readonly engine: PassThrough; readonly written: Buffer[]; readonly exec: EngineExec } => {
    const engine = new PassThrough();
    const written: Buffer[] = [];
    const input = new Duplex({
      read: () => undefined,
      write: (chunk: Buffer, _encoding, done) => {
        written.push(chunk);
        done();
      },
    });
    return { engine, written, exec: new EngineExec({ input, output: engine }, async () => null) };
  };
  const outputOf = async (exec: EngineExec): Promise<readonly (readonly [string, string])[]> => {
    const chunks: OutputChunk[] = [];
    for await (const chunk of exec.output) chunks.push(chunk);
    return joined(chunks);
  };

  it("carries input and output", async () => {
    const { engine, written, exec } = connect();
    await exec.write(Buffer.from("in"));
    engine.end(frame(1, "out"));
    expect(await outputOf(exec)).toEqual([["stdout", "out"]]);
    expect(Buffer.concat(written).toString()).toBe("in");
  });

  it("that ends in a frame is an error, never a short output", async () => {
    const { engine, exec } = connect();
    engine.end(frame(1, "hello").subarray(0, 10));
    await expect(outputOf(exec)).rejects.toThrow(/truncated/);
  });

  it("that breaks is an error", async () => {
    const { engine, exec } = connect();
    engine.write(frame(1, "hello"));
    setImmediate(() => engine.destroy(new Error("reset")));
    await expect(outputOf(exec)).rejects.toThrow("reset");
  });

  it("that we close just ends", async () => {
    const { engine, exec } = connect();
    engine.write(frame(1, "hello").subarray(0, 10));
    setImmediate(() => exec.close());
    expect(await outputOf(exec)).toEqual([["stdout", "he"]]);
  });
});

describe("an exec without the helper's word", () => {
  it("that never had a process was not started", () => {
    expect(programOutcome({ Running: false, ExitCode: 126, Pid: 0 }, "no such file")).toEqual({
      exitCode: 126,
      startFailure: "no such file",
    });
  });

  it("that had one has the exit code that the engine recorded", () => {
    expect(programOutcome({ Running: false, ExitCode: 137, Pid: 41 }, "")).toEqual({ exitCode: 137 });
  });

  it("that still runs has no exit code", () => {
    expect(programOutcome({ Running: true, ExitCode: 0, Pid: 41 }, "")).toEqual({ exitCode: null });
  });
});
