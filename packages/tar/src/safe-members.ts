import { isUtf8 } from "node:buffer";
import { excluder } from "./exclude.ts";
import { limitError, readTar, type TarMember } from "./read.ts";

/** Why a member was left out. */
export type LeftOutReason =
  | "absolute name"
  | "name with .."
  | "name that is not canonical"
  | "name that is not UTF-8"
  | "outside of the declared path"
  | "second member of this name"
  | "parent is not a directory"
  | "the declared path is a link"
  | "absolute link"
  | "link that leaves the declared path"
  | "link that leads to itself"
  | "hard link to nothing that was kept"
  | "device"
  | "FIFO"
  | "file with holes"
  | "unknown type";

export interface LeftOutMember {
  /** As the archive has it; not exact where it is not UTF-8. */
  readonly path: string;
  readonly reason: LeftOutReason;
}

/** A member that may be put into another box, or onto the host. */
export type SafeMember = {
  /** Begins with the last component of the root: `out` and `out/…` for the root `/app/out`. */
  readonly path: string;
  /** 0 to 0o777. */
  readonly mode: number;
  /** Unix time in seconds, not in the future: build tools go by it. */
  readonly mtime: number;
} & (
  | { readonly type: "directory" }
  | { readonly type: "file"; readonly size: number; readonly content: AsyncIterable<Uint8Array> }
  /** A hard link: the same content as that earlier file. */
  | { readonly type: "copy"; readonly size: number; readonly copyOf: string }
  /** Relative, and inside the root when all members are in place. Links come last. */
  | { readonly type: "link"; readonly linkTarget: string }
);

export interface SafeMembersOptions {
  /** The declared path in the box, absolute: only it and what is below it is kept. */
  readonly root: string;
  /** Content that is kept, hard links counted as copies. */
  readonly maxBytes: number;
  /** Members that are kept or left out, directories that are only implied included. */
  readonly maxEntries: number;
  /** Components below the root. Default is 128. */
  readonly maxDepth?: number | undefined;
  /** Of a name or a link's target. Default is 2048. */
  readonly maxPathBytes?: number | undefined;
  /** Patterns of `tar --exclude`, relative to the root if that is a directory; see `excluder`. */
  readonly exclude?: readonly string[] | undefined;
  /** Told of each member that is left out for breaking a rule; excluded ones are not. */
  readonly onLeftOut: (member: LeftOutMember) => void;
}

const MAX_COMPONENT_BYTES = 255;
const MAX_LINK_HOPS = 40;

/**
 * The members of a hostile archive that may cross over. Kept are regular files, directories, and relative links that resolve inside the root in the
 * final tree; hard links become copies; setuid, setgid and sticky bits are cleared. What breaks a rule is left out, one by one.
 * Names are members' paths in the box without the leading `/`, as `Runtime.download` gives them.
 *
 * Throws `ERR_TAR_LIMIT` for an archive that is over a limit: leave all of it out, a part would pass for the whole. Throws what `readTar` throws.
 */
export async function* safeMembers(
  stream: AsyncIterable<Uint8Array>,
  options: SafeMembersOptions,
): AsyncGenerator<SafeMember, void, undefined> {
  const tree = new Tree(options);
  for await (const member of readTar(stream)) yield* tree.take(member);
  yield* tree.links();
}

interface HeldLink {
  readonly path: string;
  readonly member: TarMember;
  readonly target: string;
}

class Tree {
  readonly #options: SafeMembersOptions;
  readonly #isExcluded: (path: string) => boolean;
  /** The root's own name, and the folder that it is in, without slashes at the ends. */
  readonly #base: string;
  readonly #above: string;
  /** What was kept, by path relative to the folder above the root. */
  readonly #kept = new Map<string, "directory" | "file" | HeldLink>();
  /** Of each kept file: the size, and for a copy the file that it repeats. */
  readonly #files = new Map<string, { readonly size: number; readonly copyOf: string }>();
  #bytes = 0;
  #entries = 0;

