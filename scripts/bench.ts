// npm run bench [-- NAME...]: benchmarks, each beside what people would use instead, each on the backend that it needs.

import { bringUp } from "./lib/backends.ts";
import { command, source } from "./lib/command.ts";

const BENCH_TIMEOUT_MS = 60 * 60_000;
/** Default is docker. */
const backends: Readonly<Record<string, string>> = { network: "network" };

const names = process.argv.length > 2 ? process.argv.slice(2) : ["exec", "network", "prime"];
for (const name of names) {
  const needed = backends[name] ?? "docker";
  const backend = await bringUp(needed);
  if (!backend.ok) {
    process.stderr.write(`\nnot run: ${name}: the backend ${needed} cannot be had: ${backend.reason}\n`);
    process.exitCode = 1;
    continue;
  }
  const run = await command(source("bench/run.ts", name), {
    output: "show",
    env: backend.env,
    timeoutMs: BENCH_TIMEOUT_MS,
  });
  if (run.exitCode !== 0) process.exitCode = run.exitCode;
}
