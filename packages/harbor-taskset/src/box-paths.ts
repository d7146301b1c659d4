import { posix } from "node:path";
import type { OperationOptions, PathComponent, Runtime } from "@breakwater/runtime-api";

import { TrialFailure } from "./trial-error.ts";

const MAX_LINKS = 40;
const AT_A_TIME = 4;

export interface ResolvedPath {
  /** Without links up to its last component, which is never followed. */
  readonly path: string;
  /** If the last component is a link: where it leads to, links on the way resolved. */
  readonly leadsTo: string | null;
  /** What is at the path; `null` = nothing. */
  readonly kind: PathComponent["kind"] | null;
}

/** Follows the links of a box's path component by component, as Linux would. Links that go round in circles are refused. */
export async function resolveInBox(box: Runtime, path: string, options: OperationOptions): Promise<ResolvedPath> {
  const { path: resolved, kind } = await follow(box, path, false, options);
  const leadsTo = kind === "link" ? (await follow(box, resolved, true, options)).path : null;
  return { path: resolved, kind, leadsTo };
}

/** Where a folder is or would be, with all links followed, and what is in its place or on the way to it and is no folder. */
export async function resolveFolderInBox(
  box: Runtime,
  path: string,
  options: OperationOptions,
): Promise<{ readonly path: string; readonly isThere: boolean; readonly blockedBy: string | null }> {
  const { path: resolved, kind, end } = await follow(box, path, true, options);
  const blockedBy = end === undefined || end.kind === "directory" ? null : end.path;
  return { path: resolved, isThere: kind === "directory", blockedBy };
}

async function follow(
  box: Runtime,
  from: string,
  last: boolean,
  options: OperationOptions,
): Promise<Pick<ResolvedPath, "path" | "kind"> & { readonly end: PathComponent | undefined }> {
  let path = from;
  for (let links = 0; links <= MAX_LINKS; links++) {
    const end = (await box.inspectPath(path, options)).at(-1);
    const isWhole = end?.path === path;
    if (end === undefined || end.kind !== "link" || (isWhole && !last)) {
      return { path, kind: isWhole ? end.kind : null, end };
    }
    const target = posix.resolve(posix.dirname(end.path), end.linkTarget ?? ".");
    path = posix.join(target, path.slice(end.path.length));
  }
  throw new TrialFailure(
    "refused",
    "ERR_ARTIFACT_ROOT",
    `${from} has more than ${MAX_LINKS} links on its way; take them out of the image`,
  );
}

/** `resolveInBox` of many, a few at a time, in their order. */
export async function resolveAllInBox(
  box: Runtime,
  paths: readonly string[],
  options: OperationOptions,
): Promise<readonly ResolvedPath[]> {
  const resolved: ResolvedPath[] = [];
  for (let at = 0; at < paths.length; at += AT_A_TIME) {
    const batch = paths.slice(at, at + AT_A_TIME);
    resolved.push(...(await Promise.all(batch.map((path) => resolveInBox(box, path, options)))));
  }
  return resolved;
}

/** True if the path is the folder or below it. */
export function isInside(path: string, folder: string): boolean {
  return path === folder || folder === "/" || path.startsWith(`${folder}/`);
}