  constructor(options: SafeMembersOptions) {
    const root = options.root.replace(/\/+$/, "");
    if (!/^(?:\/[^/\0]+)+$/.test(root) || /(?:^|\/)\.\.?(?:\/|$)/.test(root)) {
      throw new TypeError(`root ${JSON.stringify(options.root)}: expected an absolute path below / without . and ..`);
    }
    this.#options = options;
    this.#isExcluded = excluder(options.exclude ?? []);
    this.#base = root.slice(root.lastIndexOf("/") + 1);
    this.#above = root.slice(1, root.length - this.#base.length);
  }

  *take(member: TarMember): Generator<SafeMember, void, undefined> {
    const named = this.#nameInTree(member);
    if ("reason" in named) return this.#leaveOut(member, named.reason);
    const { path } = named;
    if (this.#isExcludedOrTooLong(path, member)) return;

    const parents = this.#missingParents(path);
    if (parents === null) return this.#leaveOut(member, "parent is not a directory");
    const before = this.#kept.get(path);
    if (before === "directory" && member.type === "directory") return;
    if (before !== undefined) return this.#leaveOut(member, "second member of this name");

    const reason = this.#reasonAgainst(path, member);
    if (reason !== null) return this.#leaveOut(member, reason);
    for (const parent of parents) {
      this.#count(0);
      this.#kept.set(parent, "directory");
      yield { type: "directory", path: parent, mode: 0o755, mtime: pastTime(member) };
    }
    yield* this.#keep(path, member);
  }

  /** The links, once everything that they can lead to is known. */
  *links(): Generator<SafeMember, void, undefined> {
    const links = [...this.#kept.values()].filter((entry): entry is HeldLink => typeof entry === "object");
    for (const { path, member, target } of links) {
      const reason = this.#reasonAgainstLink(path, target);
      if (reason === null) yield { type: "link", path, mode: 0o777, mtime: pastTime(member), linkTarget: target };
      else this.#options.onLeftOut({ path: member.path, reason });
    }
  }

  *#keep(path: string, member: TarMember): Generator<SafeMember, void, undefined> {
    const common = { path, mode: member.mode & 0o777, mtime: pastTime(member) };
    if (member.type === "directory") {
      this.#count(0);
      this.#kept.set(path, "directory");
      yield { ...common, type: "directory" };
    } else if (member.type === "file") {
      this.#count(member.size);
      this.#kept.set(path, "file");
      this.#files.set(path, { size: member.size, copyOf: path });
      yield { ...common, type: "file", size: member.size, content: member.content };
    } else if (member.type === "hard-link") {
      const original = this.#hardLinkTarget(member);
      if (original === undefined) return;
      this.#count(original.size);
      this.#kept.set(path, "file");
      this.#files.set(path, original);
      yield { ...common, type: "copy", ...original };
    } else {
      this.#count(0);
      this.#kept.set(path, { path, member, target: member.linkTarget ?? "" });
    }
  }

  #leaveOut(member: TarMember, reason: LeftOutReason): void {
    this.#count(0);
    this.#options.onLeftOut({ path: member.path, reason });
  }

