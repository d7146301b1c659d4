import { createHash } from "node:crypto";
import { createWriteStream } from "node:fs";
import { mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { get, type IncomingMessage } from "node:http";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";

import { buildContext } from "../docker/build-context.ts";
import { engineApi, parseDockerHost } from "../src/engine-api.ts";
import { BackendError } from "../src/errors.ts";
import { exists } from "../src/packages.ts";
import type { Steps } from "../src/steps.ts";

const saveTimeoutMs = 300_000;
const architecture = process.arch === "arm64" ? "arm64" : "amd64";
const helperProgram = join(import.meta.dirname, `../../packages/box-helper/bin/helper-linux-${architecture}`);

/** Images as an archive that containerd imports, with their names in it. */
export interface ImageArchive {
  readonly file: string;
  readonly images: readonly string[];
}

/**
 * The images of a Docker engine as one archive in the cache folder. It is made anew only when one of them has changed, and the last one is then removed.
 *
 * Errors: `ENGINE_REFUSED`, `ENGINE_UNREACHABLE`, `TIMEOUT`.
 */
export async function saveImages(
  dockerHost: string,
  images: readonly string[],
  cacheFolder: string,
  steps: Steps,
): Promise<ImageArchive> {
  const engine = engineApi(dockerHost);
  const hash = createHash("sha256");
  for (const image of images) {
    const inspected = (await engine.json("GET", `/images/${image}/json`)) as { readonly Id?: string } | undefined;
    hash.update(`${image} ${inspected?.Id ?? "missing"}\n`);
  }
  const folder = join(cacheFolder, "images");
  const name = `${hash.digest("hex").slice(0, 16)}.tar`;
  const file = join(folder, name);
  await mkdir(folder, { recursive: true });
  if (!(await exists(file))) {
    const unfinished = `${file}.${process.pid}`;
    try {
      const query = new URLSearchParams(images.map((image): [string, string] => ["names", image]));
      const signal = AbortSignal.timeout(saveTimeoutMs);
      await pipeline(await answer(dockerHost, `/images/get?${query.toString()}`), createWriteStream(unfinished), {
        signal,
      });
      await rename(unfinished, file);
    } finally {
      await rm(unfinished, { force: true });
    }
    for (const other of await readdir(folder)) {
      if (/^[0-9a-f]{16}\.tar$/.test(other) && other !== name) await rm(join(folder, other), { force: true });
    }
    steps.done(`${images.length} test images saved`);
  }
  return { file, images };
}

function answer(dockerHost: string, path: string): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const request = get(
      { ...parseDockerHost(dockerHost), path, headers: { Host: "docker" }, agent: false },
      (response) => {
        if (response.statusCode === 200) resolve(response);
        else reject(new BackendError("ENGINE_REFUSED", `GET ${path} on ${dockerHost}: ${response.statusCode}`));
      },
    );
    request.once("error", (cause) => {
      reject(new BackendError("ENGINE_UNREACHABLE", `GET ${path} on ${dockerHost}: ${cause.message}`, { cause }));
    });
  });
}

/**
 * An image with nothing but box-helper's program, which the driver's boxes get their helper from; under its second name it is the first
 * program of every pod's sandbox.
 */
export async function helperImage(
  folder: string,
  pauseImage: string,
): Promise<ImageArchive & { readonly image: string }> {
  const layer = buildContext([{ name: "helper", content: await readFile(helperProgram), mode: 0o755 }]);
  const digest = createHash("sha256").update(layer).digest("hex");
  const image = `breakwater.test/helper:${digest.slice(0, 16)}`;
  const config = {
    architecture,
    os: "linux",
    config: { Entrypoint: ["/helper"], Cmd: ["idle"] },
    rootfs: { type: "layers", diff_ids: [`sha256:${digest}`] },
    history: [{ created_by: "box-helper" }],
  };
  const images = [image, pauseImage];
  const manifest = [{ Config: "config.json", RepoTags: images, Layers: ["layer.tar"] }];
  const archive = buildContext([
    { name: "manifest.json", content: JSON.stringify(manifest) },
    { name: "config.json", content: JSON.stringify(config) },
    { name: "layer.tar", content: layer },
  ]);
  const file = join(folder, "helper.tar");
  await writeFile(file, archive);
  return { file, images, image };
}
