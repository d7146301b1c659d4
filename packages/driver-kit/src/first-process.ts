import { BOX_HELPER_PATH } from "@breakwater/box-helper";
import type { RuntimeSpec } from "@breakwater/runtime-api";
import type { BoxImage } from "./backend-box.ts";

/** The exit code of our hold when the box's lifetime is over. */
export const HOLD_LIFETIME_EXIT_CODE = 73;
/** The exit code of a hold that could not start the program that it was to end with. */
export const HOLD_START_EXIT_CODE = 125;

/** What a program gets that runs in an image without PATH. */
const DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/** The first process of every box: our hold, as root, with the image's ENTRYPOINT as its child. */
export function holdArgv(spec: RuntimeSpec, image: BoxImage): readonly string[] {
  const hold = [BOX_HELPER_PATH, "hold", "--lifetime-ms", String(spec.lifetimeMs)];
  if (!spec.entrypoint || image.entrypoint.length === 0) return hold;
  const user = image.user === null ? [] : ["--user", image.user];
  return [...hold, ...user, "--cwd", spec.workdir ?? image.workdir ?? "/", "--", ...image.entrypoint];
}

/** The part of an image's configuration that counts, as OCI images and Docker's descriptions of images have it. */
export interface ImageConfig {
  readonly Entrypoint?: readonly string[] | string | null;
  readonly WorkingDir?: string;
  readonly User?: string;
  /** `NAME=value`. */
  readonly Env?: readonly string[] | null;
}

export function boxImage(id: string, config?: ImageConfig | null): BoxImage {
  const entrypoint = config?.Entrypoint ?? [];
  const env = (config?.Env ?? []).map(
    (entry) => [entry.slice(0, entry.indexOf("=")), entry.slice(entry.indexOf("=") + 1)] as const,
  );
  return {
    id,
    entrypoint: typeof entrypoint === "string" ? [entrypoint] : [...entrypoint],
    workdir: config?.WorkingDir || null,
    user: config?.User || null,
    env: Object.fromEntries(env.filter(([name]) => name !== "")),
  };
}

/** The environment of every program: the image's, then what the network policy adds, then the spec's, then the call's. */
export function programEnvironment(
  spec: RuntimeSpec,
  image: BoxImage,
  { ofPolicy = {}, ofCall = {} }: ProgramEnvironment = {},
): Readonly<Record<string, string>> {
  return { PATH: DEFAULT_PATH, ...image.env, ...ofPolicy, ...spec.env, ...ofCall };
}

interface ProgramEnvironment {
  readonly ofPolicy?: Readonly<Record<string, string>> | undefined;
  readonly ofCall?: Readonly<Record<string, string>> | undefined;
}
