import { readFile } from "node:fs/promises";
import type { ForeignBox } from "@breakwater/conformance/runtime";
import {
  type BoxReport,
  isRuntimeError,
  type Runtime,
  type RuntimeDriver,
  RuntimeError,
  type SweptObject,
} from "@breakwater/runtime-api";
import { type ChangedBox, type Mutant, onExec, onResult, type SuiteOptions, text, withChanges } from "./mutant.ts";

const SUCCEEDED = /but it succeeded/;

/** A mutant whose boxes report something else. */
function onReport(change: (report: BoxReport, box: Runtime) => Partial<BoxReport>): ChangedBox {
  return (box) => ({
    report: async (options) => {
      const report = await box.report(options);
      return { ...report, ...change(report, box) };
    },
  });
}

export const isolationMutants: readonly Mutant[] = [
  {
    id: "isolation.cannot-end-own-box",
    does: "lets a kill of everything end the box",
    says: /the box does not answer any more/,
    box: onExec(async (run, argv, _options, box) => {
      const result = await run();
      if (argv.at(-1) === "kill -9 -1; kill -9 1") await box.stop();
      return result;
    }),
  },
  {
    id: "isolation.cannot-fork-box-to-death",
    does: "leaves children of a program that it has ended at its timeout",
    says: /the bomb's processes are still there/,
    box: onExec(async (run, argv, _options, box) => {
      const result = await run();
      if (result.timedOut && argv[0] === "perl")
        await box.exec(["sh", "-c", "for i in $(seq 40); do setsid sleep 300 >/dev/null 2>&1 & done"]);
      return result;
    }),
  },
  {
    id: "isolation.cannot-write-first-process",
    does: "has an ordinary program as the first process",
    says: /can be written/,
    // The program that the case first tries the attack on.
    box: onExec((run, argv) =>
      argv[2]?.includes("/mem") === true && argv.at(-1) === "1" ? run([...argv.slice(0, -1), "child"]) : run(),
    ),
  },
  {
    id: "isolation.cannot-starve-first-process",
    does: "loses a box whose first process has no limits left",
    says: /the box does not answer any more/,
    box: (box) => {
      let rounds = 0;
      return {
        exec: async (argv, options) => {
          const result = await box.exec(argv, options);
          if (argv.join(" ").includes("sleep 0.01")) rounds += 1;
          if (rounds === 40) await box.stop();
          return result;
        },
      };
    },
  },
  {
    id: "isolation.boxes-apart",
    does: "runs the programs of two boxes in one",
    says: /sees another one's processes/,
    driver: (real: RuntimeDriver) => {
      let first: Runtime | undefined;
      return {
        create: (spec) => {
          const box = real.create(spec);
          first ??= box;
          const inhabited = first;
          return withChanges(box, { exec: async (argv, options) => inhabited.exec(argv, options) });
        },
      };
    },
  },
  {
    id: "isolation.no-files-of-the-host",
    does: "shows a box the host's files",
    says: /absent/,
    box: onExec(async (run, argv) => {
      const path = /cat '([^']+\/canary)'/.exec(argv.at(-1) ?? "")?.[1];
      const result = await run();
      return path === undefined ? result : { ...result, stdout: await readFile(path) };
    }),
  },
  {
    id: "isolation.no-control-socket",
    does: "has a socket in its boxes",
    says: /control\.sock/,
    box: onExec(async (run, argv) => {
      const bind = `use Socket; socket(my $s, AF_UNIX, SOCK_STREAM, 0); bind($s, sockaddr_un("/run/control.sock"))`;
      if (argv.at(-1)?.startsWith("find / ") === true) await run(["perl", "-e", bind], {});
      return run();
    }),
  },
];

