import { setTimeout as sleep } from "node:timers/promises";
import {
  isRuntimeError,
  type OperationOptions,
  type Proof,
  type Runtime,
  type RuntimeDriver,
  RuntimeError,
  type RuntimeErrorCode,
  type RuntimeState,
} from "@breakwater/runtime-api";
import { type ChangedBox, exited, type Mutant, onExec, withChanges } from "./mutant.ts";

const SUCCEEDED = /but it succeeded/;
function claimed(box: Runtime): Proof {
  return { id: box.id, question: "is it so", answer: "certainly", at: new Date().toISOString() };
}

function wrongState(operation: string): RuntimeError {
  return new RuntimeError({ code: "ERR_BOX_STATE", driver: "mutant", operation, message: "not in this state" });
}

function claimedBy(box: Runtime): { readonly driver: string; readonly operation: string; readonly boxId: string } {
  return { driver: "mutant", operation: "stopConfirmed", boxId: box.id };
}

/** A start that rejects with this code leaves a box behind, until the case is over. */
function leavesABox(code: RuntimeErrorCode): (real: RuntimeDriver) => Partial<RuntimeDriver> {
  return (real: RuntimeDriver) => ({
    create: (spec) => {
      const box = real.create(spec);
      let leak: Runtime | undefined;
      return withChanges(box, {
        start: async (options) => {
          try {
            await box.start(options);
          } catch (error) {
            if (isRuntimeError(error, code)) {
              leak = real.create({ ...spec, user: undefined });
              await leak.start();
            }
            throw error;
          }
        },
        [Symbol.asyncDispose]: async () => {
          await leak?.[Symbol.asyncDispose]();
          await box[Symbol.asyncDispose]();
        },
      });
    },
  });
}

/** Claims to have stopped or frozen a box in which a counter runs, and refuses execs, but leaves everything running. */
function pretends(method: "stopConfirmed" | "freeze", state: RuntimeState): ChangedBox {
  return (box) => {
    let counting = false;
    let pretended = false;
    return {
      get state(): RuntimeState {
        return pretended ? state : box.state;
      },
      exec: async (argv, options) => {
        if (pretended) throw wrongState("exec");
        counting ||= argv.join(" ").includes("/var/tmp/count");
        return box.exec(argv, options);
      },
      [method]: async (options?: OperationOptions) => {
        if (!counting) return box[method](options);
        pretended = true;
        return claimed(box);
      },
    } as Partial<Runtime>;
  };
}

