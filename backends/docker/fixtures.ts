import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";

import { engineApi, type EngineApi } from "../src/engine-api.ts";
import { BackendError } from "../src/errors.ts";
import { withLock } from "../src/lock.ts";
import { contentKey, debian12 } from "./base-images.ts";
import { buildContext, type ContextFile } from "./build-context.ts";

/** The folders of `fixtures/`; what each is for stands in its Dockerfile. */
export const fixtureNames = [
  "entrypoint",
  "entrypoint-recording",
  "non-root",
  "path",
  "no-shell",
  "no-tar",
  "stale",
  "symlinked-app",
] as const;

export type FixtureName = (typeof fixtureNames)[number];

/**
 * Builds the fixture images that this engine does not have yet, on the base images (see `up`), and returns their names.
 * The tag is a hash of everything that goes into the image, so that an image that is there is the right one.
 *
 * Errors: `MISSING_TOOL` (`no-shell` without box-helper's program) and those of the engine.
 *
 * @param host as in `DOCKER_HOST`
 * @param names default: all of them
 */
export async function ensureFixtureImages<const Name extends FixtureName = FixtureName>(
  host: string,
  names: readonly Name[] = fixtureNames as readonly FixtureName[] as readonly Name[],
): Promise<Readonly<Record<Name, string>>> {
  const engine = engineApi(host);
  const images: [Name, string][] = [];
  for (const name of names) images.push([name, await ensureFixtureImage(engine, name)]);
  return Object.fromEntries(images) as Record<Name, string>;
}

async function ensureFixtureImage(engine: EngineApi, fixture: FixtureName): Promise<string> {
  const files = await contextFiles(fixture);
  const context = buildContext(files);
  const hash = createHash("sha256").update(context).update(contentKey(debian12)).digest("hex").slice(0, 16);
  const image = `breakwater-test/${fixture}:${hash}`;
  await withLock(`${engine.host} ${image}`, 300_000, async () => {
    if ((await engine.json("GET", `/images/${image}/json`)) !== undefined) return;
    const query = new URLSearchParams({ t: image, rm: "1", forcerm: "1", networkmode: "none" });
    await engine.progress(`/build?${query.toString()}`, Readable.from([context]), { timeoutMs: 300_000 });
  });
  return image;
}

async function contextFiles(fixture: FixtureName): Promise<readonly ContextFile[]> {
  const folder = join(import.meta.dirname, "fixtures", fixture);
  const names = (await readdir(folder)).toSorted();
  const files = await Promise.all(names.map(async (name) => ({ name, content: await readFile(join(folder, name)) })));
  // The one static program that every clone has: the committed helper.
  if (fixture !== "no-shell") return files;
  return [...files, { name: "helper", content: await readFile(await helperProgram()), mode: 0o755 }];
}

async function helperProgram(): Promise<string> {
  const folder = join(import.meta.dirname, "../../packages/box-helper/bin");
  const architecture = process.arch === "x64" ? /x64|amd64|x86_64/ : /arm64|aarch64/;
  const name = (await readdir(folder).catch(() => [])).find((each) => architecture.test(each));
  if (name === undefined) {
    throw new BackendError("MISSING_TOOL", `no program for ${process.arch} in ${folder}`, {
      advice: "run `sh build.sh` in packages/box-helper",
    });
  }
  return join(folder, name);
}
