import { request } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

/** Something of ours on the engine. */
export interface EngineObject {
  readonly kind: "container" | "network" | "volume";
  readonly name: string;
}

const REQUEST_TIMEOUT_MS = 60_000;

/** A few calls of Docker's API, past the driver: what a stranger on the engine does and sees. */
export class Stranger {
  readonly #socketPath: string;

  /** `host`: `unix://…`. */
  constructor(host: string) {
    const url = new URL(host);
    if (url.protocol !== "unix:") throw new TypeError(`acceptance tests need an engine on a unix socket, not ${host}`);
    this.#socketPath = decodeURIComponent(url.pathname);
  }

  /** A JSON answer; `null` for 404. */
  async call(method: "GET" | "POST" | "DELETE", path: string, body?: unknown): Promise<unknown> {
    const text = body === undefined ? undefined : JSON.stringify(body);
    const { status, answer } = await new Promise<{ status: number; answer: string }>((resolve, reject) => {
      const call = request(
        {
          socketPath: this.#socketPath,
          method,
          path,
          headers: { Host: "docker", ...(text === undefined ? {} : { "Content-Type": "application/json" }) },
          timeout: REQUEST_TIMEOUT_MS,
        },
        (response) => {
          const chunks: Buffer[] = [];
          response.on("data", (chunk: Buffer) => chunks.push(chunk));
          response.on("error", reject);
          response.on("end", () =>
            resolve({ status: response.statusCode ?? 0, answer: Buffer.concat(chunks).toString("utf8") }),
          );
        },
      );
      call.on("timeout", () => call.destroy(new Error(`${method} ${path}: no answer within ${REQUEST_TIMEOUT_MS} ms`)));
      call.on("error", reject);
      call.end(text);
    });
    if (status === 404) return null;
    if (status >= 400) throw new Error(`${method} ${path}: ${status} ${answer.trim()}`);
    return /^[[{]/.test(answer) ? (JSON.parse(answer) as unknown) : answer;
  }

  async kill(container: string): Promise<void> {
    await this.call("POST", `/containers/${container}/kill?signal=SIGKILL`);
  }

  /** Whether a file is in a container, running or not. */
  async hasFile(container: string, path: string): Promise<boolean> {
    return (await this.call("GET", `/containers/${container}/archive?path=${encodeURIComponent(path)}`)) !== null;
  }

  /** Everything of a trial that the engine still has. */
  async objectsOf(trial: string): Promise<readonly EngineObject[]> {
    return this.#withLabel(`breakwater.trial=${trial}`);
  }

  /** A box that is not ours. */
  async foreignBox(image: string): Promise<AsyncDisposable & { readonly runs: () => Promise<boolean> }> {
    const { Id: id } = (await this.call("POST", "/containers/create", {
      Image: image,
      Cmd: ["sleep", "600"],
      HostConfig: { NetworkMode: "none" },
    })) as { readonly Id: string };
    await this.call("POST", `/containers/${id}/start`);
    return {
      runs: async () => {
        const found = (await this.call("GET", `/containers/${id}/json`)) as { State: { Running: boolean } } | null;
        return found?.State.Running ?? false;
      },
      [Symbol.asyncDispose]: async () => {
        await this.call("DELETE", `/containers/${id}?force=1&v=1`);
      },
    };
  }

  async #withLabel(label: string): Promise<readonly EngineObject[]> {
    const filters = encodeURIComponent(JSON.stringify({ label: [label] }));
    const containers = (await this.call("GET", `/containers/json?all=1&filters=${filters}`)) as { Names: string[] }[];
    const networks = (await this.call("GET", `/networks?filters=${filters}`)) as { Name: string }[];
    const volumes = (await this.call("GET", `/volumes?filters=${filters}`)) as { Volumes: { Name: string }[] | null };
    return [
      ...containers.map(({ Names: [name = ""] }) => ({ kind: "container", name: name.replace(/^\//, "") }) as const),
      ...networks.map(({ Name: name }) => ({ kind: "network", name }) as const),
      ...(volumes.Volumes ?? []).map(({ Name: name }) => ({ kind: "volume", name }) as const),
    ];
  }
}

/** Waits until something is so. */
export async function until(what: string, check: () => Promise<boolean> | boolean, timeoutMs = 120_000): Promise<void> {
  const end = performance.now() + timeoutMs;
  while (!(await check())) {
    if (performance.now() > end) throw new Error(`not seen within ${timeoutMs} ms: ${what}`);
    await sleep(50);
  }
}
