import { command, type CommandResult } from "./command.ts";
import type { CheckResult } from "./check-result.ts";

/** Every change of a published package comes with a changeset: compared with `main` of the remote. */
export async function checkChangesets(): Promise<CheckResult> {
  const base = "origin/main";
  try {
    const found = await run("git", "rev-parse", "--verify", "--quiet", `${base}^{commit}`);
    if (found.exitCode !== 0) return { outcome: "not run", reason: `there is no ${base} to compare with` };
  } catch {
    return { outcome: "not run", reason: "git is not installed" };
  }
  const status = await run("changeset", "status", `--since=${base}`);
  return status.exitCode === 0
    ? { outcome: "passed" }
    : { outcome: "failed", output: `${status.stdout}\n${status.stderr}\nA new one: npx changeset` };
}

async function run(...argv: [string, ...string[]]): Promise<CommandResult> {
  return await command(argv, { output: "capture", timeoutMs: 60_000 });
}
