import { createHash } from "node:crypto";
import { isRuntimeError, type PreparedImage, type Runtime, type UploadEntry } from "@breakwater/runtime-api";

import { CONVENTION_DIRECTORY, refuseRoot } from "./artifacts-declaration.ts";
import { ownerInBox, type Owner } from "./box-owner.ts";
import { isInside, resolveAllInBox, resolveFolderInBox, resolveInBox } from "./box-paths.ts";
import { workdirOf } from "./boxes.ts";
import { writeManifest, type CollectedArtifact } from "./collect.ts";
import { makeFolder, RestoredArtifacts, type Limits, type Place } from "./restored-artifacts.ts";
import { REWARD_FILES } from "./reward.ts";
import { differences, manifestOf, packTaskFolder, type Manifest } from "./task-folder-archive.ts";
import type { TaskFolder } from "./task.ts";
import { messageOf, TrialFailure } from "./trial-error.ts";
import { warn, type Step, type Trial } from "./trial.ts";

export const TESTS_DIRECTORY = "/tests";
export const REWARD_DIRECTORY = "/logs/verifier";
const AGENT_LOGS_DIRECTORY = "/logs/agent";

/** What is compared is ours: more than we sent means that it is not. */
const COMPARE_LIMITS = { maxBytes: 3 * 1024 ** 3, maxEntries: 50_000 } as const;

/** Folders of `/logs` that everybody in the agent's box may write to, as in Harbor. */
export async function makeAgentLogs(box: Runtime, limits: Limits): Promise<void> {
  const folders = ["agent", "artifacts", "verifier"];
  const entries = folders.map((path): UploadEntry => ({ path, directory: true, mode: 0o777 }));
  await box.upload(entries, "/logs", limits);
}

export interface VerifierBoxContent {
  readonly artifacts: readonly CollectedArtifact[];
  /** `false`: a function grades. */
  readonly needsScript: boolean;
}

/** Step 9: the ground of the verifier's box is made ours, then the artifacts come, then the tests. */
export async function prepareVerifierBox(
  step: Step,
  box: Runtime,
  image: PreparedImage,
  content: VerifierBoxContent,
  limits: Limits,
): Promise<void> {
  try {
    await prepareGround(step, box, image, content, limits);
  } catch (error) {
    if (!isRuntimeError(error, "ERR_PATH_LINK", "ERR_PATH_KIND", "ERR_PATH_DENIED")) throw error;
    throw new TrialFailure(
      "refused",
      "ERR_ARTIFACT_ROOT",
      `the verifier's image is in the way: ${messageOf(error)}; take it out of the image, or collect from another place`,
      error,
    );
  }
}

async function prepareGround(
  step: Step,
  box: Runtime,
  image: PreparedImage,
  { artifacts, needsScript }: VerifierBoxContent,
  limits: Limits,
): Promise<void> {
  const { events } = step;
  const { verifier } = step.step;
  const owner = (await ownerInBox(box, verifier.user ?? image.user, limits)) ?? ROOT;
  const places = await resolvePlaces(step, box, artifacts, limits);

  await makeRewardDirectory(step, box, owner, limits);
  await box.removePaths(
    places.map(({ path }) => path),
    limits,
  );
  events.emit("verifier-box.cleared", {
    box: box.id,
    details: { emptied: REWARD_DIRECTORY, removed: places.map(({ path }) => path) },
  });

  const restored = new RestoredArtifacts(step, box, limits);
  for (const place of places) await restored.add(place, owner);
  await restored.makeWorkdir(workdirOf(box, image), owner);
  const { tests } = verifier;
  const placed = await restored.withRoom(async () => {
    await makeFolder(box, CONVENTION_DIRECTORY, owner, limits);
    await restored.assertRoomToWork(REWARD_DIRECTORY);
    if (tests === null) return null;
    await box.removePaths([TESTS_DIRECTORY], limits);
    return await placeTests(step, box, tests, limits);
  });
  if (placed !== null) await compareTests(step, box, placed, limits);
  else if (needsScript) await findTests(step, box, limits);
  if (restored.hasLeftOut)
    await writeManifest(
      step,
      artifacts.map(({ plan }) => plan),
    );
}

/** Shared mode: earlier reward files and tests go, and the tests come. Whatever else is in the box stays. */
export async function prepareSharedGround(
  step: Step,
  box: Runtime,
  image: PreparedImage,
  limits: Limits,
): Promise<void> {
  const { verifier } = step.step;
  const workdir = workdirOf(box, image);
  const rewards = REWARD_FILES.map((file) => `${REWARD_DIRECTORY}/${file}`);
  // Everything here is the agent's: a link on the way is removed like a file, and what comes back at once is what shared mode cannot rule out.
  for (const path of [...rewards, TESTS_DIRECTORY]) await clearTheWay(box, path, limits);
  await removeIfPossible(step, box, [...rewards, TESTS_DIRECTORY], limits);
  const owner = (await ownerInBox(box, verifier.user ?? image.user, limits)) ?? ROOT;
  await box.upload([REWARD_FOLDER], "/logs", { ...limits, owner });
  const { blockedBy } = await resolveFolderInBox(box, workdir, limits);
  if (blockedBy !== null) await removeIfPossible(step, box, [blockedBy], limits);
  await makeFolder(box, workdir, owner, limits);
  if (verifier.tests !== null) await placeTests(step, box, verifier.tests, limits);
}

/**
 * Between two steps: what the tests were, what they left, and what the last step handed in is taken away and shown to be gone; the folders of `/logs` are
 * there again. Rejects if that cannot be done.
 */
