import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { root } from "./lib/command.ts";

const bootstrap = join(root, "scripts/bootstrap.mjs");

interface Run {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

function run(args: readonly string[], env: Readonly<Record<string, string>> = {}): Run {
  const { status, stdout, stderr } = spawnSync(process.execPath, [bootstrap, "--this-node", ...args], {
    cwd: tmpdir(),
    encoding: "utf8",
    env: { ...process.env, ...env },
    timeout: 20_000,
  });
  return { status, stdout, stderr };
}

test("the command gets its arguments as they are, runs in the root, and its exit code is ours", () => {
  expect(run(["sh", "-c", 'echo "$PWD/ [$1]"; exit 7', "sh", "a  $b"])).toMatchObject({
    status: 7,
    stdout: `${root} [a  $b]\n`,
  });
});

test("--caller-directory runs it where npm was called", () => {
  expect(run(["--caller-directory", "pwd"], { INIT_CWD: "/usr" })).toMatchObject({ status: 0, stdout: "/usr\n" });
});

test("a signal reaches the command, and its death by one shows in the exit code", async () => {
  const child = spawn(process.execPath, [bootstrap, "--this-node", "sh", "-c", "echo ready; exec sleep 20"], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  await new Promise((resolve) => child.stdout.once("data", resolve));
  child.kill("SIGTERM");
  expect(await new Promise((resolve) => child.once("exit", resolve))).toBe(143);
});

test("without npm it says what to install, and leaves no half of anything", () => {
  const cache = mkdtempSync(join(tmpdir(), "breakwater-cache-"));
  onTestFinished(() => rmSync(cache, { recursive: true }));
  const result = run(["true"], { XDG_CACHE_HOME: cache, PATH: "/nowhere" });
  expect(result.stderr).toContain("npm was not found. Install Node 20 or later together with npm");
  expect(result.status).toBe(1);
  expect(readdirSync(join(cache, "breakwater"))).toEqual([]);
});

test("a registry that cannot be reached is named as the reason", () => {
  const cache = mkdtempSync(join(tmpdir(), "breakwater-cache-"));
  onTestFinished(() => rmSync(cache, { recursive: true }));
  // Nothing listens on the discard port of the loopback.
  const env = { XDG_CACHE_HOME: cache, npm_config_registry: "http://127.0.0.1:9/", npm_config_fetch_retries: "0" };
  const result = run(["true"], { ...env, npm_config_cache: join(cache, "npm") });
  expect(result.stderr).toMatch(/npm install .* failed [\s\S]*ECONNREFUSED[\s\S]*registry must be reachable/);
  expect(result.status).toBe(1);
});
