import multipart from "@fastify/multipart";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { Readable } from "node:stream";
import { type Emulator, loggedRequest } from "./emulator.ts";
import { type Program, signal } from "./box.ts";
import { commandSession } from "./command-session.ts";
import { BODIES } from "./faults.ts";
import { collected, openFile, readWindow, writeFile } from "./files.ts";
import type { Sandbox } from "./sandboxes.ts";
import { execSchema, unknownKeys } from "./validation.ts";

const PREFIX = "/:ns/:job";

interface Route {
  readonly Params: { readonly ns: string; readonly job: string };
  readonly Querystring: Readonly<Record<string, string | undefined>>;
}

/** The data plane: `/<user_ns>/<job_id>/...` with a sandbox's own token. */
export function gateway(app: FastifyInstance, emulator: Emulator): void {
  const { sandboxes } = emulator;
  const sandboxOf = ({ params }: FastifyRequest): Sandbox | undefined => {
    const { ns, job } = params as Route["Params"];
    return sandboxes.byRoute(ns, job);
  };

  app.setErrorHandler((error, request, reply: FastifyReply) => {
    const status = (error as { statusCode?: number }).statusCode ?? 500;
    if (status >= 500) process.stderr.write(`${request.method} ${request.url}: ${String((error as Error).stack)}\n`);
    return reply.code(status).send({ error: (error as Error).message });
  });
  app.setNotFoundHandler((_request, reply) => reply.code(404).send({ error: "not_found" }));

  // Who may come in, and whether there is somebody to let in to.
  app.addHook("preHandler", async (request, reply) => {
    const sandbox = sandboxOf(request);
    const token = request.headers.authorization?.replace(/^Bearer /, "") ?? "";
    const expiresAtMs = sandbox?.tokens.get(token) ?? 0;
    if (sandbox !== undefined && expiresAtMs < Date.now()) return reply.code(401).send({ error: "invalid_token" });
    if (sandbox?.deleted === true && sandbox.isTerminal && emulator.knobs.gatewayAfterDelete === "410") {
      return reply.code(410).send(BODIES.sandboxTerminated);
    }
    if (sandbox === undefined || (sandbox.status === "RUNNING" && !sandboxes.isReachable(sandbox))) {
      return reply.code(502).send(BODIES.sandboxNotFound(sandbox?.id ?? ""));
    }
    if (sandbox.isTerminal && sandbox.deleted) return reply.code(502).send(BODIES.sandboxNotFound(sandbox.id));
    if (sandbox.status !== "RUNNING" || sandbox.isEnding) return reply.code(409).send({ error: "sandbox_not_running" });
    sandbox.inUse += 1;
    reply.raw.once("close", () => {
      sandbox.inUse -= 1;
      sandbox.lastUsedAtMs = Date.now();
    });
    return undefined;
  });

  app.register(multipart, { limits: { files: 1 } });

  app.post<Route>(`${PREFIX}/exec`, async (request, reply) => {
    const sandbox = sandboxOf(request);
    if (sandbox?.box === undefined || sandbox.isVm) return reply.code(404).send({ error: "not_found" });
    const body = execSchema.safeParse(request.body);
    if (!body.success) return reply.code(422).send({ detail: body.error.issues });
    const logged = loggedRequest(request);
    if (logged !== undefined) {
      logged.unknownKeys = unknownKeys(request.body as object, "exec");
    }
    const { command, working_dir, env, timeout, user } = body.data;
    if (Buffer.byteLength(command) > emulator.knobs.maxCommandBytes) {
      return reply.code(500).send({ error: "Command execution failed: File name too long (os error 36)" });
    }
    const program = await sandbox.box.run(["/bin/sh", "-c", command], {
      env: env ?? {},
      ...(working_dir ? { cwd: working_dir } : {}),
      ...(user ? { user } : {}),
    });
    const limitMs = Math.min(timeout * 1000, emulator.knobs.proxyLimitMs);
    const finished = finish(program);
    const timer = new AbortController();
    const outcome = await Promise.race([finished, elapsed(limitMs, timer.signal)]);
    timer.abort();
    if (outcome === "elapsed") {
      finished.catch(() => undefined);
      // Behind the proxy's back the command goes on.
      if (limitMs < timeout * 1000) return reply.code(524).send("error code: 524");
      if (emulator.knobs.execTimeoutKills && program.pid !== null) {
        signal(sandbox.box, program.pid, "KILL").catch(() => undefined);
      }
      program.detach();
      return reply.code(408).send({ error: "Command timed out" });
    }
    return outcome;
  });

  app.post<Route>(`${PREFIX}/upload`, async (request, reply) => {
    const sandbox = sandboxOf(request);
    const path = request.query["path"] ?? "";
    if (sandbox?.box === undefined || path === "") return reply.code(422).send({ detail: "path is required" });
    if (!path.startsWith("/") && emulator.knobs.uploadRefusesRelativePaths) {
      return reply.code(400).send({ error: "path must be absolute" });
    }
    const part = await request.file({ limits: { fileSize: emulator.knobs.maxUploadBytes } });
    if (part?.fieldname !== "file") return reply.code(422).send({ detail: "the field file is required" });
    const written = await writeFile(sandbox.box, path, part.file);
    if (part.file.truncated) return reply.code(413).send({ error: "file too large" });
    if ("refused" in written) return reply.code(500).send({ error: `upload failed: ${written.refused}` });
    return { success: true, path, size: written.bytes, timestamp: new Date().toISOString() };
  });

  app.get<Route>(`${PREFIX}/download`, async (request, reply) => {
    const sandbox = sandboxOf(request);
    const path = request.query["path"] ?? "";
    if (sandbox?.box === undefined || !path.startsWith("/"))
      return reply.code(422).send({ detail: "path is required" });
    const opened = await openFile(sandbox.box, path);
    if ("error" in opened) return reply.code(opened.error === "missing" ? 404 : 400).send({ error: opened.error });
    return reply.type("application/octet-stream").send(Readable.from(opened.content, { objectMode: false }));
  });

  app.get<Route>(`${PREFIX}/read-file`, async (request, reply) => {
    const sandbox = sandboxOf(request);
    const { path = "", offset, length } = request.query;
    if (sandbox?.box === undefined || !path.startsWith("/"))
      return reply.code(422).send({ detail: "path is required" });
    // VMs know no windows.
    const window = sandbox.isVm
      ? { offset: 0, length: null }
      : { offset: Number(offset ?? 0), length: length === undefined ? null : Number(length) };
    if (!Number.isSafeInteger(window.offset) || (window.length !== null && !(window.length >= 0))) {
      return reply.code(422).send({ detail: "offset and length are whole numbers" });
    }
    const found = await readWindow(sandbox.box, path, { ...window, maxBytes: emulator.knobs.maxReadFileBytes });
    if ("error" in found) {
      const status = found.error === "missing" ? 404 : found.error === "too-large" ? 413 : 400;
      return reply.code(status).send({ error: found.error });
    }
    const { content, totalSize, offset: at } = found;
    const answer = { content: content.toString("utf8"), size: content.length };
    if (sandbox.isVm) return answer;
    return { ...answer, total_size: totalSize, offset: at, truncated: at + content.length < totalSize };
  });

  app.register(async (streams) => {
    commandSession(streams, emulator, PREFIX, sandboxOf);
  });
}

async function finish(
  program: Program,
): Promise<{ readonly stdout: string; readonly stderr: string; readonly exit_code: number }> {
  const { stdout, stderr } = await collected(program);
  return { stdout: stdout.toString("utf8"), stderr: stderr.toString("utf8"), exit_code: await program.exitCode() };
}

function elapsed(limitMs: number, signal: AbortSignal): Promise<"elapsed"> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve("elapsed"), limitMs);
    signal.addEventListener("abort", () => clearTimeout(timer), { once: true });
  });
}
