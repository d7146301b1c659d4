// npm run interop [-- prime|harbor]: the emulator of Prime Sandboxes with Prime's own client, and what we write with Harbor's own code. Both come from PyPI the first time.

import { spawnSync } from "node:child_process";
import { join } from "node:path";

const CHECKS = { prime: "backends/prime/interop.ts", harbor: "acceptance/harbor/interop.ts" };

const [asked, ...rest] = process.argv.slice(2);
if (rest.length > 0 || (asked !== undefined && !Object.hasOwn(CHECKS, asked))) {
  process.stderr.write(`usage: npm run interop [-- ${Object.keys(CHECKS).join("|")}]\n`);
  process.exit(2);
}
let failed = false;
for (const [name, file] of Object.entries(CHECKS)) {
  if (asked !== undefined && asked !== name) continue;
  const script = join(import.meta.dirname, "..", file);
  const { status } = spawnSync(process.execPath, ["--conditions=@breakwater/source", script], { stdio: "inherit" });
  failed ||= status !== 0;
}
process.exitCode = failed ? 1 : 0;
