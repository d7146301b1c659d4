import { readFile } from "node:fs/promises";
import { packTar } from "@breakwater/tar";
import { HELPER_DIRECTORY, HELPER_PATH } from "./translate.ts";

/** The helper for an architecture as a plain tar archive, to be unpacked at `/` of a created container. */
export async function packHelper(architecture: string): Promise<Buffer> {
  const content = await readFile(process.env["DEV_HELPER"] ?? architecture);
  const chunks: Uint8Array[] = [];
  const members = [
    { type: "directory", path: HELPER_DIRECTORY.slice(1), mode: 0o755 },
    { type: "file", path: HELPER_PATH.slice(1), mode: 0o755, content },
  ] as const;
  for await (const chunk of packTar(members)) chunks.push(chunk);
  return Buffer.concat(chunks);
}
