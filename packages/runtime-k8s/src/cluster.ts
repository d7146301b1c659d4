import {
  AuthorizationV1Api,
  type ConfigurationOptions,
  CoreV1Api,
  KubeConfig,
  NetworkingV1Api,
  Observable,
  type RequestContext,
  type ResponseContext,
  VersionApi,
} from "@kubernetes/client-node";
import type { ClientOptions } from "ws";
import { type Deadline, type OperationDescription, withDeadline } from "@breakwater/driver-kit";
import { type OperationOptions, RuntimeError } from "@breakwater/runtime-api";
import { clusterError, ConnectionError, type Doing, DRIVER, isStatus, toRuntimeError } from "./errors.ts";
import type { Settings } from "./options.ts";

/** The typed parts of the API that are used. */
export interface Api {
  readonly core: CoreV1Api;
  readonly networking: NetworkingV1Api;
  readonly authorization: AuthorizationV1Api;
  readonly version: VersionApi;
}

/** Where a WebSocket goes, with the credentials of this moment. */
export interface SocketTarget {
  readonly url: URL;
  readonly options: ClientOptions;
}

const DEFAULT_TIMEOUT_MS = 60_000;
/** A single call; none of ours takes longer than moments. */
const CALL_TIMEOUT_MS = 30_000;
const ATTEMPTS = 5;
const FIRST_DELAY_MS = 200;
const NO_CLUSTER = "http://localhost:8080";

/** One cluster, as one user. Reads the kubeconfig with the first call. */
export class Cluster {
  readonly namespace: string;
  readonly #settings: Settings;
  #config: KubeConfig | undefined;
  #api: Api | undefined;
  /** The library makes a new one, and with it a new connection, for each call. */
  #dispatcher: ReturnType<RequestContext["getDispatcher"]>;

  constructor(settings: Settings) {
    this.#settings = settings;
    this.namespace = settings.namespace;
  }

  /** The server's address, for people. */
  get label(): string {
    return this.#kubeConfig().getCurrentCluster()?.server ?? "no cluster";
  }

  /**
   * One call. `what` is for messages, like `GET pods/x`. Throws `ClusterError`, `ConnectionError`, and the clock's errors. An idempotent call (the
   * default) is repeated while the server is away or overloaded.
   */
  async call<T>(
    clock: Deadline,
    what: string,
    work: (api: Api, options: ConfigurationOptions) => Promise<T>,
    { idempotent = true }: { readonly idempotent?: boolean } = {},
  ): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      clock.throwIfOver();
      try {
        return await this.#once(clock, what, work);
      } catch (error) {
        clock.throwIfOver();
        if (isStatus(error, 401) && attempt === 1) {
          // Certificates and tokens expire; the kubeconfig may have new ones.
          await this.close();
          continue;
        }
        const delayMs = retryDelayMs(error, attempt);
        const known = isStatus(error, 429) || idempotent;
        if (!known || delayMs === null || attempt >= ATTEMPTS || clock.remainingMs() <= delayMs) throw error;
        await clock.sleep(delayMs);
      }
    }
  }

  async #once<T>(
    clock: Deadline,
    what: string,
    work: (api: Api, options: ConfigurationOptions) => Promise<T>,
  ): Promise<T> {
    const signal = AbortSignal.any([clock.signal, AbortSignal.timeout(CALL_TIMEOUT_MS)]);
    const pre = (request: RequestContext): Observable<RequestContext> => {
      request.setSignal(signal);
      this.#dispatcher ??= request.getDispatcher();
      if (this.#dispatcher !== undefined) request.setDispatcher(this.#dispatcher);
      return new Observable(Promise.resolve(request));
    };
    const post = (response: ResponseContext): Observable<ResponseContext> => new Observable(Promise.resolve(response));
    try {
      return await work(this.#apis(), { middleware: [{ pre, post }], middlewareMergeStrategy: "append" });
    } catch (error) {
      clock.throwIfOver();
      if (signal.aborted)
        throw new ConnectionError(`${what}: no answer within ${CALL_TIMEOUT_MS} ms`, "ETIMEDOUT", error);
      throw clusterError(what, error);
    }
  }

  /** The WebSocket address of a path of the API. */
  async socketTarget(path: string, query: readonly (readonly [string, string])[]): Promise<SocketTarget> {
    const config = this.#kubeConfig();
    const server = config.getCurrentCluster()?.server ?? NO_CLUSTER;
    const url = new URL(`${server.replace(/\/$/, "")}${path}`);
    url.protocol = url.protocol === "http:" ? "ws:" : "wss:";
    for (const [name, value] of query) url.searchParams.append(name, value);
    const options: ClientOptions = {};
    await config.applyToHTTPSOptions(options);
    return { url, options };
  }

  /** Closes the connections; the next call opens new ones. */
  async close(): Promise<void> {
    const dispatcher = this.#dispatcher;
    this.#dispatcher = undefined;
    this.#config = undefined;
    this.#api = undefined;
    await dispatcher?.close();
  }

  #kubeConfig(): KubeConfig {
    if (this.#config !== undefined) return this.#config;
    const config = new KubeConfig();
    try {
      if (this.#settings.kubeconfig === undefined) config.loadFromDefault();
      else config.loadFromFile(this.#settings.kubeconfig);
      if (this.#settings.context !== undefined) config.setCurrentContext(this.#settings.context);
    } catch (cause) {
      throw this.#unavailable(`the kubeconfig cannot be read: ${(cause as Error).message}`, cause);
    }
    const server = config.getCurrentCluster()?.server;
    // What the library falls back to when nothing names a cluster.
    if (server === undefined || server === NO_CLUSTER) throw this.#unavailable("no kubeconfig names a cluster");
    this.#config = config;
    return config;
  }

  #apis(): Api {
    const config = this.#kubeConfig();
    this.#api ??= {
      core: config.makeApiClient(CoreV1Api),
      networking: config.makeApiClient(NetworkingV1Api),
      authorization: config.makeApiClient(AuthorizationV1Api),
      version: config.makeApiClient(VersionApi),
    };
    return this.#api;
  }

  #unavailable(reason: string, cause?: unknown): RuntimeError {
    const message = `${reason}; name one with KUBECONFIG or the option kubeconfig`;
    return new RuntimeError({ code: "ERR_BACKEND_UNAVAILABLE", driver: DRIVER, operation: "connect", message, cause });
  }
}

/** How long to wait before a call is made again; `null` for an answer that will be the same. */
function retryDelayMs(error: unknown, attempt: number): number | null {
  const isAway = error instanceof ConnectionError || isStatus(error, 429, 500, 502, 503, 504);
  if (!isAway) return null;
  const backoffMs = FIRST_DELAY_MS * 2 ** (attempt - 1) * (0.5 + Math.random() / 2);
  return isStatus(error, 429, 503) && error.retryAfterMs !== null ? Math.max(error.retryAfterMs, backoffMs) : backoffMs;
}

/** Runs `work` under a deadline and gives its errors types. */
export async function operate<T>(
  options: OperationOptions | undefined,
  doing: Doing,
  work: (clock: Deadline) => Promise<T>,
  timeoutMs: number = DEFAULT_TIMEOUT_MS,
): Promise<T> {
  const description: OperationDescription = { driver: DRIVER, ...doing };
  try {
    return await withDeadline(options, timeoutMs, description, work);
  } catch (error) {
    throw toRuntimeError(doing, error);
  }
}
