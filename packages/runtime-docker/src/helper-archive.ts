import { readFile } from "node:fs/promises";
import { dirname } from "node:path";
import { BOX_HELPER_PATH, type BoxArchitecture, boxHelperPath } from "@breakwater/box-helper";
import { RuntimeError } from "@breakwater/runtime-api";
import { packTar } from "@breakwater/tar";
import { DRIVER } from "./errors.ts";

/** What engines call the architectures that the helper is built for. */
const ARCHITECTURES: Readonly<Record<string, BoxArchitecture>> = {
  amd64: "amd64",
  x86_64: "amd64",
  arm64: "arm64",
  aarch64: "arm64",
};

/** Throws `ERR_IMAGE_UNFIT` for an architecture without a helper. */
export function boxArchitecture(ofEngine: string): BoxArchitecture {
  const known = ARCHITECTURES[ofEngine];
  if (known !== undefined) return known;
  throw new RuntimeError({
    code: "ERR_IMAGE_UNFIT",
    driver: DRIVER,
    operation: "start",
    message: `the engine's architecture is ${JSON.stringify(ofEngine)}, and our helper is built for amd64 and arm64 only; use another engine`,
  });
}

/** The helper for an engine's architecture as a plain tar archive, to be unpacked at `/` of a created container. */
export async function packHelper(architecture: string): Promise<Buffer> {
  const content = await readFile(boxHelperPath(boxArchitecture(architecture)));
  const chunks: Uint8Array[] = [];
  const members = [
    { type: "directory", path: dirname(BOX_HELPER_PATH).slice(1), mode: 0o755 },
    { type: "file", path: BOX_HELPER_PATH.slice(1), mode: 0o755, content },
  ] as const;
  for await (const chunk of packTar(members)) chunks.push(chunk);
  return Buffer.concat(chunks);
}
