// npm run test:mutants [-- arguments for vitest]: for each case of the contract a driver with that promise broken. Does the case notice?

import { bringUp } from "./lib/backends.ts";
import { runTests } from "./lib/vitest.ts";

const TIMEOUT_MS = 60 * 60_000;

const backend = await bringUp("docker");
if (backend.ok) {
  const run = await runTests({
    project: "long",
    reporter: "verbose",
    files: ["packages/runtime-docker/test/mutants"],
    args: process.argv.slice(2),
    env: { ...backend.env, CONFORMANCE: "docker" },
    timeoutMs: TIMEOUT_MS,
  });
  process.exitCode = run.exitCode;
} else {
  process.stderr.write(`not run: ${backend.reason}\n`);
  process.exitCode = 1;
}
