import { isRuntimeError, type ExecOptions, type ExecResult } from "@breakwater/runtime-api";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, it, vi } from "vitest";
import { ScriptedHelper, type Frame } from "../test/scripted-helper.ts";
import { runExec, type AbnormalEnd, type ExecCall } from "./exec-session.ts";

interface Session {
  readonly helper: ScriptedHelper;
  readonly result: Promise<ExecResult>;
  /** Calls of the driver's functions, in order. */
  readonly calls: readonly string[];
}

interface SessionSettings extends Partial<ExecCall> {
  readonly end?: AbnormalEnd | Error;
  readonly onKill?: (helper: ScriptedHelper) => void;
}

/** Starts a session whose helper answers frames with `script`. */
function session(
  script: (frame: Frame, helper: ScriptedHelper) => void,
  options: ExecOptions = {},
  settings: SessionSettings = {},
): Session {
  const { end, onKill, ...more } = settings;
  const helper = new ScriptedHelper();
  const calls: string[] = [];
  helper.onFrame = (frame) => script(frame, helper);
  const result = runExec({
    driver: "test",
    boxId: "box",
    request: { argv: ["program", "argument"], env: { A: "=1\n" }, cwd: "/", user: null },
    options,
    deadlineMs: 600_000,
    open: async () => {
      calls.push("open");
      return helper;
    },
    killByExec: async () => {
      calls.push("kill");
      onKill?.(helper);
    },
    afterAbnormalEnd: async () => {
      calls.push("ask");
      if (end instanceof Error) throw end;
      return end ?? { kind: "running", exitCode: null };
    },
    ...more,
  });
  result.catch(() => undefined);
  return { helper, result, calls };
}

type Script = (frame: Frame, helper: ScriptedHelper) => void;

/** What the helper does when the request, and when a kill frame, has arrived. */
function on(
  request: (helper: ScriptedHelper) => void,
  kill: (helper: ScriptedHelper) => void = () => undefined,
): Script {
  return (frame, helper) => {
    if (frame.type === "R") request(helper);
    if (frame.type === "K") kill(helper);
  };
}

function ending(trailer: Parameters<ScriptedHelper["conclude"]>[0]): (helper: ScriptedHelper) => void {
  return (helper) => {
    helper.conclude(trailer);
    helper.end();
  };
}

const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString();

afterEach(() => vi.useRealTimers());

