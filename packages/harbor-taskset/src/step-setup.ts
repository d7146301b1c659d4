import { posix } from "node:path";
import { isRuntimeError, type ExecResult, type PreparedImage, type Runtime } from "@breakwater/runtime-api";

import { isInfrastructure, wasEndedByContents } from "./box-end.ts";
import { workdirOf } from "./boxes.ts";
import { thawAgentBox } from "./collect.ts";
import { waitUntilHealthy } from "./healthcheck.ts";
import { clearBetweenSteps } from "./restore.ts";
import { packTaskFolder } from "./task-folder-archive.ts";
import { messageOf, TrialFailure } from "./trial-error.ts";
import { enter, warn, type Step } from "./trial.ts";

const CLEAR_TIMEOUT_MS = 10 * 60 * 1000;
const UPLOAD_TIMEOUT_MS = 20 * 60 * 1000;
const MAX_OUTPUT_BYTES = 2000;

/**
 * What comes before a step's agent: the box goes on, without what the step before it left for its tests; the step's files are put into the working directory,
 * `setup.sh` is run, and its healthcheck is awaited. `false`: the agent has made it impossible in an earlier step. A box of its own then grades what
 * there is: an agent cannot leave out a step.
 */
export async function setUpStep(step: Step, box: Runtime, image: PreparedImage): Promise<boolean> {
  enter(step, "setup");
  try {
    if (step.record.agentBoxEndedBy === null) await thawAgentBox(step, box);
    if (step.record.agentBoxEndedBy !== null) throw endedBefore(step);
    if (!step.isFirst)
      await clearBetweenSteps(step, box, {
        signal: AbortSignal.any([step.signal, AbortSignal.timeout(CLEAR_TIMEOUT_MS)]),
      });
    await prepare(step, box, image);
    return true;
  } catch (error) {
    const failure = await whySetupFailed(step, box, error);
    const isOfTheAgent = !step.isFirst && failure instanceof TrialFailure && failure.reason === "crashed";
    if (!isOfTheAgent || step.step.verifier.box === null) throw failure;
    warn(step, `step ${step.step.name}`, `no agent worked in it, and it is graded as it is: ${messageOf(failure)}`);
    return false;
  }
}

async function prepare(step: Step, box: Runtime, image: PreparedImage): Promise<void> {
  const { setup, agent } = step.step;
  const { signal } = step;
  if (setup === null) return;
  const workdir = workdirOf(box, image);
  if (setup.files !== null) {
    await box.upload(packTaskFolder(setup.files), workdir, { signal, timeoutMs: UPLOAD_TIMEOUT_MS });
  }
  if (setup.script !== null) {
    const user = agent.user === null ? {} : { user: agent.user };
    const limits = { signal, timeoutMs: setup.timeoutMs, maxOutputBytes: MAX_OUTPUT_BYTES };
    const result = await box.exec(["bash", posix.join(workdir, setup.script)], { ...user, ...limits });
    step.events.emit("setup.ended", {
      box: box.id,
      details: { exitCode: result.exitCode, timedOut: result.timedOut, durationMs: result.durationMs },
    });
    if (result.timedOut || result.exitCode !== 0) throw scriptFailed(setup.script, result, setup.timeoutMs);
  }
  if (setup.healthcheck !== null) {
    const { attempts } = await waitUntilHealthy(box, setup.healthcheck, "the step", signal);
    step.events.emit("agent-box.healthy", { box: box.id, details: { attempts } });
  }
}

function scriptFailed(
  script: string,
  { timedOut, exitCode, stdout, stderr }: ExecResult,
  timeoutMs: number,
): TrialFailure {
  const how = timedOut ? `did not end within ${timeoutMs} ms` : `ended with exit code ${exitCode}`;
  const output = Buffer.concat([stdout, stderr]).toString("utf8").trim();
  return new TrialFailure("unhealthy", "ERR_STEP_SETUP", `${script} ${how}${output === "" ? "" : `: ${output}`}`);
}

/** An agent that has worked in the box may have brought it about, and must not be able to choose a retry. */
async function whySetupFailed(step: Step, box: Runtime, error: unknown): Promise<unknown> {
  if (step.signal.aborted) return error;
  if (await wasEndedByContents(step, box, "agent", error)) return endedBefore(step);
  if (isInfrastructure(error)) return error;
  if (error instanceof TrialFailure) {
    return step.isFirst || error.reason !== "unhealthy"
      ? error
      : new TrialFailure("crashed", error.code, error.message);
  }
  if (!isRuntimeError(error)) return error;
  const message = `the step could not be set up in the agent's box: ${messageOf(error)}`;
  return new TrialFailure(step.isFirst ? "unhealthy" : "crashed", "ERR_STEP_SETUP", message, error);
}

function endedBefore({ record, step }: Step): TrialFailure {
  return new TrialFailure(
    "crashed",
    "ERR_BOX_ENDED",
    `the agent's box was ended by its contents (${record.agentBoxEndedBy}), so that step ${step.name} could not be done in it`,
  );
}
