import type { FastifyInstance } from "fastify";
import { z } from "zod";
import { described } from "./control-plane.ts";
import type { Emulator } from "./emulator.ts";
import { parseFault } from "./faults.ts";
import { defaultKnobs, parseKnobs } from "./knobs.ts";

const endSchema = z.strictObject({
  status: z.enum(["ERROR", "TERMINATED", "TIMEOUT"]),
  errorType: z.string().nullable().default(null),
});

/** What tests ask of the emulator itself. No service has it; only loopback reaches it. */
export function admin(app: FastifyInstance, emulator: Emulator): void {
  app.setErrorHandler((error, _request, reply) =>
    reply.code(error instanceof z.ZodError ? 422 : 500).send({ error: (error as Error).message }),
  );
  app.get("/admin/knobs", async () => emulator.knobs);
  app.patch("/admin/knobs", async (request) => {
    emulator.knobs = parseKnobs({ ...emulator.knobs, ...(request.body as object) });
    return emulator.knobs;
  });
  app.get("/admin/faults", async () => ({ faults: emulator.faults.list() }));
  app.post("/admin/faults", async (request) => {
    emulator.faults.add(parseFault(request.body));
    return { added: true };
  });
  app.delete("/admin/faults", async () => {
    emulator.faults.clear();
    return { cleared: true };
  });
  /** Knobs, faults and the log as at the start; sandboxes stay. */
  app.post("/admin/reset", async () => {
    emulator.knobs = defaultKnobs();
    emulator.faults.clear();
    emulator.limits.clear();
    emulator.log.clear();
    return { reset: true };
  });
  app.get("/admin/requests", async () => ({ total: emulator.log.total, requests: emulator.log.entries }));
  app.delete("/admin/requests", async () => {
    emulator.log.clear();
    return { cleared: true };
  });
  /** Every sandbox with what really runs behind it. */
  app.get("/admin/sandboxes", async () => ({
    sandboxes: await Promise.all(
      emulator.sandboxes.all.map(async (sandbox) => ({
        ...(described(sandbox) as object),
        boxRuns: (await sandbox.box?.isRunning()) ?? false,
      })),
    ),
  }));
  app.post<{ Params: { readonly id: string } }>("/admin/sandboxes/:id/end", async (request, reply) => {
    const sandbox = emulator.sandboxes.get(request.params.id);
    if (sandbox === undefined) return reply.code(404).send({ error: "no such sandbox" });
    const { status, errorType } = endSchema.parse(request.body ?? {});
    emulator.sandboxes.end(sandbox, status, errorType);
    return { ended: true };
  });
  /** Ends the first process, as a stranger on the platform's machine would. */
  app.post<{ Params: { readonly id: string } }>("/admin/sandboxes/:id/kill", async (request, reply) => {
    const sandbox = emulator.sandboxes.get(request.params.id);
    if (sandbox?.box === undefined) return reply.code(404).send({ error: "no such sandbox" });
    await sandbox.box.kill();
    return { killed: true };
  });
}
