import { isRuntimeError, type Runtime } from "@breakwater/runtime-api";
import { isTarError, spoolArtifact, type Spool } from "@breakwater/tar";

import { CONVENTION_DIRECTORY } from "./artifacts-declaration.ts";
import { endOfBox, wasEndedByContents } from "./box-end.ts";
import { hasEnded, whereFrom } from "./collect-services.ts";
import type { ArtifactPlan } from "./plan.ts";
import type { ArtifactOutcome, CollectedFrom } from "./result.ts";
import { messageOf } from "./trial-error.ts";
import { enter, warn, type Step, type Trial } from "./trial.ts";

const STOP_TIMEOUT_MS = 90_000;
const KILL_TIMEOUT_MS = 2 * 60 * 1000;
const ARTIFACT_TIMEOUT_MS = 60 * 60 * 1000;
const LOGS_TIMEOUT_MS = 10 * 60 * 1000;
const LOGS_LIMITS = { maxBytes: 512 * 1024 ** 2, maxEntries: 20_000 } as const;
/** Of one entry, in the result. */
const MAX_LISTED_MEMBERS = 100;

/** Step 4: what the agent wrote about its own work. For people; a trial does not depend on it. */
export async function readAgentLogs(trial: Trial, box: Runtime): Promise<void> {
  if (trial.record.agentBoxEndedBy !== null || trial.folder.directory === null) return;
  try {
    await keepLogs(trial, box, "/logs/agent", "agent");
    trial.events.emit("agent-logs.read", { box: box.id });
  } catch (error) {
    if (trial.signal.aborted) throw error;
    if (isRuntimeError(error, "ERR_BOX_LOST")) await endOfBox(trial, box, "agent");
    warn(trial, "/logs/agent", `could not be read: ${messageOf(error)}`);
  }
}

/** A folder of logs as a folder of the trial, where it is added to what is there. */
export async function keepLogs(
  trial: Trial,
  box: Runtime,
  path: string,
  destination: string,
  timeoutMs: number = LOGS_TIMEOUT_MS,
): Promise<void> {
  const { folder, record, signal } = trial;
  const stream = box.download([path], LOGS_LIMITS, { signal, timeoutMs });
  const spool = await spoolArtifact(stream, { file: folder.newSpoolFile(), root: path, ...LOGS_LIMITS });
  record.warnings.push(...(await folder.place(spool, destination)));
}

/**
 * Step 5: nothing of the agent's runs while it is collected from, and where this was the box's last use, never again. Proven; or, where stop means gone,
 * what can be killed is killed and the rest listed.
 */
export async function quietenAgentBox(trial: Trial, box: Runtime, isLastUse: boolean): Promise<CollectedFrom> {
  const { capabilities, record } = trial;
  enter(trial, "collect");
  if (box.state === "gone" && record.agentBoxEndedBy !== null)
    return capabilities.stop === "destroys" ? "live" : capabilities.stop;
  if (!isLastUse && (await freezeAgentBox(trial, box))) return "frozen";
  if (!isLastUse && record.agentBoxEndedBy === null) return "live";
  if (capabilities.stop === "destroys") {
    if (record.agentBoxEndedBy === null) await killWhatCanBeKilled(trial, box, "agent");
    return "live";
  }
  try {
    const proof = await box.stopConfirmed({ signal: trial.signal, timeoutMs: STOP_TIMEOUT_MS });
    trial.events.emit("agent-box.stopped", { box: box.id, proof });
  } catch (error) {
    if (!isRuntimeError(error, "ERR_BOX_LOST")) throw error;
    // It had ended before; how, is what counts.
    if ((await endOfBox(trial, box, "agent")) === null) throw error;
  }
  await endOfBox(trial, box, "agent");
  return capabilities.stop;
}