describe("the result", () => {
  it("is the program's exit, and its output without our trailers", async () => {
    const { helper, result } = session(
      on((box) => {
        box.say("stdout", "out");
        box.say("stderr", "err");
        ending({ exit: 3 })(box);
      }),
    );
    expect(await result).toMatchObject({ exitCode: 3, stdoutBytes: 3, stderrBytes: 3 });
    expect(await result).toMatchObject({ truncated: false, timedOut: false, streamsClosed: true });
    expect(text((await result).stdout)).toBe("out");
    expect(text((await result).stderr)).toBe("err");
    expect(helper.request).toMatchObject({ argv: ["program", "argument"], env: ["A==1\n"], cwd: "/", stdin: false });
    expect(helper.request.user).toBeNull();
    expect(helper.closed).toBe(true);
  });

  it("is 128 and the signal for a program that was ended by one", async () => {
    const { result } = session(on(ending({ signal: 9 })));
    expect((await result).exitCode).toBe(137);
  });

  it("does not depend on how the trailer is cut, and has what other processes write after it", async () => {
    const { helper, result } = session(
      on((box) => {
        box.say("stdout", `before ${box.request.nonce.slice(0, 20)}`);
        box.conclude({ exit: 0 }, 1);
        box.say("stdout", " after");
        box.end();
      }),
    );
    const { stdout } = await result;
    expect(text(stdout)).toBe(`before ${helper.request.nonce.slice(0, 20)} after`);
  });

  it("is not held by a process that keeps the output open, nor by one that keeps writing", async () => {
    let writer: NodeJS.Timeout | undefined;
    const { result } = session(
      on((box) => {
        box.conclude({ exit: 5, outputHeld: true });
        writer = setInterval(() => box.say("stderr", "y\n"), 1);
      }),
    );
    const startedAt = performance.now();
    expect(await result).toMatchObject({ exitCode: 5, streamsClosed: false });
    expect(performance.now() - startedAt).toBeLessThan(2000);
    clearInterval(writer);
  });

  it("does not wait for the streams to end: the helper says what still holds them", async () => {
    for (const outputHeld of [true, false]) {
      const { helper, result } = session(
        on((box) => box.conclude({ exit: 5, outputHeld })),
        {},
        { streamsEndWithProgram: true },
      );
      const startedAt = performance.now();
      expect(await result).toMatchObject({ exitCode: 5, streamsClosed: !outputHeld });
      expect(performance.now() - startedAt).toBeLessThan(1000);
      expect(helper.request.stay).toBe(true);
    }
  });

  it("cannot be forged by a program that prints what a trailer looks like", async () => {
    const { result } = session(
      on((box) => {
        box.say("stderr", `\x1e${"0".repeat(48)}\0\0\0\x20${JSON.stringify({ exit: 0, killed: null, survivors: [] })}`);
        ending({ exit: 9 })(box);
      }),
    );
    expect((await result).exitCode).toBe(9);
  });

  it("keeps the beginning of long output and counts all of it", async () => {
    const { result } = session(
      on((box) => {
        for (let index = 0; index < 100; index++) box.say("stdout", "0123456789");
        ending({ exit: 0 })(box);
      }),
      { maxOutputBytes: 25 },
    );
    expect(await result).toMatchObject({ stdoutBytes: 1000, truncated: true });
    expect(text((await result).stdout)).toBe("0123456789012345678901234");
  });

  it("is called truncated when the end of stdout may be missing", async () => {
    const { result } = session(
      on((box) => {
        box.concludeStream("stderr", { exit: 0 });
        box.end();
      }),
    );
    expect(await result).toMatchObject({ exitCode: 0, truncated: true });
  });
});

describe("onOutput", () => {
  it("gets every byte in order and holds the stream back", async () => {
    const got: string[] = [];
    let mostTaken = 0;
    const { helper, result } = session(
      on((box) => {
        for (let index = 0; index < 5; index++) box.say("stdout", `${index}`);
        ending({ exit: 0 })(box);
      }),
      {
        onOutput: async (stream, chunk) => {
          mostTaken = Math.max(mostTaken, helper.taken - got.length);
          await sleep(5);
          got.push(`${stream} ${text(chunk)}`);
        },
      },
    );
    await result;
    expect(got).toEqual(["stdout 0", "stdout 1", "stdout 2", "stdout 3", "stdout 4"]);
    expect(mostTaken).toBe(1);
  });

  it("is not called any more once the result is there", async () => {
    let calls = 0;
    const { helper, result } = session(
      on((box) => box.conclude({ exit: 0 })),
      { onOutput: () => void calls++ },
    );
    await result;
    helper.say("stdout", "late");
    await sleep(20);
    expect(calls).toBe(0);
  });

  it("ends the program when it fails, and its error is the caller's", async () => {
    const failure = new Error("disk of the caller is full");
    const { helper, result } = session(
      on((box) => box.say("stdout", "x"), ending({ signal: 9, killed: "request" })),
      { onOutput: () => Promise.reject(failure) },
    );
    await expect(result).rejects.toBe(failure);
    expect(helper.frames.map(({ type }) => type)).toEqual(["R", "K"]);
  });
});

