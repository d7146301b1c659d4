import Fastify, { type FastifyInstance } from "fastify";
import { admin } from "./admin.ts";
import { controlPlane } from "./control-plane.ts";
import { type Emulator, observe } from "./emulator.ts";
import { gateway } from "./gateway.ts";

const MAX_JSON_BYTES = 4 * 1024 * 1024;

/** Both origins, not listening yet: the control plane with the emulator's own endpoint, and the data plane. */
export function servers(emulator: Emulator): { readonly control: FastifyInstance; readonly data: FastifyInstance } {
  const control = server();
  observe(control, emulator, "control", ({ headers }) => headers.authorization === `Bearer ${emulator.apiKey}`);
  void control.register(async (app) => controlPlane(app, emulator), { prefix: "/api/v1" });
  void control.register(async (app) => admin(app, emulator));

  const data = server();
  observe(data, emulator, "gateway", ({ headers }) => {
    const token = headers.authorization?.replace(/^Bearer /, "") ?? "";
    return emulator.sandboxes.all.some(({ tokens }) => (tokens.get(token) ?? 0) > Date.now());
  });
  void data.register(async (app) => gateway(app, emulator));
  return { control, data };
}

function server(): FastifyInstance {
  return Fastify({ bodyLimit: MAX_JSON_BYTES, forceCloseConnections: true, keepAliveTimeout: 60_000 });
}
