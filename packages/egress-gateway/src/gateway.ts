import { randomBytes } from "node:crypto";
import { chmod, readdir, rm } from "node:fs/promises";
import { createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import { GatewayBox } from "./box.ts";
import {
  CONTROL_PROTOCOL,
  type ControlRefusal,
  type ControlReply,
  type ControlRequest,
  type ControlResults,
  encodeLine,
  type GatewayStatus,
  LineReader,
} from "./control-messages.ts";
import type { Network } from "./network.ts";
import { compilePolicy, DIRECT } from "./policy.ts";

/**
 * Connections of all boxes at a time. What so many want when all of them stall, in both directions and with the kernel's part, fits into `GATEWAY_RESOURCES`:
 * half a MiB of the program for each, as measured, and what the sysctls allow.
 */
const MAX_CONNECTIONS = 1024;

const BOX_NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

class Refusal extends Error {
  readonly reason: ControlRefusal;

  constructor(reason: ControlRefusal, message: string) {
    super(message);
    this.reason = reason;
  }
}

export interface GatewayOptions {
  /** A folder that the forwarders see; it must have nothing else in it. */
  readonly boxesDirectory: string;
  /** A folder that nobody else sees. */
  readonly controlDirectory: string;
  readonly network: Network;
  /** Of all boxes at a time. Default is 1024. */
  readonly maxConnections?: number;
}

/** All boxes, and the channel over which their owner speaks of them. A new one knows no box. */
export class Gateway {
  readonly #options: GatewayOptions;
  readonly #instance = randomBytes(8).toString("hex");
  readonly #startedAt = performance.now();
  readonly #boxes = new Map<string, GatewayBox>();
  readonly #sessions = new Set<Socket>();
  #control: Server | undefined;
  #orphanedAt = performance.now();

  constructor(options: GatewayOptions) {
    this.#options = options;
  }

  /** How long there has been no control session. */
  get orphanedForMs(): number {
    return this.#sessions.size > 0 ? 0 : performance.now() - this.#orphanedAt;
  }

  /** Removes what an earlier gateway left and listens for control sessions. */
  async open(): Promise<void> {
    const { boxesDirectory, controlDirectory } = this.#options;
    for (const left of await readdir(boxesDirectory)) await rm(join(boxesDirectory, left), { recursive: true });
    // Nobody else may list the boxes' folders.
    await chmod(boxesDirectory, 0o711);
    const path = controlSocket(controlDirectory);
    await rm(path, { force: true });
    const control = createServer((socket) => this.#serve(socket));
    this.#control = control;
    await new Promise<void>((resolve, reject) => control.once("error", reject).listen(path, resolve));
  }

  async close(): Promise<void> {
    for (const session of this.#sessions) session.destroy();
    const control = this.#control;
    await new Promise<void>((resolve) => (control === undefined ? resolve() : control.close(() => resolve())));
    await Promise.all([...this.#boxes.values()].map((box) => box.close()));
    this.#boxes.clear();
  }

  #serve(socket: Socket): void {
    this.#sessions.add(socket);
    socket
      .on("error", () => undefined)
      .once("close", () => {
        this.#sessions.delete(socket);
        this.#orphanedAt = performance.now();
      });
    socket.write(encodeLine({ protocol: CONTROL_PROTOCOL, instance: this.#instance }));
    const lines = new LineReader();
    socket.on("data", (chunk: Buffer) => {
      try {
        for (const line of lines.push(chunk)) void this.#handle(parseRequest(line), socket);
      } catch {
        socket.destroy();
      }
    });
  }

  async #handle(request: ControlRequest & { readonly id: number }, socket: Socket): Promise<void> {
    let reply: ControlReply;
    try {
      reply = { id: request.id, result: await this.#answer(request) };
    } catch (error) {
      const reason = error instanceof Refusal ? error.reason : "failed";
      reply = { id: request.id, error: { reason, message: (error as Error).message } };
    }
    if (socket.writable) socket.write(encodeLine(reply));
  }

  async #answer(request: ControlRequest): Promise<ControlResults[ControlRequest["op"]]> {
    switch (request.op) {
      case "add-box":
        return this.#addBox(request.box);
      case "await-forwarder":
        return this.#box(request.box).forwarder.catch(() => {
          throw new Refusal("box-removed", `the box ${request.box} was removed`);
        });
      case "set-policy":
        return { cut: await this.#box(request.box).setPolicy(policyOf(request)) };
      case "remove-box":
        return this.#removeBox(request.box);
      case "records":
        return this.#box(request.box).records.read(request.after);
      case "status":
        return this.#status();
      default:
        throw new Refusal("request", `unknown request ${JSON.stringify((request as { op: unknown }).op)}`);
    }
  }

  async #addBox(name: string): Promise<ControlResults["add-box"]> {
    if (!BOX_NAME.test(name)) throw new Refusal("box-name", `${JSON.stringify(name)} is no name of a box`);
    if (this.#boxes.has(name)) throw new Refusal("box-exists", `there is a box ${name} already`);
    const folder = randomBytes(16).toString("hex");
    const admit = (): boolean => this.#admit(box);
    const box = new GatewayBox(join(this.#options.boxesDirectory, folder), this.#options.network, admit);
    this.#boxes.set(name, box);
    try {
      await box.open();
    } catch (error) {
      this.#boxes.delete(name);
      await box.close();
      throw error;
    }
    return { folder };
  }

  async #removeBox(name: string): Promise<ControlResults["remove-box"]> {
    const box = this.#boxes.get(name);
    if (box === undefined) return { existed: false };
    this.#boxes.delete(name);
    await box.close();
    return { existed: true };
  }

  #box(name: string): GatewayBox {
    const box = this.#boxes.get(name);
    if (box === undefined) throw new Refusal("unknown-box", `there is no box ${JSON.stringify(name)}`);
    return box;
  }

  /** Whether a box may have one more connection. Where there is no room, the box with the most gives up its newest one: a flood is paid for by who makes it. */
  #admit(asking: GatewayBox): boolean {
    if (this.#connections < (this.#options.maxConnections ?? MAX_CONNECTIONS)) return true;
    let most = asking;
    for (const box of this.#boxes.values()) if (box.connections > most.connections) most = box;
    if (most.connections <= asking.connections + 1) return false;
    most.giveUpNewest();
    return true;
  }

  get #connections(): number {
    let connections = 0;
    for (const box of this.#boxes.values()) connections += box.connections;
    return connections;
  }

  #status(): GatewayStatus {
    return {
      uptimeMs: performance.now() - this.#startedAt,
      boxes: this.#boxes.size,
      connections: this.#connections,
      memoryBytes: process.memoryUsage.rss(),
    };
  }
}

export function controlSocket(controlDirectory: string): string {
  return join(controlDirectory, "control");
}

/** Throws for what has no number to be answered with. The rest is judged by whoever it is for. */
function parseRequest(line: string): ControlRequest & { readonly id: number } {
  const request = JSON.parse(line) as (ControlRequest & { readonly id: number }) | null;
  if (typeof request?.id !== "number") throw new TypeError("no request");
  return request;
}

function policyOf({
  policy,
  direct,
}: Extract<ControlRequest, { readonly op: "set-policy" }>): ReturnType<typeof compilePolicy> {
  try {
    const compiled = compilePolicy(policy);
    if (direct !== true) return compiled;
    if (compiled.mode === "public") return DIRECT;
  } catch (error) {
    throw new Refusal("policy", (error as Error).message);
  }
  throw new Refusal("policy", "only a public box has a way of its own");
}
