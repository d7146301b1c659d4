import { BackendError } from "../src/errors.ts";
import { silentSteps, type Steps } from "../src/steps.ts";

/** What tests on the service itself need. The key stays where it is, in the environment of whoever runs them. */
export interface PrimeServiceEnvironment {
  readonly PRIME_API_BASE_URL: string;
  /** Debian 12 with Python 3.11. */
  readonly BREAKWATER_IMAGE: string;
  /** Debian 13 with Python 3.13. */
  readonly BREAKWATER_OTHER_IMAGE: string;
}

const SERVICE = "https://api.primeintellect.ai";
const TIMEOUT_MS = 30_000;

/**
 * The service itself, by `PRIME_API_KEY`; nothing is started, and boxes cost money. `PRIME_API_BASE_URL`, `BREAKWATER_IMAGE` and
 * `BREAKWATER_OTHER_IMAGE` take the place of its address and of public images.
 *
 * Errors: `NOT_RUNNING` without a key, `ENGINE_UNREACHABLE`, `ENGINE_REFUSED`.
 */
export async function up(steps: Steps = silentSteps): Promise<PrimeServiceEnvironment> {
  const found = await env();
  const { host } = new URL(found.PRIME_API_BASE_URL);
  await ask(found.PRIME_API_BASE_URL);
  steps.done(`the service at ${host} lets us in; what tests start there is paid for`);
  return found;
}

/** Nothing was started. What tests may have left is found by `breakwater sweep --runtime prime`. */
export async function down(steps: Steps = silentSteps): Promise<void> {
  steps.done("nothing to end");
}

export async function status(): Promise<readonly string[]> {
  if (!process.env["PRIME_API_KEY"]) return [];
  const { PRIME_API_BASE_URL } = await env();
  await ask(PRIME_API_BASE_URL);
  return [`the service at ${new URL(PRIME_API_BASE_URL).host}`];
}

export async function env(): Promise<PrimeServiceEnvironment> {
  const { PRIME_API_BASE_URL, PRIME_BASE_URL, BREAKWATER_IMAGE, BREAKWATER_OTHER_IMAGE } = process.env;
  return {
    PRIME_API_BASE_URL: PRIME_API_BASE_URL || PRIME_BASE_URL || SERVICE,
    BREAKWATER_IMAGE: BREAKWATER_IMAGE || "python:3.11-bookworm",
    BREAKWATER_OTHER_IMAGE: BREAKWATER_OTHER_IMAGE || "python:3.13-trixie",
  };
}

async function ask(baseUrl: string): Promise<void> {
  const key = process.env["PRIME_API_KEY"];
  if (!key) throw new BackendError("NOT_RUNNING", "PRIME_API_KEY is not set");
  const url = `${baseUrl.replace(/\/+$/, "").replace(/\/api\/v1$/, "")}/api/v1/sandbox?per_page=1`;
  const answer = await fetch(url, {
    headers: { authorization: `Bearer ${key}` },
    signal: AbortSignal.timeout(TIMEOUT_MS),
  }).catch((cause: unknown) => {
    throw new BackendError("ENGINE_UNREACHABLE", `${new URL(url).host} does not answer: ${String(cause)}`);
  });
  await answer.body?.cancel();
  if (answer.ok) return;
  throw new BackendError("ENGINE_REFUSED", `${new URL(url).host} answers ${answer.status}`, {
    advice: answer.status === 401 ? "see whether PRIME_API_KEY is right, and has the scope sandbox" : "try again later",
  });
}