export const limitsMutants: readonly Mutant[] = [
  {
    id: "limits.memory",
    does: "forgets the limit of memory",
    says: /taken/,
    spec: (spec) => (spec.memoryMb === 128 ? { ...spec, memoryMb: undefined } : spec),
  },
  {
    id: "limits.memory-not-guessed",
    does: "takes 137 for an end by memory",
    says: /oomKills is 1/,
    box: (box) => {
      let killed = false;
      return {
        exec: async (argv, options) => {
          const result = await box.exec(argv, options);
          killed ||= result.exitCode === 137 && argv.at(-1) === "kill -9 $$";
          return result;
        },
        report: async (options) => {
          const report = await box.report(options);
          return killed ? { ...report, oomKills: 1 } : report;
        },
      };
    },
  },
  {
    id: "limits.memory-swap",
    does: "gives far more swap than memory",
    says: /100 MiB were taken/,
    spec: (spec) => (spec.memoryMb === 64 ? { ...spec, memoryMb: 500 } : spec),
  },
  {
    id: "limits.pids",
    does: "forgets the limit of processes",
    says: /processes were made/,
    spec: (spec) => (spec.pidsLimit === 100 ? { ...spec, pidsLimit: 500 } : spec),
  },
  {
    id: "limits.pids-full",
    does: "does not say that the deadline ended a program that filled the limit",
    says: /deep-equal/,
    box: onResult(({ stdout }) => (text(stdout) === "full\n" ? { timedOut: false } : undefined)),
  },
  {
    id: "limits.cpus",
    does: "forgets the limit of cores",
    says: /with a twentieth of a core/,
    spec: ({ cpus: _cpus, ...spec }) => spec,
  },
  {
    id: "limits.report",
    does: "does not know the memory file systems of a box",
    says: /is a memory file system and not in the report/,
    box: onReport(() => ({ memoryMounts: [] })),
  },
  {
    id: "limits.report-stopped",
    does: "takes its own stop for the doing of the contents",
    says: /contents/,
    box: onReport(({ endedBy }) => (endedBy === "stopped" ? { endedBy: "contents" } : {})),
  },
];

export const leaksMutants: readonly Mutant[] = [
  {
    id: "leaks.sweep-keeps-own",
    does: "sweeps its own boxes",
    says: /was swept/,
    driver: (real) => {
      const own: Runtime[] = [];
      return {
        create: (spec) => {
          const box = real.create(spec);
          own.push(box);
          return box;
        },
        sweep: async (options) => {
          const report = await real.sweep(options);
          if (options?.dryRun === true) return report;
          await Promise.all(own.map((box) => box.teardownConfirmed()));
          const isOwn = ({ trial }: SweptObject): boolean => own.some((box) => box.spec.trial === trial);
          return {
            ...report,
            removed: [...report.removed, ...report.kept.filter(isOwn)],
            kept: report.kept.filter((it) => !isOwn(it)),
          };
        },
      };
    },
  },
  {
    id: "leaks.sweep-dead-owner",
    does: "takes every owner for a live one",
    says: /the dead owner's box is not found/,
    driver: (real) => ({
      sweep: async () => {
        const { kept, removed, failed } = await real.sweep({ dryRun: true });
        return { kept: [...kept, ...removed, ...failed], removed: [], failed: [] };
      },
      [Symbol.asyncDispose]: async () => {
        await real.sweep();
        await real[Symbol.asyncDispose]();
      },
    }),
  },
  {
    id: "leaks.sweep-foreign",
    does: "sweeps whatever it finds",
    says: /a foreign box was swept/,
    // The engine may have other foreign boxes: only the case's own is taken.
    ...(() => {
      const foreign: ForeignBox[] = [];
      return {
        options: ({ sabotage }: SuiteOptions) => ({
          sabotage: {
            ...sabotage,
            foreignBox: async (image: string) => {
              const box = await sabotage?.foreignBox?.(image);
              if (box === undefined) throw new TypeError("nobody makes foreign boxes");
              foreign.push(box);
              return box;
            },
          },
        }),
        driver: (real: RuntimeDriver): Partial<RuntimeDriver> => ({
          sweep: async (options) => {
            if (options?.dryRun !== true) await Promise.all(foreign.map((box) => box.remove()));
            return real.sweep(options);
          },
        }),
      };
    })(),
  },
  {
    id: "leaks.lifetime-without-owner",
    does: "ends boxes by a timer of its own process",
    // The box still runs, or the timer has just come due.
    says: /expected a RuntimeError with code ERR_BOX_LOST/,
    driver: (real) => ({
      create: ({ lifetimeMs, ...spec }) => {
        const box = real.create(spec);
        return withChanges(box, {
          start: async (options) => {
            await box.start(options);
            setTimeout(() => void box.stop(), lifetimeMs).unref();
          },
        });
      },
    }),
  },
  {
    id: "leaks.process-ends",
    does: "keeps a timer when it is disposed",
    says: /the end of a process whose driver is disposed/,
    options: ({ driverModule }) => ({
      driverModule: driverModule && { ...driverModule, url: new URL("keeps-a-timer.ts", import.meta.url) },
    }),
    also: { "leaks.sweep-dead-owner": "its owner processes do not end either" },
  },
  {
    id: "leaks.dispose-driver",
    does: "ends all boxes when one of its drivers is disposed",
    says: /the box does not answer any more/,
    driver: (real) => ({
      create: (spec) => {
        const box = real.create(spec);
        inUse.add(box);
        return box;
      },
      [Symbol.asyncDispose]: async () => {
        await Promise.all([...inUse].map((box) => box.stop()));
        inUse.clear();
        await real[Symbol.asyncDispose]();
      },
    }),
  },
];

