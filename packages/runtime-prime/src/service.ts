import type { Deadline } from "@breakwater/driver-kit";
import { z } from "zod";
import { isStatus } from "./errors.ts";
import { call, type Connections, type HttpCall, repeat, type RepeatOptions } from "./http.ts";
import type { Account } from "./options.ts";
import type { EgressLists } from "./translate.ts";
import {
  type EgressState,
  egressSchema,
  type GatewayAccess,
  gatewayAccessSchema,
  pageSchema,
  type Sandbox,
  sandboxSchema,
  type StatusBatch,
  statusBatchSchema,
  type StatusSnapshot,
} from "./schemas.ts";

const BATCH = 100;
/** Questions that come so close together travel together. */
const TOGETHER_MS = 25;
const PAGE = 100;
const MAX_PAGES = 1000;

/** What the service knows of a sandbox; `null`: it does not know it. */
export type SeenStatus = StatusSnapshot | null;

interface Question {
  readonly id: string;
  readonly clock: Deadline;
  readonly resolve: (seen: SeenStatus) => void;
  readonly reject: (error: unknown) => void;
}

/** The control plane. Every call can be made again: creating by its idempotency key. */
export class Service {
  readonly #connections: Connections;
  readonly #account: () => Promise<Account>;
  #questions: Question[] = [];
  #asking: NodeJS.Timeout | undefined;

  constructor(connections: Connections, account: () => Promise<Account>) {
    this.#connections = connections;
    this.#account = account;
  }

