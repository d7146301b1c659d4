import { closeSync, openSync, writeSync } from "node:fs";

import type { Redactor } from "./redact.ts";
import type { BoundedOutput } from "./result.ts";

/** Of each end that is kept in the result. */
const END_BYTES = 64 * 1024;
/** Of the file. */
const FILE_BYTES = 64 * 1024 * 1024;

/** Output of a program as it comes: both ends in memory, more of it in a file, secrets in neither. */
export class OutputLog implements Disposable {
  readonly #redacted: ReturnType<Redactor["stream"]>;
  #file: number | null;
  #fileBytes = 0;
  #head = Buffer.alloc(0);
  #tail = Buffer.alloc(0);
  #bytes = 0;
  #ended = false;

  /** `file`: made or replaced; `null` = none. */
  constructor(file: string | null, redactor: Redactor) {
    this.#redacted = redactor.stream();
    this.#file = file === null ? null : openSync(file, "w", 0o644);
  }

  readonly write = (chunk: Uint8Array | string): void => {
    if (this.#ended) return;
    const bytes = typeof chunk === "string" ? Buffer.from(chunk) : chunk;
    this.#bytes += bytes.length;
    this.#keep(this.#redacted.push(bytes));
  };

  /** Both ends; nothing is written any more. */
  end(): BoundedOutput {
    this[Symbol.dispose]();
    const all = Buffer.concat([this.#head, this.#tail]);
    const truncated = this.#bytes > 0 && this.#dropped;
    return truncated
      ? { head: text(this.#head), tail: text(this.#tail), bytes: this.#bytes, truncated }
      : { head: text(all), tail: "", bytes: this.#bytes, truncated };
  }

  [Symbol.dispose](): void {
    if (this.#ended) return;
    this.#keep(this.#redacted.end());
    this.#ended = true;
    if (this.#file !== null) closeSync(this.#file);
    this.#file = null;
  }

  #dropped = false;

  #keep(bytes: Buffer): void {
    const toHead = bytes.subarray(0, END_BYTES - this.#head.length);
    this.#head = Buffer.concat([this.#head, toHead]);
    const pending = Buffer.concat([this.#tail, bytes.subarray(toHead.length)]);
    if (pending.length > END_BYTES) this.#dropped = true;
    this.#tail = Buffer.from(pending.subarray(Math.max(0, pending.length - END_BYTES)));
    this.#writeToFile(bytes);
  }

  #writeToFile(bytes: Buffer): void {
    if (this.#file === null || this.#fileBytes >= FILE_BYTES) return;
    const room = bytes.subarray(0, FILE_BYTES - this.#fileBytes);
    this.#fileBytes += room.length;
    try {
      for (let at = 0; at < room.length;) at += writeSync(this.#file, room, at);
      if (this.#fileBytes >= FILE_BYTES) writeSync(this.#file, `\n[cut after ${FILE_BYTES} bytes]\n`);
    } catch {
      // A full disk must not decide over a trial; the ends are in the result.
      this.#fileBytes = FILE_BYTES;
    }
  }
}

function text(bytes: Buffer): string {
  return bytes.toString("utf8");
}
