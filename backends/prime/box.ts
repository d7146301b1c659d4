import { readFile } from "node:fs/promises";
import type { Duplex } from "node:stream";
import Dockerode from "dockerode";

/** On every object that the emulator makes on the engine: by these `up` and `down` find what is left. */
export const LABELS = {
  /** Which emulator: its run folder. */
  emulator: "breakwater.prime-emulator",
  sandbox: "breakwater.prime-emulator.sandbox",
  /** Unix time in milliseconds after which nothing needs it. */
  expires: "breakwater.prime-emulator.expires",
} as const;

export interface BoxOptions {
  readonly sandboxId: string;
  readonly image: string;
  /** The first process. */
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly cpus: number;
  readonly memoryMb: number;
  readonly expiresAtMs: number;
}

export interface ProgramOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /** In docker's words. Default is the image's user. */
  readonly user?: string;
  /** Whether it has an input that somebody writes to. Default is an empty one. */
  readonly stdin?: boolean;
  /** Started as it is, by no shell. Takes an engine on this machine. Default is `false`. */
  readonly direct?: boolean;
}

export interface Output {
  readonly stream: "stdout" | "stderr";
  readonly chunk: Buffer;
}

/** A program in a box. */
export interface Program {
  /** As programs of the box know it; `null` if it could not be started. */
  readonly pid: number | null;
  /** To be read to its end; not reading holds the program back. */
  readonly output: AsyncIterable<Output>;
  write(bytes: Uint8Array): Promise<void>;
  endInput(): void;
  /** After the output has ended. */
  exitCode(): Promise<number>;
  /** Stops listening; the program goes on. */
  detach(): void;
}

/** Says its own process id first and then becomes the program. */
const TELL_PID = 'printf "%d\\n" "$$"; exec "$@"';
const FIRST_PROCESS_ENDED = new Set([304, 404, 409]);

/** What really runs behind a sandbox. */
export interface Box {
  /** For messages. */
  readonly name: string;
  start(): Promise<void>;
  /** When the first process has ended: how. `null` for a box that was removed. */
  ended(): Promise<{ readonly exitCode: number; readonly oomKilled: boolean } | null>;
  isRunning(): Promise<boolean>;
  /** The first process as this machine knows it. */
  hostPid(): Promise<number>;
  kill(): Promise<void>;
  remove(): Promise<void>;
  logs(): Promise<string>;
  run(argv: readonly string[], options?: ProgramOptions): Promise<Program>;
  /** Where this machine has the box's files, if it may just read them. */
  readonly hostRoot?: string | undefined;
}

export interface Boxes {
  hasImage(image: string): Promise<boolean>;
  /** Throws `NoImageError`. The box is not started. */
  create(options: BoxOptions): Promise<Box>;
}

export class NoImageError extends Error {
  override readonly name = "NoImageError";
}

/** Boxes that are containers of an engine, on a bridge on which they do not reach each other. */
export class ContainerBoxes implements Boxes {
  readonly #engine: Dockerode;
  readonly #emulator: string;
  readonly #network: string;

  constructor(engine: Dockerode, emulator: string, network: string) {
    this.#engine = engine;
    this.#emulator = emulator;
    this.#network = network;
  }

  async hasImage(image: string): Promise<boolean> {
    try {
      await this.#engine.getImage(image).inspect();
      return true;
    } catch (error) {
      if (isEngineStatus(error, 404)) return false;
      throw error;
    }
  }

  async create(options: BoxOptions): Promise<Box> {
    try {
      return await Container.create(this.#engine, this.#emulator, this.#network, options);
    } catch (error) {
      if (isEngineStatus(error, 404)) throw new NoImageError(options.image, { cause: error });
      throw error;
    }
  }
}

/** One sandbox's container. */
class Container implements Box {
  readonly #container: Dockerode.Container;

  constructor(container: Dockerode.Container) {
    this.#container = container;
  }

  get name(): string {
    return this.#container.id;
  }

