import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

export type BoxArchitecture = "amd64" | "arm64";

/** Where every driver puts the helper in a box. */
export const BOX_HELPER_PATH = "/.breakwater/helper";

/** The built program for boxes of this architecture, on this host. */
export function boxHelperPath(architecture: BoxArchitecture): string {
  return fileURLToPath(new URL(`../bin/helper-linux-${architecture}`, import.meta.url));
}

/** Twelve hexadecimal digits that change when the program does. */
export function boxHelperVersion(architecture: BoxArchitecture): string {
  return createHash("sha256")
    .update(readFileSync(boxHelperPath(architecture)))
    .digest("hex")
    .slice(0, 12);
}
