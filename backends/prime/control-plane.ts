import { randomBytes } from "node:crypto";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { z } from "zod";
import { type Emulator, loggedRequest } from "./emulator.ts";
import { readJobExit } from "./files.ts";
import type { Bucket } from "./rate-limits.ts";
import type { Sandbox } from "./sandboxes.ts";
import {
  batchJobsSchema,
  batchStatusSchema,
  bulkDeleteSchema,
  checkImageSchema,
  createSchema,
  type EgressPolicy,
  egressPolicySchema,
  listQuerySchema,
  unknownKeys,
} from "./validation.ts";

/** An answer other than the route's own success. */
class ApiError extends Error {
  readonly status: number;
  readonly body: unknown;
  readonly headers: Readonly<Record<string, string>>;

  constructor(status: number, body: unknown, headers: Readonly<Record<string, string>> = {}) {
    super(`HTTP ${status}`);
    this.status = status;
    this.body = body;
    this.headers = headers;
  }
}

type ById = { readonly Params: { readonly id: string } };

/** The control plane: everything below `/api/v1`. Requests and most answers in snake case, the sandbox itself in camel case. */
export function controlPlane(app: FastifyInstance, emulator: Emulator): void {
  const { sandboxes } = emulator;

  const limited = (request: FastifyRequest, bucket: Bucket, sandboxId = "", count = 1): void => {
    if (!emulator.knobs.rateLimits) return;
    const caller = `${request.ip} ${request.headers.authorization ?? ""}`;
    const waitMs = emulator.limits.take(bucket, caller, sandboxId, count);
    if (waitMs !== null) throw tooMany(emulator, waitMs);
  };
  const find = (request: FastifyRequest, bucket: Bucket): Sandbox => {
    const { id } = request.params as ById["Params"];
    limited(request, bucket, id);
    const sandbox = sandboxes.get(id);
    const isHidden = sandbox?.deleted === true && sandbox.isTerminal && emulator.knobs.getAfterDelete === "not-found";
    if (sandbox === undefined || isHidden) throw notFound();
    return sandbox;
  };

  app.setErrorHandler((error, request, reply: FastifyReply) => {
    if (error instanceof ApiError) return reply.code(error.status).headers(error.headers).send(error.body);
    const status = (error as { statusCode?: number }).statusCode ?? 500;
    if (status >= 500) process.stderr.write(`${request.method} ${request.url}: ${String((error as Error).stack)}\n`);
    return reply.code(status).send({ detail: status >= 500 ? "Internal Server Error" : (error as Error).message });
  });
  app.setNotFoundHandler((_request, reply) => reply.code(404).send({ detail: "Not Found" }));
  app.addHook("preHandler", async (request) => {
    if (request.headers.authorization !== `Bearer ${emulator.apiKey}`) {
      throw new ApiError(401, { detail: "Invalid API key" });
    }
  });
  // Clients send the content type of JSON also where there is no body.
  app.removeContentTypeParser("application/json");
  app.addContentTypeParser("application/json", { parseAs: "string" }, (_request, text, done) => {
    try {
      done(null, text === "" ? undefined : JSON.parse(text as string));
    } catch {
      done(new ApiError(422, { detail: [{ loc: ["body"], msg: "JSON decode error", type: "json_invalid" }] }));
    }
  });

  app.post("/sandbox", async (request, reply) => {
    limited(request, "create");
    const body = parsed(createSchema, request.body, "body");
    const logged = loggedRequest(request);
    if (logged !== undefined) logged.unknownKeys = unknownKeys(request.body as object, "create");
    if (body.vm && body.secrets && !emulator.knobs.vmAcceptsSecrets) {
      throw new ApiError(422, { detail: "secrets are not supported for VM sandboxes" });
    }
    const { sandbox, isReplay } = sandboxes.create(body);
    return reply.code(isReplay ? emulator.knobs.replayStatus : 201).send(described(sandbox));
  });

  app.get("/sandbox", async (request) => {
    limited(request, "list");
    const query = parsed(listQuerySchema, request.query, "query");
    const onlyActive = query.is_active?.toLowerCase() === "true";
    const found = sandboxes.all.filter(
      (sandbox) =>
        !(onlyActive && sandbox.isTerminal) &&
        (query.status === undefined || sandbox.status === query.status) &&
        (query.team_id === undefined || sandbox.team === query.team_id) &&
        (query.labels ?? []).every((label) => sandbox.body.labels.includes(label)),
    );
    const start = (query.page - 1) * query.per_page;
    return {
      sandboxes: found.slice(start, start + query.per_page).map(described),
      total: found.length,
      page: query.page,
      per_page: query.per_page,
      has_next: start + query.per_page < found.length,
    };
  });

  app.delete("/sandbox", async (request) => {
    limited(request, "bulkDelete");
    const { sandbox_ids: ids, labels, team_id: team } = parsed(bulkDeleteSchema, request.body ?? {}, "body");
    const chosen =
      ids ??
      sandboxes.all
        .filter((it) => !it.isTerminal && (!team || it.team === team))
        .filter((it) => (labels ?? []).every((label) => it.body.labels.includes(label)))
        .map(({ id }) => id);
    const succeeded: string[] = [];
    const failed: { readonly sandbox_id: string; readonly error: string }[] = [];
    for (const id of chosen) {
      const sandbox = sandboxes.get(id);
      if (sandbox === undefined || (sandbox.deleted && sandbox.isTerminal)) {
        failed.push({ sandbox_id: id, error: "Sandbox not found" });
        continue;
      }
      sandboxes.delete(sandbox);
      succeeded.push(id);
    }
    return { succeeded, failed, message: `Deleted ${succeeded.length} sandboxes` };
  });

  app.post("/sandbox/status:batchGet", async (request) => {
    const { sandbox_ids: ids } = parsed(batchStatusSchema, request.body, "body");
    limited(request, "batchLookups", "", ids.length);
    for (const id of ids) limited(request, "batch", id);
    const statuses: unknown[] = [];
    const errors: unknown[] = [];
    for (const id of ids) {
      const sandbox = sandboxes.get(id);
      const isHidden = sandbox?.deleted === true && sandbox.isTerminal && emulator.knobs.getAfterDelete === "not-found";
      if (sandbox === undefined || isHidden) {
        errors.push({ sandbox_id: id, code: "NOT_FOUND", message: "Sandbox not found" });
        continue;
      }
      statuses.push({
        sandbox_id: id,
        status: sandbox.status,
        error_type: sandbox.errorType,
        error_message: sandbox.errorMessage,
        pending_image_build_id: sandbox.pendingImageBuildId,
      });
    }
    return { statuses, errors };
  });

  app.post("/sandbox/background-jobs/status:batchGet", async (request) => {
    const { jobs } = parsed(batchJobsSchema, request.body, "body");
    limited(request, "batchLookups", "", jobs.length);
    for (const { sandbox_id: id } of jobs) limited(request, "batch", id);
    const statuses: unknown[] = [];
    const errors: unknown[] = [];
    await Promise.all(
      jobs.map(async ({ sandbox_id, job_id }) => {
        const sandbox = sandboxes.get(sandbox_id);
        const code =
          sandbox === undefined
            ? "NOT_FOUND"
            : !sandbox.isVm
              ? "NOT_VM"
              : !sandboxes.isReachable(sandbox)
                ? "NOT_RUNNING"
                : null;
        if (code !== null || sandbox?.box === undefined) {
          errors.push({ sandbox_id, job_id, code: code ?? "RUNTIME_ERROR", message: `job ${job_id}: ${code}` });
          return;
        }
        const exitCode = await readJobExit(sandbox.box, job_id);
        statuses.push({ sandbox_id, job_id, completed: exitCode !== null, exit_code: exitCode });
      }),
    );
    return { statuses, errors };
  });

  app.get<ById>("/sandbox/:id", async (request) => described(find(request, "get")));

  app.delete<ById>("/sandbox/:id", async (request) => {
    const sandbox = find(request, "delete");
    if (sandbox.isTerminal && (sandbox.deleted || sandbox.orphaned)) throw notFound();
    sandboxes.delete(sandbox);
    return { success: true, message: `Sandbox ${sandbox.id} deleted` };
  });

  app.post<ById>("/sandbox/:id/auth", async (request) => {
    const sandbox = find(request, "auth");
    const { authAfterDelete, tokenTtlMs } = emulator.knobs;
    if (sandbox.isTerminal && authAfterDelete !== 200) {
      throw new ApiError(authAfterDelete, { detail: "Sandbox is not running" });
    }
    // A JSON Web Token in shape; only the gateway here has to know it.
    const token = ["eyJhbGciOiJub25lIn0", randomBytes(24).toString("base64url"), randomBytes(16).toString("base64url")];
    const expiresAtMs = Date.now() + tokenTtlMs;
    sandbox.tokens.set(token.join("."), expiresAtMs);
    return {
      token: token.join("."),
      gateway_url: emulator.gatewayUrl,
      user_ns: sandbox.userNs,
      job_id: sandbox.jobId,
      expires_at: new Date(expiresAtMs).toISOString(),
    };
  });

  app.get<ById>("/sandbox/:id/error-context", async (request) => {
    const { status, errorType, errorMessage } = find(request, "errorContext");
    return { status, errorType, errorMessage };
  });

  app.get<ById>("/sandbox/:id/logs", async (request) => {
    const sandbox = find(request, "logs");
    return { logs: sandbox.isTerminal ? "" : ((await sandbox.box?.logs()) ?? "") };
  });

  const egressOf = ({ egress, appliedGeneration }: Sandbox): unknown => ({
    policy: egress.policy,
    generation: egress.generation,
    applied_generation: appliedGeneration,
    applied: appliedGeneration === egress.generation,
  });
  const vm = (request: FastifyRequest, bucket: Bucket): Sandbox => {
    const sandbox = find(request, bucket);
    if (!sandbox.isVm) throw new ApiError(400, { detail: "Egress policies are for VM sandboxes only" });
    return sandbox;
  };
  app.get<ById>("/sandbox/:id/egress-policy", async (request) => egressOf(vm(request, "egressGet")));
  app.put<ById>("/sandbox/:id/egress-policy", async (request, reply) => {
    const sandbox = vm(request, "egressPut");
    const { allowlist, denylist } = parsed(egressPolicySchema, request.body, "body");
    if (sandbox.status !== "RUNNING" && sandbox.status !== "PAUSED") {
      throw new ApiError(409, { detail: "Sandbox is not running" });
    }
    const policy: EgressPolicy = { allowlist: allowlist ?? null, denylist: denylist ?? null };
    sandboxes.setEgress(sandbox, policy);
    return reply.code(202).send(egressOf(sandbox));
  });

  app.get("/sandbox/expose/all", async (request) => {
    limited(request, "exposures");
    return { exposures: [] };
  });
  app.get<ById>("/sandbox/:id/expose", async (request) => {
    find(request, "exposures");
    return { exposures: [] };
  });
  // As most regions answer. Nothing is exposed here.
  app.post<ById>("/sandbox/:id/expose", async (request) => {
    const sandbox = find(request, "expose");
    const detail = sandbox.isVm
      ? "Port exposure is not yet supported for VM sandboxes."
      : "Port exposure is not supported in this region";
    throw new ApiError(400, { detail });
  });
  app.post("/template/check-docker-image", async (request) => {
    const { image } = parsed(checkImageSchema, request.body, "body");
    const accessible = await sandboxes.hasImage(image);
    return { accessible, details: accessible ? "Image is accessible" : "Image not found" };
  });
  app.get("/template/registry-credentials", async () => ({ credentials: [] }));
}

