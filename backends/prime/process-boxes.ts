import { type ChildProcess, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, readFile, rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type Dockerode from "dockerode";
import { withLock } from "../src/lock.ts";
import {
  type Box,
  type Boxes,
  type BoxOptions,
  isEngineStatus,
  NoImageError,
  type Output,
  type Program,
  type ProgramOptions,
} from "./box.ts";

const UNPACK_TIMEOUT_MS = 300_000;
const MAX_LOG_CHARACTERS = 100_000;

/** An image, unpacked on this machine. */
interface Unpacked {
  readonly root: string;
  readonly env: readonly string[];
  readonly workdir: string;
}

/**
 * Boxes that are a few namespaces of this machine over an engine's image: a tenth of a container's price, for tests that need many boxes and trust
 * what runs in them. Root in one can get out, no limit is enforced, and there is no network but their own loopback. Needs root.
 */
export class ProcessBoxes implements Boxes {
  readonly #engine: Dockerode;
  readonly #folder: string;
  readonly #cacheFolder: string;
  readonly #images = new Map<string, Promise<Unpacked>>();

  /** `folder`: of this emulator, for what boxes write. `cacheFolder`: for unpacked images. */
  constructor(engine: Dockerode, folder: string, cacheFolder: string) {
    this.#engine = engine;
    this.#folder = folder;
    this.#cacheFolder = cacheFolder;
  }

  async hasImage(image: string): Promise<boolean> {
    return await this.#image(image).then(
      () => true,
      (error: unknown) => {
        if (error instanceof NoImageError) return false;
        throw error;
      },
    );
  }

  async create(options: BoxOptions): Promise<Box> {
    return new ProcessBox(await this.#image(options.image), join(this.#folder, "boxes", options.sandboxId), options);
  }

  #image(image: string): Promise<Unpacked> {
    let known = this.#images.get(image);
    if (known === undefined) {
      known = this.#unpack(image);
      this.#images.set(image, known);
      known.catch(() => this.#images.delete(image));
    }
    return known;
  }

  async #unpack(image: string): Promise<Unpacked> {
    const { Id: id, Config: config } = await this.#engine
      .getImage(image)
      .inspect()
      .catch((error: unknown) => {
        throw isEngineStatus(error, 404) ? new NoImageError(image, { cause: error }) : error;
      });
    const root = join(this.#cacheFolder, createHash("sha256").update(id).digest("hex").slice(0, 16));
    await mkdir(this.#cacheFolder, { recursive: true });
    await withLock(`${root}.lock`, UNPACK_TIMEOUT_MS, async () => {
      if (existsSync(root)) return;
      const container = await this.#engine.createContainer({ Image: image, Cmd: ["true"] });
      try {
        await rm(`${root}.new`, { recursive: true, force: true });
        await mkdir(`${root}.new`);
        const tar = spawn("tar", ["-x", "--numeric-owner", "-C", `${root}.new`], {
          stdio: ["pipe", "ignore", "inherit"],
        });
        const ended = new Promise<number | null>((resolve) => tar.once("close", resolve));
        (await container.export()).pipe(tar.stdin);
        const exitCode = await ended;
        if (exitCode !== 0) throw new Error(`unpacking ${image}: tar ended with ${exitCode}`);
        await rename(`${root}.new`, root);
      } finally {
        await container.remove({ force: true });
      }
    });
    return { root, env: config.Env ?? [], workdir: config.WorkingDir || "/" };
  }
}

/** Mounts what a box sees, and becomes its first process. `$1` lower, `$2` upper, `$3` work, `$4` merged. */
const INIT = `set -e
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2,workdir=$3" "$4"
mount -t proc proc "$4/proc"
mount -t tmpfs -o mode=755 tmpfs "$4/dev"
for it in null zero full random urandom tty; do : >"$4/dev/$it"; mount --bind "/dev/$it" "$4/dev/$it"; done
ln -s /proc/self/fd "$4/dev/fd"
ip link set lo up
shift 3; root=$1; shift
exec chroot "$root" "$@"`;

class ProcessBox implements Box {
  readonly name: string;
  readonly #image: Unpacked;
  readonly #folder: string;
  readonly #options: BoxOptions;
  #outer: ChildProcess | undefined;
  #pid: number | undefined;
  #ended: Promise<number> | undefined;
  #log = "";
  #isRemoved = false;

  constructor(image: Unpacked, folder: string, options: BoxOptions) {
    this.name = options.sandboxId;
    this.#image = image;
    this.#folder = folder;
    this.#options = options;
  }

  get #env(): Record<string, string> {
    return { HOME: "/root", ...variables(this.#image.env), ...this.#options.env };
  }

  get hostRoot(): string | undefined {
    return this.#pid === undefined ? undefined : `/proc/${this.#pid}/root`;
  }

  async start(): Promise<void> {
    const [upper, work, merged] = ["upper", "work", "merged"].map((name) => join(this.#folder, name));
    for (const each of [upper, work, merged]) await mkdir(each ?? "", { recursive: true });
    const namespaces = ["--fork", "--kill-child", "--pid", "--mount", "--net", "--ipc", "--uts"];
    // The death of the emulator is the box's.
    const argv = ["--pdeathsig", "KILL", "unshare", ...namespaces, "sh", "-c", INIT, "init", this.#image.root];
    const outer = spawn("setpriv", [...argv, upper ?? "", work ?? "", merged ?? "", ...this.#options.argv], {
      env: this.#env,
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.#outer = outer;
    for (const stream of [outer.stdout, outer.stderr]) {
      stream.on("data", (chunk: Buffer) => {
        this.#log = (this.#log + chunk.toString("utf8")).slice(-MAX_LOG_CHARACTERS);
      });
    }
    this.#ended = exitOf(outer);
    // It is one once its root is another.
    for (;;) {
      if (outer.exitCode !== null || outer.signalCode !== null) throw new Error(`a box did not start: ${this.#log}`);
      const pid = await childOf(outer.pid);
      if (pid !== undefined && (await isChrooted(pid))) {
        this.#pid = pid;
        return;
      }
      await sleep(5);
    }
  }

  async ended(): Promise<{ readonly exitCode: number; readonly oomKilled: boolean } | null> {
    const exitCode = (await this.#ended) ?? 0;
    return this.#isRemoved ? null : { exitCode, oomKilled: false };
  }

  async isRunning(): Promise<boolean> {
    return this.#outer !== undefined && this.#outer.exitCode === null && this.#outer.signalCode === null;
  }

  async hostPid(): Promise<number> {
    if (this.#pid === undefined) throw new Error(`${this.name} does not run`);
    return this.#pid;
  }

  async kill(): Promise<void> {
    this.#outer?.kill("SIGKILL");
    await this.#ended;
  }

  async remove(): Promise<void> {
    this.#isRemoved = true;
    await this.kill();
    await rm(this.#folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 });
  }

  async logs(): Promise<string> {
    return this.#log;
  }

  async run(argv: readonly string[], options: ProgramOptions = {}): Promise<Program> {
    const pid = await this.hostPid();
    const [user, group] = idsOf(options.user ?? "0:0");
    const enter = ["--target", String(pid), "--pid", "--mount", "--net", "--ipc", "--uts", "--root"];
    const as = ["--setuid", user, "--setgid", group, `--wdns=${options.cwd ?? this.#image.workdir}`];
    const child = spawn("nsenter", [...enter, ...as, "--", ...argv], {
      env: { ...this.#env, ...options.env },
      stdio: [options.stdin === true ? "pipe" : "ignore", "pipe", "pipe"],
    });
    child.stdin?.on("error", () => undefined);
    // Both before anything is waited for: what a program says while nobody listens is lost once it ends.
    const exit = exitOf(child);
    const output = outputOf(child);
    return {
      pid: await pidInBox(child),
      output,
      write: (bytes) =>
        new Promise((resolve, reject) => {
          if (child.stdin === null) reject(new Error("the program has no input"));
          else child.stdin.write(bytes, (error) => (error ? reject(error) : resolve()));
        }),
      endInput: () => void child.stdin?.end(),
      exitCode: () => exit,
      detach: () => {
        child.stdin?.destroy();
        child.stdout?.destroy();
        child.stderr?.destroy();
      },
    };
  }
}

function variables(env: readonly string[]): Record<string, string> {
  return Object.fromEntries(env.map((each) => [each.slice(0, each.indexOf("=")), each.slice(each.indexOf("=") + 1)]));
}

/** In docker's words; root is the only name that is known. */
function idsOf(user: string): readonly [string, string] {
  const [id = "0", group = id] = user.replace(/^root$/, "0:0").split(":");
  return [id, group];
}

function exitOf(child: ChildProcess): Promise<number> {
  return new Promise((resolve) => {
    child.once("error", () => resolve(127));
    child.once("exit", (code, signal) => resolve(code ?? (signal === "SIGKILL" ? 137 : 143)));
  });
}

async function childOf(pid: number | undefined): Promise<number | undefined> {
  const text = await readFile(`/proc/${pid}/task/${pid}/children`, "utf8").catch(() => "");
  return text === "" ? undefined : Number(text.trim().split(" ")[0]);
}

async function isChrooted(pid: number): Promise<boolean> {
  const [own, its] = await Promise.all([stat("/"), stat(`/proc/${pid}/root/`).catch(() => undefined)]);
  return its !== undefined && (its.ino !== own.ino || its.dev !== own.dev);
}

/** A number of its own for a program that has ended already. */
const NO_PID = 2 ** 23;
let endedPrograms = 0;

async function pidInBox(child: ChildProcess): Promise<number> {
  for (;;) {
    const pid = await childOf(child.pid);
    const status = pid === undefined ? "" : await readFile(`/proc/${pid}/status`, "utf8").catch(() => "");
    const inBox = /^NSpid:.*?(\d+)$/m.exec(status)?.[1];
    if (inBox !== undefined) return Number(inBox);
    if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined)
      return NO_PID + endedPrograms++;
    await sleep(2);
  }
}

/** Both streams as they come; not reading holds the program back. */
function outputOf(child: ChildProcess): AsyncIterable<Output> {
  const waiting: Output[] = [];
  let open = 0;
  let wake: (() => void) | undefined;
  for (const stream of ["stdout", "stderr"] as const) {
    const source = child[stream];
    if (source === null) continue;
    open += 1;
    source.on("data", (chunk: Buffer) => {
      waiting.push({ stream, chunk });
      source.pause();
      wake?.();
    });
    source.once("close", () => {
      open -= 1;
      wake?.();
    });
    source.on("error", () => undefined);
  }
  async function* taken(): AsyncGenerator<Output> {
    for (;;) {
      const next = waiting.shift();
      if (next !== undefined) {
        yield next;
        child[next.stream]?.resume();
      } else if (open === 0) return;
      else {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
    }
  }
  return taken();
}