describe("stdin", () => {
  const answerAtEnd: Script = (frame, helper) => {
    if (frame.type === "E") ending({ exit: 0 })(helper);
  };
  const received = (helper: ScriptedHelper): Buffer =>
    Buffer.concat(helper.frames.filter(({ type }) => type === "D").map(({ payload }) => payload));

  it("arrives whole, in bounded frames, and ends", async () => {
    const input = Buffer.from(Array.from({ length: 300_000 }, (_, index) => index % 251));
    const { helper, result } = session(answerAtEnd, { stdin: input });
    await result;
    expect(helper.request.stdin).toBe(true);
    expect(received(helper).equals(input)).toBe(true);
    expect(Math.max(...helper.frames.map(({ payload }) => payload.length))).toBeLessThanOrEqual(65_536);
    expect(helper.frames.at(-1)?.type).toBe("E");
  });

  it("may be text, a stream, or empty", async () => {
    async function* stream(): AsyncGenerator<Uint8Array> {
      yield Buffer.from("a");
      yield new Uint8Array(0);
      yield Buffer.from("b");
    }
    const cases = [
      ["é", "é"],
      [stream(), "ab"],
      ["", ""],
    ] as const;
    for (const [stdin, bytes] of cases) {
      const { helper, result } = session(answerAtEnd, { stdin });
      await result;
      expect(text(received(helper))).toBe(bytes);
    }
  });

  it("is read no faster than the program takes it", async () => {
    let read = 0;
    async function* endless(): AsyncGenerator<Uint8Array> {
      for (;;) {
        read += 1;
        yield Buffer.alloc(1000);
      }
    }
    const helper = new ScriptedHelper();
    helper.writing = () => new Promise(() => undefined);
    const { result } = session(() => undefined, { stdin: endless() }, { open: async () => helper });
    await sleep(30);
    expect(read).toBe(1);
    ending({ exit: 0 })(helper);
    expect((await result).exitCode).toBe(0);
  });

  it("that never ends does not hold a program that has ended", async () => {
    let returned = false;
    const stdin = {
      [Symbol.asyncIterator]: () => ({
        next: () => new Promise<IteratorResult<Uint8Array>>(() => undefined),
        return: async () => {
          returned = true;
          return { done: true as const, value: undefined };
        },
      }),
    };
    const { result } = session(on(ending({ exit: 0 })), { stdin });
    expect((await result).exitCode).toBe(0);
    expect(returned).toBe(true);
  });

  it("that fails ends the program, and its error is the caller's", async () => {
    const failure = new Error("cannot be read");
    async function* failing(): AsyncGenerator<Uint8Array> {
      yield Buffer.from("x");
      throw failure;
    }
    const script = on(() => undefined, ending({ signal: 9, killed: "request" }));
    await expect(session(script, { stdin: failing() }).result).rejects.toBe(failure);
  });

  it("that a program does not want is no error", async () => {
    const { helper, result } = session(() => undefined, { stdin: Buffer.alloc(1000) });
    helper.writing = () => Promise.reject(new Error("EPIPE"));
    await sleep(5);
    ending({ exit: 4 })(helper);
    expect((await result).exitCode).toBe(4);
  });
});

