// node scripts/pack.ts FOLDER [NAME...]    builds packages and packs them as they would be published, by their short names; all of them by default

import { mkdir } from "node:fs/promises";
import { resolve } from "node:path";
import { command } from "./lib/command.ts";
import { workspacePackages } from "./lib/workspace.ts";

const BUILD_TIMEOUT_MS = 20 * 60_000;
const PACK_TIMEOUT_MS = 5 * 60_000;

const [folder, ...names] = process.argv.slice(2);
if (folder === undefined) {
  process.stderr.write("usage: node scripts/pack.ts FOLDER [NAME...]\n");
  process.exit(2);
}
const published = workspacePackages().filter(({ isPublished }) => isPublished);
const unknown = names.find((name) => !published.some(({ shortName }) => shortName === name));
if (unknown !== undefined) throw new Error(`${unknown} is not a package that is published`);
const destination = resolve(folder);
await mkdir(destination, { recursive: true });
const wanted = published.filter(({ shortName }) => names.length === 0 || names.includes(shortName));
const filters = wanted.flatMap(({ manifest }) => ["--filter", manifest.name]);
await pnpm([...filters, "--workspace-concurrency=2", "run", "build"], BUILD_TIMEOUT_MS);
await pnpm([...filters, "pack", "--pack-destination", destination], PACK_TIMEOUT_MS);

async function pnpm(args: readonly string[], timeoutMs: number): Promise<void> {
  const { exitCode, stdout, stderr } = await command(["pnpm", ...args], { output: "capture", timeoutMs });
  if (exitCode !== 0) throw new Error(`pnpm ${args.join(" ")} ended with ${exitCode}\n${stdout}\n${stderr}`);
}