  /** Throws the engine's error: `statusCode` 404 for an image that it does not have. */
  static async create(engine: Dockerode, emulator: string, network: string, options: BoxOptions): Promise<Container> {
    const { NCPU: hostCpus } = (await engine.info()) as { readonly NCPU: number };
    const container = await engine.createContainer({
      name: `prime-emulator-${options.sandboxId}`,
      Image: options.image,
      Labels: {
        [LABELS.emulator]: emulator,
        [LABELS.sandbox]: options.sandboxId,
        [LABELS.expires]: String(options.expiresAtMs),
      },
      Entrypoint: [...options.argv],
      Cmd: [],
      Env: Object.entries(options.env).map(([name, value]) => `${name}=${value}`),
      HostConfig: {
        NetworkMode: network,
        NanoCpus: Math.round(Math.min(options.cpus, hostCpus) * 1e9),
        Memory: Math.round(options.memoryMb) * 1024 * 1024,
        MemorySwap: Math.round(options.memoryMb) * 1024 * 1024,
        PidsLimit: 4096,
        CapDrop: ["NET_RAW"],
        LogConfig: { Type: "json-file", Config: { "max-size": "1m", "max-file": "1" } },
      },
    });
    return new Container(container);
  }

  async start(): Promise<void> {
    await this.#container.start();
  }

  async ended(): Promise<{ readonly exitCode: number; readonly oomKilled: boolean } | null> {
    try {
      await this.#container.wait();
      const { State: state } = await this.#container.inspect();
      return { exitCode: state.ExitCode, oomKilled: state.OOMKilled };
    } catch (error) {
      if (isEngineStatus(error, 404)) return null;
      throw error;
    }
  }

  async isRunning(): Promise<boolean> {
    try {
      return (await this.#container.inspect()).State.Running;
    } catch (error) {
      if (isEngineStatus(error, 404)) return false;
      throw error;
    }
  }

  async hostPid(): Promise<number> {
    return (await this.#container.inspect()).State.Pid;
  }

  async kill(): Promise<void> {
    await this.#container.kill({ signal: "SIGKILL" }).catch((error: unknown) => {
      if (!(error instanceof Error) || !FIRST_PROCESS_ENDED.has((error as { statusCode?: number }).statusCode ?? 0)) {
        throw error;
      }
    });
  }

  async remove(): Promise<void> {
    for (;;) {
      try {
        await this.#container.remove({ force: true, v: true });
        return;
      } catch (error) {
        if (isEngineStatus(error, 404)) return;
        // A removal is under way.
        if (!isEngineStatus(error, 409)) throw error;
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    }
  }

  async logs(): Promise<string> {
    const bytes = await this.#container.logs({ stdout: true, stderr: true, follow: false });
    const texts: string[] = [];
    for await (const { chunk } of demultiplex([bytes])) texts.push(chunk.toString("utf8"));
    return texts.join("");
  }

  async run(argv: readonly string[], options: ProgramOptions = {}): Promise<Program> {
    const exec = await this.#container.exec({
      Cmd: options.direct === true ? [...argv] : ["/bin/sh", "-c", TELL_PID, "sh", ...argv],
      Env: Object.entries(options.env ?? {}).map(([name, value]) => `${name}=${value}`),
      ...(options.cwd === undefined ? {} : { WorkingDir: options.cwd }),
      ...(options.user === undefined ? {} : { User: options.user }),
      AttachStdin: options.stdin ?? false,
      AttachStdout: true,
      AttachStderr: true,
      Tty: false,
    });
    const stream: Duplex = await exec.start({ hijack: true, stdin: options.stdin ?? false, Detach: false, Tty: false });
    stream.on("error", () => undefined);
    const output = demultiplex(stream as AsyncIterable<Buffer>);
    const { pid, early } = options.direct === true ? { pid: await pidOf(exec), early: [] } : await readPid(output);
    return {
      pid,
      output: prefixed(early, output),
      write: (bytes) =>
        new Promise((resolve, reject) => {
          stream.write(bytes, (error) => (error ? reject(error) : resolve()));
        }),
      endInput: () => void stream.end(),
      exitCode: async () => {
        for (;;) {
          const { Running, ExitCode } = await exec.inspect();
          if (!Running) return ExitCode ?? 137;
          await new Promise((resolve) => setTimeout(resolve, 10));
        }
      },
      detach: () => void stream.destroy(),
    };
  }
}

/** Sends a signal to one process of a box. */
export async function signal(box: Box, pid: number, name: "TERM" | "KILL"): Promise<void> {
  const program = await box.run(["/bin/sh", "-c", `kill -${name} ${pid}`], { user: "0:0", cwd: "/" });
  for await (const { chunk } of program.output) if (chunk.length < 0) break;
}

