import {
  isRuntimeError,
  type BoxReport,
  type EndedBy,
  type Runtime,
  type RuntimeCapabilities,
} from "@breakwater/runtime-api";

import type { EndedByContents } from "./result.ts";
import { TrialFailure } from "./trial-error.ts";
import type { Trial } from "./trial.ts";

/** For asking what became of a box, also where the caller has given up. */
const REPORT_TIMEOUT_MS = 60_000;

/**
 * Whether a box still runs (or we stopped it): then `null`. How it was ended by its own contents: then the trial goes on with what can be read. Throws
 * for every other end: that is nothing that the work in the box can have brought about.
 */
export async function endOfBox(trial: Trial, box: Runtime, of: "agent" | "verifier"): Promise<EndedByContents | null> {
  return (await endAndReport(trial, box, of)).endedBy;
}

/** Whether an operation failed because the box's contents had ended it. Throws what `endOfBox` throws. */
export async function wasEndedByContents(
  trial: Trial,
  box: Runtime,
  of: "agent" | "verifier",
  error: unknown,
): Promise<boolean> {
  return isRuntimeError(error, "ERR_BOX_LOST") && (await endOfBox(trial, box, of)) !== null;
}

/** The same, with how many of its processes the box's memory limit has killed; `null` where the backend does not count. */
export async function endAndReport(
  trial: Trial,
  box: Runtime,
  of: "agent" | "verifier",
): Promise<{ readonly endedBy: EndedByContents | null; readonly oomKills: number | null }> {
  const report = await box.report({ timeoutMs: REPORT_TIMEOUT_MS });
  return { endedBy: endInReport(trial, box, of, report), oomKills: report.oomKills };
}

function endInReport(trial: Trial, box: Runtime, of: "agent" | "verifier", report: BoxReport): EndedByContents | null {
  const end = judgeEnd(report.endedBy, of, trial.capabilities);
  if (end === null) return null;
  if (of === "agent" && trial.record.agentBoxEndedBy !== null) return trial.record.agentBoxEndedBy;
  trial.events.emit(`${of}-box.ended`, { box: box.id, details: describeReport(report) });
  if (end === "infrastructure") {
    throw new TrialFailure(
      "infrastructure",
      "ERR_BOX_LOST",
      `the ${of}'s box ${box.id} no longer runs, and neither its contents nor we ended it (${report.endedBy ?? "unknown"}); see the backend's log`,
    );
  }
  if (of === "agent") trial.record.agentBoxEndedBy = end;
  return end;
}

/**
 * `null`: it runs, or we stopped it. A first process that is not ours can be ended from inside the box without a record: in the agent's box that counts as
 * the agent's doing, which must not be able to choose a retry.
 */
export function judgeEnd(
  endedBy: EndedBy | null,
  of: "agent" | "verifier",
  { firstProcess }: Pick<RuntimeCapabilities, "firstProcess">,
): EndedByContents | "infrastructure" | null {
  switch (endedBy) {
    case null:
    case "stopped":
      return null;
    case "memory":
    case "lifetime":
    case "contents":
      return endedBy;
    case "outside":
      return "infrastructure";
    case "unknown":
      return of === "agent" && firstProcess === "backend" ? "unknown" : "infrastructure";
  }
}

/** Errors that work in a box cannot bring about: they end a trial without rewards, and it may be tried again. */
export function isInfrastructure(error: unknown): boolean {
  return isRuntimeError(
    error,
    "ERR_BACKEND_UNAVAILABLE",
    "ERR_BACKEND_AUTH",
    "ERR_BACKEND_QUOTA",
    "ERR_BACKEND",
    "ERR_BOX_LOST",
    "ERR_EXEC_UNKNOWN",
    "ERR_NETWORK_CHANGE",
    "ERR_NETWORK_LOST",
  );
}

export function describeReport(report: BoxReport): Record<string, unknown> {
  const { endedBy, oomKills, exitCode, memoryPeakBytes, cpuMs } = report;
  return { endedBy, oomKills, exitCode, memoryPeakBytes, cpuMs };
}
