import { lstat, realpath } from "node:fs/promises";
import { basename, dirname, join, posix, sep } from "node:path";
import { directoryMembers, isTarError, packTar, type PackMember } from "@breakwater/tar";

import type { ArtifactPlan } from "./plan.ts";
import type { RecordedArtifact } from "./recorded-trial.ts";
import { messageOf } from "./trial-error.ts";

/** A declared artifact, and what the record has of it. */
export interface FoundArtifact {
  readonly plan: ArtifactPlan;
  /** Absolute, on the host; `null`: the agent's box had nothing there, and the tests are to find nothing. */
  readonly path: string | null;
  readonly type: "file" | "directory";
  /** Recorded as an empty folder, which need not be on disk. */
  readonly isEmpty: boolean;
}

/** What is declared now is looked for in the record, by the rules of Harbor's own regrade (`trial/regrade.py`): the verifier must see what a live trial would have shown it. */
export async function findRecorded(
  folder: string,
  recorded: readonly RecordedArtifact[],
  plans: readonly ArtifactPlan[],
): Promise<{ readonly found: readonly FoundArtifact[]; readonly problems: readonly string[] }> {
  const found: FoundArtifact[] = [];
  const problems: string[] = [];
  for (const plan of plans) {
    const one = await findOne(folder, recorded, plan);
    if (typeof one === "string") problems.push(`${plan.source}: ${one}`);
    else found.push(one);
  }
  return { found, problems };
}

/** A text says why it cannot be had. */
async function findOne(
  folder: string,
  recorded: readonly RecordedArtifact[],
  plan: ArtifactPlan,
): Promise<FoundArtifact | string> {
  const candidates = recorded.filter((entry) => isOf(entry, plan));
  if (candidates.length === 0) return "was never collected, and the tests would be graded without it";
  // The last one counts.
  const entry = candidates.findLast(({ destination }) => destination === plan.destination);
  if (entry === undefined) {
    const places = [...new Set(candidates.map(({ destination }) => destination))].sort().join(", ");
    return `is recorded at ${places}, and declared to be at ${plan.destination} now; give it the same destination`;
  }
  const absolute = entry.source.startsWith("/") ? { ...plan, source: withoutSlash(entry.source) } : plan;
  const { type } = entry;
  if (entry.breakwater?.status === "missing" && entry.status === "failed")
    return { plan: absolute, path: null, type, isEmpty: false };
  if (entry.status === "failed") return "could not be collected then: the record does not have it";
  if (entry.status === "skipped") return "was skipped then: what is at its place belongs to another artifact";
  if (type === "directory" && entry.exclude !== null && entry.exclude !== undefined) {
    const [then, now] = [entry.exclude, plan.exclude].map((patterns) => [...new Set(patterns)].sort());
    if (JSON.stringify(then) !== JSON.stringify(now)) {
      return `was collected with exclude = ${JSON.stringify(entry.exclude)}, and is declared with ${JSON.stringify(plan.exclude)} now`;
    }
  }
  const path = join(folder, entry.destination);
  if (entry.status === "empty") {
    return type === "directory"
      ? { plan: absolute, path, type, isEmpty: true }
      : "is recorded as empty, which only a folder can be, and as a file";
  }
  const status = await lstat(path).catch(() => null);
  if (status === null) return `is recorded, but ${path} is not there any more`;
  if (!`${await realpath(dirname(path))}${sep}`.startsWith(`${await realpath(folder)}${sep}`))
    return `is behind a link that leads out of the record: ${path}`;
  const kind = status.isDirectory() ? "directory" : status.isFile() ? "file" : null;
  if (kind !== type) return `is recorded as a ${type}, and ${path} is none`;
  const artifact = { plan: absolute, path, type, isEmpty: false };
  return (await whyItCannotTravel(artifact)) ?? artifact;
}

/** The same service, and the same path but for a slash at its end. A relative path of the declaration may be recorded as it is, or below the working directory. */
function isOf({ service, source, destination }: RecordedArtifact, plan: ArtifactPlan): boolean {
  if ((service ?? "main") !== (plan.service ?? "main")) return false;
  const path = withoutSlash(source);
  if (path === plan.source) return true;
  return !plan.source.startsWith("/") && destination === plan.destination && path.endsWith(`/${plan.source}`);
}

function withoutSlash(path: string): string {
  return path.replace(/(?<=.)\/+$/, "");
}

/** Links stay links, and so have to stay inside; what is no file, folder or link cannot be read. */
async function whyItCannotTravel(artifact: FoundArtifact): Promise<string | null> {
  try {
    for await (const _ of membersOf(artifact));
    return null;
  } catch (error) {
    if (!isTarError(error, "ERR_TAR_SOURCE")) throw error;
    return messageOf(error);
  }
}

/** The archive that the agent's box would have given. Its content is read only as it is packed. */
export function packRecorded(artifact: FoundArtifact): AsyncGenerator<Uint8Array, void, undefined> {
  return packTar(membersOf(artifact));
}

async function* membersOf({ plan, path, type, isEmpty }: FoundArtifact): AsyncGenerator<PackMember, void, undefined> {
  const root = plan.source.replace(/^\//, "");
  if (type === "file" && path !== null) {
    const name = basename(path);
    for await (const member of directoryMembers(dirname(path), { filter: (one) => one === name }))
      yield { ...member, path: root };
    return;
  }
  yield { type: "directory", path: root };
  if (path === null || (isEmpty && (await lstat(path).catch(() => null)) === null)) return;
  for await (const member of directoryMembers(path)) yield { ...member, path: posix.join(root, String(member.path)) };
}