function parsed<S extends z.ZodType>(schema: S, value: unknown, where: "body" | "query"): z.output<S> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  throw new ApiError(422, {
    detail: result.error.issues.map(({ path, message, code }) => ({
      loc: [where, ...path.map((part) => (typeof part === "symbol" ? String(part) : part))],
      msg: message,
      type: code,
    })),
  });
}

function notFound(): ApiError {
  return new ApiError(404, { detail: "Sandbox not found" });
}

function tooMany(emulator: Emulator, waitMs: number): ApiError {
  const seconds = Math.ceil(waitMs / 1000);
  const header = {
    seconds: { "retry-after": String(seconds) },
    date: { "retry-after": new Date(Date.now() + waitMs).toUTCString() },
    none: {},
  }[emulator.knobs.retryAfter];
  return new ApiError(429, { detail: "Rate limit exceeded" }, header);
}

/** The sandbox as the service describes it. */
export function described(sandbox: Sandbox): unknown {
  const { body } = sandbox;
  const date = (ms: number | null): string | null => (ms === null ? null : new Date(ms).toISOString());
  return {
    id: sandbox.id,
    name: body.name,
    dockerImage: body.docker_image,
    startCommand: body.start_command ?? null,
    cpuCores: body.cpu_cores,
    memoryGB: body.memory_gb,
    diskSizeGB: body.disk_size_gb,
    diskMountPath: "/sandbox-workspace",
    gpuCount: body.gpu_count,
    gpuType: body.gpu_type ?? null,
    vm: body.vm,
    networkAllowlist: sandbox.egress.policy.allowlist,
    networkDenylist: sandbox.egress.policy.denylist,
    status: sandbox.status,
    timeoutMinutes: body.timeout_minutes,
    idleTimeoutMinutes: body.idle_timeout_minutes ?? null,
    terminationReason: sandbox.terminationReason,
    environmentVars: body.environment_vars ?? null,
    secrets: body.secrets ? Object.fromEntries(Object.keys(body.secrets).map((name) => [name, "***"])) : null,
    advancedConfigs: body.advanced_configs ?? null,
    labels: body.labels,
    createdAt: date(sandbox.createdAtMs),
    updatedAt: date(sandbox.updatedAtMs),
    startedAt: date(sandbox.startedAtMs),
    terminatedAt: date(sandbox.terminatedAtMs),
    exitCode: sandbox.exitCode,
    errorType: sandbox.errorType,
    errorMessage: sandbox.errorMessage,
    userId: "user-emulator",
    teamId: body.team_id ?? null,
    kubernetesJobId: sandbox.jobId,
    region: body.region ?? null,
    registryCredentialsId: body.registry_credentials_id ?? null,
    pendingImageBuildId: sandbox.pendingImageBuildId,
  };
}