export async function clearBetweenSteps(trial: Trial, box: Runtime, limits: Limits): Promise<void> {
  const removed = [TESTS_DIRECTORY, REWARD_DIRECTORY, CONVENTION_DIRECTORY, AGENT_LOGS_DIRECTORY];
  for (const path of removed) await clearTheWay(box, path, limits);
  await box.removePaths(removed, limits);
  await makeAgentLogs(box, limits);
  trial.events.emit("agent-box.cleared", { box: box.id, details: { removed } });
}

async function removeIfPossible(trial: Trial, box: Runtime, paths: readonly string[], limits: Limits): Promise<void> {
  try {
    await box.removePaths(paths, limits);
  } catch (error) {
    if (!isRuntimeError(error, "ERR_PATH_DENIED")) throw error;
    warn(trial, "the agent's box", `what the agent left could not be removed: ${messageOf(error)}`);
  }
}

const ROOT: Owner = { uid: 0, gid: 0 };
/** The verifier's user can write to it and nobody else. */
const REWARD_FOLDER: UploadEntry = { path: "verifier", directory: true, mode: 0o755 };

async function clearTheWay(box: Runtime, directory: string, limits: Limits): Promise<void> {
  const blocking = (await box.inspectPath(directory, limits)).find(
    ({ kind, path }) => kind !== "directory" && path !== directory,
  );
  if (blocking !== undefined) await box.removePaths([blocking.path], limits);
}

/** An image may have links on the way to an artifact's place. They are followed, unless they lead to where no artifact may be. */
async function resolvePlaces(
  trial: Trial,
  box: Runtime,
  collected: readonly CollectedArtifact[],
  limits: Limits,
): Promise<readonly Place[]> {
  const sources = collected.map(({ plan }) => plan.source);
  const resolved = await resolveAllInBox(box, sources, limits);
  const places = collected.flatMap((artifact, index) => {
    const place = resolved[index];
    return place === undefined ? [] : [{ artifact, ...place }];
  });
  for (const { artifact, path, leadsTo } of places) {
    const { source } = artifact.plan;
    for (const end of [path, leadsTo]) {
      const reason = end === null || end === source ? null : refuseRoot(end);
      if (reason === null) continue;
      trial.events.emit("verifier-box.cleared", { box: box.id, details: { refused: source, leadsTo: end } });
      throw new TrialFailure(
        "refused",
        "ERR_ARTIFACT_ROOT",
        `in the verifier's image, ${source} is behind a link: ${reason}; take the link out of the image, or collect from another place`,
      );
    }
  }
  return places;
}

/** A plain folder, listed empty. */
async function makeRewardDirectory(trial: Trial, box: Runtime, owner: Owner, limits: Limits): Promise<void> {
  await box.removePaths([REWARD_DIRECTORY], limits);
  await box.upload([REWARD_FOLDER], "/logs", { ...limits, owner });
  const { memoryMounts } = await box.report(limits);
  const memory = memoryMounts.find((mount) => isInside(REWARD_DIRECTORY, mount));
  if (memory !== undefined && trial.capabilities.stop !== "destroys") {
    throw new TrialFailure(
      "refused",
      "ERR_ARTIFACT_ROOT",
      `${memory} is on a memory file system of the box: the reward would be lost when the box stops; take the mount away`,
    );
  }
  const found = await manifestOf(box.download([REWARD_DIRECTORY], COMPARE_LIMITS, limits), REWARD_DIRECTORY);
  if (found.size > 0) {
    throw new TrialFailure(
      "infrastructure",
      "ERR_BOX_UNFIT",
      `${REWARD_DIRECTORY} was emptied, and has ${[...found.keys()].slice(0, 5).join(", ")} in it`,
    );
  }
}

/** The tests, into an empty `/tests`. */
async function placeTests(step: Step, box: Runtime, tests: TaskFolder, limits: Limits): Promise<Manifest> {
  const sent: Manifest = new Map();
  await box.upload(packTaskFolder(tests, sent), TESTS_DIRECTORY, limits);
  const list = [...sent].map(([path, what]) => `${path}\0${what}\n`).sort();
  step.outcome.testsSha256 = createHash("sha256").update(list.join("")).digest("hex");
  step.events.emit("tests.uploaded", {
    box: box.id,
    details: { entries: sent.size, sha256: step.outcome.testsSha256 },
  });
  return sent;
}

/** What is in `/tests` is what was sent, by type, size and hash. */
async function compareTests(trial: Trial, box: Runtime, sent: Manifest, limits: Limits): Promise<void> {
  const found = await manifestOf(box.download([TESTS_DIRECTORY], COMPARE_LIMITS, limits), TESTS_DIRECTORY);
  const different = differences(sent, found);
  if (different.length > 0) {
    throw new TrialFailure(
      "infrastructure",
      "ERR_TRANSFER",
      `${TESTS_DIRECTORY} is not what was sent: ${different.slice(0, 5).join(", ")}`,
    );
  }
  trial.events.emit("tests.compared", { box: box.id, details: { entries: found.size } });
}

/** A dedicated image brings its own tests. They are never touched. */
async function findTests(step: Step, box: Runtime, limits: Limits): Promise<void> {
  const script = `${TESTS_DIRECTORY}/${step.step.verifier.script}`;
  const { kind, leadsTo } = await resolveInBox(box, script, limits);
  if (kind === "file" || leadsTo !== null) {
    step.events.emit("tests.found", { box: box.id, details: { script } });
    return;
  }
  throw new TrialFailure(
    "missing",
    "ERR_VERIFIER_SCRIPT",
    `the verifier's image has no ${script}; an image of the verifier's own has to bring its tests`,
  );
}
