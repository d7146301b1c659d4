import type { DownloadLimits, OperationOptions, Runtime, UploadEntry, UploadOptions } from "@breakwater/runtime-api";

/** Something long that goes on: a pull, a build, a transfer. For people who watch; it is written down nowhere. */
export interface TrialProgress {
  /** `null`: for several trials at once. */
  readonly trial: string | null;
  readonly what: "image" | "upload" | "download";
  /** Of an image: a step of its pull or build, as the backend says it. */
  readonly line?: string | undefined;
  /** Of a transfer: so far. */
  readonly bytes?: number | undefined;
}

export type OnProgress = (progress: TrialProgress) => void;

const EVERY_MS = 500;
/** What is smaller is over before anybody has read of it. */
const FROM_BYTES = 1024 * 1024;

/** The same box; what is transferred is told from the first MiB on, at most twice a second. */
export function watchTransfers(box: Runtime, tell: (what: "upload" | "download", bytes: number) => void): Runtime {
  const watched: Partial<Runtime> = {
    upload: (files: AsyncIterable<Uint8Array> | readonly UploadEntry[], directory: string, options?: UploadOptions) =>
      box.upload(
        Symbol.asyncIterator in files ? counted(files, (bytes) => tell("upload", bytes)) : files,
        directory,
        options,
      ),
    download: (paths: readonly string[], limits: DownloadLimits, options?: OperationOptions) =>
      counted(box.download(paths, limits, options), (bytes) => tell("download", bytes)),
  };
  return new Proxy(box, {
    get: (target, key) => {
      const value: unknown = Reflect.get(watched, key) ?? Reflect.get(target, key, target);
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
}

async function* counted(
  chunks: AsyncIterable<Uint8Array>,
  tell: (bytes: number) => void,
): AsyncGenerator<Uint8Array, void, undefined> {
  let bytes = 0;
  let toldAt = performance.now();
  for await (const chunk of chunks) {
    bytes += chunk.length;
    yield chunk;
    if (bytes < FROM_BYTES || performance.now() - toldAt < EVERY_MS) continue;
    toldAt = performance.now();
    tell(bytes);
  }
}
