import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { type BoxArchitecture, boxHelperPath } from "@breakwater/box-helper";
import { type PackMember, packTar } from "@breakwater/tar";
import { gatewayBundle } from "./bundle.ts";
import { BOXES_DIRECTORY, BUNDLE_PATH, CONTROL_DIRECTORY, GATEWAY_USER } from "./paths.ts";

/** What the gateway's image is built on unless somebody names another one: any image with Node 22.19 or later in its PATH. */
export const DEFAULT_EGRESS_BASE_IMAGE = "docker.io/library/node:24-slim";

/** An image to be built: nothing is run for it, so any builder of any engine will do. */
export interface ImageRecipe {
  /** Names the image by everything that decides its content. */
  readonly tag: string;
  /** What the context has, the `Dockerfile` among it. */
  readonly members: readonly PackMember[];
  /** The context as a plain tar stream. */
  context(): AsyncIterable<Uint8Array>;
}

/** The gateway's image. `baseId` (the engine's id of the base) goes into the tag, so that a newer base makes a newer image. */
export async function gatewayImage(options: {
  readonly baseImage: string;
  readonly baseId?: string | undefined;
}): Promise<ImageRecipe> {
  const { baseImage, baseId = "" } = options;
  if (!/^[!-~]+$/.test(baseImage))
    throw new TypeError(`egressBaseImage: ${JSON.stringify(baseImage)} is no name of an image`);
  const dockerfile = [
    `FROM ${baseImage}`,
    `COPY program/ /breakwater/`,
    `COPY --chown=${GATEWAY_USER} folders/ /breakwater/`,
    `USER ${GATEWAY_USER}`,
    `WORKDIR /`,
    `ENTRYPOINT ["node", "${BUNDLE_PATH}"]`,
    `CMD []`,
    `HEALTHCHECK NONE`,
  ];
  return recipe("gateway", baseId, dockerfile, [
    { type: "directory", path: "program" },
    { type: "file", path: `program/${below(BUNDLE_PATH)}`, content: await gatewayBundle() },
    { type: "directory", path: "folders" },
    { type: "directory", path: `folders/${below(BOXES_DIRECTORY)}`, mode: 0o711 },
    { type: "directory", path: `folders/${below(CONTROL_DIRECTORY)}`, mode: 0o700 },
  ]);
}

/** The forwarder's image: box-helper and nothing else. */
export async function forwarderImage(architecture: BoxArchitecture): Promise<ImageRecipe> {
  const dockerfile = [`FROM scratch`, `COPY helper /helper`, `ENTRYPOINT ["/helper", "forward"]`];
  return recipe("forwarder", architecture, dockerfile, [
    { type: "file", path: "helper", mode: 0o755, content: await readFile(boxHelperPath(architecture)) },
  ]);
}

function recipe(name: string, salt: string, dockerfile: readonly string[], files: readonly PackMember[]): ImageRecipe {
  const content = `${dockerfile.join("\n")}\n`;
  const members: readonly PackMember[] = [{ type: "file", path: "Dockerfile", content }, ...files];
  const hash = createHash("sha256").update(salt);
  for (const member of members) {
    hash.update(JSON.stringify([member.type, member.path, "mode" in member ? member.mode : null]));
    if (member.type === "file") hash.update(member.content as string | Uint8Array);
  }
  return {
    tag: `breakwater-egress/${name}:${hash.digest("hex").slice(0, 24)}`,
    members,
    context: () => packTar(members),
  };
}

function below(path: string): string {
  return path.slice("/breakwater/".length);
}
