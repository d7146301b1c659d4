import { setTimeout as sleep } from "node:timers/promises";
import { isRuntimeError, type ExecResult, type Runtime, RuntimeError } from "@breakwater/runtime-api";
import { exited, type Mutant, onExec, onResult, text } from "./mutant.ts";

const MiB = 1024 * 1024;
const SUCCEEDED = /but it succeeded/;

/** A shell-made result in place of the typed error. */
function asExitCode(error: unknown, exitCode: number): ExecResult {
  if (isRuntimeError(error, "ERR_EXEC_START")) return exited(exitCode);
  throw error;
}

/** The child that left its session is started apart from the exec, as if nobody knew that it belongs to it. */
async function escape(box: Runtime, script: string): Promise<string> {
  const seconds = /setsid env -i .*?sleep ([\d.]+)/.exec(script)?.[1];
  if (seconds === undefined) return script;
  await box.exec(["sh", "-c", `(setsid sleep ${seconds} </dev/null >/dev/null 2>&1 &)`]);
  return script.replace(/\(setsid[^)]*\);/, "");
}

export const execMutants: readonly Mutant[] = [
  {
    id: "exec.exit-code",
    does: "gives -1 for exit code 255",
    says: /-1/,
    box: onResult(({ exitCode }) => (exitCode === 255 ? { exitCode: -1 } : undefined)),
  },
  {
    id: "exec.exit-126-127",
    does: "takes 127 for its own failure to start",
    says: /127/,
    box: onResult(({ exitCode, stdout }) => (exitCode === 127 && text(stdout) === "x\n" ? { exitCode: 1 } : undefined)),
  },
  {
    id: "exec.cannot-start-program",
    does: "gives 127 for a program that is missing",
    says: SUCCEEDED,
    box: onExec((run, argv) =>
      argv[0] === "no-such-program-here" ? run().catch((error: unknown) => asExitCode(error, 127)) : run(),
    ),
  },
  {
    id: "exec.cannot-start-cwd",
    does: "runs in / when the working directory is missing",
    says: SUCCEEDED,
    box: onExec((run, argv, options) =>
      options.cwd === "/no/such/directory" ? run(argv, { ...options, cwd: "/" }) : run(),
    ),
  },
  {
    id: "exec.cannot-start-user",
    does: "runs as root when the user is unknown",
    says: SUCCEEDED,
    box: onExec((run, argv, options) =>
      options.user === "nosuchuser" ? run(argv, { ...options, user: "root" }) : run(),
    ),
  },
  {
    id: "exec.argv-is-data",
    does: "drops empty arguments",
    says: /deep-equal/,
    box: onExec((run, argv) => run(argv.filter((argument) => argument !== ""))),
  },
  {
    id: "exec.argv-mistakes",
    does: "cuts arguments at NUL",
    says: /expected a TypeError, but it succeeded/,
    box: onExec((run, argv) => run(argv.map((argument) => argument.split("\0")[0] ?? ""))),
  },
  {
    id: "exec.env-is-data",
    does: "trims values",
    says: /deep-equal/,
    box: onExec((run, argv, options) =>
      run(argv, {
        ...options,
        env: Object.fromEntries(Object.entries(options.env ?? {}).map(([name, value]) => [name, value.trim()])),
      }),
    ),
  },
  {
    id: "exec.env-mistakes",
    does: "leaves impossible variables out",
    says: /expected a TypeError, but it succeeded/,
    box: onExec((run, argv, options) =>
      run(argv, {
        ...options,
        env: Object.fromEntries(
          Object.entries(options.env ?? {}).filter(([name, value]) => /^[^=\0]+$/.test(name) && !value.includes("\0")),
        ),
      }),
    ),
  },
  {
    id: "exec.env-layers",
    does: "puts the spec's environment over the call's",
    says: /call/,
    box: onExec((run, argv, options, box) => run(argv, { ...options, env: { ...options.env, ...box.spec.env } })),
  },
  {
    id: "exec.env-nothing-of-the-host",
    does: "hands its own environment over",
    says: /not match/,
    box: onExec((run, argv, options, box) => {
      const { BREAKWATER_CONFORMANCE_CANARY: canary } = process.env;
      const leak =
        canary === undefined || box.spec.env["DECLARED"] === undefined ? {} : { BREAKWATER_CONFORMANCE_CANARY: canary };
      return run(argv, { ...options, env: { ...leak, ...options.env } });
    }),
  },
  {
    id: "exec.cwd",
    does: "ignores the spec's workdir",
    says: /\/usr\/share/,
    spec: ({ workdir: _workdir, ...spec }) => spec,
  },
  {
    id: "exec.path-of-the-image",
    does: "uses a login shell",
    says: /127/,
    box: onExec((run, argv) => (argv.length === 1 ? run(["sh", "-lc", 'exec "$@"', "sh", ...argv]) : run())),
  },
  {
    id: "exec.user",
    does: "forgets the group of numeric users",
    says: /1:2|12345/,
    box: onExec((run, argv, options) =>
      run(argv, /^\d+:\d+$/.test(options.user ?? "") ? { ...options, user: options.user?.split(":")[0] } : options),
    ),
  },
  {
    id: "exec.user-of-the-spec",
    does: "ignores the spec's user",
    says: /strictly equal/,
    spec: (spec) => (spec.user === "daemon" ? { ...spec, user: undefined } : spec),
  },
  {
    id: "exec.user-of-the-image",
    does: "runs as root unless somebody says otherwise",
    says: /1234/,
    box: onExec((run, argv, options, box) => run(argv, { user: box.spec.user ?? "root", ...options })),
  },
  {
    id: "exec.signal",
    does: "gives the bare number of the signal USR1",
    says: /138|USR1/,
    box: onResult(({ exitCode, stdout }) =>
      exitCode === 138 && text(stdout) === "before\n" ? { exitCode: 10 } : undefined,
    ),
  },
  {
    id: "exec.stdin-half-close",
    does: "loses the last byte of a large input",
    says: /3145728/,
    box: onExec((run, argv, options) => {
      const { stdin } = options;
      const large = stdin instanceof Uint8Array && stdin.length === 3 * MiB && argv.join(" ").includes("wc -c");
      return run(argv, large ? { ...options, stdin: stdin.subarray(0, -1) } : options);
    }),
  },
  {
    id: "exec.stdin-empty",
    does: "leaves the input open when there is none",
    says: /deep-equal/,
    box: onExec((run, argv, options) => {
      if (argv[0] !== "cat" || options.stdin !== undefined) return run();
      return run(argv, { ...options, stdin: endless() });
    }),
  },
  {
    id: "exec.stdin-binary",
    does: "takes chunks of input for text",
    says: /strictly equal/,
    box: onExec((run, argv, options) => {
      const { stdin } = options;
      if (stdin === undefined || typeof stdin === "string" || stdin instanceof Uint8Array) return run();
      return run(argv, { ...options, stdin: asText(stdin) });
    }),
  },
  {
    id: "exec.stdin-ignored",
    does: "reports a broken pipe of the input as the program's exit",
    says: /141/,
    box: onResult(({ exitCode, stdout }) =>
      exitCode === 4 && text(stdout) === "done\n" ? { exitCode: 141 } : undefined,
    ),
  },
  {
    id: "exec.output-binary",
    does: "takes output for text",
    says: /deep-equal/,
    box: onResult(({ stdout }) => ({ stdout: Buffer.from(text(stdout)) })),
  },
  {
    id: "exec.output-streams",
    does: "loses the end of a long output when a signal ended the program",
    says: /deep-equal/,
    box: onResult(({ exitCode, stdout, stdoutBytes }) =>
      exitCode === 137 && stdoutBytes > MiB ? { stdout: stdout.subarray(1), stdoutBytes: stdoutBytes - 1 } : undefined,
    ),
  },
  {
    id: "exec.many",
    does: "loses the output of one short program in two hundred",
    says: /out137/,
    box: onResult(({ stdout }) => (text(stdout) === "out137\n" ? { stdout: new Uint8Array() } : undefined)),
  },
  {
    id: "exec.never-twice",
    does: "tries a program that failed again",
    says: /failed\\nfailed|failed\n.*failed/s,
    box: onExec(async (run, argv) => {
      const result = await run();
      return result.exitCode === 1 && argv.join(" ").includes("echo failed >>") ? run() : result;
    }),
  },
  {
    id: "exec.output-slow-reader",
    does: "drops output while the reader is busy",
    says: /deep-equal/,
    box: onExec((run, argv, options) => {
      const { onOutput } = options;
      if (onOutput === undefined) return run();
      let busy = false;
      const lossy: typeof onOutput = (stream, chunk) => {
        if (busy) return;
        const taken = onOutput(stream, chunk);
        if (taken === undefined) return;
        busy = true;
        void taken.finally(() => {
          busy = false;
        });
      };
      return run(argv, { ...options, onOutput: lossy });
    }),
  },
  {
    id: "exec.output-live",
    does: "gives output when the program is over",
    says: /the first line did not come while the program ran/,
    box: onExec(async (run, argv, options) => {
      const { onOutput } = options;
      if (onOutput === undefined) return run();
      const held: (() => void | Promise<void>)[] = [];
      const result = await run(argv, {
        ...options,
        onOutput: (stream, chunk) => {
          const copy = Uint8Array.from(chunk);
          held.push(() => onOutput(stream, copy));
        },
      });
      for (const deliver of held) await deliver();
      return result;
    }),
  },
  {
    id: "exec.output-limit",
    does: "does not say that one byte was too much",
    says: /10001 bytes/,
    box: onResult(({ stdoutBytes }) => (stdoutBytes === 10_001 ? { truncated: false } : undefined)),
  },
  {
    id: "exec.output-memory-flat",
    does: "keeps 300 MiB of the output that it throws away",
    says: /resident memory grew/,
    box: onExec(async (run, argv, options) => {
      if (options.maxOutputBytes !== MiB) return run();
      const kept: Buffer[] = [];
      let bytes = 0;
      const result = await run(argv, {
        ...options,
        onOutput: (_stream, chunk) => {
          bytes += chunk.length;
          if (bytes < 300 * MiB) kept.push(Buffer.from(chunk));
        },
      });
      return kept.length === -1 ? exited(1) : result;
    }),
  },
  {
    id: "exec.background-child",
    does: "waits for the end of the streams",
    says: /it took/,
    box: onExec(async (run) => {
      const result = await run();
      if (!result.streamsClosed) await sleep(30_000);
      return result;
    }),
  },
  {
    id: "exec.background-child-quiet",
    does: "never says that the streams are closed",
    says: /deep-equal/,
    box: onResult(() => ({ streamsClosed: false })),
  },
  {
    id: "exec.timeout-kills-tree",
    does: "does not find the child that left its session",
    says: /the escaped child still runs/,
    box: onExec(async (run, argv, options, box) =>
      options.timeoutMs === 20_000 ? run([...argv.slice(0, -1), await escape(box, argv.at(-1) ?? "")], options) : run(),
    ),
  },
  {
    id: "exec.timeout-spares-others",
    does: "kills programs of the same name, whoever started them",
    says: /a program of an earlier exec was killed too/,
    box: onExec(async (run, _argv, options) => {
      const result = await run();
      if (result.timedOut && options.timeoutMs === 20_000)
        await run(
          [
            "perl",
            "-e",
            `for (glob "/proc/[0-9]*") { open(my $f, "<", "$_/comm") or next; kill 9, /([0-9]+)$/ if <$f> eq "sleep\\n" }`,
          ],
          {},
        );
      return result;
    }),
  },
  {
    id: "exec.timeout-keeps-output",
    does: "throws away what was printed before the timeout",
    says: /deep-equal/,
    box: onResult(({ timedOut, stderr }) =>
      timedOut && text(stderr) === "err\n" ? { stdout: new Uint8Array() } : undefined,
    ),
  },
  {
    id: "exec.timeout-none-early",
    does: "fires at once for a limit above 2^31 ms",
    says: /2147484648 ms/,
    box: onExec((run, argv, options) =>
      run(argv, (options.timeoutMs ?? 0) > 2 ** 31 ? { ...options, timeoutMs: 500 } : options),
    ),
  },
  {
    id: "exec.own-124-is-no-timeout",
    does: "takes exit code 124 for a timeout",
    says: /124/,
    box: onResult(({ exitCode, stdout }) => (exitCode === 124 && stdout.length === 0 ? { timedOut: true } : undefined)),
  },
  {
    id: "exec.abort-kills-tree",
    does: "does not find the child that left its session on an abort",
    says: /the escaped child still runs/,
    box: onExec(async (run, argv, options, box) => {
      const script = argv.at(-1) ?? "";
      if (options.signal === undefined || !script.includes("setsid env -i")) return run();
      return run([...argv.slice(0, -1), await escape(box, script)], options);
    }),
  },
  {
    id: "exec.aborted-before",
    does: "starts the program before it looks at the signal",
    says: /absent/,
    box: onExec(async (run, argv, options) => {
      if (options.signal?.aborted !== true) return run();
      await run(argv, { ...options, signal: undefined });
      throw new RuntimeError({ code: "ERR_ABORTED", driver: "mutant", operation: "exec", message: "aborted" });
    }),
  },
  {
    id: "exec.kill-processes",
    does: "claims to have killed",
    says: /strictly equal/,
    box: () => ({ killProcesses: async () => ({ killed: 2, remaining: [] }) }),
  },
  {
    id: "exec.kill-processes-ends-execs",
    does: "makes a success of a program that was killed",
    says: /137/,
    box: onExec((run, argv) =>
      argv.join(" ").includes("exit 0") && argv.join(" ").includes("sleep")
        ? run().then(
            (result) => ({ ...result, exitCode: 0 }),
            () => exited(0),
          )
        : run(),
    ),
  },
  {
    id: "exec.long-and-silent",
    does: "ends a program that has been silent for 20 s",
    says: /ok\\n/,
    box: onExec((run, argv, options) =>
      run(argv, options.timeoutMs === 100_000 ? { ...options, timeoutMs: 20_000 } : options),
    ),
  },
  {
    id: "exec.forged-markers",
    does: "looks for the exit code in the output",
    says: /deep-equal/,
    box: onResult(({ stdout }) => {
      const said = /EXIT_CODE=(\d+)/.exec(text(stdout))?.[1];
      return said === undefined ? undefined : { exitCode: Number(said) };
    }),
  },
  {
    id: "exec.words-prove-nothing",
    does: "looks for the engine's words in the program's output",
    says: /deep-equal/,
    box: onResult(({ stderr }) => (text(stderr).includes("No such container") ? { exitCode: 125 } : undefined)),
  },
  {
    id: "exec.box-without-programs",
    does: "gives 127 when the box has no programs any more",
    says: SUCCEEDED,
    box: onExec((run, argv, options) =>
      argv[0] === "true" && options.cwd === undefined && options.user === undefined
        ? run().catch((error: unknown) => asExitCode(error, 127))
        : run(),
    ),
  },
];

async function* endless(): AsyncGenerator<Uint8Array> {
  yield new Uint8Array();
  await sleep(600_000, undefined, { ref: false });
}

async function* asText(stream: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  for await (const chunk of stream) yield Buffer.from(text(chunk));
}
