import type { NetworkPolicy } from "@breakwater/runtime-api";
import type { ForwarderReport } from "./box.ts";
import type { EgressRecords } from "./records.ts";

// The control channel is lines of JSON in both directions. The gateway greets first; each request gets one answer with its id, in any order.

export const CONTROL_PROTOCOL = "breakwater-egress/1";

export interface Greeting {
  readonly protocol: typeof CONTROL_PROTOCOL;
  /** Random, one per start of the program: whoever sees another one knows that everything is denied again. */
  readonly instance: string;
}

export type ControlRequest =
  | { readonly op: "add-box"; readonly box: string }
  | { readonly op: "await-forwarder"; readonly box: string }
  | {
      readonly op: "set-policy";
      readonly box: string;
      readonly policy: NetworkPolicy;
      readonly direct?: boolean | undefined;
    }
  | { readonly op: "remove-box"; readonly box: string }
  | { readonly op: "records"; readonly box: string; readonly after: number }
  | { readonly op: "status" };

export interface ControlResults {
  readonly "add-box": {
    /** The name of the box's folder in `BOXES_DIRECTORY`: for its forwarder, and for nobody else. */
    readonly folder: string;
  };
  readonly "await-forwarder": ForwarderReport;
  readonly "set-policy": {
    /** Tunnels and requests that were ended. */
    readonly cut: number;
  };
  readonly "remove-box": { readonly existed: boolean };
  readonly records: EgressRecords;
  readonly status: GatewayStatus;
}

export interface GatewayStatus {
  readonly uptimeMs: number;
  readonly boxes: number;
  /** Connections from boxes that are open now. */
  readonly connections: number;
  readonly memoryBytes: number;
}

/** Why the gateway refused a request. */
export type ControlRefusal =
  | "unknown-box"
  | "box-exists"
  | "box-name"
  | "box-removed"
  | "policy"
  | "request"
  | "failed";

export type ControlReply =
  | { readonly id: number; readonly result: unknown }
  | { readonly id: number; readonly error: { readonly reason: ControlRefusal; readonly message: string } };

/** The longest line in either direction: a policy with some ten thousand hosts, a thousand denials. */
export const MAX_LINE_BYTES: number = 1024 * 1024;

export function encodeLine(value: unknown): Buffer {
  return Buffer.from(`${JSON.stringify(value)}\n`);
}

/** Takes a byte stream apart into lines. Throws a `RangeError` for one that is too long. */
export class LineReader {
  #pieces: Buffer[] = [];
  #size = 0;

  push(chunk: Uint8Array): string[] {
    const lines: string[] = [];
    let rest: Buffer = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    for (let end = rest.indexOf(0x0a); end !== -1; end = rest.indexOf(0x0a)) {
      lines.push(Buffer.concat([...this.#pieces, rest.subarray(0, end)]).toString("utf8"));
      this.#pieces = [];
      this.#size = 0;
      rest = rest.subarray(end + 1);
    }
    if (rest.length > 0) this.#pieces.push(rest);
    this.#size += rest.length;
    if (this.#size > MAX_LINE_BYTES) throw new RangeError(`a line of more than ${MAX_LINE_BYTES} bytes`);
    return lines;
  }
}