describe("a deadline", () => {
  it("is kept by the helper, and the result says so", async () => {
    const script = on(ending({ signal: 9, killed: "timeout", killedCount: 2 }));
    const { helper, result } = session(script, { timeoutMs: 2000 });
    expect(await result).toMatchObject({ exitCode: 137, timedOut: true });
    expect(helper.request.timeoutMs).toBeGreaterThan(1500);
    expect(helper.request.timeoutMs).toBeLessThanOrEqual(2000);
  });

  it("is the box's lifetime where none is given, and never beyond what a timer can do", async () => {
    const first = session(on(ending({ exit: 0 })));
    await first.result;
    expect(first.helper.request.timeoutMs).toBeGreaterThan(590_000);
    const second = session(on(ending({ exit: 0 })), { timeoutMs: Number.POSITIVE_INFINITY });
    expect((await second.result).timedOut).toBe(false);
    expect(second.helper.request.timeoutMs).toBeGreaterThan(2 ** 31 - 10_000);
    expect(second.helper.request.timeoutMs).toBeLessThan(2 ** 31);
  });

  it("that left something alive makes the box unfit", async () => {
    const { result } = session(on(ending({ signal: 9, killed: "timeout", survivors: [17] })));
    await expect(result).rejects.toMatchObject({ code: "ERR_BOX_UNFIT" });
  });

  it("that the helper does not keep is kept from outside", async () => {
    vi.useFakeTimers();
    const onKill = ending({ signal: 9, killed: "request" });
    const { helper, result, calls } = session(() => undefined, { timeoutMs: 1000 }, { onKill });
    const sent = (): readonly string[] => helper.frames.map(({ type }) => type);
    await vi.advanceTimersByTimeAsync(5900);
    expect(sent()).toEqual(["R"]);
    await vi.advanceTimersByTimeAsync(200);
    expect(sent()).toEqual(["R", "K"]);
    await vi.advanceTimersByTimeAsync(3000);
    expect(calls).toEqual(["open", "kill"]);
    expect((await result).exitCode).toBe(137);
  });

  it("that nothing can keep makes the box unfit, in bounded time", async () => {
    vi.useFakeTimers();
    const killByExec = (): Promise<void> => new Promise(() => undefined);
    const { result, calls } = session(() => undefined, { timeoutMs: 1000 }, { killByExec });
    await vi.advanceTimersByTimeAsync(60_000);
    await expect(result).rejects.toMatchObject({ code: "ERR_BOX_UNFIT" });
    expect(calls).toEqual(["open", "ask"]);
  });

  it("does not wait for a caller that holds the output for ever", async () => {
    vi.useFakeTimers();
    const { result } = session(
      on((box) => {
        box.say("stdout", "x");
        ending({ signal: 9, killed: "timeout" })(box);
      }),
      { timeoutMs: 1000, onOutput: () => new Promise<void>(() => undefined) },
    );
    await vi.advanceTimersByTimeAsync(20_000);
    expect(await result).toMatchObject({ timedOut: true });
  });

  it("before the program was started is an error, and a late connection is closed", async () => {
    let connect: (helper: ScriptedHelper) => void = () => undefined;
    const open = (): Promise<ScriptedHelper> =>
      new Promise((resolve) => {
        connect = resolve;
      });
    const { result } = session(() => undefined, { timeoutMs: 20 }, { open });
    await expect(result).rejects.toMatchObject({
      code: "ERR_TIMEOUT",
      driver: "test",
      operation: "exec",
      boxId: "box",
    });
    const late = new ScriptedHelper();
    connect(late);
    await sleep(5);
    expect(late).toMatchObject({ closed: true, frames: [] });
  });

  it.each([-1, Number.NaN, "5" as unknown as number])("of %s is a mistake of the caller", async (timeoutMs) => {
    await expect(session(() => undefined, { timeoutMs }).result).rejects.toThrow(TypeError);
  });
});

describe("an abort", () => {
  it("before the start starts nothing", async () => {
    const { result, calls, helper } = session(() => undefined, { signal: AbortSignal.abort() });
    await expect(result).rejects.toMatchObject({ code: "ERR_ABORTED" });
    expect([calls, helper.frames]).toEqual([[], []]);
  });

  it("while connecting starts nothing", async () => {
    const abort = new AbortController();
    const helper = new ScriptedHelper();
    const open = async (): Promise<ScriptedHelper> => {
      abort.abort();
      return helper;
    };
    const { result } = session(() => undefined, { signal: abort.signal }, { open });
    await expect(result).rejects.toMatchObject({ code: "ERR_ABORTED" });
    await sleep(1);
    expect(helper).toMatchObject({ closed: true, frames: [] });
  });

  it("rejects once nothing of the program is left", async () => {
    const abort = new AbortController();
    const reason = new Error("changed my mind");
    let killed = false;
    const { helper, result, calls } = session(
      on(
        () => setTimeout(() => abort.abort(reason), 5),
        (box) =>
          setTimeout(() => {
            killed = true;
            ending({ signal: 9, killed: "request", killedCount: 3 })(box);
          }, 20),
      ),
      { signal: abort.signal },
    );
    await expect(result).rejects.toMatchObject({ code: "ERR_ABORTED", cause: reason });
    expect(killed).toBe(true);
    expect(calls).toEqual(["open"]);
    expect(helper.closed).toBe(true);
  });

  it("of a program that survives makes the box unfit", async () => {
    const abort = new AbortController();
    const script = on(() => abort.abort(), ending({ signal: 9, killed: "request", survivors: [4] }));
    const { result } = session(script, { signal: abort.signal });
    await expect(result).rejects.toMatchObject({ code: "ERR_BOX_UNFIT" });
  });

  it("is not lost when the program ends by itself meanwhile", async () => {
    const abort = new AbortController();
    const { result } = session(
      on((box) => {
        abort.abort();
        ending({ exit: 0 })(box);
      }),
      { signal: abort.signal },
    );
    await expect(result).rejects.toMatchObject({ code: "ERR_ABORTED" });
  });

  it("after the result changes nothing", async () => {
    const abort = new AbortController();
    const { result } = session(on(ending({ exit: 0 })), { signal: abort.signal });
    expect((await result).exitCode).toBe(0);
    abort.abort();
    expect((await result).exitCode).toBe(0);
  });
});

