import type { DenialRule } from "./decide.ts";

/** Something that a box was refused. */
export interface Denial {
  /** Counts up from 1 for each box. */
  readonly seq: number;
  /** ISO 8601, UTC. */
  readonly at: string;
  readonly via: "dns" | "http" | "tls" | "proxy";
  /** As the box named it, printable and at most 255 characters; `null` where it named none. */
  readonly host: string | null;
  readonly port: number;
  readonly rule: DenialRule;
}

/** What a box was refused and allowed. */
export interface EgressRecords {
  /** Oldest first; those that were already acknowledged are left out. */
  readonly denials: readonly Denial[];
  /** Denials that were not kept, as nobody had fetched the ones before. */
  readonly dropped: number;
  /** All denials of this box so far. */
  readonly denied: number;
  /** Connections, requests and tunnels that were allowed so far. */
  readonly allowed: number;
  /** The same by the entry that allowed them. */
  readonly allowedBy: Readonly<Record<string, number>>;
}

/** Denials that are kept for each box until somebody has fetched them. */
export const MAX_DENIALS = 1000;
const MAX_HOST_CHARACTERS = 255;

/** What one box was refused and allowed, of bounded size whatever the box does. */
export class Records {
  #denials: Denial[] = [];
  #dropped = 0;
  #denied = 0;
  #allowed = 0;
  readonly #allowedBy = new Map<string, number>();

  deny(via: Denial["via"], host: string | null, port: number, rule: DenialRule): void {
    this.#denied++;
    if (this.#denials.length >= MAX_DENIALS) {
      this.#dropped++;
      return;
    }
    this.#denials.push({
      seq: this.#denied,
      at: new Date().toISOString(),
      via,
      host: host === null ? null : printable(host),
      port,
      rule,
    });
  }

  /** `entry` is one of the policy's, so there are as many as policies have. */
  allow(entry: string): void {
    this.#allowed++;
    this.#allowedBy.set(entry, (this.#allowedBy.get(entry) ?? 0) + 1);
  }

  /** Denials with a number above `after`. Those up to it are forgotten: whoever asks has them. */
  read(after: number): EgressRecords {
    this.#denials = this.#denials.filter(({ seq }) => seq > after);
    return {
      denials: this.#denials,
      dropped: this.#dropped,
      denied: this.#denied,
      allowed: this.#allowed,
      allowedBy: Object.fromEntries(this.#allowedBy),
    };
  }
}

/** A copy: a part of a string would keep the whole of it. */
function printable(text: string): string {
  return Buffer.from(text.slice(0, MAX_HOST_CHARACTERS).replaceAll(/[^!-~]/g, "?"), "latin1").toString("latin1");
}
