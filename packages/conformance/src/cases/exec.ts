import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { ExecResult, Runtime } from "@breakwater/runtime-api";
import {
  assertAnswers,
  countProcesses,
  endSleepers,
  expectedError,
  gate,
  given,
  memoryGrowth,
  mistake,
  PATIENCE_MS,
  perl,
  rejection,
  shell,
  sleeping,
  text,
  timed,
  uniqueSeconds,
  until,
  untilSleeping,
} from "../box-tools.ts";
import type { ConformanceCase } from "../case.ts";
import { anyUser } from "../needs.ts";

const MiB = 1024 * 1024;
/** Of programs that must be seen alive before it comes, also on a busy machine. */
const DEADLINE_MS = 20_000;

/** Prints its arguments, environment values or input so that nothing can hide: each as hexadecimal on a line. */
const HEX_ARGUMENTS = `print unpack("H*", $_), "\\n" for @ARGV`;
const hex = (value: string): string => Buffer.from(value).toString("hex");

function outcome(result: ExecResult): readonly [number, string, string] {
  return [result.exitCode, text(result.stdout), text(result.stderr)];
}

const sha256 = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");

export const execCases: readonly ConformanceCase[] = [
  {
    id: "exec.exit-code",
    level: "MUST",
    title: "give a non-zero exit as a result",
    promise: "A non-zero exit is a result, never an error.",
    covers: ["B13"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      assert.deepEqual(outcome(await box.exec(["true"])), [0, "", ""]);
      assert.deepEqual(outcome(await box.exec(["sh", "-c", "echo o; echo e >&2; exit 7"])), [7, "o\n", "e\n"]);
      assert.deepEqual(outcome(await box.exec(["sh", "-c", "exit 255"])), [255, "", ""]);
    },
  },
  {
    id: "exec.exit-126-127",
    level: "MUST",
    title: "leave 126 and 127 of a program that ran as they are",
    promise: "A program that ran and exited with 126 or 127 is a result.",
    covers: ["B08"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      for (const code of [125, 126, 127]) {
        assert.deepEqual(outcome(await box.exec(["sh", "-c", `echo x; exit ${code}`])), [code, "x\n", ""]);
      }
    },
  },
  {
    id: "exec.cannot-start-program",
    level: "MUST",
    title: "reject when the program cannot be started",
    promise: "Could not start the program is a typed error and never an exit code.",
    covers: ["B08"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      assert.equal((await box.exec(["sh", "-c", "exit 0"])).exitCode, 0);
      for (const [program, errno] of [
        ["no-such-program-here", "ENOENT"],
        ["/no/such/program", "ENOENT"],
        ["/etc/passwd", "EACCES"],
        ["/etc", "EACCES"],
      ] as const) {
        const error = await rejection(box.exec([program]), "ERR_EXEC_START");
        assert.deepEqual([error.step, error.errno], ["exec", errno], program);
        assert.equal(error.retryable, false);
      }
      await assertAnswers(box);
    },
  },
  {
    id: "exec.cannot-start-cwd",
    level: "MUST",
    title: "reject when the working directory is missing or is no directory",
    promise: "Could not start the program is a typed error and never an exit code.",
    covers: ["B08"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const missing = await rejection(box.exec(["true"], { cwd: "/no/such/directory" }), "ERR_EXEC_START");
      assert.deepEqual([missing.step, missing.errno], ["cwd", "ENOENT"]);
      const file = await rejection(box.exec(["true"], { cwd: "/etc/passwd" }), "ERR_EXEC_START");
      assert.deepEqual([file.step, file.errno], ["cwd", "ENOTDIR"]);
      assert.equal(await shell(box, "[ -e /no ] || echo absent"), "absent\n");
    },
  },
  {
    id: "exec.cannot-start-user",
    level: "MUST",
    title: "reject when the user is unknown",
    promise: "Could not start the program is a typed error and never an exit code.",
    needs: [anyUser],
    covers: ["B08"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      for (const user of ["nosuchuser", "root:nosuchgroup"]) {
        const error = await rejection(box.exec(["true"], { user }), "ERR_EXEC_START");
        assert.equal(error.step, "user", user);
      }
      await assertAnswers(box);
    },
  },
  {
    id: "exec.argv-is-data",
    level: "MUST",
    title: "hand over every argument byte for byte, without a shell",
    promise: "argv is data, never re-parsed by a shell.",
    async run({ sharedBox }) {
      const args = [
        "two words",
        "new\nline\n",
        "",
        "--",
        "-n",
        "$HOME `id` $(id) *",
        `'single' "double"`,
        "\\n",
        "€ 日本 \u{1F6A2}",
        "a=b",
        "tab\t",
      ];
      const box = await sharedBox();
      assert.deepEqual((await perl(box, HEX_ARGUMENTS, ["--", ...args])).split("\n").slice(0, -1), args.map(hex));
    },
  },
  {
    id: "exec.argv-large",
    level: "SHOULD",
    title: "take an argument and a variable of 100 KiB",
    promise: "argv, env, cwd, user and stdin arrive byte for byte.",
    async run({ sharedBox }) {
      const box = await sharedBox();
      const large = "0123456789abcdef".repeat(6400);
      const result = await box.exec(["sh", "-c", 'printf %s "$1$LARGE" | sha256sum', "sh", large], {
        env: { LARGE: large },
      });
      assert.equal(text(result.stdout).slice(0, 64), sha256(Buffer.from(large + large)));
    },
  },
  {
    id: "exec.argv-mistakes",
    level: "MUST",
    title: "refuse an empty argv and NUL bytes as a mistake",
    promise: "Programming mistakes are bare TypeErrors.",
    async run({ sharedBox }) {
      const box = await sharedBox();
      await mistake(() => box.exec([]));
      await mistake(() => box.exec(["echo", "a\0b"]));
      await mistake(() => box.exec(["true"], { cwd: "relative" }));
      await assertAnswers(box);
    },
  },
  {
    id: "exec.env-is-data",
    level: "MUST",
    title: "hand over every variable byte for byte",
    promise: "env arrives byte for byte.",
    covers: ["B10"],
    async run({ sharedBox }) {
      const env: Record<string, string> = {
        A: 'HAHA "x" $HOME \\n',
        B: "first\nsecond\n",
        C: "",
        D: "a=b=c",
        E: "-e",
        F: "'single' `id` $(id)",
        G: "日本€".repeat(70),
        "odd.name-1": "kept",
      };
      const box = await sharedBox();
      const seen = await perl(
        box,
        `print exists $ENV{$_} ? unpack("H*", $ENV{$_}) : "absent", "\\n" for @ARGV`,
        Object.keys(env),
        { env },
      );
      assert.deepEqual(seen.split("\n").slice(0, -1), Object.values(env).map(hex));
    },
  },
  {
    id: "exec.env-mistakes",
    level: "MUST",
    title: "refuse a variable without a name, with = in its name, or with NUL as a mistake",
    promise: "Programming mistakes are bare TypeErrors.",
    covers: ["B10"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      await mistake(() => box.exec(["true"], { env: { "": "x" } }));
      await mistake(() => box.exec(["true"], { env: { "A=B": "x" } }));
      await mistake(() => box.exec(["true"], { env: { A: "x\0y" } }));
      await mistake(() => box.exec(["true"], { env: { "A\0": "x" } }));
    },
  },
  {
    id: "exec.env-layers",
    level: "MUST",
    title: "put the call's environment over the spec's, and that over the image's",
    promise: "The environment of a program is the image's, the spec's and the call's, the last one wins.",
    async run({ ownBox }) {
      const box = await ownBox({ env: { SPEC: "spec", BOTH: "spec", PATH: "/usr/local/bin:/usr/bin:/bin:/spec" } });
      const show = `printf '%s|' "$SPEC" "$BOTH" "$CALL" "$PATH"`;
      assert.equal(await shell(box, show), "spec|spec||/usr/local/bin:/usr/bin:/bin:/spec|");
      assert.equal(
        await shell(box, show, { env: { BOTH: "call", CALL: "call" } }),
        "spec|call|call|/usr/local/bin:/usr/bin:/bin:/spec|",
      );
      assert.equal(
        await shell(box, show),
        "spec|spec||/usr/local/bin:/usr/bin:/bin:/spec|",
        "a call's variables stayed",
      );
    },
  },
  {
    id: "exec.env-nothing-of-the-host",
    level: "MUST",
    title: "give a program no variable of our own process",
    promise: "Only what was declared is in the box's environment.",
    covers: ["B99"],
    async run({ ownBox }) {
      const name = "BREAKWATER_CONFORMANCE_CANARY";
      process.env[name] = "leaked";
      try {
        const box = await ownBox({ env: { DECLARED: "declared" } });
        const environments = await shell(box, "env; tr '\\0' '\\n' </proc/1/environ 2>/dev/null; true");
        assert.match(environments, /^DECLARED=declared$/m);
        assert.doesNotMatch(environments, new RegExp(name));
      } finally {
        delete process.env[name];
      }
    },
  },
  {
    id: "exec.cwd",
    level: "MUST",
    title: "run in the call's working directory, else the spec's",
    promise: "The working directory is the call's, else the spec's, else the image's.",
    async run({ ownBox }) {
      const box = await ownBox({ workdir: "/usr/share" });
      assert.equal(await shell(box, "pwd -P"), "/usr/share\n");
      await shell(box, "mkdir -p '/tmp/with blank/ünïcode'");
      assert.equal(await shell(box, "pwd -P", { cwd: "/tmp/with blank/ünïcode" }), "/tmp/with blank/ünïcode\n");
    },
  },
  {
    id: "exec.path-of-the-image",
    level: "MUST",
    title: "keep the image's PATH: no login shell",
    promise: "No login shell; the image's PATH is kept.",
    prerequisites: ["images.path"],
    covers: ["B11"],
    async run({ ownBox, images }) {
      const { image, program } = given(images.path);
      const box = await ownBox({ image });
      assert.equal((await box.exec([program])).exitCode, 0);
      assert.equal((await box.exec(["sh", "-c", `exec ${program}`])).exitCode, 0);
      assert.equal((await box.exec([program], { env: { OTHER: "1" } })).exitCode, 0);
    },
  },
  {
    id: "exec.user",
    level: "MUST",
    title: "run as the user that is asked for, by name or id, with or without a group",
    promise: "user: a name, an id, or user:group.",
    needs: [anyUser],
    async run({ sharedBox }) {
      const box = await sharedBox();
      for (const [user, ids] of [
        ["root", "0:0"],
        ["daemon", "1:1"],
        ["1", "1:1"],
        ["daemon:bin", "1:2"],
        ["1:2", "1:2"],
        ["12345:54321", "12345:54321"],
      ] as const) {
        assert.equal(await shell(box, 'echo "$(id -u):$(id -g)"', { user }), `${ids}\n`, user);
      }
      assert.match(await shell(box, "cat /etc/shadow 2>&1 || echo denied", { user: "daemon" }), /denied/);
    },
  },
  {
    id: "exec.user-of-the-spec",
    level: "MUST",
    title: "run as the spec's user unless a call asks for another one",
    promise: "The user is the call's, else the spec's, else the image's.",
    needs: [anyUser],
    async run({ ownBox }) {
      const box = await ownBox({ user: "daemon" });
      assert.equal(await shell(box, "id -u"), "1\n");
      assert.equal(await shell(box, "id -u", { user: "root" }), "0\n");
    },
  },
  {
    id: "exec.user-of-the-image",
    level: "MUST",
    title: "run as the image's user and in its working directory by default",
    promise: "The user is the call's, else the spec's, else the image's.",
    prerequisites: ["images.nonRoot"],
    async run({ ownBox, images }) {
      const { image, uid, workdir } = given(images.nonRoot);
      const box = await ownBox({ image });
      assert.equal(await shell(box, "id -u; pwd -P"), `${uid}\n${workdir}\n`);
    },
  },
  {
    id: "exec.signal",
    level: "MUST",
    title: "give 128 + signal for a program that a signal ended",
    promise: "exitCode is 128 + signal if the program was ended by one.",
    async run({ sharedBox }) {
      const box = await sharedBox();
      for (const [signal, code] of [
        ["KILL", 137],
        ["TERM", 143],
        ["SEGV", 139],
        ["USR1", 138],
      ] as const) {
        const result = await box.exec(["sh", "-c", `echo before; kill -${signal} $$; sleep 5`]);
        assert.deepEqual([result.exitCode, text(result.stdout), result.timedOut], [code, "before\n", false], signal);
      }
      await assertAnswers(box);
    },
  },
  {
    id: "exec.stdin-half-close",
    level: "MUST",
    title: "deliver all input, then its end, and read what comes after",
    promise: "stdin arrives byte for byte; its end is a half-close.",
    covers: ["B04"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const result = await box.exec(["sh", "-c", "wc -c; sleep 1; echo after"], {
        stdin: Buffer.alloc(3 * MiB, "x"),
        timeoutMs: PATIENCE_MS,
      });
      assert.deepEqual(outcome(result), [0, `${3 * MiB}\nafter\n`, ""]);
    },
  },
  {
    id: "exec.stdin-empty",
    level: "MUST",
    title: "give an empty input when none is asked for",
    promise: "The default of stdin is an empty input.",
    async run({ sharedBox }) {
      const box = await sharedBox();
      assert.deepEqual(outcome(await box.exec(["cat"], { timeoutMs: PATIENCE_MS })), [0, "", ""]);
      assert.deepEqual(outcome(await box.exec(["cat"], { stdin: "", timeoutMs: PATIENCE_MS })), [0, "", ""]);
    },
  },
  {
    id: "exec.stdin-binary",
    level: "MUST",
    title: "pass binary input of a stream through unchanged",
    promise: "stdin arrives byte for byte.",
    covers: ["B06"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const everyByte = Buffer.from(Array.from({ length: 256 }, (_unused, index) => index));
      const chunks = Array.from({ length: 600 }, (_unused, index) =>
        Buffer.concat([everyByte, Buffer.from(`${index}\n`)]),
      );
      const stream = (async function* () {
        for (const chunk of chunks) {
          if (Math.random() < 0.02) await sleep(5);
          yield chunk;
        }
      })();
      const result = await box.exec(["cat"], { stdin: stream, timeoutMs: PATIENCE_MS });
      assert.equal(result.exitCode, 0);
      assert.equal(sha256(result.stdout), sha256(Buffer.concat(chunks)));
    },
  },
  {
    id: "exec.stdin-ignored",
    level: "MUST",
    title: "give the result of a program that does not read its input",
    promise: "The result is decided by the program's exit.",
    async run({ sharedBox }) {
      const box = await sharedBox();
      const result = await box.exec(["sh", "-c", "exec 0</dev/null; echo done; exit 4"], {
        stdin: Buffer.alloc(3 * MiB),
        timeoutMs: PATIENCE_MS,
      });
      assert.deepEqual([outcome(result), result.timedOut], [[4, "done\n", ""], false]);
    },
  },
  {
    id: "exec.stdin-fails",
    level: "SHOULD",
    title: "reject, with nothing left running, when the input stream breaks",
    promise: "An input that broke is never taken for one that ended.",
    async run({ sharedBox }) {
      const box = await sharedBox();
      const marker = uniqueSeconds();
      let seen = 0;
      const stream = (async function* () {
        yield Buffer.from("begin\n");
        await until("the program running", async () => (seen = await sleeping(box, marker)) > 0);
        throw new Error("the input broke");
      })();
      await assert.rejects(
        box.exec(["sh", "-c", `sleep ${marker} & cat; wait`], { stdin: stream, timeoutMs: 2 * PATIENCE_MS }),
      );
      assert.ok(seen > 0, "the program was never seen alive");
      assert.equal(await countProcesses(box, marker), 0, "the program goes on with a part of its input");
    },
  },
  {
    id: "exec.output-binary",
    level: "MUST",
    title: "give output as the bytes that were written",
    promise: "Output is bytes.",
    covers: ["B06"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      assert.deepEqual(
        [...(await box.exec(["printf", "\\377\\376\\000x\\r\\n"])).stdout],
        [0xff, 0xfe, 0, 0x78, 0x0d, 0x0a],
      );
      const result = await box.exec(["perl", "-e", 'binmode STDOUT; print "a"x32767, "\\xe2\\x82\\xac"x20000']);
      assert.equal(result.stdoutBytes, 92_767);
      assert.equal(text(result.stdout), "a".repeat(32_767) + "€".repeat(20_000));
    },
  },
  {
    id: "exec.output-streams",
    level: "MUST",
    title: "keep two busy streams apart and whole, also when the program kills itself",
    promise: "Output is bytes, with true byte counts.",
    covers: ["B05", "B07"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const program = `$| = 1; select(STDERR); $| = 1; for my $i (1..48) { syswrite(STDOUT, chr(64 + $i) x 32768); syswrite(STDERR, chr(64 + $i) x 32768) } kill 9, $$; sleep 5`;
      const result = await box.exec(["perl", "-e", program], { timeoutMs: PATIENCE_MS });
      const expected = Buffer.concat(Array.from({ length: 48 }, (_unused, index) => Buffer.alloc(32_768, 65 + index)));
      assert.equal(result.exitCode, 137);
      assert.deepEqual([result.stdoutBytes, result.stderrBytes], [48 * 32_768, 48 * 32_768]);
      assert.deepEqual([sha256(result.stdout), sha256(result.stderr)], [sha256(expected), sha256(expected)]);
    },
  },
  {
    id: "exec.many",
    level: "MUST",
    title: "be exact in 200 short execs, 25 at a time",
    promise: "Several execs may run at the same time in one box.",
    covers: ["B07"],
    timeoutMs: 300_000,
    async run({ ownBox }) {
      const box = await ownBox();
      for (let batch = 0; batch < 200; batch += 25) {
        const numbers = Array.from({ length: 25 }, (_unused, index) => batch + index);
        const results = await Promise.all(
          numbers.map((n) => box.exec(["sh", "-c", `echo out${n}; echo err${n} >&2; exit ${n}`])),
        );
        assert.deepEqual(
          results.map(outcome),
          numbers.map((n) => [n, `out${n}\n`, `err${n}\n`]),
        );
      }
    },
  },
  {
    id: "exec.never-twice",
    level: "MUST",
    title: "run a program exactly once",
    promise: "Never runs a command twice.",
    covers: ["B12"],
    async run({ ownBox }) {
      const box = await ownBox();
      for (let call = 0; call < 20; call += 1) await shell(box, `echo ${call} >>/tmp/calls`);
      await box.exec(["sh", "-c", "echo failed >>/tmp/calls; exit 1"]);
      await box.exec(["sh", "-c", "echo late >>/tmp/calls; sleep 600"], { timeoutMs: 10_000 });
      const calls = [...Array.from({ length: 20 }, (_unused, call) => `${call}`), "failed", "late"];
      assert.equal(await shell(box, "cat /tmp/calls"), `${calls.join("\n")}\n`);
    },
  },
  {
    id: "exec.output-slow-reader",
    level: "MUST",
    title: "lose nothing when the reader is slow, and hold the program back",
    promise: "A promise that onOutput returns holds the stream back; every byte arrives in order.",
    covers: ["B07"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const hash = createHash("sha256");
      let bytes = 0;
      const result = await box.exec(
        [
          "sh",
          "-c",
          "i=0; while [ $i -lt 20 ]; do head -c 1000000 /dev/zero | tr '\\0' 'q'; i=$((i+1)); done; echo end",
        ],
        {
          timeoutMs: 2 * PATIENCE_MS,
          onOutput: async (_stream, chunk) => {
            if (bytes === 0) await sleep(3000);
            bytes += chunk.length;
            hash.update(chunk);
          },
        },
      );
      assert.deepEqual([result.exitCode, result.stdoutBytes, bytes], [0, 20_000_004, 20_000_004]);
      assert.equal(hash.digest("hex"), sha256(Buffer.concat([Buffer.alloc(20_000_000, "q"), Buffer.from("end\n")])));
    },
  },
  {
    id: "exec.output-live",
    level: "MUST",
    title: "give output to onOutput while the program runs",
    promise: "onOutput gets every byte in order.",
    async run({ sharedBox }) {
      const box = await sharedBox();
      const { wait, open } = gate(box);
      const seen: string[] = [];
      let opened: Promise<void> | undefined;
      // The program goes on only once its first line is here.
      const { timedOut } = await box.exec(["sh", "-c", `echo one; ${wait}; echo two; echo three >&2`], {
        timeoutMs: PATIENCE_MS,
        onOutput: (stream, chunk) => {
          opened ??= open();
          opened.catch(() => undefined);
          seen.push(`${stream}:${text(chunk)}`);
        },
      });
      assert.equal(timedOut, false, "the first line did not come while the program ran");
      await opened;
      assert.equal(
        seen
          .filter((it) => it.startsWith("stdout"))
          .join("")
          .replaceAll("stdout:", ""),
        "one\ntwo\n",
      );
      assert.equal(
        seen
          .filter((it) => it.startsWith("stderr"))
          .join("")
          .replaceAll("stderr:", ""),
        "three\n",
      );
    },
  },
  {
    id: "exec.output-limit",
    level: "MUST",
    title: "say when output was more than the limit, keep its beginning and count it all",
    promise: "Output is bounded, with a truncated flag and true byte counts.",
    covers: ["B15"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      for (const size of [9999, 10_000, 10_001, 16_384]) {
        const result = await box.exec(["perl", "-e", `print join("", map { chr(97 + $_ % 26) } 0..${size - 1})`], {
          maxOutputBytes: 10_000,
        });
        assert.deepEqual(
          [result.truncated, result.stdoutBytes, result.stdout.length],
          [size > 10_000, size, Math.min(size, 10_000)],
          `${size} bytes`,
        );
        assert.equal(text(result.stdout).slice(0, 30), "abcdefghijklmnopqrstuvwxyzabcd");
      }
      const errors = await box.exec(["sh", "-c", "printf 12345 >&2"], { maxOutputBytes: 4 });
      assert.deepEqual([errors.truncated, text(errors.stderr), errors.stderrBytes], [true, "1234", 5]);
      const none = await box.exec(["echo", "12345"], { maxOutputBytes: 0 });
      assert.deepEqual([none.truncated, none.stdout.length, none.stdoutBytes], [true, 0, 6]);
    },
  },
  {
    id: "exec.output-memory-flat",
    level: "MUST",
    title: "keep our memory flat for 1 GiB of output",
    promise: "Memory stays flat.",
    covers: ["B15"],
    alone: true,
    timeoutMs: 900_000,
    async run({ sharedBox }) {
      const box = await sharedBox();
      const print = (size: string): Promise<ExecResult> =>
        box.exec(["head", "-c", size, "/dev/zero"], { maxOutputBytes: MiB, timeoutMs: 800_000 });
      await print("64M");
      let result: ExecResult | undefined;
      const growth = await memoryGrowth(async () => {
        result = await print("1G");
      });
      assert.deepEqual([result?.exitCode, result?.stdoutBytes, result?.truncated], [0, 1024 * MiB, true]);
      assert.equal(result?.stdout.length, MiB);
      assert.ok(growth <= 64 * MiB, `resident memory grew by ${Math.round(growth / MiB)} MiB`);
    },
  },
  {
    id: "exec.background-child",
    level: "MUST",
    title: "return when the program has exited, also when a child of it holds the output",
    promise:
      "The result is decided by the program's exit; a background child that holds stdout delays it by a short fixed grace at most (streamsClosed: false).",
    covers: ["B01", "B02", "B109"],
    alone: true,
    async run({ sharedBox }) {
      const box = await sharedBox();
      const marker = uniqueSeconds();
      const aloneMs = await timed(() => box.exec(["sh", "-c", "echo hi; exit 3"]));
      for (let call = 0; call < 3; call += 1) {
        const tookMs = await timed(async () => {
          const result = await box.exec(["sh", "-c", `sleep ${marker} & echo hi; exit 3`], {
            timeoutMs: 2 * PATIENCE_MS,
          });
          assert.deepEqual([outcome(result), result.streamsClosed, result.timedOut], [[3, "hi\n", ""], false, false]);
        });
        const mostMs = 10_000 + 10 * aloneMs;
        assert.ok(tookMs < mostMs, `it took ${Math.round(tookMs)} ms, without a child ${Math.round(aloneMs)} ms`);
      }
      // A program's background children are the program's own business.
      await untilSleeping(box, 3, marker);
      await endSleepers(box, marker);
      await assertAnswers(box);
    },
  },
  {
    id: "exec.background-child-quiet",
    level: "MUST",
    title: "say that the streams are closed when a background child let go of them",
    promise: "streamsClosed is false only if something that the program left behind still holds its output open.",
    alone: true,
    async run({ sharedBox }) {
      const box = await sharedBox();
      const marker = uniqueSeconds();
      const letGo = `/var/tmp/quiet-${marker}`;
      const child = `(exec >/dev/null 2>&1; : >${letGo}; exec sleep ${marker}) &`;
      const result = await box.exec(["sh", "-c", `${child} until [ -e ${letGo} ]; do sleep 0.1; done; echo hi`]);
      assert.deepEqual([outcome(result), result.streamsClosed], [[0, "hi\n", ""], true]);
      await untilSleeping(box, 1, marker);
      await endSleepers(box, marker);
    },
  },
  {
    id: "exec.timeout-kills-tree",
    level: "MUST",
    title: "kill the whole tree on timeout, a double-forked setsid env -i child included",
    promise: "timeoutMs kills everything that this exec started before the call returns (timedOut: true).",
    covers: ["B19", "B20"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const [escaped, child, main] = [uniqueSeconds(), uniqueSeconds(), uniqueSeconds()];
      const script = `trap "" TERM HUP INT; (setsid env -i /bin/sh -c 'exec /bin/sleep ${escaped}' </dev/null >/dev/null 2>&1 &); sleep ${child} & sleep ${main}; echo never`;
      const running = box.exec(["sh", "-c", script], { timeoutMs: DEADLINE_MS });
      await untilSleeping(box, 3, escaped, child, main);
      const result = await running;
      assert.deepEqual([result.timedOut, text(result.stdout)], [true, ""]);
      for (const [marker, what] of [
        [escaped, "the escaped child"],
        [child, "the child"],
        [main, "the program"],
      ] as const) {
        assert.equal(await countProcesses(box, marker), 0, `${what} still runs`);
      }
      await assertAnswers(box);
    },
  },
  {
    id: "exec.timeout-spares-others",
    level: "MUST",
    title: "kill nothing else on timeout: a parallel exec and an earlier background program survive",
    promise: "Nothing else is killed; a parallel exec in the same box survives and the box goes on.",
    covers: ["B19"],
    async run({ ownBox }) {
      const box = await ownBox();
      const [daemon, victim] = [uniqueSeconds(), uniqueSeconds()];
      await shell(box, `(setsid sleep ${daemon} </dev/null >/dev/null 2>&1 &)`);
      await untilSleeping(box, 1, daemon);
      const { wait, open } = gate(box);
      const parallel = box.exec(["sh", "-c", `echo begun; ${wait}; echo ok`], { timeoutMs: 2 * PATIENCE_MS });
      parallel.catch(() => undefined);
      const victims = box.exec(["sh", "-c", `sleep ${victim} & wait`], { timeoutMs: DEADLINE_MS });
      await untilSleeping(box, 1, victim);
      assert.equal((await victims).timedOut, true);
      assert.equal(await countProcesses(box, victim), 0);
      assert.equal(await sleeping(box, daemon), 1, "a program of an earlier exec was killed too");
      await open();
      assert.deepEqual(outcome(await parallel), [0, "begun\nok\n", ""]);
    },
  },
  {
    id: "exec.timeout-keeps-output",
    level: "MUST",
    title: "give what was printed before the timeout, and not end the program before it",
    promise: "timedOut: true if the deadline ended the program.",
    async run({ sharedBox }) {
      const box = await sharedBox();
      let result: ExecResult | undefined;
      const tookMs = await timed(async () => {
        result = await box.exec(["sh", "-c", "echo out; echo err >&2; sleep 4000; echo never"], { timeoutMs: 10_000 });
      });
      assert.ok(result !== undefined);
      assert.deepEqual([result.timedOut, text(result.stdout), text(result.stderr)], [true, "out\n", "err\n"]);
      assert.ok(tookMs >= 9900, `it was ended after ${Math.round(tookMs)} ms`);
    },
  },
  {
    id: "exec.timeout-none-early",
    level: "MUST",
    title: "not time out early: a limit above 2^31 ms is no limit of 1 ms",
    promise: "timeoutMs is kept as it is asked for.",
    covers: ["B23"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      for (const timeoutMs of [2 ** 31 + 1000, Number.MAX_SAFE_INTEGER]) {
        const result = await box.exec(["sh", "-c", "sleep 1; echo ok"], { timeoutMs });
        assert.deepEqual([outcome(result), result.timedOut], [[0, "ok\n", ""], false], `${timeoutMs} ms`);
      }
    },
  },
  {
    id: "exec.own-124-is-no-timeout",
    level: "MUST",
    title: "tell a program that exits with 124 or 137 from a timeout",
    promise: "timedOut: true only if the deadline ended the program.",
    covers: ["B19"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      for (const code of [124, 137, 143]) {
        const result = await box.exec(["sh", "-c", `exit ${code}`], { timeoutMs: PATIENCE_MS });
        assert.deepEqual([result.exitCode, result.timedOut], [code, false]);
      }
    },
  },
  {
    id: "exec.abort-kills-tree",
    level: "MUST",
    title: "kill the whole tree on an abort and reject",
    promise: "An abort kills everything that this exec started before the call returns; it rejects with ERR_ABORTED.",
    covers: ["B22", "B24"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const [escaped, main] = [uniqueSeconds(), uniqueSeconds()];
      const abort = new AbortController();
      const running = box.exec(["sh", "-c", `(setsid env -i sleep ${escaped} >/dev/null 2>&1 &); sleep ${main}`], {
        signal: abort.signal,
      });
      const settled = rejection(running, "ERR_ABORTED");
      await untilSleeping(box, 2, escaped, main);
      abort.abort();
      await settled;
      assert.equal(await countProcesses(box, escaped), 0, "the escaped child still runs");
      assert.equal(await countProcesses(box, main), 0, "the program still runs");
      await assertAnswers(box);
    },
  },
  {
    id: "exec.aborted-before",
    level: "MUST",
    title: "start nothing when the signal is aborted already",
    promise: "An abort rejects with ERR_ABORTED.",
    async run({ sharedBox }) {
      const box = await sharedBox();
      const file = `/tmp/never-${uniqueSeconds()}`;
      await rejection(box.exec(["touch", file], { signal: AbortSignal.abort() }), "ERR_ABORTED");
      await sleep(300);
      assert.equal(await shell(box, `[ -e ${file} ] || echo absent`), "absent\n");
    },
  },
  {
    id: "exec.kill-processes",
    level: "MUST",
    title: "kill every program of the box but our own, and say what remains",
    promise:
      "killProcesses: kills every process but our own programs, as far as the box's root can, and lists what remains.",
    covers: ["B92"],
    async run({ ownBox }) {
      const box = await ownBox();
      const [daemon, escaped] = [uniqueSeconds(), uniqueSeconds()];
      await shell(
        box,
        `trap "" TERM; (setsid sleep ${daemon} >/dev/null 2>&1 &); (setsid env -i sleep ${escaped} >/dev/null 2>&1 &)`,
      );
      await untilSleeping(box, 2, daemon, escaped);
      const report = await box.killProcesses();
      assert.ok(report.killed >= 2, `${report.killed} were killed`);
      assert.deepEqual(report.remaining, []);
      assert.equal(await sleeping(box, daemon, escaped), 0);
      await assertAnswers(box);
    },
  },
  {
    id: "exec.kill-processes-ends-execs",
    level: "MUST",
    title: "end a running exec that killProcesses killed: 137 or a typed error, never a made-up success",
    promise: "exitCode is 128 + signal if the program was ended by one; outcome unknown is a typed error.",
    async run({ ownBox }) {
      const box = await ownBox();
      const marker = uniqueSeconds();
      const running = box.exec(["sh", "-c", `sleep ${marker}; exit 0`], { timeoutMs: 2 * PATIENCE_MS }).then(
        (result) => [result.exitCode, result.timedOut] as const,
        (error: unknown) => expectedError(error, "ERR_EXEC_UNKNOWN"),
      );
      await untilSleeping(box, 1, marker);
      await box.killProcesses();
      const outcomeOfRunning = await running;
      if (!(outcomeOfRunning instanceof Error)) assert.deepEqual(outcomeOfRunning, [137, false]);
      assert.equal(await sleeping(box, marker), 0);
      await assertAnswers(box);
    },
  },
  {
    id: "exec.long-and-silent",
    level: "MUST",
    title: "let a silent program work for long while leftovers are swept",
    promise: "Only what a dead owner left is swept; work of a live owner goes on.",
    covers: ["B21"],
    async run({ sharedBox, driver }) {
      const box = await sharedBox();
      const running = box.exec(["sh", "-c", "sleep 40; echo ok"], { timeoutMs: 40_000 + PATIENCE_MS });
      await sleep(2000);
      await driver.sweep();
      assert.deepEqual(outcome(await running), [0, "ok\n", ""]);
    },
  },
  {
    id: "exec.forged-markers",
    level: "MUST",
    title: "not be fooled by a program that prints what a driver might look for",
    promise: "There is no control data in the program's streams that it could forge.",
    covers: ["B17"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const lines = [
        "EXIT_CODE=0",
        "__EXIT__:0",
        '{"exit":0,"killed":null,"killedCount":0,"survivors":[]}',
        '\u0000\u0000\u0000\u0017{"exit":0,"killed":null}',
        '{"metadata":{},"status":"Success"}',
        "\u0001\u0000\u0000\u0000\u0000\u0000\u0000\u0004done",
        "nonce",
        "OCI runtime exec failed: exec failed: no such file or directory: unknown",
      ];
      const said = lines.join("\n");
      const result = await box.exec(
        [
          "perl",
          "-e",
          `binmode STDOUT; binmode STDERR; local $/; my $said = <STDIN>; print STDOUT $said; print STDERR $said; exit 9`,
        ],
        { stdin: said },
      );
      assert.deepEqual(outcome(result), [9, said, said]);
    },
  },
  {
    id: "exec.words-prove-nothing",
    level: "MUST",
    title: "take a program's complaint for output, whatever it says",
    promise: "Nothing is classified by the text of a message.",
    covers: ["B14"],
    async run({ sharedBox }) {
      const box = await sharedBox();
      const complaint = "Error: No such container: permission denied, connection reset, timed out, Killed";
      const result = await box.exec(["sh", "-c", 'echo "$1" >&2; exit 1', "sh", complaint]);
      assert.deepEqual(outcome(result), [1, "", `${complaint}\n`]);
      await assertAnswers(box);
    },
  },
  {
    id: "exec.duration",
    level: "SHOULD",
    title: "say how long the program took",
    promise: "durationMs.",
    async run({ sharedBox }) {
      const box = await sharedBox();
      let durationMs = Number.NaN;
      const tookMs = await timed(async () => {
        ({ durationMs } = await box.exec(["sleep", "2"]));
      });
      assert.ok(
        durationMs >= 1900 && durationMs <= tookMs,
        `${durationMs} ms for a sleep of 2 s, the call took ${tookMs} ms`,
      );
    },
  },
  {
    id: "exec.box-without-programs",
    level: "MUST",
    title: "give a typed error when the box has lost its programs, and go on",
    promise: "Could not start the program is a typed error; the box goes on.",
    covers: ["B14", "B48"],
    async run({ ownBox, capabilities }) {
      const box: Runtime = await ownBox();
      await shell(
        box,
        "echo kept >/tmp/kept; rm -rf /bin/* /usr/bin/* /usr/local/bin/* /sbin/* /usr/sbin/* 2>/dev/null; true",
      );
      const error = await rejection(box.exec(["true"]), "ERR_EXEC_START");
      // A backend that starts programs by the image's own shell cannot even start our helper any more.
      if (error.step !== "helper" || capabilities.firstProcess === "ours")
        assert.deepEqual([error.step, error.errno], ["exec", "ENOENT"]);
      assert.equal(text((await box.readBounded("/tmp/kept", { maxBytes: 100 })) ?? new Uint8Array()), "kept\n");
      assert.equal(box.state, "running");
    },
  },
];
