import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";

import { engineApi, type EngineApi } from "../src/engine-api.ts";
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

/** Image names on the engine, by fixture. */
export type FixtureImages = Readonly<Record<FixtureName, string>>;

/**
 * Builds the fixture images that this engine does not have yet, on the base images (see `up`), and returns their names.
 * The tag is a hash of everything that goes into the image, so that an image that is there is the right one.
 *
 * @param host as in `DOCKER_HOST`
 */
export async function ensureFixtureImages(host: string): Promise<FixtureImages> {
  const engine = engineApi(host);
  const names: [FixtureName, string][] = [];
  for (const fixture of fixtureNames) names.push([fixture, await ensureFixtureImage(engine, fixture)]);
  return Object.fromEntries(names) as FixtureImages;
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
  return [...files, { name: "helper", content: await readFile(helperProgram()), mode: 0o755 }];
}

function helperProgram(): string {
  return join(import.meta.dirname, `../../packages/box-helper/bin/helper-linux-${process.arch}`);
}
