import type { PathComponent, Runtime } from "@breakwater/runtime-api";
import { describe, expect, it } from "vitest";

import { isInside, resolveInBox } from "./box-paths.ts";

/** A box of which only the links and the files are told; everything else in `there` is a folder. */
function boxWith(links: Readonly<Record<string, string>>, there: readonly string[]): Runtime {
  const component = (path: string): PathComponent | null => {
    const linkTarget = links[path] ?? null;
    const known = [...there, ...Object.keys(links)];
    if (linkTarget === null && !known.some((one) => one === path || one.startsWith(`${path}/`))) return null;
    return { path, kind: linkTarget === null ? "directory" : "link", mode: 0o755, uid: 0, gid: 0, linkTarget };
  };
  const inspectPath = async (path: string): Promise<readonly PathComponent[]> => {
    const found: PathComponent[] = [];
    const names = path.split("/").slice(1);
    for (let count = 1; count <= names.length; count++) {
      const next = component(`/${names.slice(0, count).join("/")}`);
      if (next === null) break;
      found.push(next);
      if (next.kind !== "directory") break;
    }
    return found;
  };
  return { inspectPath } as unknown as Runtime;
}

describe("paths in a box", () => {
  it.each([
    ["nothing special", {}, ["/app/out"], "/app/out", { path: "/app/out", kind: "directory", leadsTo: null }],
    ["what is not there", {}, ["/app"], "/app/out/x", { path: "/app/out/x", kind: null, leadsTo: null }],
    [
      "an absolute link on the way",
      { "/app": "/tests" },
      ["/tests"],
      "/app/out",
      { path: "/tests/out", kind: null, leadsTo: null },
    ],
    [
      "a relative link on the way",
      { "/srv/app": "../logs" },
      ["/logs/verifier"],
      "/srv/app/verifier",
      { path: "/logs/verifier", kind: "directory", leadsTo: null },
    ],
    [
      "links behind links",
      { "/a": "b", "/b": "/c" },
      ["/c/d"],
      "/a/d",
      { path: "/c/d", kind: "directory", leadsTo: null },
    ],
    [
      "a link at the end",
      { "/app/out": "/tests" },
      ["/tests"],
      "/app/out",
      { path: "/app/out", kind: "link", leadsTo: "/tests" },
    ],
  ] as const)("%s", async (_what, links, there, path, resolved) => {
    expect(await resolveInBox(boxWith(links, there), path, {})).toEqual(resolved);
  });

  it("refuses links that go round in circles", async () => {
    const box = boxWith({ "/a": "/b", "/b": "/a" }, []);
    await expect(resolveInBox(box, "/a/x", {})).rejects.toMatchObject({ reason: "refused", code: "ERR_ARTIFACT_ROOT" });
  });

  it.each([
    ["/dev/shm/x", "/dev", true],
    ["/dev", "/dev", true],
    ["/device", "/dev", false],
    ["/app", "/", true],
  ])("%s inside %s: %s", (path, folder, inside) => {
    expect(isInside(path, folder)).toBe(inside);
  });
});
