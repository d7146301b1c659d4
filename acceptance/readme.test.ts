import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, it } from "vitest";

const root = join(import.meta.dirname, "..");

it("the README's example is the file in examples/library, and runs", { timeout: 120_000 }, async () => {
  const readme = await readFile(join(root, "README.md"), "utf8");
  const code = await readFile(join(root, "examples/library/grade.ts"), "utf8");
  expect(readme).toContain(`\`\`\`ts\n${code}\`\`\``);
  // One that a reader can take in at a glance.
  expect(code.trimEnd().split("\n").length).toBeLessThanOrEqual(16);

  const { stdout } = await promisify(execFile)(
    process.execPath,
    ["--conditions=@breakwater/source", "examples/library/grade.ts"],
    { cwd: root, timeout: 110_000 },
  );
  expect(stdout).toContain("Fix it.");
  expect(stdout).toMatch(/^reward 0 $/m);
});