describe("a program that could not be started", () => {
  it.each([
    ["user", "EINVAL"],
    ["cwd", "ENOENT"],
    ["exec", "EACCES"],
  ] as const)("for its %s", async (step, errno) => {
    const { result } = session(on(ending({ startError: { step, errno, message: "no" } })));
    await expect(result).rejects.toMatchObject({ code: "ERR_EXEC_START", step, errno });
  });

  it("because our helper could not", async () => {
    const end = { kind: "running", exitCode: 126, startFailure: "exec format error" } as const;
    const { result } = session(
      on((box) => {
        box.say("stdout", "OCI runtime exec failed");
        box.end();
      }),
      {},
      { end },
    );
    await expect(result).rejects.toMatchObject({ code: "ERR_EXEC_START", step: "helper" });
  });

  it("because the driver could not", async () => {
    const failure = new Error("the driver's own");
    const { result } = session(() => undefined, {}, { open: () => Promise.reject(failure) });
    await expect(result).rejects.toBe(failure);
  });
});

describe("streams that end without the helper's word", () => {
  const justEnd = on((box) => {
    box.say("stdout", "x");
    box.end();
  });
  const reset = new Error("ECONNRESET");
  const justBreak = on((box) => {
    box.say("stdout", "x");
    box.break(reset);
  });

  it("in a box that is gone", async () => {
    const { result } = session(justEnd, {}, { end: { kind: "lost" } });
    await expect(result).rejects.toMatchObject({ code: "ERR_BOX_LOST" });
  });

  it("when the box's root ended our helper: the exit code is the one on record", async () => {
    const { result, calls } = session(justEnd, {}, { end: { kind: "running", exitCode: 137 } });
    expect(await result).toMatchObject({ exitCode: 137, streamsClosed: true, stdoutBytes: 1, truncated: true });
    expect(calls).toEqual(["open", "ask"]);
  });

  it("and nobody knows more", async () => {
    const { result, calls } = session(justEnd);
    await expect(result).rejects.toMatchObject({ code: "ERR_EXEC_UNKNOWN", retryable: false });
    expect(calls).toEqual(["open", "ask", "kill"]);
    const error: unknown = await result.catch((thrown: unknown) => thrown);
    expect(isRuntimeError(error, "ERR_EXEC_UNKNOWN")).toBe(true);
  });

  it("because the connection broke: whatever is on record, the outcome is unknown, and nothing runs twice", async () => {
    const { result, calls } = session(justBreak, {}, { end: { kind: "running", exitCode: 0 } });
    await expect(result).rejects.toMatchObject({ code: "ERR_EXEC_UNKNOWN", cause: reset });
    expect(calls).toEqual(["open", "ask", "kill"]);
  });

  it("because the connection broke with the box", async () => {
    const { result } = session(justBreak, {}, { end: { kind: "lost" } });
    await expect(result).rejects.toMatchObject({ code: "ERR_BOX_LOST" });
  });

  it("and the backend does not answer", async () => {
    const { result } = session(justEnd, {}, { end: new Error("no answer") });
    await expect(result).rejects.toMatchObject({ code: "ERR_EXEC_UNKNOWN", cause: { message: "no answer" } });
  });

  it("in the middle of it", async () => {
    const { result } = session(
      on((box) => {
        box.say("stderr", `${box.request.nonce}\0\0`);
        box.end();
      }),
    );
    await expect(result).rejects.toMatchObject({ code: "ERR_EXEC_UNKNOWN" });
  });

  it("when the input side was lost: what the program had done is not known", async () => {
    const { result } = session(on(ending({ signal: 9, killed: "owner-lost" })));
    await expect(result).rejects.toMatchObject({ code: "ERR_EXEC_UNKNOWN" });
  });
});