  #count(bytes: number): void {
    const { maxBytes, maxEntries } = this.#options;
    this.#entries += 1;
    this.#bytes += bytes;
    if (this.#entries > maxEntries) throw limitError("maxEntries", maxEntries, "members");
    if (this.#bytes > maxBytes) throw limitError("maxBytes", maxBytes, "bytes");
  }

  /** Throws for a name over a limit, unless a directory above it is excluded. */
  #isExcludedOrTooLong(path: string, member: TarMember): boolean {
    const { maxDepth = 128, maxPathBytes = 2048 } = this.#options;
    const longest = Math.max(member.pathBytes.length, member.linkTargetBytes?.length ?? 0);
    const components = path.slice(this.#base.length + 1).split("/");
    if (longest <= maxPathBytes && components.length <= maxDepth) {
      return components[0] !== "" && this.#isExcluded(components.join("/"));
    }
    const beginning = path
      .slice(this.#base.length + 1, maxPathBytes)
      .split("/")
      .slice(0, maxDepth)
      .slice(0, -1);
    if (beginning.length > 0 && this.#isExcluded(beginning.join("/"))) return true;
    if (longest > maxPathBytes) throw limitError("maxPathBytes", maxPathBytes, "bytes in a name");
    throw limitError("maxDepth", maxDepth, "levels of directories");
  }

  /** The member's path relative to the folder above the root. */
  #nameInTree(member: TarMember): { readonly path: string } | { readonly reason: LeftOutReason } {
    if (!isUtf8(member.pathBytes)) return { reason: "name that is not UTF-8" };
    const path = member.type === "directory" ? member.path.replace(/\/$/, "") : member.path;
    if (path.startsWith("/")) return { reason: "absolute name" };
    const components = path.split("/");
    if (components.includes("..")) return { reason: "name with .." };
    const canonical = components.every(
      (component) => component !== "" && component !== "." && Buffer.byteLength(component) <= MAX_COMPONENT_BYTES,
    );
    if (!canonical || path.includes("\0")) return { reason: "name that is not canonical" };
    const root = `${this.#above}${this.#base}`;
    if (path !== root && !path.startsWith(`${root}/`)) return { reason: "outside of the declared path" };
    return { path: path.slice(this.#above.length) };
  }

  /** The directories on the way to a path that no member has named yet; `null` if one of them is something else. */
  #missingParents(path: string): readonly string[] | null {
    const missing: string[] = [];
    for (let slash = path.indexOf("/"); slash >= 0; slash = path.indexOf("/", slash + 1)) {
      const parent = path.slice(0, slash);
      const kept = this.#kept.get(parent);
      if (kept === undefined) missing.push(parent);
      else if (kept !== "directory") return null;
    }
    return missing;
  }

  #reasonAgainst(path: string, member: TarMember): LeftOutReason | null {
    switch (member.type) {
      case "file":
      case "directory":
        return null;
      case "hard-link":
        return this.#hardLinkTarget(member) === undefined ? "hard link to nothing that was kept" : null;
      case "link":
        if (path === this.#base) return "the declared path is a link";
        if (!isUtf8(member.linkTargetBytes ?? Buffer.alloc(0))) return "name that is not UTF-8";
        if (member.linkTarget === null || member.linkTarget === "" || member.linkTarget.includes("\0")) {
          return "name that is not canonical";
        }
        return member.linkTarget.startsWith("/") ? "absolute link" : null;
      case "character-device":
      case "block-device":
        return "device";
      case "fifo":
        return "FIFO";
      case "sparse":
        return "file with holes";
      case "unknown":
        return "unknown type";
    }
  }

  #hardLinkTarget(member: TarMember): { readonly size: number; readonly copyOf: string } | undefined {
    const target = member.linkTarget ?? "";
    return target.startsWith(this.#above) ? this.#files.get(target.slice(this.#above.length)) : undefined;
  }

  /** Follows a link through the final tree, other links included, the way Linux would. */
  #reasonAgainstLink(path: string, target: string): LeftOutReason | null {
    const at = path.split("/").slice(0, -1);
    const ahead = target.split("/").reverse();
    for (let hops = 0; ahead.length > 0;) {
      const component = ahead.pop();
      if (component === undefined || component === "" || component === ".") continue;
      if (component === "..") {
        // One component is the root itself.
        if (at.length <= 1) return "link that leaves the declared path";
        at.pop();
        continue;
      }
      at.push(component);
      const entry = this.#kept.get(at.join("/"));
      if (typeof entry !== "object") continue;
      if (++hops > MAX_LINK_HOPS) return "link that leads to itself";
      at.pop();
      ahead.push(...entry.target.split("/").reverse());
    }
    return null;
  }
}

function pastTime({ mtime }: TarMember): number {
  return Math.min(Math.max(0, mtime), Math.floor(Date.now() / 1000));
}
