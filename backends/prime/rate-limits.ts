const WINDOW_MS = 60_000;

export type Bucket =
  | "create"
  | "list"
  | "get"
  | "delete"
  | "bulkDelete"
  | "auth"
  | "errorContext"
  | "logs"
  | "expose"
  | "exposures"
  | "ssh"
  | "batch"
  | "batchLookups"
  | "egressGet"
  | "egressPut";

/** Calls in a minute, as documented. `sandbox`: counted for each sandbox. */
const LIMITS: Readonly<Record<Bucket, { readonly limit: number; readonly sandbox?: boolean }>> = {
  create: { limit: 15_000 },
  list: { limit: 1000 },
  get: { limit: 300, sandbox: true },
  delete: { limit: 500 },
  bulkDelete: { limit: 50 },
  auth: { limit: 120, sandbox: true },
  errorContext: { limit: 600, sandbox: true },
  logs: { limit: 300, sandbox: true },
  expose: { limit: 20, sandbox: true },
  exposures: { limit: 60 },
  ssh: { limit: 20, sandbox: true },
  /** For each sandbox in the batch. */
  batch: { limit: 300, sandbox: true },
  batchLookups: { limit: 30_000 },
  egressGet: { limit: 300, sandbox: true },
  egressPut: { limit: 120, sandbox: true },
};

/** Windows of a minute, one for each bucket, caller and (where the limit is so) sandbox. */
export class RateLimits {
  readonly #windows = new Map<string, { count: number; readonly endsAtMs: number }>();

  /** Counts; gives how long to wait if that was too much. */
  take(bucket: Bucket, caller: string, sandboxId = "", count = 1): number | null {
    const now = Date.now();
    if (this.#windows.size > 10_000) {
      for (const [key, { endsAtMs }] of this.#windows) if (endsAtMs <= now) this.#windows.delete(key);
    }
    const key = `${bucket} ${caller} ${LIMITS[bucket].sandbox === true ? sandboxId : ""}`;
    let window = this.#windows.get(key);
    if (window === undefined || window.endsAtMs <= now) {
      window = { count: 0, endsAtMs: now + WINDOW_MS };
      this.#windows.set(key, window);
    }
    window.count += count;
    return window.count > LIMITS[bucket].limit ? window.endsAtMs - now : null;
  }

  clear(): void {
    this.#windows.clear();
  }
}
