import { spawn } from "node:child_process";
import { once } from "node:events";
import { buffer } from "node:stream/consumers";
import type { DescribeRuntimeOptions } from "@breakwater/conformance/runtime";
import type {
  DownloadLimits,
  ExecOptions,
  ExecResult,
  OperationOptions,
  Runtime,
  RuntimeCapabilities,
  RuntimeDriver,
  RuntimeSpecInput,
  UploadEntry,
  UploadOptions,
} from "@breakwater/runtime-api";

export type ChangedBox = (real: Runtime) => Partial<Runtime>;

/** One promise of the contract, and a way to break just that one in a driver that keeps it. */
export interface Mutant {
  /** The case that has to go red. */
  readonly id: string;
  /** What the broken driver does, for the table: "the mutant …". */
  readonly does: string;
  /** Part of what the case's own assertion says then. */
  readonly says: RegExp;
  /** Methods of a box that are different; the rest is the real one's. */
  readonly box?: ChangedBox;
  readonly driver?: (real: RuntimeDriver) => Partial<RuntimeDriver>;
  /** What it claims instead of what it can do: that is then to be refused, and is not. */
  readonly claims?: Partial<RuntimeCapabilities>;
  /** What the real driver is asked for instead. */
  readonly spec?: (asked: RuntimeSpecInput) => RuntimeSpecInput;
  /** What the suite is told about the driver, where the fault is in another process or has to know what a stranger did. */
  readonly options?: (real: SuiteOptions) => Partial<SuiteOptions>;
  /** Other cases that go red too, and why that is right. */
  readonly also?: Readonly<Record<string, string>>;
}

export type SuiteOptions = Omit<DescribeRuntimeOptions, "driver">;

/** The real driver with one promise broken. */
export function breakPromise(real: RuntimeDriver, mutant: Mutant): RuntimeDriver {
  const withOtherBoxes = withChanges(real, {
    create: (spec) => {
      const box = real.create(mutant.spec?.(spec) ?? spec);
      return mutant.box === undefined ? box : withChanges(box, mutant.box(box));
    },
  });
  const { claims } = mutant;
  const withOtherClaims = withChanges(
    withOtherBoxes,
    claims === undefined
      ? {}
      : {
          capabilities: { ...real.capabilities, ...claims },
          probe: async (options) => ({ ...(await real.probe(options)), ...claims }),
        },
  );
  return withChanges(withOtherClaims, mutant.driver?.(real) ?? {});
}

