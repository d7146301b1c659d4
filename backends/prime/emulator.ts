import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { setTimeout as sleep } from "node:timers/promises";
import type { Boxes } from "./box.ts";
import { type Fault, Faults, type FaultRule, type StreamFault } from "./faults.ts";
import { defaultKnobs, type Knobs } from "./knobs.ts";
import { RateLimits } from "./rate-limits.ts";
import { type LoggedRequest, RequestLog } from "./request-log.ts";
import { Sandboxes } from "./sandboxes.ts";

/** What both origins share. */
export class Emulator {
  readonly apiKey: string;
  readonly sandboxes: Sandboxes;
  readonly faults: Faults = new Faults();
  readonly limits: RateLimits = new RateLimits();
  readonly log: RequestLog = new RequestLog();
  knobs: Knobs = defaultKnobs();
  /** Set once both listen. */
  gatewayUrl = "";

  constructor(apiKey: string, boxes: Boxes) {
    this.apiKey = apiKey;
    this.sandboxes = new Sandboxes(boxes, () => this.knobs);
  }
}

/** What is kept of a request until it is answered. */
interface Pending {
  readonly logged: LoggedRequest;
  readonly rule: FaultRule | undefined;
}

const pending = new WeakMap<FastifyRequest, Pending>();

export function loggedRequest(request: FastifyRequest): LoggedRequest | undefined {
  return pending.get(request)?.logged;
}

/** The fault of a stream, which only the stream itself can show. */
export function streamFault(request: FastifyRequest): StreamFault | undefined {
  const fault = pending.get(request)?.rule?.fault;
  return fault?.kind === "truncate" || fault?.kind === "connect-error" ? fault : undefined;
}

/** Every request of an origin: written down, and met by the fault that is waiting for it. */
export function observe(
  app: FastifyInstance,
  emulator: Emulator,
  origin: "control" | "gateway",
  authorized: (request: FastifyRequest) => boolean,
): void {
  app.addHook("onRequest", async (request, reply) => {
    const path = request.raw.url ?? "";
    if (path.startsWith("/admin/")) return;
    const logged: LoggedRequest = {
      at: new Date().toISOString(),
      origin,
      method: request.method,
      path,
      userAgent: request.headers["user-agent"] ?? null,
      authorization: request.headers.authorization === undefined ? "none" : authorized(request) ? "valid" : "invalid",
      unknownKeys: [],
      status: null,
    };
    emulator.log.add(logged);
    const rule = emulator.faults.take(origin, request.method, path);
    pending.set(request, { logged, rule });
    if (rule?.fault.kind === "delay") await sleep(rule.fault.delayMs);
    if (rule === undefined || rule.carriedOut) return;
    if (rule.fault.kind === "reset") {
      reply.hijack();
      request.raw.socket.resetAndDestroy();
    }
    if (rule.fault.kind === "answer") await replyWith(reply, rule.fault);
  });
  app.addHook("onSend", async (request, reply, payload) => {
    const rule = pending.get(request)?.rule;
    if (rule?.carriedOut !== true) return payload;
    if (rule.fault.kind === "reset") {
      reply.hijack();
      request.raw.socket.resetAndDestroy();
    }
    if (rule.fault.kind !== "answer") return payload;
    reply.code(rule.fault.status).headers(rule.fault.headers).removeHeader("content-length");
    return bodyText(rule.fault.body);
  });
  app.addHook("onResponse", async (request, reply) => {
    const entry = pending.get(request);
    if (entry !== undefined) entry.logged.status = reply.statusCode;
  });
}

async function replyWith(reply: FastifyReply, fault: Extract<Fault, { kind: "answer" }>): Promise<void> {
  await reply.code(fault.status).headers(fault.headers).send(bodyText(fault.body));
}

function bodyText(body: unknown): string {
  return typeof body === "string" ? body : JSON.stringify(body ?? { detail: "fault" });
}