describe("arguments", () => {
  const request = { argv: ["true"], env: {}, cwd: "/", user: null };
  it.each([
    { ...request, argv: [] },
    { ...request, argv: [""] },
    { ...request, argv: ["a\0b"] },
    { ...request, env: { "": "x" } },
    { ...request, env: { "A=B": "x" } },
    { ...request, env: { A: "\0" } },
    { ...request, cwd: "relative" },
    { ...request, cwd: "/a/../b" },
    { ...request, user: "" },
    { ...request, user: "a b" },
  ])("%o are refused before anything is opened", async (wrong) => {
    const { result, calls } = session(() => undefined, {}, { request: wrong });
    await expect(result).rejects.toThrow(TypeError);
    expect(calls).toEqual([]);
  });

  it("are passed on as they are", async () => {
    const argv = ["-e", "$HOME", '"'];
    const env = { A: 'HAHA "x" $HOME \\n', B: "\n", C: "", D: "=", E: "-e", F: "é".repeat(200) };
    const given = { argv, env, cwd: "/ a", user: "1:2" };
    const { helper, result } = session(on(ending({ exit: 0 })), {}, { request: given });
    await result;
    expect(helper.request).toMatchObject({
      argv,
      env: ['A=HAHA "x" $HOME \\n', "B=\n", "C=", "D==", "E=-e", `F=${"é".repeat(200)}`],
      cwd: "/ a",
      user: "1:2",
    });
  });
});

it("gives every call a name and a nonce of its own", async () => {
  const ids = new Set<string>();
  for (let index = 0; index < 3; index++) {
    const helper = new ScriptedHelper();
    helper.onFrame = () => ending({ exit: 0 })(helper);
    const open = async (execId: string): Promise<ScriptedHelper> => {
      ids.add(execId);
      return helper;
    };
    await session(() => undefined, {}, { open }).result;
    ids.add(helper.request.nonce);
  }
  expect(ids.size).toBe(6);
  for (const id of ids) expect(id).toMatch(/[0-9a-f]{24,}$/);
});

it("takes 256 MiB without keeping them", async () => {
  const chunk = Buffer.alloc(256 * 1024, "x");
  const helper = new ScriptedHelper();
  const output = (async function* (): AsyncGenerator<{ stream: "stdout" | "stderr"; chunk: Uint8Array }> {
    for (let index = 0; index < 1024; index++) yield { stream: "stdout", chunk };
    ending({ exit: 0 })(helper);
    yield* helper.output;
  })();
  const open = async (): ReturnType<ExecCall["open"]> => ({
    output,
    write: (bytes) => helper.write(bytes),
    close: () => helper.close(),
  });
  const before = process.memoryUsage().rss;
  const { result } = session(() => undefined, { maxOutputBytes: 1024 * 1024 }, { open });
  expect(await result).toMatchObject({ stdoutBytes: 256 * 1024 * 1024, truncated: true });
  expect(process.memoryUsage().rss - before).toBeLessThan(64 * 1024 * 1024);
});