/** Boxes of all drivers of the mutant above. */
const inUse = new Set<Runtime>();

/** A mutant that refuses for less than all reasons that there are, or not at all. */
export const refusalMutants: readonly Mutant[] = [
  {
    id: "refusal.probe-within-claims",
    does: "finds more than it claims",
    says: /probe says networkModes bridge/,
    driver: (real) => ({
      probe: async (options) => ({ ...(await real.probe(options)), networkModes: ["bridge" as "public"] }),
    }),
  },
  {
    id: "refusal.capabilities-constant",
    does: "claims more after it has asked",
    says: /deep-equal/,
    driver: (real) => {
      let probed = false;
      return {
        get capabilities() {
          return probed ? { ...real.capabilities, gpus: 8 } : real.capabilities;
        },
        probe: async (options) => {
          probed = true;
          return real.probe(options);
        },
      };
    },
  },
  {
    id: "refusal.all-at-once",
    does: "gives the first reason only",
    says: /not for REFUSED|not the reasons/,
    box: (box) => ({
      start: async (options) =>
        box.start(options).catch((error: unknown) => {
          if (!isRuntimeError(error, "ERR_UNSUPPORTED") || error.refusals.length < 2) throw error;
          const { code, driver, operation, message, refusals } = error;
          throw new RuntimeError({ code, driver, operation, message, refusals: refusals.slice(0, 1) });
        }),
    }),
  },
  {
    id: "refusal.gpus",
    does: "ignores GPUs",
    says: SUCCEEDED,
    spec: (spec) => (spec.operatingSystem === "windows" ? spec : { ...spec, gpus: 0 }),
  },
  {
    id: "refusal.more-than-the-host",
    does: "gives as many cores as there are when more are asked for",
    says: SUCCEEDED,
    spec: ({ cpus: _cpus, ...spec }) => spec,
  },
  {
    id: "refusal.network-public",
    does: "gives a public network that it does not claim",
    says: SUCCEEDED,
    claims: { networkModes: ["no-network"] },
  },
  {
    id: "refusal.network-no-network",
    does: "cuts boxes off although it does not claim that it can",
    says: SUCCEEDED,
    claims: { networkModes: ["public"] },
  },
  {
    id: "refusal.network-allowlist",
    does: "opens everything where it cannot enforce an allowlist",
    says: SUCCEEDED,
    claims: { networkModes: ["public", "no-network"], allowlistEntries: [] },
    spec: (spec) => (spec.network?.initial.mode === "allowlist" ? { ...spec, network: undefined } : spec),
  },
  {
    id: "refusal.network-change",
    does: "takes later policies although it claims no change",
    says: SUCCEEDED,
    claims: { networkChange: "none" },
  },
  {
    id: "refusal.network-tightening",
    does: "takes later policies that it cannot enforce on open connections",
    says: SUCCEEDED,
    claims: { networkChange: "new-connections-only" },
  },
  {
    id: "refusal.freeze",
    does: "freezes although it does not claim that it can",
    says: SUCCEEDED,
    claims: { freeze: "none" },
  },
  {
    id: "refusal.read-after-stop",
    does: "gives files of a box that its stop is said to destroy",
    says: SUCCEEDED,
    claims: { stop: "destroys" },
  },
  {
    id: "refusal.limit-cpus",
    does: "takes a limit of cores that it does not claim to enforce",
    says: SUCCEEDED,
    claims: { limits: ["memory", "pids"] },
  },
  {
    id: "refusal.limit-memory",
    does: "takes a limit of memory that it does not claim to enforce",
    says: SUCCEEDED,
    claims: { limits: ["cpus", "pids"] },
  },
  {
    id: "refusal.user",
    does: "takes another user although it claims only the image's",
    says: SUCCEEDED,
    claims: { users: "image" },
  },
  {
    id: "refusal.build",
    does: "builds although it does not claim that it can",
    says: SUCCEEDED,
    claims: { imageSources: ["reference"] },
  },
  {
    id: "refusal.lifetime",
    does: "takes a lifetime that it does not claim to enforce",
    says: SUCCEEDED,
    claims: { maxLifetimeMs: 3_600_000 },
  },
  {
    id: "refusal.services",
    does: "takes services that it does not claim",
    says: SUCCEEDED,
    claims: { services: "none" },
  },
  {
    id: "refusal.operating-system",
    does: "takes every box for a Linux one",
    says: SUCCEEDED,
    spec: (spec) =>
      spec.operatingSystem === "windows" && spec.gpus === undefined ? { ...spec, operatingSystem: "linux" } : spec,
  },
];
