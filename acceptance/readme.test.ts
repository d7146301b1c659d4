import { execFile } from "node:child_process";
import { mkdir, readFile, symlink } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, expect, test } from "vitest";
import { cli } from "./support/cli.ts";
import { Workbench } from "./support/trials.ts";

/* What the README shows is what the repository has, and it does what the README says. */

const root = join(import.meta.dirname, "..");
const workbench = new Workbench();
afterAll(() => workbench[Symbol.asyncDispose]());

const readme: string = await readFile(join(root, "README.md"), "utf8");

test("the library example is examples/library/grade.ts, and grades", async () => {
  const block = /```ts\n(.*?)```/s.exec(readme)?.[1];
  expect(block).toBe(await readFile(join(root, "examples/library/grade.ts"), "utf8"));

  // It names its task from the root and leaves its trials in the working directory.
  const cwd = await workbench.folder("library");
  await mkdir(cwd);
  await symlink(join(root, "examples"), join(cwd, "examples"));
  const args = ["--conditions=@breakwater/source", "examples/library/grade.ts"];
  const { stdout } = await promisify(execFile)(process.execPath, args, { cwd, timeout: 400_000 });
  expect(stdout.trimEnd().split("\n").at(-1)).toMatch(/^reward 0 ?$/);
});

test("the commands exist, with the flags that are shown and an example each", async () => {
  const shown = [...readme.matchAll(/^npm run -s breakwater -- (\w+)(.*?)(?:\s+#.*)?$/gm)];
  expect(new Set(shown.map(([, name]) => name))).toEqual(new Set(["run", "view", "check", "doctor", "sweep"]));
  for (const [, name = "", flags = ""] of shown) {
    const { exitCode, stdout } = await cli([name, "--help"], { cwd: root });
    expect([exitCode, stdout]).toEqual([0, expect.stringMatching(/Examples?:\n {2}breakwater /)]);
    for (const [flag] of flags.matchAll(/(?<= )--?[a-z-]+/g)) expect(stdout).toContain(flag);
  }
});
