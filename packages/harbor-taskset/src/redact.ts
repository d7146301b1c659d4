import type { McpServer, Task } from "./task.ts";
import type { TrialPlan } from "./plan.ts";
import { isTrialErrorReason } from "./trial-error.ts";

/** Shorter values, and these, are in too many texts that have nothing to do with a secret. */
const MIN_SECRET_CHARACTERS = 4;
const NOT_SECRET = /^(?:true|false|none|null|yes|no|\d{1,5})$/i;
const REDACTED = "[REDACTED]";

/** Takes secret values out of what is written down. */
export interface Redactor {
  readonly text: (text: string) => string;
  /** Every free text of a JSON value: not its keys, and not what is one of a few words, a name or an id. */
  readonly value: <T>(value: T) => T;
  /** For bytes that come in chunks: a value that lies across two is found, too. */
  readonly stream: () => { push(chunk: Uint8Array): Buffer; end(): Buffer };
}

/** What may not be written down: the caller's environments, and whatever a template brought in from the host. */
export function secretValues(
  task: Task,
  plan: TrialPlan,
  options: {
    readonly agentEnv?: Readonly<Record<string, string>> | undefined;
    readonly verifierEnv?: Readonly<Record<string, string>> | undefined;
  },
): readonly string[] {
  const resolved = (
    values: readonly (Readonly<Record<string, string>> | undefined)[],
    tables: readonly (Readonly<Record<string, string>> | undefined)[],
  ): string[] =>
    values.flatMap((env) =>
      Object.entries(env ?? {}).flatMap(([name, value]) =>
        tables.some((table) => table?.[name]?.startsWith("${")) ? [value] : [],
      ),
    );
  const verifiers = [task, ...task.steps].map(({ verifier }) => verifier);
  return [
    ...Object.values(options.agentEnv ?? {}),
    ...Object.values(options.verifierEnv ?? {}),
    ...resolved(
      [plan.agentBox.spec.env, ...plan.steps.map(({ verifier }) => verifier.box?.spec.env)],
      [task.environment.env, ...verifiers.map(({ environment }) => environment?.env)],
    ),
    ...resolved(
      plan.steps.map(({ verifier }) => verifier.env),
      verifiers.map(({ env }) => env),
    ),
    ...[plan.agentBox, ...plan.steps.map(({ verifier }) => verifier.box)].flatMap((box) => box?.fromHost ?? []),
    ...plan.steps.flatMap(({ agent }) => agent.mcpServers.flatMap(headerSecrets(task))),
    ...resolved(
      plan.steps.map(({ oracle }) => oracle?.env),
      [task.solutionEnv],
    ),
  ];
}

/** Values of headers that a template brought in, and what stands behind a scheme word (`Bearer`). */
function headerSecrets(task: Task): (server: McpServer, index: number) => readonly string[] {
  return (server, index) => {
    const written = task.environment.mcpServers[index];
    if (server.transport === "stdio" || written === undefined || written.transport === "stdio") return [];
    return Object.entries(server.headers).flatMap(([name, value]) =>
      written.headers[name]?.includes("${") === true ? [value, value.slice(value.indexOf(" ") + 1)] : [],
    );
  };
}

export function createRedactor(values: readonly string[]): Redactor {
  const secrets = [...new Set(values)]
    .filter((value) => value.length >= MIN_SECRET_CHARACTERS && !NOT_SECRET.test(value))
    // A value that contains another one goes first.
    .sort((a, b) => b.length - a.length);
  const text = (from: string): string =>
    secrets.reduce((left, secret) => (left.includes(secret) ? left.replaceAll(secret, REDACTED) : left), from);
  return { text, value: (from) => walk(from, text, []), stream: () => new RedactedStream(secrets) };
}

/** Keys of what programs read: kinds, codes, ids, names and times. A secret that is a word like `agent` must not change them. */
const NOT_FREE_TEXT: ReadonlySet<string> = new Set(
  [
    "type kind code phase retry again status outcome mode modeFrom of from readFrom rewardFrom collectedFrom endedBy boxEndedBy",
    "declaredBy key level transport id trial task step name driver box service user sha256 digest at startedAt finishedAt",
    // Harbor's
    "task_name trial_name step_name task_checksum version exception_type environment_mode verifier_environment_mode",
    "import_path started_at finished_at occurred_at",
  ].flatMap((keys) => keys.split(" ")),
);

function walk<T>(value: T, text: (from: string) => string, keys: readonly string[]): T {
  if (typeof value === "string") return (isFreeText(value, keys) ? text(value) : value) as T;
  if (Array.isArray(value)) return value.map((one: unknown) => walk(one, text, keys)) as T;
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).map(([key, one]) => [key, walk<unknown>(one, text, [...keys, key])]);
  return Object.fromEntries(entries) as T;
}

/** `reason` is a word in errors and members, and a text elsewhere. */
function isFreeText(value: string, keys: readonly string[]): boolean {
  const key = keys.at(-1) ?? "";
  if (key === "reason") return keys.at(-2) !== "members" && !isTrialErrorReason(value);
  return !NOT_FREE_TEXT.has(key);
}

/** Holds back as many bytes as the beginning of a secret may have. */
class RedactedStream {
  readonly #secrets: readonly Buffer[];
  readonly #heldBytes: number;
  #held: Buffer = Buffer.alloc(0);

  constructor(secrets: readonly string[]) {
    this.#secrets = secrets.map((secret) => Buffer.from(secret));
    this.#heldBytes = Math.max(0, ...this.#secrets.map((secret) => secret.length - 1));
  }

  push(chunk: Uint8Array): Buffer {
    if (this.#heldBytes === 0) return Buffer.from(chunk);
    const pending = this.#redact(Buffer.concat([this.#held, chunk]));
    const ready = Math.max(0, pending.length - this.#heldBytes);
    this.#held = pending.subarray(ready);
    return pending.subarray(0, ready);
  }

  end(): Buffer {
    const rest = this.#held;
    this.#held = Buffer.alloc(0);
    return rest;
  }

  #redact(bytes: Buffer): Buffer {
    let left = bytes;
    for (const secret of this.#secrets) {
      if (!left.includes(secret)) continue;
      const pieces: Buffer[] = [];
      let from = 0;
      for (let at = left.indexOf(secret); at >= 0; at = left.indexOf(secret, from)) {
        pieces.push(left.subarray(from, at), Buffer.from(REDACTED));
        from = at + secret.length;
      }
      left = Buffer.concat([...pieces, left.subarray(from)]);
    }
    return left;
  }
}
