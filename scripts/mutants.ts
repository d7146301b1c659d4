// npm run test:mutants [-- arguments for vitest]: for each case of the contract a driver with that promise broken. Does the case notice?

import { bringUp } from "./lib/backends.ts";
import { runTests } from "./lib/vitest.ts";

const TIMEOUT_MS = 60 * 60_000;

/** Whatever needs servers that boxes may try to reach runs on the sealed engine. */
const runs = [{ backend: "docker" }, { backend: "network", testName: String.raw`\[network\.` }] as const;

for (const { backend: name, ...selection } of runs) {
  const backend = await bringUp(name);
  if (!backend.ok) {
    process.stderr.write(`not run: ${name}: ${backend.reason}\n`);
    process.exitCode = 1;
    continue;
  }
  const run = await runTests({
    project: "long",
    reporter: "verbose",
    files: ["packages/runtime-docker/test/mutants"],
    args: process.argv.slice(2),
    env: { ...backend.env, CONFORMANCE: "docker" },
    timeoutMs: TIMEOUT_MS,
    ...selection,
  });
  if (run.exitCode !== 0) process.exitCode = run.exitCode;
}
