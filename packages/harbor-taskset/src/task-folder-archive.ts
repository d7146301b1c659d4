import { createHash } from "node:crypto";
import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { packTar, readTar, type PackMember } from "@breakwater/tar";

import type { TaskFolder, TaskFolderEntry } from "./task.ts";

/** What was sent, by path: what has to be found again. */
export type Manifest = Map<string, string>;

/**
 * A folder of the task as a plain tar stream for `Runtime.upload`. Everybody may read it, and run what is a script or can be run on the host: the
 * user in the box is another one than the one whose files these are. `sent` is filled in on the way.
 */
export function packTaskFolder(folder: TaskFolder, sent?: Manifest): AsyncIterable<Uint8Array> {
  return packTar(members(folder, sent));
}

async function* members(folder: TaskFolder, sent: Manifest | undefined): AsyncGenerator<PackMember, void, undefined> {
  const now = Math.floor(Date.now() / 1000);
  for (const entry of folder.entries) {
    if (entry.kind === "directory") {
      sent?.set(entry.path, "directory");
      yield { type: "directory", path: entry.path, mode: readable(entry), mtime: now };
    } else if (entry.kind === "link") {
      sent?.set(entry.path, `link to ${entry.target}`);
      yield { type: "link", path: entry.path, linkTarget: entry.target };
    } else {
      yield* fileMember(entry, sent);
    }
  }
}

async function* fileMember(
  entry: TaskFolderEntry & { readonly kind: "file" },
  sent: Manifest | undefined,
): AsyncGenerator<PackMember, void, undefined> {
  const handle = await open(entry.hostPath, constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0));
  try {
    const { size, mtimeMs } = await handle.stat();
    const mtime = Math.floor(mtimeMs / 1000);
    const hash = createHash("sha256");
    async function* content(): AsyncGenerator<Uint8Array, void, undefined> {
      for await (const chunk of handle.createReadStream({ autoClose: false, start: 0 })) {
        hash.update(chunk as Buffer);
        yield chunk as Buffer;
      }
    }
    yield { type: "file", path: entry.path, mode: readable(entry), mtime, size, content: content() };
    sent?.set(entry.path, `file of ${size} bytes, ${hash.digest("hex")}`);
  } finally {
    await handle.close();
  }
}

function readable(entry: TaskFolderEntry & { readonly mode: number }): number {
  const runs = entry.kind === "directory" || (entry.mode & 0o100) !== 0 || entry.path.endsWith(".sh");
  return runs ? 0o755 : 0o644;
}

/** What an archive of a box's folder has, in the same words. `root` is the folder, absolute. */
export async function manifestOf(archive: AsyncIterable<Uint8Array>, root: string): Promise<Manifest> {
  const found: Manifest = new Map();
  const prefix = `${root.slice(1)}/`;
  for await (const member of readTar(archive)) {
    const path = member.path.replace(/\/$/, "");
    if (!path.startsWith(prefix)) continue;
    found.set(path.slice(prefix.length), await describe(member));
  }
  return found;
}

async function describe(member: {
  readonly type: string;
  readonly size: number;
  readonly linkTarget: string | null;
  readonly content: AsyncIterable<Uint8Array>;
}): Promise<string> {
  if (member.type === "link") return `link to ${member.linkTarget}`;
  if (member.type !== "file") return member.type;
  const hash = createHash("sha256");
  for await (const chunk of member.content) hash.update(chunk);
  return `file of ${member.size} bytes, ${hash.digest("hex")}`;
}

/** The paths that are not the same in both; folders that a listing leaves out do not count. */
export function differences(sent: Manifest, found: Manifest): readonly string[] {
  const parents = new Set([...sent.keys()].flatMap(parentsOf));
  const different = [...sent].filter(([path, what]) => found.get(path) !== what).map(([path]) => path);
  const surplus = [...found.keys()].filter((path) => !sent.has(path) && !parents.has(path));
  return [...different, ...surplus];
}

function parentsOf(path: string): readonly string[] {
  const parts = path.split("/").slice(0, -1);
  return parts.map((_part, index) => parts.slice(0, index + 1).join("/"));
}
