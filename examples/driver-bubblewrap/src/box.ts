import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { chmod, copyFile, type FileHandle, open, readFile } from "node:fs/promises";
import { basename, join } from "node:path";
import type { Readable } from "node:stream";
import { BOX_HELPER_PATH, boxHelperPath } from "@breakwater/box-helper";
import type * as kit from "@breakwater/driver-kit";
import { HOLD_LIFETIME_EXIT_CODE, proofOf, UNKNOWN_USAGE } from "@breakwater/driver-kit";
import { type Proof, RuntimeError, type RuntimeSpec } from "@breakwater/runtime-api";
import { spawnWithPipes } from "./exec.ts";
import type { Images } from "./images.ts";
import { spawnAsRoot } from "./namespace.ts";
import { boxCommand, programCommand } from "./translate.ts";

/** Of each kind, whose handle a program of ours needs to get in. `mnt` is the one of `bwrap` itself, which has the box's root mounted. */
const NAMESPACES = ["pid", "user", "net", "ipc", "uts", "mnt"] as const;
type Namespace = (typeof NAMESPACES)[number];

/** One box. */
export class BubblewrapBox implements kit.BackendBox {
  readonly handle: string;
  readonly #spec: RuntimeSpec;
  readonly #askImages: () => Promise<Images>;
  #images: Images | null = null;
  #folder = "";
  /** Our `bwrap`. It ends when the first process of the box has ended, and with that process the kernel ends all others of its pid namespace. */
  #monitor: ChildProcess | null = null;
  #pid: number | null = null;
  /** Handles of the box's namespaces: nobody else can get their numbers. */
  #namespaces: Partial<Record<Namespace, FileHandle>> = {};
  #said = "";

  constructor(id: string, spec: RuntimeSpec, askImages: () => Promise<Images>) {
    this.handle = id;
    this.#spec = spec;
    this.#askImages = askImages;
  }

  async start(clock: kit.Deadline): Promise<kit.StartedBox> {
    const images = (this.#images = await clock.race(this.#askImages()));
    const { image, folder } = await images.prepare(this.#spec.image, clock);
    clock.throwIfOver();
    const startedAtMs = Date.now();
    const labels = { role: "box", trial: this.#spec.trial, expiresAtMs: startedAtMs + this.#spec.lifetimeMs };
    this.#folder = await images.folders.make(this.handle, ["root", "upper", "work", "shm", "ours"], labels);
    // Where the box's root may read it.
    const helper = join(this.#folder, "ours", basename(BOX_HELPER_PATH));
    await copyFile(boxHelperPath(process.arch === "arm64" ? "arm64" : "amd64"), helper);
    await chmod(helper, 0o755);
    const command = boxCommand(this.#folder, folder, this.#spec, image);
    const monitor = (this.#monitor = spawnAsRoot(command, { stdio: ["ignore", "ignore", "pipe", "pipe"] }));
    monitor.stderr?.setEncoding("utf8").on("data", (text: string) => (this.#said = (this.#said + text).slice(-2000)));
    await this.#findFirstProcess(monitor, clock).catch((cause: unknown) => {
      clock.throwIfOver();
      const message = `the box did not start: ${this.#said.trim() || (cause as Error).message}`;
      throw new RuntimeError({ code: "ERR_BOX_START", driver: "bubblewrap", operation: "start", message, cause });
    });
    // A box does not keep its owner's process alive.
    for (const each of [monitor, monitor.stderr, monitor.stdio[3]]) (each as unknown as ChildProcess | null)?.unref();
    return { image, startedAtMs };
  }

  async #findFirstProcess(monitor: ChildProcess, clock: kit.Deadline): Promise<void> {
    const info = monitor.stdio[3] as Readable;
    let text = "";
    info.setEncoding("utf8").on("data", (more: string) => (text += more));
    await clock.race(once(info, "end"));
    const pid = (this.#pid = (JSON.parse(text) as { readonly "child-pid": number })["child-pid"]);
    for (const name of NAMESPACES)
      this.#namespaces[name] = await open(`/proc/${name === "mnt" ? monitor.pid : pid}/ns/${name}`);
    const program = (): Promise<string> => readFile(`/proc/${pid}/cmdline`, "latin1");
    while (!(await program()).startsWith(BOX_HELPER_PATH)) await clock.sleep(10);
  }

  async look(): Promise<"running" | "ended"> {
    return this.#hasEnded ? "ended" : "running";
  }

  get #hasEnded(): boolean {
    return this.#monitor === null || this.#monitor.exitCode !== null || this.#monitor.signalCode !== null;
  }

  async openExec(argv: readonly string[]): Promise<kit.BoxExec> {
    if (this.#hasEnded) throw new Error("the first process has ended");
    return this.#open(["user", "mnt", "net", "ipc", "uts"], ["--pidns", "3"], argv);
  }

  async openReader(argv: readonly string[]): Promise<kit.BoxExec> {
    return this.#open(["user", "mnt"], ["--unshare-pid", "--unshare-net", "--die-with-parent"], argv);
  }

  async #open(
    namespaces: readonly Namespace[],
    bwrap: readonly string[],
    argv: readonly string[],
  ): Promise<kit.BoxExec> {
    const enter = namespaces.map(
      (name) => `--${name === "mnt" ? "mount" : name}=/proc/${process.pid}/fd/${this.#namespaces[name]?.fd}`,
    );
    const command = [...programCommand(this.#folder, this.#spec, bwrap), ...argv];
    const inNamespaces = ["nsenter", ...enter, "--setuid=0", "--setgid=0", "--", ...command];
    return spawnWithPipes(inNamespaces, this.#folder, this.#namespaces.pid?.fd ?? -1);
  }

  async stop(_inside: unknown, clock: kit.Deadline): Promise<kit.StoppedBox> {
    const endedBefore = this.#hasEnded;
    const exitCode = await this.#end(clock);
    const question = `bwrap (${this.#monitor?.pid}) waited for the first process (${this.#pid}), before whose end the kernel ends all others: has it ended?`;
    return { proof: proofOf(this.handle, question, `ended with ${exitCode}`), exitCode, endedBefore };
  }

  /** Ends the first process, if there is one, and waits for it. Gives its exit code. */
  async #end(clock: kit.Deadline): Promise<number | null> {
    if (this.#monitor === null) return null;
    if (!this.#hasEnded) {
      const exit = once(this.#monitor, "exit");
      this.#monitor.ref();
      try {
        process.kill(this.#pid ?? (this.#monitor.pid as number), "SIGKILL");
      } catch {
        // It has ended meanwhile.
      }
      await clock.race(exit);
    }
    return this.#monitor.exitCode ?? 137;
  }

  async howItEnded(): Promise<kit.BoxEnd> {
    const exitCode = this.#monitor?.exitCode ?? 137;
    // From inside, the kernel lets no signal end a first process that has no handler for it: 137 is somebody's outside.
    const endedBy = exitCode === HOLD_LIFETIME_EXIT_CODE ? "lifetime" : exitCode > 128 ? "outside" : "contents";
    return { endedBy, exitCode, ...UNKNOWN_USAGE };
  }

  async remove(clock: kit.Deadline): Promise<Proof> {
    const exitCode = await this.#end(clock);
    for (const handle of Object.values(this.#namespaces)) await handle.close();
    await this.#images?.folders.remove(this.handle, clock);
    const answer = `${exitCode === null ? "never started" : `ended with ${exitCode}`}; removed`;
    const question = `the first process (${this.#pid ?? "none"}) and the folder of ${this.handle}`;
    return proofOf(this.handle, question, answer);
  }
}
