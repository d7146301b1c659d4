import { afterAll, expect, test } from "vitest";
import { nopAgent } from "@breakwater/harbor-taskset";
import { outcome, taskFile, Workbench } from "./support/trials.ts";

/* Rows of the acceptance table of Harbor's format that no other file here has. */

const workbench = new Workbench();
afterAll(() => workbench[Symbol.asyncDispose]());

test("A22: what the memory limit killed in the verifier's box is said, and the reward that was left counts", async () => {
  const verifier = ["[verifier.environment]", 'network_mode = "no-network"', "memory_mb = 64"];
  const files = (script: string): Record<string, string> => ({
    "task.toml": taskFile({ mode: "separate", verifier }),
    "instruction.md": "Nothing to do.\n",
    "tests/test.sh": `#!/bin/sh\n${script}\necho 1 >/logs/verifier/reward.txt\n`,
  });
  const hungry = "python3 -c 'x = bytearray(512 * 1024 * 1024)'";
  const trial = await workbench.run(files(hungry), { agent: nopAgent() });
  expect(outcome(trial)).toBe(1);
  expect(trial.result.verifier?.oomKills).toBeGreaterThan(0);
  const said = trial.result.warnings.filter(({ file }) => file === "the verifier's box");
  expect(said.map(({ message }) => message)).toEqual([expect.stringContaining("memory limit killed")]);

  const modest = await workbench.run(files("true"), { agent: nopAgent() });
  expect([outcome(modest), modest.result.verifier?.oomKills]).toEqual([1, 0]);
  expect(modest.result.warnings.filter(({ file }) => file === "the verifier's box")).toEqual([]);
});
