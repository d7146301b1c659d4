// npm run bench [-- NAME...]: benchmarks on the docker backend, each beside the same calls made by hand.

import { bringUp } from "./lib/backends.ts";
import { command, source } from "./lib/command.ts";

const BENCH_TIMEOUT_MS = 60 * 60_000;

const backend = await bringUp("docker");
if (!backend.ok) {
  process.stderr.write("\nThe benchmarks need a Docker engine.\n");
  process.exit(1);
}
const run = await command(source("bench/run.ts", ...process.argv.slice(2)), {
  output: "show",
  env: backend.env,
  timeoutMs: BENCH_TIMEOUT_MS,
});
process.exitCode = run.exitCode;