export function withChanges<T extends object>(real: T, changes: Partial<T>): T {
  return new Proxy(real, {
    get(target, key) {
      if (Object.hasOwn(changes, key)) return Reflect.get(changes, key) as unknown;
      const value = Reflect.get(target, key, target) as unknown;
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
}

export type Run = (argv?: readonly string[], options?: ExecOptions) => Promise<ExecResult>;

/** A mutant whose `exec` is different. `run` runs the program as it was asked for, or as the mutant likes. */
export function onExec(
  change: (run: Run, argv: readonly string[], options: ExecOptions, box: Runtime) => Promise<ExecResult>,
): ChangedBox {
  return (box) => ({
    exec: (argv, options = {}) =>
      change((otherArgv = argv, other = options) => box.exec(otherArgv, other), argv, options, box),
  });
}

/** A mutant that gives other results. */
export function onResult(
  change: (result: ExecResult, argv: readonly string[]) => Partial<ExecResult> | undefined,
): ChangedBox {
  return onExec(async (run, argv) => {
    const result = await run();
    return { ...result, ...change(result, argv) };
  });
}

/** What a program did. */
export function exited(exitCode: number, stdout: Uint8Array = new Uint8Array()): ExecResult {
  return {
    exitCode,
    stdout,
    stderr: new Uint8Array(),
    stdoutBytes: stdout.length,
    stderrBytes: 0,
    truncated: false,
    timedOut: false,
    streamsClosed: true,
    durationMs: 0,
  };
}

/** A mutant whose boxes are on the host's network when they try to reach something: such programs are run on the host. */
export function onHostNetwork(concerns: (box: Runtime, argv: readonly string[]) => boolean): ChangedBox {
  return onExec(async (run, argv, _options, box) => {
    const [program = "", ...args] = argv;
    if (program !== "perl" || args[1]?.includes("getaddrinfo") !== true || !concerns(box, argv)) return run();
    const child = spawn(program, args, { stdio: ["ignore", "pipe", "inherit"] });
    const [stdout] = await Promise.all([buffer(child.stdout), once(child, "close")]);
    return exited(child.exitCode ?? 1, stdout);
  });
}

type Files = readonly UploadEntry[] | AsyncIterable<Uint8Array>;

/** A mutant that uploads something else, or elsewhere. */
export function onUpload(
  change: (
    upload: (files?: Files, directory?: string, options?: UploadOptions) => Promise<void>,
    files: Files,
    directory: string,
    options: UploadOptions | undefined,
    box: Runtime,
  ) => Promise<void>,
): ChangedBox {
  return (box) => ({
    upload: (files, directory, options) =>
      change(
        (otherFiles = files, otherDirectory = directory, other = options) =>
          box.upload(otherFiles, otherDirectory, other),
        files,
        directory,
        options,
        box,
      ),
  });
}

/** A mutant that changes the entries of an upload. */
export function onEntries(change: (entries: readonly UploadEntry[]) => readonly UploadEntry[]): ChangedBox {
  return onUpload((upload, files) => upload(isEntries(files) ? change(files) : files));
}

export function isEntries(files: Files): files is readonly UploadEntry[] {
  return Array.isArray(files);
}

type Download = (
  paths?: readonly string[],
  limits?: DownloadLimits,
  options?: OperationOptions,
) => AsyncIterable<Uint8Array>;

/** A mutant that downloads something else. */
export function onDownload(
  change: (
    download: Download,
    paths: readonly string[],
    limits: DownloadLimits,
    options: OperationOptions | undefined,
    box: Runtime,
  ) => AsyncIterable<Uint8Array>,
): ChangedBox {
  return (box) => ({
    download: (paths, limits, options) =>
      change(
        (otherPaths = paths, otherLimits = limits, other = options) => box.download(otherPaths, otherLimits, other),
        paths,
        limits,
        options,
        box,
      ),
  });
}

/** A mutant that rewrites the members of a small archive. */
export function onMembers(change: (members: readonly Member[]) => readonly Member[]): ChangedBox {
  return onDownload(async function* (download) {
    const members = splitArchive(await collect(download()));
    yield Buffer.concat([...change(members).map((it) => it.bytes), Buffer.alloc(1024)]);
  });
}

/** A mutant that reads something else. */
export function onRead(
  change: (
    read: (path?: string, limits?: { readonly maxBytes: number }) => Promise<Uint8Array | null>,
    path: string,
    limits: { readonly maxBytes: number },
    box: Runtime,
  ) => Promise<Uint8Array | null>,
): ChangedBox {
  return (box) => ({
    readBounded: (path, limits, options) =>
      change((otherPath = path, other = limits) => box.readBounded(otherPath, other, options), path, limits, box),
  });
}

export async function collect(stream: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** Members of a small archive with short names, each with its header, content and padding. */
export interface Member {
  readonly name: string;
  readonly type: string;
  readonly bytes: Buffer;
}

const BLOCK = 512;

export function splitArchive(archive: Buffer): readonly Member[] {
  const members: Member[] = [];
  for (let at = 0; at + BLOCK <= archive.length && archive[at] !== 0;) {
    const header = archive.subarray(at, at + BLOCK);
    const type = header.toString("latin1", 156, 157);
    const size = "123456".includes(type) ? 0 : Number.parseInt(header.toString("latin1", 124, 135), 8);
    const end = at + BLOCK + BLOCK * Math.ceil(size / BLOCK);
    members.push({ name: header.toString("utf8", 0, header.indexOf(0)), type, bytes: archive.subarray(at, end) });
    at = end;
  }
  return members;
}

/** The member with some fields of its header changed. */
export function changeHeader(
  member: Member,
  fields: { readonly name?: string; readonly mode?: number; readonly type?: string; readonly size?: number },
): Member {
  const bytes = Buffer.from(fields.size === 0 ? member.bytes.subarray(0, BLOCK) : member.bytes);
  if (fields.name !== undefined) bytes.fill(0, 0, 100).write(fields.name, 0);
  if (fields.mode !== undefined) bytes.write(`${fields.mode.toString(8).padStart(7, "0")}\0`, 100);
  if (fields.size !== undefined) bytes.write(`${fields.size.toString(8).padStart(11, "0")}\0`, 124);
  if (fields.type !== undefined) bytes.write(fields.type, 156);
  bytes.write(" ".repeat(8), 148);
  const sum = bytes.subarray(0, BLOCK).reduce((total, byte) => total + byte, 0);
  bytes.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return { name: fields.name ?? member.name, type: fields.type ?? member.type, bytes };
}

export function text(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("utf8");
}
