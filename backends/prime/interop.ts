// npm run interop: Prime's own Python client, as it is published, against the emulator. Needs python3 with venv, and PyPI the first time.

import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { runCommand } from "../src/command.ts";
import { BackendError } from "../src/errors.ts";
import { backendFolders } from "../src/folders.ts";
import { printedSteps } from "../src/steps.ts";
import { up } from "./backend.ts";

const INSTALL_TIMEOUT_MS = 5 * 60_000;
const RUN_TIMEOUT_MS = 10 * 60_000;

/** The client that task runners pin, with both kinds of sandboxes, and a newer one, which has VMs only. */
const RUNS = [
  { version: "0.2.39", args: ["container"] },
  { version: "0.2.39", args: ["vm"] },
  { version: "0.5.1", args: ["vm", "vm-only"] },
] as const;

const environment = await up(printedSteps());
// What a client keeps there is not ours, and its user's own key is not for the emulator.
const home = await mkdtemp(join(tmpdir(), "prime-interop-"));
let failed = 0;
try {
  for (const { version, args } of RUNS) {
    const name = `prime-sandboxes ${version}, ${args[0]}`;
    try {
      const python = await pythonWith(version);
      const script = fileURLToPath(new URL("interop.py", import.meta.url));
      const env = { ...environment, HOME: home, PRIME_TEAM_ID: "" };
      const { stdout } = await runCommand([python, script, ...args], { timeoutMs: RUN_TIMEOUT_MS, env });
      process.stdout.write(`${name}\n${stdout.replaceAll(/^/gm, "  ").trimEnd()}\n`);
    } catch (error) {
      if (!(error instanceof BackendError)) throw error;
      failed += 1;
      process.stdout.write(`${name}: ${error.message}\n`);
    }
  }
} finally {
  await rm(home, { recursive: true, force: true });
}
process.stdout.write(`${RUNS.length - failed} passed, ${failed} failed\n`);
process.exitCode = failed === 0 ? 0 : 1;

/** A Python with the client of this version, made once. */
async function pythonWith(version: string): Promise<string> {
  const folder = join(backendFolders().cache, "prime-sandboxes", version);
  const python = join(folder, "bin/python");
  const mark = join(folder, "bin/is-complete");
  if (existsSync(mark)) return python;
  await runCommand(["python3", "-m", "venv", folder], { timeoutMs: INSTALL_TIMEOUT_MS });
  const install = [python, "-m", "pip", "install", "--quiet", `prime-sandboxes==${version}`] as const;
  await runCommand(install, { timeoutMs: INSTALL_TIMEOUT_MS });
  await runCommand(["touch", mark], { timeoutMs: INSTALL_TIMEOUT_MS });
  return python;
}
