import { posix } from "node:path";
import { type PathComponent, type Runtime, RuntimeError, type UploadEntry } from "@breakwater/runtime-api";
import { packTar, readTar, spoolArtifact } from "@breakwater/tar";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";

import { RestoredArtifacts, type Place } from "./restored-artifacts.ts";
import { newStepRecord, type Step } from "./trial.ts";

const MIB = 1024 * 1024;
const OWNER = { uid: 0, gid: 0 };

/** Files with their sizes, folders, and a disk that may be full. */
class FakeBox {
  readonly there = new Map<string, number | "directory">();
  readonly #capacityBytes: number;

  constructor(capacityBytes: number = Infinity) {
    this.#capacityBytes = capacityBytes;
  }

  readonly runtime = {
    id: "b",
    inspectPath: async (path: string): Promise<readonly PathComponent[]> => {
      const found: PathComponent[] = [];
      const names = path.split("/").slice(1);
      for (let count = 1; count <= names.length; count++) {
        const at = `/${names.slice(0, count).join("/")}`;
        const what = this.there.get(at);
        if (what === undefined) break;
        found.push({ path: at, kind: what === "directory" ? what : "file", mode: 0, uid: 0, gid: 0, linkTarget: null });
        if (what !== "directory") break;
      }
      return found;
    },
    removePaths: async (paths: readonly string[]): Promise<void> => {
      for (const at of this.there.keys())
        if (paths.some((path) => at === path || at.startsWith(`${path}/`))) this.there.delete(at);
    },
    upload: async (files: readonly UploadEntry[] | AsyncIterable<Uint8Array>, to: string): Promise<void> => {
      if (Symbol.asyncIterator in files) {
        for await (const member of readTar(files))
          this.#put(posix.join(to, member.path), member.type === "file" ? member.size : "directory");
      } else {
        for (const entry of files)
          this.#put(
            posix.join(to, entry.path),
            "content" in entry && entry.content !== undefined ? entry.content.length : "directory",
          );
      }
    },
  } as unknown as Runtime;

  #put(path: string, what: number | "directory"): void {
    for (let at = posix.dirname(path); at !== "/"; at = posix.dirname(at)) {
      if (this.there.get(at) !== "directory" && this.there.has(at)) throw failure("ERR_PATH_KIND");
      this.there.set(at, "directory");
    }
    this.there.set(path, what);
    const used = [...this.there.values()].reduce<number>((sum, one) => sum + (one === "directory" ? 0 : one), 0);
    if (used > this.#capacityBytes) throw failure("ERR_DISK_FULL");
  }
}

function failure(code: "ERR_DISK_FULL" | "ERR_PATH_KIND"): RuntimeError {
  return new RuntimeError({ code, driver: "d", operation: "upload", message: "no" });
}

const folder = mkdtemp(join(tmpdir(), "breakwater-restored-"));
afterAll(async () => rm(await folder, { recursive: true, force: true }));

/** Artifacts as they were collected: files at or below their sources. */
async function collected(
  contents: Readonly<Record<string, Readonly<Record<string, number>>>>,
): Promise<{ readonly step: Step; readonly places: readonly Place[] }> {
  const outcome = newStepRecord({} as never);
  const places: Place[] = [];
  for (const [source, files] of Object.entries(contents)) {
    const members = Object.entries(files).map(([path, bytes]) => ({
      type: "file" as const,
      path: path.slice(1),
      mode: 0o644,
      content: Buffer.alloc(bytes),
    }));
    const file = join(await folder, `${source.replaceAll("/", "_")}-${Math.random()}`);
    const limits = { maxBytes: 1024 * MIB, maxEntries: 100 };
    const spool = await spoolArtifact(packTar(members), { file, root: source, ...limits });
    const { entries, bytes, sha256, kind: type } = spool;
    const destination = `artifacts${source}`;
    outcome.artifacts.push({ source, destination, status: "collected", type, entries, bytes, sha256, overlaps: [] });
    places.push({ artifact: { plan: { source, destination } as never, spool }, path: source });
  }
  return { step: { outcome, events: { emit: () => undefined } } as never, places };
}