export const lifecycleMutants: readonly Mutant[] = [
  {
    id: "lifecycle.create-is-free",
    does: "has no id before start",
    says: /strictly unequal/,
    box: (box) => (box.spec.image.includes(".invalid") ? { id: "" } : {}),
  },
  {
    id: "lifecycle.spec-complete",
    does: "does not freeze the spec",
    says: /frozen/,
    box: (box) => ({ spec: structuredClone(box.spec) }),
  },
  {
    id: "lifecycle.spec-mistakes",
    does: "takes an infinite lifetime for the default",
    says: /expected a TypeError, but it succeeded/,
    spec: (spec) => (spec.lifetimeMs === Number.POSITIVE_INFINITY ? { ...spec, lifetimeMs: undefined } : spec),
  },
  {
    id: "lifecycle.start-is-ready",
    does: "calls a box running that is only starting",
    says: /starting/,
    box: (box) => ({
      get state(): RuntimeState {
        return box.state === "starting" ? "running" : box.state;
      },
    }),
  },
  {
    id: "lifecycle.start-twice",
    does: "ignores a second start",
    says: /rejected/,
    box: (box) => ({
      start: async (options) => (box.state === "starting" || box.state === "running" ? undefined : box.start(options)),
    }),
  },
  {
    id: "lifecycle.start-missing-image",
    does: "calls a missing image a fault of the backend",
    says: /ERR_BACKEND/,
    box: (box) => ({
      start: async (options) =>
        box.start(options).catch((error: unknown) => {
          if (!isRuntimeError(error, "ERR_IMAGE_NOT_FOUND", "ERR_IMAGE_PULL")) throw error;
          throw new RuntimeError({ code: "ERR_BACKEND", driver: "mutant", operation: "start", message: error.message });
        }),
    }),
  },
  {
    id: "lifecycle.start-aborted-before",
    does: "starts although the signal is aborted",
    says: SUCCEEDED,
    box: (box) => ({ start: (options) => box.start(options?.signal?.aborted === true ? {} : options) }),
  },
  {
    id: "lifecycle.start-aborted",
    does: "leaves something when it is aborted",
    says: /left behind/,
    driver: leavesABox("ERR_ABORTED"),
  },
  {
    id: "lifecycle.start-deadline",
    does: "leaves something at its deadline",
    says: /left behind/,
    driver: leavesABox("ERR_TIMEOUT"),
  },
  {
    id: "lifecycle.before-start",
    does: "ignores an upload before start",
    says: SUCCEEDED,
    box: (box) => ({
      upload: async (...args) => (box.state === "new" ? undefined : box.upload(...args)),
    }),
  },
  {
    id: "lifecycle.after-teardown",
    does: "finds no file in a box that is gone",
    says: SUCCEEDED,
    box: (box) => ({
      readBounded: async (...args) => (box.state === "gone" ? null : box.readBounded(...args)),
    }),
  },
  {
    id: "lifecycle.image-entrypoint",
    does: "starts the image's ENTRYPOINT although the spec says no",
    says: /although the spec says no/,
    spec: ({ entrypoint: _entrypoint, ...spec }) => spec,
  },
  {
    id: "lifecycle.image-entrypoint-ends",
    does: "ends a box with its ENTRYPOINT",
    says: /the box does not answer any more/,
    box: (box) => ({
      start: async (options) => {
        await box.start(options);
        if (/\/entrypoint:/.test(box.spec.image)) await box.stop();
      },
    }),
  },
  {
    id: "lifecycle.reaps",
    does: "leaves a zombie",
    says: /no zombie/,
    box: onExec(async (run, argv) => {
      if (argv.join(" ").includes("sleep 0.1 &"))
        await run([
          "perl",
          "-e",
          `exit if fork; open($_, "+<", "/dev/null") for *STDIN, *STDOUT, *STDERR; fork or exit; sleep 1000`,
        ]);
      return run();
    }),
  },
  {
    id: "lifecycle.lifetime",
    does: "lets boxes live ten times as long as they may",
    says: /the box's end/,
    spec: ({ lifetimeMs, ...spec }) => ({
      ...spec,
      lifetimeMs: lifetimeMs !== undefined && lifetimeMs < 600_000 ? 10 * lifetimeMs + 120_000 : lifetimeMs,
    }),
    also: { "lifecycle.lifetime-bounds-exec": "an exec lives as long as the box" },
  },
  {
    id: "lifecycle.lifetime-bounds-exec",
    does: "waits long after the end of the box",
    says: /exec outlived the box/,
    box: onExec(async (run, argv) => {
      try {
        return await run();
      } finally {
        if (argv[0] === "sleep" && argv[1] === "4000") await sleep(62_000);
      }
    }),
  },
  {
    id: "lifecycle.box-lost",
    does: "gives 137 when the box is lost",
    says: SUCCEEDED,
    box: onExec((run, argv) =>
      argv.join(" ").includes("echo a; sleep")
        ? run().catch((error: unknown) => {
            if (isRuntimeError(error, "ERR_BOX_LOST")) return exited(137);
            throw error;
          })
        : run(),
    ),
  },
  {
    id: "lifecycle.ended-from-outside",
    does: "takes an end from outside for the doing of the contents",
    says: /endedBy is contents/,
    box: (box) => ({
      report: async (options) => {
        const report = await box.report(options);
        return report.endedBy === "outside" || report.endedBy === "unknown"
          ? { ...report, endedBy: "contents" }
          : report;
      },
    }),
  },
  {
    id: "lifecycle.stop",
    does: "does not stop",
    says: SUCCEEDED,
    box: () => ({ stop: async () => undefined }),
  },
  {
    id: "lifecycle.stop-confirmed",
    does: "claims to have stopped",
    says: /the program goes on counting/,
    box: pretends("stopConfirmed", "stopped"),
  },
  {
    id: "lifecycle.stop-confirmed-stubborn",
    does: "gives up on programs that ignore signals",
    says: /stubborn programs are not stopped/,
    box: (box) => ({
      stopConfirmed: async (options) => {
        if (box.state === "running") {
          const alive = await box.exec(["sh", "-c", "cat /proc/[0-9]*/cmdline | grep -c 'trap.*TERM'"]);
          if (alive.exitCode === 0)
            throw new RuntimeError({ ...claimedBy(box), code: "ERR_TIMEOUT", message: "they go on" });
        }
        return box.stopConfirmed(options);
      },
    }),
  },
  {
    id: "lifecycle.stop-ends-execs",
    does: "makes a success of a program that a stop ended",
    says: SUCCEEDED,
    box: onExec((run, argv) => (/^sleep .*exit 0$/.test(argv.at(-1) ?? "") ? run().catch(() => exited(0)) : run())),
  },
  {
    id: "lifecycle.teardown-proof",
    does: "calls a box gone that is not",
    says: /left behind/,
    box: claimsToBeGone((box) => box.state === "running"),
  },
  {
    id: "lifecycle.teardown-repeated",
    does: "has no proof the second time",
    says: /a proof without answer/,
    box: (box) => ({
      teardownConfirmed: async (options) => {
        const again = box.state === "gone";
        const proof = await box.teardownConfirmed(options);
        return again ? { ...proof, answer: "" } : proof;
      },
    }),
  },
  {
    id: "lifecycle.teardown-parallel",
    does: "takes a removal in progress for a removal",
    says: /left behind/,
    box: (box) => {
      let removing = false;
      return {
        teardownConfirmed: async (options) => {
          if (removing) return claimed(box);
          removing = true;
          await sleep(1000);
          return box.teardownConfirmed(options).finally(() => {
            removing = false;
          });
        },
      };
    },
  },
  {
    id: "lifecycle.teardown-anywhere",
    does: "cannot remove a frozen box, and says that it has",
    says: /left behind/,
    box: claimsToBeGone((box) => box.state === "frozen"),
  },
  {
    id: "lifecycle.teardown-ends-execs",
    does: "makes a success of a program that a teardown ended",
    says: SUCCEEDED,
    box: onExec((run, argv) =>
      /^echo a; sleep .*exit 0$/.test(argv.at(-1) ?? "") ? run().catch(() => exited(0)) : run(),
    ),
  },
  {
    id: "lifecycle.dispose",
    does: "leaves the box on dispose",
    says: /left behind/,
    box: (box) => {
      let calls = 0;
      return {
        [Symbol.asyncDispose]: async () => {
          calls += 1;
          // The case calls it twice; the third call is the suite's own, that clears away.
          if (box.state !== "running" || calls > 2) await box[Symbol.asyncDispose]();
        },
      };
    },
  },
  {
    id: "lifecycle.with-runtime",
    does: "leaves a box that was not torn down before it is disposed",
    says: /left behind/,
    driver: (real) => {
      const left = new Set<Runtime>();
      return {
        create: (spec) => {
          const box = real.create(spec);
          let ofCaller = false;
          return withChanges(box, {
            // What the suite itself starts gets a signal.
            start: async (options) => {
              ofCaller = options === undefined;
              await box.start(options);
            },
            [Symbol.asyncDispose]: async () => {
              if (ofCaller && box.state === "running") left.add(box);
              else await box[Symbol.asyncDispose]();
            },
          });
        },
        [Symbol.asyncDispose]: async () => {
          await Promise.all([...left].map((box) => box[Symbol.asyncDispose]()));
          await real[Symbol.asyncDispose]();
        },
      };
    },
    also: { "lifecycle.dispose": "dispose is what is broken" },
  },
  {
    id: "lifecycle.freeze",
    does: "claims to have frozen",
    says: /the program goes on counting/,
    box: pretends("freeze", "frozen"),
  },
  {
    id: "lifecycle.freeze-then-stop",
    does: "thaws a frozen box, and says that it has stopped it",
    says: /running/,
    box: (box) => ({
      stopConfirmed: async (options) => {
        if (box.state !== "frozen") return box.stopConfirmed(options);
        await box.thaw(options);
        return claimed(box);
      },
    }),
  },
  {
    id: "lifecycle.parallel-boxes",
    does: "runs the programs of all boxes in one",
    says: /deep-equal/,
    driver: (real) => {
      let first: Runtime | undefined;
      return {
        create: (spec) => {
          const box = real.create(spec);
          return withChanges(box, {
            exec: async (argv, options) => {
              // The first one that is asked to write down its name gets all such programs.
              if (!argv.join(" ").includes("/var/tmp/mine")) return box.exec(argv, options);
              first ??= box;
              return first.exec(argv, options);
            },
          });
        },
      };
    },
  },
  {
    id: "lifecycle.prepare-image",
    does: "gives an image another id each time",
    says: /strictly equal/,
    driver: (real) => {
      let calls = 0;
      return {
        prepareImage: async (source, options) => {
          const prepared = await real.prepareImage(source, options);
          calls += 1;
          return calls === 1 ? prepared : { ...prepared, id: `${prepared.id}-${calls}` };
        },
      };
    },
  },
  {
    id: "lifecycle.prepare-image-facts",
    does: "forgets the image's user",
    says: /1234/,
    driver: (real) => ({
      prepareImage: async (source, options) => ({ ...(await real.prepareImage(source, options)), user: null }),
    }),
  },
  {
    id: "lifecycle.build-image",
    does: "takes what it built under that name before",
    says: /unequal/,
    driver: (real) => {
      const built = new Map<string, ReturnType<RuntimeDriver["prepareImage"]>>();
      return {
        prepareImage: async (source, options) => {
          if (!("name" in source)) return real.prepareImage(source, options);
          const known = built.get(source.name) ?? real.prepareImage(source, options);
          built.set(source.name, known);
          return known;
        },
      };
    },
  },
  {
    id: "lifecycle.start-unknown-user",
    does: "runs everything as root when the spec's user is unknown",
    says: SUCCEEDED,
    spec: (spec) => (spec.user === "nosuchuser" ? { ...spec, user: "root" } : spec),
  },
];

/** Gives a proof of the removal of a box that stays, until it is disposed. */
function claimsToBeGone(when: (box: Runtime) => boolean): ChangedBox {
  return (box) => {
    let lied = false;
    return {
      get state(): RuntimeState {
        return lied ? "gone" : box.state;
      },
      teardownConfirmed: async (options) => {
        if (!when(box)) return box.teardownConfirmed(options);
        lied = true;
        return claimed(box);
      },
      [Symbol.asyncDispose]: async () => {
        lied = false;
        await box[Symbol.asyncDispose]();
      },
    };
  };
}
