import { existsSync } from "node:fs";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { command, root } from "./command.ts";
import { cannotCheck, type CheckResult } from "./check-result.ts";

const PACKAGE = "packages/box-helper";
const BUILD_TIMEOUT_MS = 10 * 60_000;

/** The committed programs are what their source compiles to, byte for byte, with the very Go that go.mod names. */
export async function compareBoxHelper(): Promise<CheckResult> {
  const wanted = goVersion(await readFile(join(root, PACKAGE, "go.mod"), "utf8"));
  const env = { GOTOOLCHAIN: "local", PATH: [process.env["PATH"] ?? "", "/usr/local/go/bin"].join(delimiter) };
  const found = await installedGo(env);
  if (found !== wanted)
    return cannotCheck(`needs Go ${wanted}, ${found === undefined ? "no Go" : `Go ${found}`} is installed`);

  const folder = await mkdtemp(join(tmpdir(), "breakwater-box-helper-"));
  try {
    const build = await command(["sh", "build.sh", folder], {
      cwd: PACKAGE,
      env,
      output: "capture",
      timeoutMs: BUILD_TIMEOUT_MS,
    });
    if (build.exitCode !== 0) return { outcome: "failed", output: `${build.stdout}\n${build.stderr}` };
    const built = (await readdir(folder)).toSorted();
    if (built.length === 0) return { outcome: "failed", output: `${PACKAGE}/build.sh built nothing` };
    const different: string[] = [];
    for (const name of built) {
      const committed = join(root, PACKAGE, "bin", name);
      const isEqual = existsSync(committed) && (await readFile(committed)).equals(await readFile(join(folder, name)));
      if (!isEqual) different.push(`${PACKAGE}/bin/${name}`);
    }
    if (different.length === 0) return { outcome: "passed" };
    return {
      outcome: "failed",
      output: `not what the source compiles to: ${different.join(", ")}\nRun \`sh build.sh\` in ${PACKAGE} and commit the result.`,
    };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

export function goVersion(goMod: string): string {
  const version = /^toolchain go(\S+)/m.exec(goMod)?.[1] ?? /^go (\S+)/m.exec(goMod)?.[1];
  if (version === undefined) throw new Error(`${PACKAGE}/go.mod names no version of Go`);
  return version;
}

async function installedGo(env: Readonly<Record<string, string>>): Promise<string | undefined> {
  try {
    const version = await command(["go", "env", "GOVERSION"], { env, output: "capture", timeoutMs: 60_000 });
    return version.exitCode === 0 ? version.stdout.trim().replace(/^go/, "") : undefined;
  } catch {
    return undefined;
  }
}
