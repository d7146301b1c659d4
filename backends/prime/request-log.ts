const MAX_ENTRIES = 20_000;

/** One request as it came, for assertions. Bodies and secrets are not kept. */
export interface LoggedRequest {
  readonly at: string;
  readonly origin: "control" | "gateway";
  readonly method: string;
  readonly path: string;
  readonly userAgent: string | null;
  readonly authorization: "none" | "valid" | "invalid";
  /** Keys of the body that the documents do not have. */
  unknownKeys: readonly string[];
  status: number | null;
}

/** The last requests, in the order in which they came. */
export class RequestLog {
  #total = 0;
  #entries: LoggedRequest[] = [];

  add(entry: LoggedRequest): void {
    this.#total += 1;
    this.#entries.push(entry);
    if (this.#entries.length > MAX_ENTRIES) this.#entries.shift();
  }

  get entries(): readonly LoggedRequest[] {
    return this.#entries;
  }

  /** How many have come, those that are not kept any more too. */
  get total(): number {
    return this.#total;
  }

  clear(): void {
    this.#total = 0;
    this.#entries = [];
  }
}
