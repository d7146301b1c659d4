import { randomBytes } from "node:crypto";
import { chmod, copyFile, mkdir, readdir, readFile, rename } from "node:fs/promises";
import { join } from "node:path";
import { boxHelperPath, boxHelperVersion } from "@breakwater/box-helper";
import { type Deadline, isLeftover, withDeadline } from "@breakwater/driver-kit";
import {
  type DoctorLine,
  type ImageSource,
  type OperationOptions,
  parseRuntimeSpec,
  type PreparedImage,
  type PrepareImageOptions,
  type Runtime,
  type RuntimeCapabilities,
  type RuntimeDriver,
  type RuntimeSpecInput,
  type SweepOptions,
  type SweepReport,
  type SweptObject,
} from "@breakwater/runtime-api";
import { BubblewrapBox, type BoxContext, type Host } from "./box.ts";
import { DRIVER, failure } from "./errors.ts";
import { Folders } from "./folders.ts";
import { Images } from "./images.ts";
import { findIds, runAsRoot } from "./namespace.ts";
import { type BubblewrapDriverOptions, type Options, parseOptions } from "./options.ts";
import { makeRoot } from "./translate.ts";

const PROBE_TIMEOUT_MS = 30_000;
const PREPARE_TIMEOUT_MS = 30 * 60 * 1000;
const SWEEP_TIMEOUT_MS = 10 * 60 * 1000;

/** What namespaces enforce. No limits: those need cgroups. No `public` network: that needs a program that carries packets. */
const CAPABILITIES: RuntimeCapabilities = Object.freeze({
  networkModes: Object.freeze(["no-network"] as const),
  networkChange: "none",
  allowlistEntries: Object.freeze([]),
  allowlistPorts: Object.freeze([]),
  stop: "halted",
  firstProcess: "ours",
  freeze: "none",
  limits: Object.freeze([]),
  maxCpus: null,
  maxMemoryMb: null,
  gpus: 0,
  users: "any",
  imagePin: "id",
  imageSources: Object.freeze(["reference"] as const),
  services: "none",
  operatingSystems: Object.freeze(["linux"] as const),
  maxLifetimeMs: null,
});

/** Boxes from Linux namespaces, by bubblewrap. No daemon, and no root needed. Throws a `TypeError` for options that cannot be. */
export function bubblewrapDriver(options: BubblewrapDriverOptions = {}): RuntimeDriver {
  return new BubblewrapDriver(parseOptions(options, process.getuid?.() === 0));
}

class BubblewrapDriver implements RuntimeDriver {
  readonly name: string = DRIVER;
  readonly capabilities: RuntimeCapabilities = CAPABILITIES;
  readonly #options: Options;
  readonly #folders: Folders;
  readonly #box: BoxContext;
  #host: Promise<Host> | undefined;

  constructor(options: Options) {
    this.#options = options;
    this.#folders = new Folders(options.directory);
    this.#box = {
      folders: this.#folders,
      images: new Images(this.#folders),
      probe: (probeOptions) => this.probe(probeOptions),
      host: () => this.#askHost(),
    };
  }