/** The process id as programs of the box know it, by this machine's own view; another one than any for a program that has ended already. */
async function pidOf(exec: Dockerode.Exec): Promise<number | null> {
  for (;;) {
    const { Running, ExitCode, Pid } = await exec.inspect();
    const inBox = /^NSpid:.*?(\d+)$/m.exec(await readFile(`/proc/${Pid}/status`, "utf8").catch(() => ""))?.[1];
    if (Pid > 0 && inBox !== undefined) return Number(inBox);
    if (!Running && ExitCode !== null) {
      const neverStarted = Pid === 0 && (ExitCode === 126 || ExitCode === 127);
      return neverStarted ? null : NO_PID + (endedPrograms++ % NO_PID);
    }
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** Above the process ids that Linux gives. */
const NO_PID = 2 ** 23;
let endedPrograms = 0;

async function readPid(output: AsyncIterator<Output>): Promise<{ pid: number | null; early: readonly Output[] }> {
  let first = "";
  const early: Output[] = [];
  for (;;) {
    const next = await output.next();
    if (next.done === true) return { pid: null, early };
    const { stream, chunk } = next.value;
    if (stream === "stderr") {
      early.push(next.value);
      continue;
    }
    first += chunk.toString("latin1");
    const end = first.indexOf("\n");
    if (end < 0 && first.length < 20) continue;
    const pid = /^(\d+)\n/.exec(first)?.[1];
    // What the engine itself has to say about a program that could not be started.
    if (pid === undefined) return { pid: null, early: [{ stream: "stderr", chunk: Buffer.from(first, "latin1") }] };
    const rest = Buffer.from(first.slice(end + 1), "latin1");
    return { pid: Number(pid), early: rest.length > 0 ? [...early, { stream: "stdout", chunk: rest }] : early };
  }
}

async function* prefixed(early: readonly Output[], rest: AsyncIterable<Output>): AsyncGenerator<Output> {
  yield* early;
  yield* rest;
}

/** The engine's frames: stream, three zeros, length (4 bytes), payload. */
async function* demultiplex(stream: AsyncIterable<Buffer> | Iterable<Buffer>): AsyncGenerator<Output> {
  let held: Buffer = Buffer.alloc(0);
  try {
    for await (const data of stream) {
      held = held.length === 0 ? data : Buffer.concat([held, data]);
      while (held.length >= 8) {
        const length = held.readUInt32BE(4);
        if (held.length < 8 + length) break;
        if (length > 0) yield { stream: held[0] === 2 ? "stderr" : "stdout", chunk: held.subarray(8, 8 + length) };
        held = held.subarray(8 + length);
      }
    }
  } catch {
    // Detached.
  }
}

/** Removes every container of an emulator. */
export async function removeBoxes(engine: Dockerode, emulator: string): Promise<number> {
  const found = await engine.listContainers({
    all: true,
    filters: JSON.stringify({ label: [`${LABELS.emulator}=${emulator}`] }),
  });
  await Promise.all(found.map(({ Id }) => new Container(engine.getContainer(Id)).remove()));
  return found.length;
}

/** The bridge that the emulator's boxes share and on which they do not reach each other. Gives its own address. */
export async function ensureNetwork(engine: Dockerode, emulator: string, name: string): Promise<string> {
  try {
    await engine.createNetwork({
      Name: name,
      CheckDuplicate: true,
      Driver: "bridge",
      Labels: { [LABELS.emulator]: emulator },
      Options: { "com.docker.network.bridge.enable_icc": "false" },
    });
  } catch (error) {
    if (!isEngineStatus(error, 409)) throw error;
  }
  const { IPAM: ipam } = (await engine.getNetwork(name).inspect()) as {
    readonly IPAM: { readonly Config: readonly { readonly Gateway?: string }[] };
  };
  const address = ipam.Config.find(({ Gateway }) => Gateway !== undefined && !Gateway.includes(":"))?.Gateway;
  if (address === undefined) throw new Error(`the network ${name} has no address`);
  return address.replace(/\/.*/, "");
}

export async function removeNetwork(engine: Dockerode, name: string): Promise<void> {
  await engine
    .getNetwork(name)
    .remove()
    .catch((error: unknown) => {
      if (!isEngineStatus(error, 404)) throw error;
    });
}

export function isEngineStatus(error: unknown, ...statuses: readonly number[]): boolean {
  return statuses.includes((error as { statusCode?: number } | null)?.statusCode ?? 0);
}