async function restore(
  { step, places }: Awaited<ReturnType<typeof collected>>,
  box: FakeBox,
): Promise<RestoredArtifacts> {
  const restored = new RestoredArtifacts(step, box.runtime, { signal: new AbortController().signal });
  for (const place of places) await restored.add(place, OWNER);
  return restored;
}

const statuses = ({ outcome }: Step): unknown => outcome.artifacts.map(({ source, status }) => [source, status]);

describe("artifacts in the verifier's box", () => {
  it("that are a file in place of the working directory are left out whole", async () => {
    const all = await collected({ "/app": { "/app": 10 }, "/data": { "/data/x": 10 } });
    const box = new FakeBox();
    await (await restore(all, box)).makeWorkdir("/app/src", OWNER);
    expect(box.there.get("/app/src")).toBe("directory");
    expect(statuses(all.step)).toEqual([
      ["/app", "refused"],
      ["/data", "collected"],
    ]);
    expect(all.step.outcome.artifactsRefused).toEqual([
      { source: "/app", reason: expect.stringContaining("no folder") as unknown, members: [], memberCount: 0 },
    ]);
  });

  it("that have a file in place of the working directory lose that member only", async () => {
    const all = await collected({ "/app": { "/app/src": 10, "/app/answer": 10 } });
    const box = new FakeBox();
    await (await restore(all, box)).makeWorkdir("/app/src", OWNER);
    expect([box.there.get("/app/src"), box.there.get("/app/answer")]).toEqual(["directory", 10]);
    expect(statuses(all.step)).toEqual([["/app", "collected"]]);
    expect(all.step.outcome.artifactsRefused).toMatchObject([
      { source: "/app", reason: null, members: [{ path: "/app/src" }], memberCount: 1 },
    ]);
  });

  it("that are folders, or leave none, change nothing", async () => {
    for (const files of [{ "/app/src/x": 10 }, { "/app/x": 10 }] as Record<string, number>[]) {
      const all = await collected({ "/app": files });
      const box = new FakeBox();
      const restored = await restore(all, box);
      await restored.makeWorkdir("/app/src", OWNER);
      expect(box.there.get("/app/src")).toBe("directory");
      expect([restored.hasLeftOut, all.step.outcome.artifactsRefused]).toEqual([false, []]);
    }
  });

  it("that do not fit are left out whole, the others come", async () => {
    const all = await collected({ "/a": { "/a/x": 70 * MIB }, "/b": { "/b/x": 90 * MIB }, "/c": { "/c/x": 10 } });
    const box = new FakeBox(100 * MIB);
    await restore(all, box);
    expect(statuses(all.step)).toEqual([
      ["/a", "collected"],
      ["/b", "refused"],
      ["/c", "collected"],
    ]);
    expect(box.there.has("/b/x")).toBe(false);
  });

  it("that leave no room for what comes after them are left out, the heaviest first", async () => {
    const all = await collected({ "/a": { "/a/x": 30 * MIB }, "/b": { "/b/x": 60 * MIB } });
    const box = new FakeBox(100 * MIB);
    const restored = await restore(all, box);
    await restored.withRoom(() => restored.assertRoomToWork("/logs/verifier"));
    expect(statuses(all.step)).toEqual([
      ["/a", "collected"],
      ["/b", "refused"],
    ]);
    expect([...box.there.keys()].filter((path) => path.startsWith("/logs/verifier/"))).toEqual([]);
  });

  it("that are small do not fill a disk: that is a failure", async () => {
    const all = await collected({ "/a": { "/a/x": 30 * MIB } });
    await expect(restore(all, new FakeBox(20 * MIB))).rejects.toMatchObject({ code: "ERR_DISK_FULL" });
    expect(all.step.outcome.artifactsRefused).toEqual([]);
  });

  it("of which one is in the other's way come without it", async () => {
    const all = await collected({ "/app": { "/app": 10 }, "/app/out": { "/app/out/x": 10 } });
    await restore(all, new FakeBox());
    expect(statuses(all.step)).toEqual([
      ["/app", "collected"],
      ["/app/out", "refused"],
    ]);
  });
});
