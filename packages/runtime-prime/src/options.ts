import { readFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { RuntimeError } from "@breakwater/runtime-api";
import { z } from "zod";
import { DRIVER } from "./errors.ts";

/** What `primeDriver` takes. Every key has a default; nothing is read or contacted before the first operation. */
export interface PrimeDriverOptions {
  /** Default is `PRIME_API_KEY`, else `api_key` of the configuration file. Needs the scope `sandbox`. */
  readonly apiKey?: string | undefined;
  /** The team that owns the sandboxes. Default is `PRIME_TEAM_ID` (empty = no team), else `team_id` of the configuration file. */
  readonly teamId?: string | undefined;
  /** Default is `PRIME_API_BASE_URL`, else `PRIME_BASE_URL`, else `base_url` of the configuration file, else the service's own address. */
  readonly baseUrl?: string | undefined;
  /** The configuration file of Prime's own command line. Default is `~/.prime/config.json`. */
  readonly configPath?: string | undefined;
  /**
   * `vm`: a micro virtual machine, with egress policies; `container`: what the service had first, with the network policy `public` only. Default is
   * `vm`, as for the service.
   */
  readonly kind?: SandboxKind | undefined;
  /** For instance `us`. Default is the service's choice. */
  readonly region?: string | undefined;
  /** Cores of a box whose spec has none. Default is 1. */
  readonly defaultCpus?: number | undefined;
  /** Memory of a box whose spec has none. Default is 2048. */
  readonly defaultMemoryMb?: number | undefined;
  /** Disk of a box whose spec has none. Default is 10240. */
  readonly defaultStorageMb?: number | undefined;
}

export type SandboxKind = "vm" | "container";

/** The variables of the environment that count; a parameter, so that the rules can be tested. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** Where the service is and who asks. The key is not a property: what prints an account does not print it. */
export class Account {
  readonly baseUrl: URL;
  readonly teamId: string | null;
  readonly #apiKey: string;

  constructor(baseUrl: URL, teamId: string | null, apiKey: string) {
    this.baseUrl = baseUrl;
    this.teamId = teamId;
    this.#apiKey = apiKey;
  }

  get authorization(): string {
    return `Bearer ${this.#apiKey}`;
  }
}

const SERVICE = "https://api.primeintellect.ai";

const configSchema = z.looseObject({
  api_key: z.string().nullish().catch(null),
  team_id: z.string().nullish().catch(null),
  base_url: z.string().nullish().catch(null),
});

/** Throws `ERR_BACKEND_AUTH` if there is no key, `TypeError` for an address that is none. */
export async function findAccount(
  options: PrimeDriverOptions,
  environment: Environment = process.env,
): Promise<Account> {
  const path = options.configPath ?? join(homedir(), ".prime", "config.json");
  const config = await readConfig(path);
  const apiKey = options.apiKey || environment["PRIME_API_KEY"] || config.api_key;
  if (!apiKey) {
    throw new RuntimeError({
      code: "ERR_BACKEND_AUTH",
      driver: DRIVER,
      operation: "connect",
      message: `there is no API key; give the option apiKey, set PRIME_API_KEY, or log in with Prime's command line, which writes ${path}`,
    });
  }
  const teamId = options.teamId ?? environment["PRIME_TEAM_ID"] ?? config.team_id ?? "";
  const address =
    options.baseUrl || environment["PRIME_API_BASE_URL"] || environment["PRIME_BASE_URL"] || config.base_url || SERVICE;
  // People write it with and without the path.
  const bare = address.replace(/\/+$/, "").replace(/\/api\/v1$/, "");
  if (!URL.canParse(bare) || !/^https?:$/.test(new URL(bare).protocol)) {
    throw new TypeError(`the address of Prime's API: expected https://host, got ${JSON.stringify(address)}`);
  }
  return new Account(new URL(bare), teamId === "" ? null : teamId, apiKey);
}

/** A file that is not there or not JSON is an empty one, as for Prime's own tools. */
async function readConfig(path: string): Promise<z.output<typeof configSchema>> {
  try {
    return configSchema.parse(JSON.parse(await readFile(path, "utf8")));
  } catch {
    return {};
  }
}