/** `false`: it cannot be frozen here, or it has ended by its contents. It stays frozen until the next step begins. */
export async function freezeAgentBox(trial: Trial, box: Runtime): Promise<boolean> {
  if (trial.capabilities.freeze === "none" || trial.record.agentBoxEndedBy !== null) return false;
  try {
    await box.freeze({ signal: trial.signal, timeoutMs: STOP_TIMEOUT_MS });
  } catch (error) {
    if (await wasEndedByContents(trial, box, "agent", error)) return false;
    throw error;
  }
  trial.events.emit("agent.frozen", { box: box.id });
  return true;
}

/** The frozen box goes on, unless it turns out to have ended by its contents. */
export async function thawAgentBox(trial: Trial, box: Runtime): Promise<void> {
  if (box.state !== "frozen") return;
  try {
    await box.thaw({ signal: trial.signal, timeoutMs: STOP_TIMEOUT_MS });
  } catch (error) {
    if (await wasEndedByContents(trial, box, "agent", error)) return;
    throw error;
  }
  trial.events.emit("agent.thawed", { box: box.id });
}

/** For backends that cannot stop a box and read it: the record says what still ran. */
export async function killWhatCanBeKilled(trial: Trial, box: Runtime, of: "agent" | "verifier"): Promise<void> {
  const { events, signal } = trial;
  try {
    const { killed, remaining } = await box.killProcesses({ signal, timeoutMs: KILL_TIMEOUT_MS });
    events.emit(`${of}-box.quietened`, { box: box.id, details: { killed, remaining } });
  } catch (error) {
    if (signal.aborted) throw error;
    if (await wasEndedByContents(trial, box, of, error)) return;
    events.emit(`${of}-box.quietened`, { box: box.id, details: { failed: messageOf(error) } });
    warn(trial, `the ${of}'s box`, `its processes could not be shown to be killed: ${messageOf(error)}`);
  }
}

/** An artifact on its way from one box to the other. */
export interface CollectedArtifact {
  readonly plan: ArtifactPlan;
  /** `null`: there was nothing, or nothing that may cross over. */
  readonly spool: Spool | null;
}

/**
 * Step 6: every declared artifact, member by member. Whatever the agent made of it is recorded and never ends the trial: what breaks a rule is
 * left out, and an entry over its limit is left out whole.
 */
export async function collectArtifacts(
  step: Step,
  box: Runtime,
  artifacts: readonly ArtifactPlan[],
  from: CollectedFrom,
): Promise<readonly CollectedArtifact[]> {
  const { events, folder, outcome: found, record } = step;
  enter(step, "collect");
  found.collectedFrom = from;
  const collected: CollectedArtifact[] = [];
  for (const plan of artifacts) {
    const { spool, status, reason } = await collectArtifact(step, box, plan, from);
    const outcome: ArtifactOutcome = {
      source: plan.source,
      ...ofService(plan),
      destination: plan.destination,
      status,
      type: spool?.kind ?? null,
      entries: spool?.entries ?? 0,
      bytes: spool?.bytes ?? 0,
      sha256: spool?.sha256 ?? null,
      overlaps: plan.overlaps,
    };
    const leftOut = spool?.leftOut ?? [];
    found.artifacts.push(outcome);
    if (reason !== null || leftOut.length > 0) {
      const members = leftOut.slice(0, MAX_LISTED_MEMBERS);
      found.artifactsRefused.push({
        source: plan.source,
        ...ofService(plan),
        reason,
        members,
        memberCount: leftOut.length,
      });
    }
    events.emit("artifact.collected", {
      box: box.id,
      details: { ...outcome, from, ...(reason === null ? {} : { reason }), leftOut: leftOut.length },
    });
    const kept = spool === null || spool.kind === null ? null : spool;
    if (kept !== null) record.warnings.push(...(await folder.place(kept, plan.destination)));
    collected.push({ plan, spool: kept });
  }
  await writeManifest(step, artifacts);
  return collected;
}

function ofService({ service }: ArtifactPlan): Pick<ArtifactOutcome, "service"> {
  return service === undefined ? {} : { service };
}