  /** `body` has its own `idempotency_key`. */
  async create(clock: Deadline, body: Readonly<Record<string, unknown>>, options?: RepeatOptions): Promise<Sandbox> {
    const { teamId } = await clock.race(this.#account());
    const json = teamId === null ? body : { ...body, team_id: teamId };
    return this.#call(clock, sandboxSchema, { method: "POST", path: "/sandbox", json }, options);
  }

  async get(clock: Deadline, id: string): Promise<Sandbox> {
    return this.#call(clock, sandboxSchema, { method: "GET", path: `/sandbox/${id}` });
  }

  /** One attempt: whoever deletes asks afterwards and tries again. */
  async deleteOnce(clock: Deadline, id: string): Promise<void> {
    await this.#call(clock, z.unknown(), { method: "DELETE", path: `/sandbox/${id}` }, { patienceMs: 0 });
  }

  async access(clock: Deadline, id: string): Promise<GatewayAccess> {
    return this.#call(clock, gatewayAccessSchema, { method: "POST", path: `/sandbox/${id}/auth` });
  }

  async errorContext(clock: Deadline, id: string): Promise<{ readonly status: string | null }> {
    const schema = z
      .looseObject({ status: z.string().nullish() })
      .transform(({ status }) => ({ status: status ?? null }));
    return this.#call(clock, schema, { method: "GET", path: `/sandbox/${id}/error-context` }, { patienceMs: 0 });
  }

  async logs(clock: Deadline, id: string): Promise<string> {
    const schema = z.looseObject({ logs: z.string() });
    return (await this.#call(clock, schema, { method: "GET", path: `/sandbox/${id}/logs` }, { patienceMs: 0 })).logs;
  }

  async egress(clock: Deadline, id: string): Promise<EgressState> {
    return this.#call(clock, egressSchema, { method: "GET", path: `/sandbox/${id}/egress-policy` });
  }

  /** Takes the place of the whole policy. */
  async setEgress(clock: Deadline, id: string, lists: EgressLists): Promise<EgressState> {
    return this.#call(clock, egressSchema, { method: "PUT", path: `/sandbox/${id}/egress-policy`, json: lists });
  }

  /** Whether the service can pull an image. */
  async canPull(clock: Deadline, image: string): Promise<{ readonly accessible: boolean; readonly details: string }> {
    const schema = z
      .looseObject({ accessible: z.boolean(), details: z.string().nullish() })
      .transform(({ accessible, details }) => ({ accessible, details: details ?? "" }));
    return this.#call(clock, schema, { method: "POST", path: "/template/check-docker-image", json: { image } });
  }

  /** All active sandboxes that have every one of the labels. */
  async listActive(clock: Deadline, labels: readonly string[], options?: RepeatOptions): Promise<readonly Sandbox[]> {
    const { teamId } = await clock.race(this.#account());
    const found: Sandbox[] = [];
    for (let page = 1; page <= MAX_PAGES; page++) {
      const query = new URLSearchParams({ page: String(page), per_page: String(PAGE), is_active: "true" });
      if (teamId !== null) query.set("team_id", teamId);
      for (const label of labels) query.append("labels", label);
      const path = `/sandbox?${query.toString()}`;
      const answer = await this.#call(clock, pageSchema, { method: "GET", path, what: "/sandbox" }, options);
      found.push(...answer.sandboxes);
      if (!answer.hasNext || answer.sandboxes.length === 0) break;
    }
    return found;
  }

  /** The status of one sandbox, asked together with those of others. One attempt. */
  async status(clock: Deadline, id: string): Promise<SeenStatus> {
    clock.throwIfOver();
    const asked = new Promise<SeenStatus>((resolve, reject) => {
      this.#questions.push({ id, clock, resolve, reject });
      if (this.#asking === undefined) this.#asking = setTimeout(() => this.#ask(), TOGETHER_MS);
    });
    return clock.race(asked);
  }

  #ask(): void {
    this.#asking = undefined;
    const all = this.#questions;
    this.#questions = [];
    const ids = [...new Set(all.map(({ id }) => id))];
    for (let at = 0; at < ids.length; at += BATCH) {
      const batch = ids.slice(at, at + BATCH);
      const asked = all.filter(({ id }) => batch.includes(id));
      // The call belongs to all who ask: the one who waits longest gives its clock.
      const [first, ...rest] = asked;
      if (first === undefined) continue;
      const { clock } = rest.reduce((a, b) => (a.clock.remainingMs() > b.clock.remainingMs() ? a : b), first);
      this.#askBatch(clock, batch).then(
        (answer) => {
          for (const question of asked) settle(question, answer);
        },
        (error: unknown) => {
          for (const { reject } of asked) reject(error);
        },
      );
    }
  }

  async #askBatch(clock: Deadline, ids: readonly string[]): Promise<StatusBatch> {
    const request = { method: "POST", path: "/sandbox/status:batchGet", json: { sandbox_ids: ids } } as const;
    try {
      return await this.#call(clock, statusBatchSchema, request, { patienceMs: 0 });
    } catch (error) {
      // Older services do not have it.
      if (!isStatus(error, 404, 405)) throw error;
      const statuses: StatusBatch["statuses"][number][] = [];
      const errors: StatusBatch["errors"][number][] = [];
      for (const id of ids) {
        try {
          const { status, errorType, errorMessage } = await this.get(clock, id);
          statuses.push({ sandboxId: id, status, errorType, errorMessage });
        } catch (failure) {
          if (!isStatus(failure, 404)) throw failure;
          errors.push({ sandboxId: id, code: "NOT_FOUND", message: failure.detail });
        }
      }
      return { statuses, errors };
    }
  }

  async #call<T>(
    clock: Deadline,
    schema: z.ZodType<T>,
    request: Pick<HttpCall, "method" | "path" | "json"> & { readonly what?: string },
    options?: RepeatOptions,
  ): Promise<T> {
    const account = await clock.race(this.#account());
    const { origin, pathname } = account.baseUrl;
    const prefix = `${pathname.replace(/\/$/, "")}/api/v1`;
    const headers = { authorization: account.authorization, "user-agent": "breakwater", accept: "application/json" };
    const whole = { ...request, what: request.what ?? request.path, path: prefix + request.path, headers };
    return repeat(clock, () => call(this.#connections.pool(origin), clock, schema, whole), options);
  }
}

function settle({ id, resolve, reject }: Question, { statuses, errors }: StatusBatch): void {
  const seen = statuses.find(({ sandboxId }) => sandboxId === id);
  const error = errors.find(({ sandboxId }) => sandboxId === id);
  if (seen !== undefined) resolve(seen);
  else if (error?.code === "NOT_FOUND") resolve(null);
  else reject(new Error(`Prime does not tell the status of ${id}: ${error?.code ?? "it left it out of its answer"}`));
}
