import { z } from "zod";

/** What goes wrong, where, and how often: `POST /admin/faults`. The first rule that fits a request is used, and used up. */
export interface FaultRule {
  readonly origin?: "control" | "gateway" | undefined;
  readonly method?: string | undefined;
  /** A regular expression for the path with its query. */
  readonly path?: string | undefined;
  /** How often; `null` = until the rules are removed. Default is 1. */
  readonly times: number | null;
  /** How many fitting requests go well before. Default is 0. */
  readonly after: number;
  /** How long the rule holds from now on; `null` = until it is used up. Default is `null`. */
  readonly forMs: number | null;
  /** Whether the request is carried out all the same, and only its answer is another one. Default is `false`. */
  readonly carriedOut: boolean;
  readonly fault: Fault;
}

export type Fault =
  | {
      readonly kind: "answer";
      readonly status: number;
      readonly body?: unknown;
      readonly headers: Readonly<Record<string, string>>;
    }
  /** The connection is cut. */
  | { readonly kind: "reset" }
  /** The answer comes late. */
  | { readonly kind: "delay"; readonly delayMs: number }
  | StreamFault;

/** Only for streams of programs of VMs: cut after so many events, or ended with an error. */
export type StreamFault =
  | { readonly kind: "truncate"; readonly events: number }
  | { readonly kind: "connect-error"; readonly events: number; readonly code: string; readonly message: string };

const schema = z.strictObject({
  origin: z.enum(["control", "gateway"]).optional(),
  method: z.string().optional(),
  path: z.string().optional(),
  times: z.int().min(1).nullable().default(1),
  after: z.int().min(0).default(0),
  forMs: z.int().min(1).nullable().default(null),
  carriedOut: z.boolean().default(false),
  fault: z.discriminatedUnion("kind", [
    z.strictObject({
      kind: z.literal("answer"),
      status: z.int().min(200).max(599),
      body: z.unknown().optional(),
      headers: z.record(z.string(), z.string()).default({}),
    }),
    z.strictObject({ kind: z.literal("reset") }),
    z.strictObject({ kind: z.literal("delay"), delayMs: z.int().min(0) }),
    z.strictObject({ kind: z.literal("truncate"), events: z.int().min(0) }),
    z.strictObject({
      kind: z.literal("connect-error"),
      events: z.int().min(0).default(0),
      code: z.string(),
      message: z.string(),
    }),
  ]),
});

/** Throws zod's error. */
export function parseFault(value: unknown): FaultRule {
  return schema.parse(value);
}

/** The bodies that the service is known to send with its failures. */
export const BODIES: {
  readonly sandboxNotFound: (sandboxId: string) => unknown;
  readonly sandboxTerminated: unknown;
} = {
  sandboxNotFound: (sandboxId) => ({
    error: "sandbox_not_found",
    sandboxId,
    message: "The sandbox was not found",
    code: 502,
  }),
  sandboxTerminated: { error: "sandbox_terminated" },
};

interface Active {
  readonly rule: FaultRule;
  readonly path: RegExp | undefined;
  readonly endsAtMs: number;
  seen: number;
  used: number;
}

export class Faults {
  #active: Active[] = [];

  add(rule: FaultRule): void {
    const path = rule.path === undefined ? undefined : new RegExp(rule.path);
    this.#active.push({ rule, path, endsAtMs: Date.now() + (rule.forMs ?? Infinity), seen: 0, used: 0 });
  }

  clear(): void {
    this.#active = [];
  }

  /** How often each rule was used. */
  list(): readonly { readonly rule: FaultRule; readonly used: number }[] {
    return this.#active.map(({ rule, used }) => ({ rule, used }));
  }

  take(origin: "control" | "gateway", method: string, path: string): FaultRule | undefined {
    for (const active of this.#active) {
      const { rule } = active;
      if (rule.origin !== undefined && rule.origin !== origin) continue;
      if (rule.method !== undefined && rule.method !== method) continue;
      if (active.path !== undefined && !active.path.test(path)) continue;
      if (rule.times !== null && active.used >= rule.times) continue;
      if (active.endsAtMs <= Date.now()) continue;
      active.seen += 1;
      if (active.seen <= rule.after) continue;
      active.used += 1;
      return rule;
    }
    return undefined;
  }
}
