import { request as httpRequest, type IncomingMessage } from "node:http";
import type { Readable } from "node:stream";

import { BackendError } from "./errors.ts";

/** The few calls of Docker's HTTP API that set-up needs. The driver has a client of its own; set-up must not depend on what it tests. */
export interface EngineApi {
  /** As in `DOCKER_HOST`. */
  readonly host: string;
  /** JSON in, JSON out. `undefined` for 404. */
  json(
    method: "GET" | "POST" | "DELETE",
    path: string,
    options?: { readonly body?: unknown; readonly timeoutMs?: number },
  ): Promise<unknown>;
  /** For import, build and pull: sends a stream, reads the progress lines to the end. Rejects when one of them is an error. */
  progress(path: string, body: Readable | undefined, options: ProgressOptions): Promise<readonly ProgressLine[]>;
}

export interface ProgressOptions {
  readonly timeoutMs: number;
  /** Gives up when nothing at all has come back after this long. Default: `timeoutMs`. */
  readonly firstAnswerMs?: number;
  readonly contentType?: string;
}

export interface ProgressLine {
  readonly status?: string;
  readonly stream?: string;
  readonly error?: string;
  readonly aux?: unknown;
}

const defaultTimeoutMs = 30_000;
const maxAnswerBytes = 16 * 1024 * 1024;

/** Errors of every call: `ENGINE_UNREACHABLE`, `ENGINE_REFUSED` (status and the engine's message), `TIMEOUT`. */
export function engineApi(host: string): EngineApi {
  const target = parseDockerHost(host);

  function call(
    method: string,
    path: string,
    body: Readable | string | undefined,
    contentType: string | undefined,
    limits: { readonly timeoutMs: number; readonly firstAnswerMs: number },
  ): Promise<{ readonly status: number; readonly text: string }> {
    return new Promise((resolve, reject) => {
      const request = httpRequest({
        ...target,
        method,
        path,
        headers: { Host: "docker", ...(contentType === undefined ? {} : { "Content-Type": contentType }) },
        agent: false,
      });
      const fail = (error: Error): void => {
        clearTimeout(whole);
        clearTimeout(first);
        request.destroy();
        if (typeof body === "object") body.destroy();
        reject(error);
      };
      const timedOut = (ms: number) => (): void =>
        fail(new BackendError("TIMEOUT", `${method} ${path} on ${host}: no answer within ${ms} ms`));
      const whole = setTimeout(timedOut(limits.timeoutMs), limits.timeoutMs);
      const first = setTimeout(timedOut(limits.firstAnswerMs), limits.firstAnswerMs);
      const unreachable = (cause: Error): void =>
        fail(new BackendError("ENGINE_UNREACHABLE", `${method} ${path} on ${host}: ${cause.message}`, { cause }));
      request.on("error", unreachable);
      request.on("response", (response: IncomingMessage) => {
        let text = "";
        response.setEncoding("utf8");
        response.on("data", (chunk: string) => {
          clearTimeout(first);
          text += chunk;
          if (text.length > maxAnswerBytes)
            fail(
              new BackendError(
                "ENGINE_REFUSED",
                `${method} ${path}: the answer is larger than ${maxAnswerBytes} bytes`,
              ),
            );
        });
        response.on("error", unreachable);
        response.on("end", () => {
          clearTimeout(whole);
          clearTimeout(first);
          resolve({ status: response.statusCode ?? 0, text });
        });
      });
      if (typeof body === "object") {
        body.on("error", unreachable);
        body.pipe(request);
      } else request.end(body);
    });
  }

  function refused(method: string, path: string, status: number, text: string): BackendError {
    return new BackendError("ENGINE_REFUSED", `${method} ${path} on ${host}: ${status} ${text.trim().slice(0, 2000)}`);
  }

  return {
    host,
    async json(method, path, options = {}): Promise<unknown> {
      const timeoutMs = options.timeoutMs ?? defaultTimeoutMs;
      const body = options.body === undefined ? undefined : JSON.stringify(options.body);
      const answer = await call(method, path, body, body && "application/json", {
        timeoutMs,
        firstAnswerMs: timeoutMs,
      });
      if (answer.status === 404) return undefined;
      if (answer.status >= 400) throw refused(method, path, answer.status, answer.text);
      return answer.text.startsWith("{") || answer.text.startsWith("[") ? JSON.parse(answer.text) : answer.text;
    },
    async progress(path, body, options): Promise<readonly ProgressLine[]> {
      const answer = await call("POST", path, body, options.contentType ?? "application/x-tar", {
        timeoutMs: options.timeoutMs,
        firstAnswerMs: options.firstAnswerMs ?? options.timeoutMs,
      });
      if (answer.status >= 400) throw refused("POST", path, answer.status, answer.text);
      const lines = answer.text
        .split("\n")
        .filter((line) => line.trim() !== "")
        .map((line) => JSON.parse(line) as ProgressLine);
      const failed = lines.find((line) => line.error !== undefined);
      if (failed?.error !== undefined) {
        const log = lines.map((line) => line.stream ?? "").join("");
        throw refused("POST", path, answer.status, `${log.slice(-1500)}${failed.error}`);
      }
      return lines;
    },
  };
}

/** Whether an engine answers. Cheap, other than its version: Podman asks its distribution for its packages to tell that. */
export async function engineAnswers(host: string, timeoutMs: number): Promise<boolean> {
  try {
    return (await engineApi(host).json("GET", "/_ping", { timeoutMs })) !== undefined;
  } catch (error) {
    if (error instanceof BackendError && error.code !== "USAGE") return false;
    throw error;
  }
}

/** Is there an engine, and which one? `undefined` when nothing answers within `timeoutMs`. */
export async function engineVersion(host: string, timeoutMs = 3_000): Promise<string | undefined> {
  try {
    const version = (await engineApi(host).json("GET", "/version", { timeoutMs })) as
      | { readonly Version?: string; readonly Components?: readonly { readonly Name?: string }[] }
      | undefined;
    if (typeof version?.Version !== "string") return undefined;
    return `${version.Components?.[0]?.Name ?? "Engine"} ${version.Version}`;
  } catch (error) {
    if (error instanceof BackendError && error.code !== "USAGE") return undefined;
    throw error;
  }
}

/** `DOCKER_HOST` in the words of `node:http`. */
export function parseDockerHost(
  host: string,
): { readonly socketPath: string } | { readonly host: string; readonly port: number } {
  const url = URL.canParse(host) ? new URL(host) : undefined;
  if (url?.protocol === "unix:") return { socketPath: decodeURIComponent(url.pathname) };
  if (url?.protocol === "tcp:" || url?.protocol === "http:")
    return { host: url.hostname.replace(/^\[|\]$/g, ""), port: Number(url.port || 2375) };
  throw new BackendError("USAGE", `DOCKER_HOST ${JSON.stringify(host)} is neither unix://… nor tcp://…`, {
    advice: "forward the engine's socket to a local unix socket and name that one",
  });
}
