import { spawn } from "node:child_process";
import { readFile } from "node:fs/promises";
import type { Readable } from "node:stream";

/** A login in the words of the engine's `X-Registry-Auth` header. */
export type RegistryLogin =
  | { readonly username: string; readonly password: string; readonly serveraddress: string }
  | { readonly identitytoken: string; readonly serveraddress: string };

const DOCKER_HUB = "https://index.docker.io/v1/";
const CREDENTIAL_HELPER_TIMEOUT_MS = 30_000;
const MAX_CREDENTIAL_BYTES = 64 * 1024;

/** The name of a registry in logins: the host of a reference, Docker Hub when it has none. */
export function registryOf(reference: string): string {
  const [first = "", ...rest] = reference.split("/");
  const isHost = rest.length > 0 && (first.includes(".") || first.includes(":") || first === "localhost");
  return isHost && first !== "docker.io" && first !== "index.docker.io" ? first : DOCKER_HUB;
}

interface DockerConfig {
  readonly auths?: Readonly<Record<string, { readonly auth?: string; readonly identitytoken?: string }>>;
  readonly credsStore?: string;
  readonly credHelpers?: Readonly<Record<string, string>>;
}

/** The login for a reference's registry from a Docker configuration file, or `null` if there is none: then the pull goes without. */
export async function registryLogin(configPath: string, reference: string): Promise<RegistryLogin | null> {
  let config: DockerConfig;
  try {
    config = JSON.parse(await readFile(configPath, "utf8")) as DockerConfig;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw new Error(`cannot read the logins of registries in ${configPath}`, { cause: error });
  }
  const registry = registryOf(reference);
  const helper = config.credHelpers?.[registry] ?? config.credsStore;
  if (helper) {
    const stored = await askCredentialHelper(helper, registry);
    if (stored !== null) return stored;
  }
  const entry = Object.entries(config.auths ?? {}).find(([name]) => hostOf(name) === hostOf(registry))?.[1];
  if (entry?.identitytoken) return { identitytoken: entry.identitytoken, serveraddress: registry };
  if (!entry?.auth) return null;
  const [username = "", ...password] = Buffer.from(entry.auth, "base64").toString("utf8").split(":");
  return { username, password: password.join(":"), serveraddress: registry };
}

/** As the engine wants it: base64url of JSON. */
export function registryAuthHeader(login: RegistryLogin): string {
  return Buffer.from(JSON.stringify(login)).toString("base64").replaceAll("+", "-").replaceAll("/", "_");
}

function hostOf(name: string): string {
  return name.replace(/^https?:\/\//, "").replace(/\/.*$/, "");
}

/** Docker's protocol for credential helpers: the registry on stdin, JSON on stdout; a non-zero exit means "no such login". */
async function askCredentialHelper(helper: string, registry: string): Promise<RegistryLogin | null> {
  const program = spawn(`docker-credential-${helper}`, ["get"], {
    stdio: ["pipe", "pipe", "ignore"],
    timeout: CREDENTIAL_HELPER_TIMEOUT_MS,
  });
  const exit = new Promise<number | null>((resolve, reject) => {
    program.once("error", reject);
    program.once("close", resolve);
  });
  program.stdin.on("error", () => undefined);
  program.stdin.end(registry);
  try {
    const [code, output] = await Promise.all([exit, bounded(program.stdout)]);
    if (code !== 0) return null;
    const answer = JSON.parse(output) as { Username?: string; Secret?: string };
    if (answer.Username === undefined || answer.Secret === undefined) return null;
    if (answer.Username === "<token>") return { identitytoken: answer.Secret, serveraddress: registry };
    return { username: answer.Username, password: answer.Secret, serveraddress: registry };
  } catch (error) {
    throw new Error(`the credential helper docker-credential-${helper} failed`, { cause: error });
  }
}

async function bounded(stream: Readable): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > MAX_CREDENTIAL_BYTES) throw new Error(`it wrote more than ${MAX_CREDENTIAL_BYTES} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}
