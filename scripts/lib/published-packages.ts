import { command } from "./command.ts";
import type { CheckResult } from "./check-result.ts";
import { workspacePackages } from "./workspace.ts";

const BUILD_TIMEOUT_MS = 10 * 60_000;
const PUBLINT_TIMEOUT_MS = 60_000;

export async function buildPackages(): Promise<CheckResult> {
  const build = await command(["pnpm", "--recursive", "--workspace-concurrency=2", "run", "build"], {
    output: "capture",
    timeoutMs: BUILD_TIMEOUT_MS,
  });
  return build.exitCode === 0
    ? { outcome: "passed" }
    : { outcome: "failed", output: `${build.stdout}\n${build.stderr}` };
}

/** publint on what would be published; it looks at built files. */
export async function lintPublishedPackages(built: Promise<CheckResult> | undefined): Promise<CheckResult> {
  if ((await built)?.outcome !== "passed") return { outcome: "not run", reason: "the build failed" };
  const complaints: string[] = [];
  for (const { folder } of workspacePackages().filter((each) => each.isPublished)) {
    const lint = await command(["publint", "run", folder, "--strict", "--pack", "pnpm"], {
      output: "capture",
      timeoutMs: PUBLINT_TIMEOUT_MS,
    });
    if (lint.exitCode !== 0) complaints.push(`${lint.stdout}\n${lint.stderr}`);
  }
  return complaints.length === 0 ? { outcome: "passed" } : { outcome: "failed", output: complaints.join("\n") };
}
