import type { Deadline } from "@breakwater/driver-kit";
import { FormData, type Pool } from "undici";
import type { z } from "zod";
import { isPassing, isStatus, ServiceError } from "./errors.ts";
import { call, type Connections, fetchBytes, type HttpCall, repeat } from "./http.ts";
import {
  type CommandResult,
  commandResultSchema,
  type GatewayAccess,
  isTerminal,
  uploadResultSchema,
} from "./schemas.ts";
import type { Service } from "./service.ts";

/** A token is replaced so long before it expires. */
const EARLY_MS = 60_000;
const UPLOAD_TIMEOUT_MS = 120_000;
/** How much longer than its command an exec call may take. */
const EXEC_GRACE_MS = 15_000;
/** How often a gateway may refuse a sandbox that runs, as the control plane says. */
const MAX_REFUSALS = 8;

export interface Command {
  /** For the shell of the box. */
  readonly command: string;
  readonly timeoutMs: number;
  /** In docker's words; `null` = the image's user. */
  readonly user: string | null;
  /** Default is the root. `null` = the image's. */
  readonly cwd?: string | null | undefined;
  /** Called before each attempt. */
  readonly onAttempt?: (() => void | Promise<void>) | undefined;
}

/** The data plane of one sandbox. */
export class Gateway {
  readonly #connections: Connections;
  readonly #service: Service;
  readonly #sandboxId: string;
  #access: Promise<GatewayAccess> | undefined;

  constructor(connections: Connections, service: Service, sandboxId: string) {
    this.#connections = connections;
    this.#service = service;
    this.#sandboxId = sandboxId;
  }

  /**
   * Runs a command of a container; it is run again after a failure that may pass, so it has to be one that does no harm then. `isStarting`: the
   * gateway may not know the sandbox yet.
   */
  async run(
    clock: Deadline,
    { command, timeoutMs, user, cwd = "/", onAttempt }: Command,
    isStarting = false,
  ): Promise<CommandResult> {
    const json = {
      command,
      working_dir: cwd,
      env: {},
      sandbox_id: this.#sandboxId,
      timeout: Math.ceil(timeoutMs / 1000),
      ...(user === null ? {} : { user }),
    };
    const request = { method: "POST", path: "/exec", json, timeoutMs: timeoutMs + EXEC_GRACE_MS } as const;
    const send = async (access: GatewayAccess): Promise<CommandResult> => {
      await onAttempt?.();
      return this.#call(clock, commandResultSchema, access, request);
    };
    return this.repeat(clock, send, isStarting);
  }

  /** Puts a file at an absolute path whose folder exists. Throws `ServiceError`, or `Error` if not all of it arrived. */
  async upload(clock: Deadline, path: string, content: Uint8Array): Promise<void> {
    const query = new URLSearchParams({ path, sandbox_id: this.#sandboxId });
    const request = (): GatewayCall => {
      const form = new FormData();
      form.append("file", new Blob([content as Uint8Array<ArrayBuffer>]), path.slice(path.lastIndexOf("/") + 1));
      return { method: "POST", path: `/upload?${query.toString()}`, form, timeoutMs: UPLOAD_TIMEOUT_MS };
    };
    const send = (access: GatewayAccess): Promise<{ readonly size?: number | null | undefined }> =>
      this.#call(clock, uploadResultSchema, access, request());
    const { size } = await this.repeat(clock, send);
    if (typeof size === "number" && size !== content.length) {
      throw new Error(`${content.length} bytes were sent to ${path}, and Prime has ${size}`);
    }
  }

  /** The bytes of a file whose size is known, as they come. An attempt that fails goes on where it broke: the file does not change. */
  async download(clock: Deadline, path: string, bytes: number, take: (chunk: Buffer) => void): Promise<void> {
    const query = new URLSearchParams({ path, sandbox_id: this.#sandboxId });
    const request = { method: "GET", path: `/download?${query.toString()}`, timeoutMs: UPLOAD_TIMEOUT_MS } as const;
    let taken = 0;
    await this.repeat(clock, async (access) => {
      let at = 0;
      const rest = (chunk: Buffer): void => {
        const known = Math.min(Math.max(taken - at, 0), chunk.length);
        at += chunk.length;
        if (known === chunk.length) return;
        taken += chunk.length - known;
        take(chunk.subarray(known));
      };
      const { pool, ...there } = this.#place(access, request);
      await fetchBytes(pool, clock, { ...request, ...there }, { bytes, take: rest });
    });
  }

  /** Sends something with a token that holds, again after failures that may pass. `isStarting`: the gateway may not know the sandbox yet. */
  async repeat<T>(clock: Deadline, send: (access: GatewayAccess) => Promise<T>, isStarting = false): Promise<T> {
    let refusals = 0;
    let isFinal = false;
    const mayPass = (error: unknown): boolean =>
      !isFinal &&
      (isPassing(error) ||
        isStatus(error, 409) ||
        (isStarting && error instanceof ServiceError && error.isUnknownSandbox));
    const once = async (): Promise<T> => {
      try {
        return await this.#once(clock, send);
      } catch (error) {
        if (!isStatus(error, 409)) throw error;
        // Not running, or trouble on the way: the control plane knows which.
        refusals += 1;
        const { status } = await this.#service.errorContext(clock, this.#sandboxId);
        const runs = status === "RUNNING" || (isStarting && status !== null && !isTerminal(status));
        isFinal = !runs || refusals > MAX_REFUSALS;
        throw error;
      }
    };
    return await repeat(clock, once, { isPassing: mayPass });
  }

  async #once<T>(clock: Deadline, send: (access: GatewayAccess) => Promise<T>): Promise<T> {
    const access = await this.#currentAccess(clock);
    try {
      return await send(access);
    } catch (error) {
      if (!isStatus(error, 401)) throw error;
      // Its time is over earlier than it said: once more with another one.
      this.#access = undefined;
      return await send(await this.#currentAccess(clock));
    }
  }

  async #call<T>(clock: Deadline, schema: z.ZodType<T>, access: GatewayAccess, request: GatewayCall): Promise<T> {
    const { pool, ...there } = this.#place(access, request);
    return call(pool, clock, schema, { ...request, ...there });
  }

  #place(
    access: GatewayAccess,
    { path }: GatewayCall,
  ): Pick<HttpCall, "what" | "path" | "headers"> & { readonly pool: Pool } {
    const { origin, pathname } = new URL(access.base);
    return {
      pool: this.#connections.pool(origin),
      what: `the gateway's ${path.replace(/\?.*/, "")}`,
      path: pathname + path,
      headers: { authorization: `Bearer ${access.token}`, "user-agent": "breakwater" },
    };
  }

  /** One question for all who need a token at the same time. */
  async #currentAccess(clock: Deadline): Promise<GatewayAccess> {
    const known = await this.#access?.catch(() => undefined);
    if (known !== undefined && known.expiresAtMs - EARLY_MS > Date.now()) return known;
    const asking = this.#service.access(clock, this.#sandboxId);
    this.#access = asking;
    asking.catch(() => {
      if (this.#access === asking) this.#access = undefined;
    });
    return clock.race(asking);
  }
}

type GatewayCall = Pick<HttpCall, "method" | "path" | "json" | "form" | "timeoutMs">;