interface Attempt {
  readonly spool: Spool | null;
  readonly status: ArtifactOutcome["status"];
  /** Why nothing crosses over. */
  readonly reason: string | null;
}

async function collectArtifact(trial: Trial, box: Runtime, plan: ArtifactPlan, from: CollectedFrom): Promise<Attempt> {
  const { source, limits, exclude } = plan;
  const place = whereFrom(box, plan);
  const refused = (reason: string): Attempt => ({ spool: null, status: "refused", reason });
  try {
    const stream = place.download([source], limits, { signal: trial.signal, timeoutMs: ARTIFACT_TIMEOUT_MS });
    const file = trial.folder.newSpoolFile();
    const spool = await spoolArtifact(stream, { file, root: source, ...limits, exclude });
    if (spool.kind !== null) return { spool, status: "collected", reason: null };
    return spool.leftOut.length === 0
      ? { spool, status: "missing", reason: null }
      : { ...refused("nothing of it may cross over"), spool };
  } catch (error) {
    if (isRuntimeError(error, "ERR_PATH_NOT_FOUND")) return { spool: null, status: "missing", reason: null };
    if (isRuntimeError(error, "ERR_LIMIT") || isTarError(error, "ERR_TAR_LIMIT")) {
      return refused(`it is over its limit: ${messageOf(error)}`);
    }
    if (isOfTheAgentsMaking(trial, error, from)) return refused(messageOf(error));
    if (plan.service !== undefined && (await hasEnded(box.service(plan.service), error))) {
      return refused("the service had ended, and its files are gone with it");
    }
    if (await wasEndedByContents(trial, box, "agent", error)) {
      return refused("the box had ended, and its files are gone with it");
    }
    throw error;
  }
}

function isOfTheAgentsMaking({ record }: Trial, error: unknown, from: CollectedFrom): boolean {
  if (isTarError(error, "ERR_TAR_INVALID")) return true;
  if (isRuntimeError(error, "ERR_PATH_LINK", "ERR_PATH_KIND", "ERR_PATH_DENIED", "ERR_PATH_MEMORY")) return true;
  // What reads in a box that ended has nothing to read.
  if (record.agentBoxEndedBy !== null && isRuntimeError(error, "ERR_BOX_STATE")) return true;
  // A box that still lives can get at whatever reads in it.
  const readInTheBox = from === "live" && isRuntimeError(error, "ERR_TRANSFER", "ERR_EXEC_START", "ERR_BOX_UNFIT");
  return readInTheBox || (from === "live" && isTarError(error, "ERR_TAR_TRUNCATED"));
}

/** The list that Harbor's tools read, in its words; ours are under a key of our own. */
export async function writeManifest(step: Step, artifacts: readonly ArtifactPlan[]): Promise<void> {
  const status = { collected: "ok", missing: "failed", refused: "failed" } as const;
  const { artifacts: outcomes, artifactsRefused } = step.outcome;
  const entries = outcomes.map((artifact, index) => {
    const isConvention = artifact.source === CONVENTION_DIRECTORY && artifact.service === undefined;
    const refused = artifactsRefused.find(
      ({ source, service }) => source === artifact.source && service === artifact.service,
    );
    const { status: ours, entries: count, bytes, sha256 } = artifact;
    return {
      source: artifact.source,
      destination: artifact.destination,
      type: artifact.type ?? (isConvention ? "directory" : "file"),
      status: isConvention && ours === "missing" ? "empty" : status[ours],
      service: artifact.service ?? null,
      exclude: artifact.type === "file" ? [] : (artifacts[index]?.exclude ?? []),
      breakwater: {
        status: ours,
        reason: refused?.reason ?? null,
        leftOut: refused?.memberCount ?? 0,
        entries: count,
        bytes,
        sha256,
      },
    };
  });
  await step.folder.writeJson("artifacts/manifest.json", entries);
}
