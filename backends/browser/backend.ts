import { ensurePackages } from "../src/packages.ts";
import { silentSteps, type Steps } from "../src/steps.ts";

/**
 * The path of a Chromium: that of `BREAKWATER_CHROMIUM`, else Debian's, which is installed where it is missing.
 *
 * Errors: as `ensurePackages`.
 */
export async function chromium(steps: Steps = silentSteps): Promise<string> {
  const named = process.env["BREAKWATER_CHROMIUM"] ?? "";
  if (named !== "") return named;
  await ensurePackages(["chromium"], steps);
  return "/usr/bin/chromium";
}
