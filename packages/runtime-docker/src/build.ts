import { createHash, type Hash } from "node:crypto";
import { readFile, stat } from "node:fs/promises";
import { isAbsolute, join, posix } from "node:path";
import dockerignore from "@balena/dockerignore";
import { directoryMembers, type PackMember, packTar } from "@breakwater/tar";

/** A build definition on the host: everything that decides what the image will be. */
export interface BuildDefinition {
  readonly context: string;
  /** Relative to the context. */
  readonly dockerfile: string;
  readonly name: string;
  /** Names of images that its stages start from, as far as they are written out. */
  readonly bases: readonly string[];
  /** What of the context the engine gets. */
  readonly filter: (path: string, type: "file" | "directory" | "link") => boolean;
}

/** Reads a build definition. Throws a `TypeError` for a context or a Dockerfile that does not exist or leaves the context. */
export async function readBuildDefinition(source: {
  readonly context: string;
  readonly dockerfile?: string | undefined;
  readonly name: string;
}): Promise<BuildDefinition> {
  const { context, name } = source;
  const dockerfile = posix.normalize(source.dockerfile ?? "Dockerfile");
  if (isAbsolute(dockerfile) || dockerfile === ".." || dockerfile.startsWith("../")) {
    throw new TypeError(`dockerfile: ${JSON.stringify(dockerfile)} is not inside of the context`);
  }
  if (
    !(await stat(context).then(
      (it) => it.isDirectory(),
      () => false,
    ))
  ) {
    throw new TypeError(`context: ${JSON.stringify(context)} is not a folder`);
  }
  let text: string;
  try {
    text = await readFile(join(context, dockerfile), "utf8");
  } catch {
    throw new TypeError(`dockerfile: there is no ${JSON.stringify(dockerfile)} in ${JSON.stringify(context)}`);
  }
  const patterns = await readFile(join(context, ".dockerignore"), "utf8").catch(() => "");
  return { context, dockerfile, name, bases: baseImages(text), filter: contextFilter(patterns, dockerfile) };
}

/** The images that a Dockerfile's stages start from. Stages of its own, `scratch` and names with variables are left out. */
export function baseImages(dockerfile: string): readonly string[] {
  const stages = new Set<string>(["scratch"]);
  const bases = new Set<string>();
  for (const line of dockerfile.split(/\r?\n/)) {
    const from = /^\s*FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*$/i.exec(line);
    if (from === null) continue;
    const [, image = "", stage] = from;
    if (!stages.has(image.toLowerCase()) && !image.includes("$")) bases.add(image);
    if (stage !== undefined) stages.add(stage.toLowerCase());
  }
  return [...bases];
}

/** What `.dockerignore` leaves of a context. The Dockerfile itself always travels. */
export function contextFilter(patterns: string, dockerfile: string): BuildDefinition["filter"] {
  const lines = patterns
    .split(/\r?\n/)
    .map((line) => line.trim())
    .filter((line) => line !== "" && !line.startsWith("#"));
  if (lines.length === 0) return () => true;
  const rules = dockerignore.default().add(lines);
  // A folder that is left out may still have exceptions below it.
  const hasExceptions = lines.some((line) => line.startsWith("!"));
  return (path, type) => {
    if (path === dockerfile || path === ".dockerignore") return true;
    if (type === "directory" && (hasExceptions || dockerfile.startsWith(`${path}/`))) return true;
    return !rules.ignores(path);
  };
}

/** The context as the plain tar stream that the engine gets. `hash` takes in what decides the image, times left out. */
export function packContext(definition: BuildDefinition, hash: Hash): AsyncGenerator<Uint8Array, void, undefined> {
  return packTar(hashed(directoryMembers(definition.context, { filter: definition.filter }), hash));
}

/** The hash of everything that goes into the image: the context, which Dockerfile, and which base images the engine has. */
export async function contentHash(definition: BuildDefinition, baseIds: readonly string[]): Promise<string> {
  const hash = createHash("sha256");
  for await (const chunk of packContext(definition, hash)) void chunk;
  return finishHash(hash, definition, baseIds);
}

export function finishHash(hash: Hash, definition: BuildDefinition, baseIds: readonly string[]): string {
  return hash.update(JSON.stringify([definition.dockerfile, ...baseIds])).digest("hex");
}

/** A name for the image: what people know it by, and the hash of its content. */
export function buildTag(name: string, contentHashHex: string): string {
  const readable = name
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, "-")
    .replaceAll(/^-+|-+$/g, "")
    .slice(0, 60);
  return `breakwater-build/${readable === "" ? "image" : readable}:${contentHashHex.slice(0, 24)}`;
}

async function* hashed(members: AsyncIterable<PackMember>, hash: Hash): AsyncGenerator<PackMember, void, undefined> {
  for await (const member of members) {
    const mode = "mode" in member ? member.mode : null;
    const linkTarget = "linkTarget" in member ? String(member.linkTarget) : null;
    const size = "size" in member ? member.size : null;
    hash.update(JSON.stringify([member.type, String(member.path), mode, linkTarget, size]));
    yield member.type === "file" && typeof member.content !== "string" && !(member.content instanceof Uint8Array)
      ? { ...member, content: hashedContent(member.content, hash) }
      : member;
  }
}

async function* hashedContent(
  content: AsyncIterable<Uint8Array>,
  hash: Hash,
): AsyncGenerator<Uint8Array, void, undefined> {
  for await (const chunk of content) {
    hash.update(chunk);
    yield chunk;
  }
}