  async probe(options?: OperationOptions): Promise<RuntimeCapabilities> {
    return this.#within("probe", options, PROBE_TIMEOUT_MS, async (clock) => {
      await clock.race(this.#askHost());
      return CAPABILITIES;
    });
  }

  async *doctor(options?: OperationOptions): AsyncGenerator<DoctorLine> {
    try {
      await this.probe(options);
      const { overlay } = await this.#askHost();
      yield { status: "ok", what: `bubblewrap makes boxes, files in ${this.#options.directory}` };
      if (!overlay)
        yield {
          status: "warning",
          what: "every box gets a copy of its image",
          advice: "use a directory on a file system that can carry an overlay (ext4, xfs, btrfs)",
        };
    } catch (error) {
      yield {
        status: "failed",
        what: (error as Error).message,
        advice: "install bubblewrap; allow user namespaces (sysctl user.max_user_namespaces)",
      };
    }
  }

  create(spec: RuntimeSpecInput): Runtime {
    return new BubblewrapBox(parseRuntimeSpec(spec), this.#box);
  }

  async prepareImage(source: ImageSource, options?: PrepareImageOptions): Promise<PreparedImage> {
    if ("context" in source) {
      throw failure(
        { operation: "prepareImage" },
        "ERR_UNSUPPORTED",
        `${source.name}: images cannot be built here; build it elsewhere and export it`,
      );
    }
    return this.#within("prepareImage", options, PREPARE_TIMEOUT_MS, async (clock) => {
      const { ids } = await clock.race(this.#askHost());
      return (await this.#box.images.prepare(source.reference, ids, clock)).image;
    });
  }

  async sweep(options?: SweepOptions): Promise<SweepReport> {
    return this.#within("sweep", options, SWEEP_TIMEOUT_MS, async (clock) => {
      const report = {
        removed: [] as SweptObject[],
        kept: [] as SweptObject[],
        failed: [] as (SweptObject & { reason: string })[],
      };
      for (const { name, labels } of await this.#folders.list()) {
        const object = { kind: labels.role, id: name, trial: labels.trial };
        if (!isLeftover(labels)) report.kept.push(object);
        else if (options?.dryRun === true) report.removed.push(object);
        else {
          try {
            await endProcessesOf(this.#folders.path(name), clock);
            await this.#folders.remove(name, (await this.#askHost()).ids, clock);
            report.removed.push(object);
          } catch (error) {
            clock.throwIfOver();
            report.failed.push({ ...object, reason: (error as Error).message });
          }
        }
      }
      return report;
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Nothing is open: every box has its own processes and handles.
  }

  /** An answer is kept, a failure is not. */
  #askHost(): Promise<Host> {
    this.#host ??= this.#tryHost().catch((error: unknown) => {
      this.#host = undefined;
      throw error;
    });
    return this.#host;
  }

  /** Tries what every box needs: user namespaces, `bwrap` in them, an overlay. */
  async #tryHost(): Promise<Host> {
    return this.#within("probe", undefined, PROBE_TIMEOUT_MS, async (clock) => {
      const name = `probe-${randomBytes(8).toString("hex")}`;
      try {
        const ids = await findIds(this.#options.firstHostId);
        await this.#placeHelper();
        const labels = { role: "probe", trial: null, expiresAtMs: Date.now() + PROBE_TIMEOUT_MS };
        const box = await this.#folders.make(name, ["image", "root", "upper", "work", "shm"], ids, labels);
        try {
          await runAsRoot(
            ids,
            ["bwrap", "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/", "--proc", "/proc", "true"],
            clock,
          );
          const overlay = makeRoot({ box, image: join(box, "image") }, true, ["true"]);
          return {
            ids,
            overlay: await runAsRoot(ids, overlay, clock).then(
              () => true,
              () => false,
            ),
          };
        } finally {
          await this.#folders.remove(name, ids, clock);
        }
      } catch (cause) {
        clock.throwIfOver();
        const advice = "install bubblewrap; allow user namespaces (sysctl user.max_user_namespaces)";
        throw failure(
          { operation: "probe" },
          "ERR_BACKEND_UNAVAILABLE",
          `boxes cannot be made here: ${(cause as Error).message}; ${advice}`,
          { cause },
        );
      }
    });
  }

  /** Our helper, where the boxes' root may read it. */
  async #placeHelper(): Promise<void> {
    const architecture = process.arch === "arm64" ? "arm64" : "amd64";
    this.#folders.helper = join(this.#options.directory, `helper-${boxHelperVersion(architecture)}`);
    await mkdir(this.#folders.helper, { recursive: true, mode: 0o755 });
    const draft = join(this.#folders.helper, `.draft-${randomBytes(8).toString("hex")}`);
    await copyFile(boxHelperPath(architecture), draft);
    await chmod(draft, 0o755);
    await rename(draft, join(this.#folders.helper, "helper"));
  }

  async #within<T>(
    operation: string,
    options: OperationOptions | undefined,
    timeoutMs: number,
    work: (clock: Deadline) => Promise<T>,
  ): Promise<T> {
    return withDeadline(options, timeoutMs, { driver: DRIVER, operation, what: operation }, work);
  }
}

/** Boxes go when their owner does; this is for the moment between the two. Whoever works on a box of ours has its folder among its arguments. */
async function endProcessesOf(folder: string, clock: Deadline): Promise<void> {
  for (;;) {
    const pids: number[] = [];
    for (const pid of (await readdir("/proc")).filter((name) => /^\d+$/.test(name))) {
      const argv = (await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "")).split("\0");
      if (
        ["bwrap", "unshare", "nsenter", "sh", "setpriv"].includes(argv[0] ?? "") &&
        argv.some((each) => each.startsWith(folder))
      )
        pids.push(Number(pid));
    }
    if (pids.length === 0) return;
    for (const pid of pids) {
      try {
        process.kill(pid, "SIGKILL");
      } catch {
        // It has ended meanwhile.
      }
    }
    await clock.sleep(20);
  }
}
