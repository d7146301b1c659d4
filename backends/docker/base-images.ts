import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { mkdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { Readable } from "node:stream";

import { engineApi, type EngineApi } from "../src/engine-api.ts";
import { BackendError } from "../src/errors.ts";
import { withLock } from "../src/lock.ts";
import { exists } from "../src/packages.ts";
import type { Steps } from "../src/steps.ts";
import { buildContext } from "./build-context.ts";
import { bootstrapDebian } from "./debian.ts";

/** A Debian that boxes of the tests are made from. */
export interface BaseImage {
  readonly image: string;
  readonly suite: "bookworm" | "trixie";
  /** Where a registry answers, the same is built on top of this. */
  readonly registryImage: string;
  readonly packages: readonly string[];
}

const packages = ["ca-certificates", "git", "python3", "python3-pytest"];

/** Debian 12 with Python 3.11, pytest and git, and with curl and pip as clients of the fake internet. */
export const debian12: BaseImage = {
  image: "breakwater-test/debian12:1",
  suite: "bookworm",
  registryImage: "docker.io/library/debian:bookworm-slim",
  packages: [...packages, "curl", "python3-pip"],
};

/** Debian 13 with Python 3.13, pytest and git: visibly another system than {@link debian12}. */
export const debian13: BaseImage = {
  image: "breakwater-test/debian13:1",
  suite: "trixie",
  registryImage: "docker.io/library/debian:trixie-slim",
  packages,
};

/** Part of the key: a change of the recipe makes new images. */
const recipeVersion = 1;
const keyLabel = "breakwater.recipe";
const path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/**
 * Both base images on this engine: already there, else from the cache folder, else from a registry, else from Debian's packages.
 *
 * Errors: `MISSING_TOOL` or `NEEDS_ROOT` when none of these is possible here, `COMMAND_FAILED`, `TIMEOUT`, and those of the engine.
 */
export async function ensureBaseImages(host: string, cacheFolder: string, steps: Steps): Promise<void> {
  const engine = engineApi(host);
  await Promise.all([debian12, debian13].map((base) => ensureBaseImage(engine, base, cacheFolder, steps)));
}

/**
 * The root file system of a base image as a tar archive: in the cache folder already, else made from Debian's packages.
 *
 * Errors: `MISSING_TOOL` or `NEEDS_ROOT`, `COMMAND_FAILED`, `TIMEOUT`.
 */
export async function ensureArchive(base: BaseImage, cacheFolder: string, steps: Steps): Promise<string> {
  const archive = archivePath(base, cacheFolder);
  await withLock(archive, 900_000, async () => {
    if (await exists(archive)) {
      steps.done(`${archive} is there`);
    } else {
      await bootstrap(base, archive, steps);
      steps.done(`${base.suite} made from Debian's packages`);
    }
  });
  return archive;
}

export function archivePath(base: BaseImage, cacheFolder: string): string {
  return join(cacheFolder, "rootfs", `${base.suite}-${process.arch}-${contentKey(base)}.tar`);
}

async function ensureBaseImage(engine: EngineApi, base: BaseImage, cacheFolder: string, steps: Steps): Promise<void> {
  const key = contentKey(base);
  const archive = archivePath(base, cacheFolder);
  await withLock(archive, 900_000, async () => {
    if ((await imageKey(engine, base.image)) === key) {
      steps.done(`${base.image} is there`);
      return;
    }
    if (!(await exists(archive))) {
      if (await buildFromRegistry(engine, base, key)) {
        steps.done(`${base.image} built on ${base.registryImage}`);
        return;
      }
      await bootstrap(base, archive, steps);
      steps.done(`${base.suite} made from Debian's packages`);
    }
    await importArchive(engine, base, key, archive);
    steps.done(`${base.image} imported`);
  });
}

export function contentKey(base: BaseImage): string {
  const recipe = JSON.stringify([recipeVersion, base.suite, base.packages, process.arch]);
  return createHash("sha256").update(recipe).digest("hex").slice(0, 16);
}

async function imageKey(engine: EngineApi, image: string): Promise<string | undefined> {
  const inspected = (await engine.json("GET", `/images/${image}/json`)) as
    | { readonly Config?: { readonly Labels?: Readonly<Record<string, string>> | null } | null }
    | undefined;
  return inspected?.Config?.Labels?.[keyLabel];
}

async function importArchive(engine: EngineApi, base: BaseImage, key: string, archive: string): Promise<void> {
  const query = new URLSearchParams([
    ["fromSrc", "-"],
    ["changes", `ENV PATH=${path}`],
    ["changes", `CMD ["bash"]`],
    ["changes", `LABEL ${keyLabel}=${key}`],
  ]);
  const lines = await engine.progress(`/images/create?${query.toString()}`, createReadStream(archive), {
    timeoutMs: 300_000,
  });
  const id = lines.findLast((line) => /^(sha256:)?[0-9a-f]{64}$/.test(line.status?.trim() ?? ""))?.status?.trim();
  if (id === undefined)
    throw new BackendError("ENGINE_REFUSED", `${engine.host} imported ${archive} but named no image`);
  // Named in a step of its own: Podman 4.3 leaves a tag given to the import out.
  const [repo = "", tag = ""] = base.image.split(":");
  await engine.json("POST", `/images/${id}/tag?${new URLSearchParams({ repo, tag }).toString()}`);
}

/** False when no registry answers soon. */
async function buildFromRegistry(engine: EngineApi, base: BaseImage, key: string): Promise<boolean> {
  const [fromImage = "", tag = ""] = base.registryImage.split(":");
  try {
    await engine.progress(`/images/create?${new URLSearchParams({ fromImage, tag }).toString()}`, undefined, {
      timeoutMs: 300_000,
      firstAnswerMs: 15_000,
    });
  } catch (error) {
    if (error instanceof BackendError && (error.code === "ENGINE_REFUSED" || error.code === "TIMEOUT")) return false;
    throw error;
  }
  const dockerfile = [
    `FROM ${base.registryImage}`,
    `RUN apt-get update && apt-get install -y --no-install-recommends ${base.packages.join(" ")} && rm -rf /var/lib/apt/lists/*`,
    `CMD ["bash"]`,
    `LABEL ${keyLabel}=${key}`,
  ].join("\n");
  await engine.progress(
    `/build?${new URLSearchParams({ t: base.image }).toString()}`,
    Readable.from([buildContext([{ name: "Dockerfile", content: dockerfile }])]),
    {
      timeoutMs: 900_000,
    },
  );
  return true;
}

async function bootstrap(base: BaseImage, archive: string, steps: Steps): Promise<void> {
  const advice = `pull or build an image tagged ${base.image} with ${base.packages.join(", ")}, labelled ${keyLabel}=${contentKey(base)}`;
  await mkdir(dirname(archive), { recursive: true });
  try {
    await bootstrapDebian(base, archive, steps);
  } catch (error) {
    if (!(error instanceof BackendError) || !["NEEDS_ROOT", "MISSING_TOOL"].includes(error.code)) throw error;
    throw new BackendError(error.code, `no registry answers, and ${error.message}`, { advice });
  }
}
