import { createHash } from "node:crypto";
import { isRuntimeError, type ExecResult, type PreparedImage, type Runtime } from "@breakwater/runtime-api";

import type { AgentBox } from "./agents.ts";
import { endAndReport, isInfrastructure } from "./box-end.ts";
import { workdirOf } from "./boxes.ts";
import { freezeAgentBox, keepLogs, killWhatCanBeKilled } from "./collect.ts";
import { OutputLog } from "./output-log.ts";
import { workInBox } from "./phase-box.ts";
import { underPolicy } from "./phase-network.ts";
import { REWARD_DIRECTORY, TESTS_DIRECTORY } from "./restore.ts";
import type { BoundedOutput, CollectedFrom, EndedByContents } from "./result.ts";
import {
  checkRewards,
  MAX_REWARD_BYTES,
  parseReward,
  REWARD_FILES,
  type ParsedReward,
  type RewardFile,
  type Rewards,
} from "./reward.ts";
import { messageOf, TrialFailure } from "./trial-error.ts";
import { abortedFailure, enter, warn, type Step, type Trial } from "./trial.ts";
import type { VerifierDeadline } from "./verifier-deadline.ts";

/** A grader in TypeScript. Returns rewards, one number, or nothing if it left a reward file in `/logs/verifier`. */
export type Verify = (context: VerifyContext) => Promise<Rewards | number | void>;

export interface VerifyContext {
  /** The box to grade in: clean in separate mode, the agent's own in shared mode. */
  readonly box: AgentBox;
  readonly env: Readonly<Record<string, string>>;
  readonly user: string | null;
  readonly workdir: string;
  /** Fires when the verifier's time is over, and when the trial is aborted. */
  readonly signal: AbortSignal;
  readonly task: { readonly name: string };
  /** The step's name; `null` for a task without steps. */
  readonly step: string | null;
  /** Output for `verifier/test-stdout.txt`; bounded. */
  readonly log: (chunk: Uint8Array | string) => void;
}

/** After the verifier's time is over: to leave its box in order and to keep its logs. */
const AFTERWARDS_MS = 60_000;

export interface GradeOptions {
  readonly verify: Verify | undefined;
  readonly deadline: VerifierDeadline;
  /**
   * What becomes of the box before the reward is read. `stopped`: it has no further use. `goes-on`: a further step needs it; it is frozen, where that can be
   * done. `untouched`: it is the caller's.
   */
  readonly afterwards: "stopped" | "goes-on" | "untouched";
  readonly of: "agent" | "verifier";
}

/**
 * Steps 10 and 11: the tests run, the box is stopped, and only then the reward is read. Sets the trial's rewards, or throws the reason why there
 * are none. They are whatever the verifier wrote, and nothing else.
 */
export async function grade(step: Step, box: Runtime, image: PreparedImage, options: GradeOptions): Promise<void> {
  const { outcome, signal } = step;
  const { deadline, of } = options;

  // 10. The tests
  const network = {
    of,
    policy: step.step.verifier.network,
    goesOn: options.afterwards !== "stopped",
    signal: deadline.signal,
  };
  const run = await underPolicy(step, box, network, () => runTests(step, box, image, options));

  // 11. What became of the box, and what is in it once nothing runs any more
  const { endedBy: boxEndedBy, oomKills } = await endAndReport(step, box, of);
  const { exitCode, timedOut, durationMs, output } = run;
  const { testsSha256 } = outcome;
  const notRead = { rewardFrom: null, rewardSha256: null, readFrom: null };
  outcome.verifier = { exitCode, timedOut, durationMs, output, ...notRead, testsSha256, boxEndedBy, oomKills };
  if (run.error !== null && isInfrastructure(run.error) && boxEndedBy === null) throw run.error;

  const readFrom = await quietenGradingBox(step, box, boxEndedBy, options, timedOut);
  const ranToItsEnd = !timedOut && (run.error === null || boxEndedBy !== null);
  const found = ranToItsEnd ? await readReward(step, box, run, readFrom, deadline, boxEndedBy) : null;
  outcome.verifier = {
    ...outcome.verifier,
    rewardFrom: found?.from ?? null,
    rewardSha256: found?.sha256 ?? null,
    readFrom,
  };
  await keepVerifierLogs(step, box);

  if (signal.aborted && found === null) throw abortedFailure(step);
  outcome.rewards = verdict(run, found, boxEndedBy, deadline);
  if (of === "verifier" && oomKills !== null && oomKills > 0) {
    const processes = oomKills === 1 ? "a process" : `${oomKills} processes`;
    warn(
      step,
      "the verifier's box",
      `its memory limit killed ${processes} of the tests; the reward that they left counts`,
    );
  }
}

async function runTests(
  step: Step,
  box: Runtime,
  image: PreparedImage,
  { verify, deadline }: GradeOptions,
): Promise<TestRun & { readonly durationMs: number; readonly output: BoundedOutput }> {
  const { events, folder, redactor } = step;
  enter(step, "run");
  const details = { timeoutMs: deadline.remainingMs, user: step.step.verifier.user };
  events.emit("verifier.started", { box: box.id, details });
  const startedAt = performance.now();
  const log = new OutputLog(await folder.path("verifier/test-stdout.txt"), redactor);
  let run: TestRun;
  try {
    run = await (verify === undefined
      ? runScript(step, box, deadline, log)
      : runVerify(step, box, image, verify, deadline, log));
  } finally {
    log[Symbol.dispose]();
  }
  const durationMs = Math.round(performance.now() - startedAt);
  const output = log.end();
  const { exitCode, timedOut, error } = run;
  events.emit("verifier.ended", {
    box: box.id,
    details: { exitCode, timedOut, durationMs, outputBytes: output.bytes, error: error?.message ?? null },
  });
  return { ...run, durationMs, output };
}

interface TestRun {
  readonly exitCode: number | null;
  readonly timedOut: boolean;
  /** What a grader in TypeScript returned. */
  readonly returned: Rewards | number | undefined;
  /** Why the tests could not be started, or what the grader threw: ends the trial unless the box was ended by its contents. */
  readonly error: Error | null;
}

/** Directly, so that its first line decides the interpreter; as the verifier's user, where the environment works. */
async function runScript(step: Step, box: Runtime, deadline: VerifierDeadline, log: OutputLog): Promise<TestRun> {
  const { user, env, script } = step.step.verifier;
  const path = `${TESTS_DIRECTORY}/${script}`;
  await makeRunnable(step, box, path, deadline.signal);
  let result: ExecResult;
  try {
    result = await box.exec([path], {
      env,
      ...(user === null ? {} : { user }),
      timeoutMs: deadline.remainingMs,
      signal: step.signal,
      maxOutputBytes: 0,
      onOutput: (_stream, chunk) => log.write(chunk),
    });
  } catch (error) {
    if (step.signal.aborted) throw abortedFailure(step, error);
    if (isRuntimeError(error, "ERR_EXEC_START")) {
      const message = `the tests could not be started: ${error.message}`;
      return notRun(new TrialFailure("crashed", "ERR_VERIFIER_START", message, error));
    }
    // Neither is a box that was lost late, nor an engine that did not answer, the tests' taking too long.
    const timedOut = deadline.isOver && !isInfrastructure(error);
    return { exitCode: null, timedOut, returned: undefined, error: toError(error) };
  }
  const { exitCode, timedOut } = result;
  return { exitCode: timedOut ? null : exitCode, timedOut, returned: undefined, error: null };
}

/** Harbor's `chmod +x`: images are built from folders whose files have lost their bits. What comes of it shows when the script is started. */
async function makeRunnable(trial: Trial, box: Runtime, path: string, signal: AbortSignal): Promise<void> {
  try {
    const script = (await box.inspectPath(path, { signal })).at(-1);
    if (script?.path !== path || script.kind !== "file" || (script.mode & 0o111) !== 0) return;
    const user = trial.capabilities.users === "any" ? { user: "root" } : {};
    await box.exec(["chmod", "+x", path], { ...user, signal });
  } catch (error) {
    // What the agent left in the box may have ended it.
    if (!isRuntimeError(error, "ERR_EXEC_START", "ERR_TRANSFER")) throw error;
  }
}

async function runVerify(
  step: Step,
  box: Runtime,
  image: PreparedImage,
  verify: Verify,
  deadline: VerifierDeadline,
  log: OutputLog,
): Promise<TestRun> {
  const { user, env } = step.step.verifier;
  const phase = { user, env, timeoutMs: deadline.remainingMs, signal: step.signal };
  const workdir = workdirOf(box, image);
  const task = { name: step.plan.task.name };
  const end = await workInBox(box, phase, (view, signal) =>
    verify({ box: view, env, user, workdir, signal, task, step: step.step.name, log: log.write }),
  );
  switch (end.status) {
    case "aborted":
      throw abortedFailure(step);
    case "timed-out":
      return { exitCode: null, timedOut: true, returned: undefined, error: null };
    case "threw":
      return notRun(
        isInfrastructure(end.error)
          ? toError(end.error)
          : new TrialFailure(
              "crashed",
              "ERR_VERIFIER_THREW",
              `the verifier failed: ${messageOf(end.error)}`,
              end.error,
            ),
      );
    case "returned":
      return { exitCode: null, timedOut: false, returned: end.value ?? undefined, error: null };
  }
}

function toError(error: unknown): Error {
  return error instanceof Error ? error : new Error(messageOf(error));
}

function notRun(error: Error): TestRun {
  return { exitCode: null, timedOut: false, returned: undefined, error };
}

/** Nothing may change a reward while it is read. */
async function quietenGradingBox(
  trial: Trial,
  box: Runtime,
  endedBy: EndedByContents | null,
  { deadline, afterwards, of }: GradeOptions,
  timedOut: boolean,
): Promise<CollectedFrom> {
  if (afterwards === "untouched") return "live";
  if (afterwards === "goes-on" && endedBy === null) return (await freezeAgentBox(trial, box)) ? "frozen" : "live";
  if (trial.capabilities.stop === "destroys") {
    if (endedBy === null) await killWhatCanBeKilled(trial, box, of);
    return "live";
  }
  const limits = timedOut
    ? { signal: trial.signal, timeoutMs: AFTERWARDS_MS }
    : { signal: deadline.signal, timeoutMs: deadline.remainingMs };
  const proof = await box.stopConfirmed(limits);
  trial.events.emit(`${of}-box.stopped`, { box: box.id, proof });
  return trial.capabilities.stop;
}

interface FoundReward {
  readonly from: RewardFile | "returned";
  /** Of the file. */
  readonly sha256: string | null;
  readonly parsed: ParsedReward;
}

/** The first reward file that is there, or what the grader returned; `null` = neither. */
async function readReward(
  trial: Trial,
  box: Runtime,
  run: TestRun,
  readFrom: CollectedFrom,
  deadline: VerifierDeadline,
  boxEndedBy: EndedByContents | null,
): Promise<FoundReward | null> {
  trial.record.phase = "reward";
  const found =
    run.returned === undefined
      ? await readRewardFile(box, deadline, boxEndedBy)
      : { from: "returned" as const, sha256: null, parsed: checkRewards(run.returned) };
  trial.events.emit("reward.read", {
    box: box.id,
    details: {
      from: found?.from ?? null,
      readFrom,
      ...(found === null ? { outcome: "missing" } : { outcome: found.parsed.rewards ?? found.parsed }),
    },
  });
  return found;
}

async function readRewardFile(
  box: Runtime,
  deadline: VerifierDeadline,
  boxEndedBy: EndedByContents | null,
): Promise<FoundReward | null> {
  for (const from of REWARD_FILES) {
    const path = `${REWARD_DIRECTORY}/${from}`;
    try {
      const limits = { signal: deadline.signal, timeoutMs: deadline.remainingMs };
      const content = await box.readBounded(path, { maxBytes: MAX_REWARD_BYTES }, limits);
      if (content === null) continue;
      const sha256 = createHash("sha256").update(content).digest("hex");
      return { from, sha256, parsed: parseReward(from, content) };
    } catch (error) {
      // Its contents ended the box, and its files are gone with it. A box that went away in any other way is nobody's verdict.
      if (isRuntimeError(error, "ERR_BOX_LOST") && boxEndedBy !== null) return null;
      if (!isRuntimeError(error, "ERR_LIMIT", "ERR_PATH_KIND", "ERR_PATH_LINK", "ERR_PATH_DENIED")) throw error;
      return { from, sha256: null, parsed: { rewards: null, reason: "invalid", message: messageOf(error) } };
    }
  }
  return null;
}

/** For people; the verdict does not depend on it. */
async function keepVerifierLogs(trial: Trial, box: Runtime): Promise<void> {
  if (trial.folder.directory === null) return;
  try {
    await keepLogs(trial, box, REWARD_DIRECTORY, "verifier", AFTERWARDS_MS);
    trial.events.emit("verifier-logs.read", { box: box.id });
  } catch (error) {
    warn(trial, REWARD_DIRECTORY, `could not be read: ${messageOf(error)}`);
  }
}

function verdict(
  run: TestRun & { readonly output: BoundedOutput },
  found: FoundReward | null,
  boxEndedBy: EndedByContents | null,
  deadline: VerifierDeadline,
): Rewards {
  if (run.timedOut) throw deadline.timeout(run.error ?? undefined);
  if (run.error !== null && boxEndedBy === null) throw run.error;
  if (found !== null) {
    const { parsed } = found;
    if (parsed.rewards !== null) return parsed.rewards;
    const code = parsed.reason === "empty" ? "ERR_REWARD_EMPTY" : "ERR_REWARD_INVALID";
    throw new TrialFailure(parsed.reason, code, `the verifier's reward is none: ${parsed.message}`);
  }
  const { head, tail } = run.output;
  const end = (tail === "" ? head : tail).trim().slice(-1000);
  const said = end === "" ? "" : `; the end of its output: ${end}`;
  if (boxEndedBy !== null) {
    throw new TrialFailure(
      "crashed",
      "ERR_BOX_ENDED",
      `the box that graded was ended by its contents (${boxEndedBy}), and no reward was left in it${said}`,
    );
  }
  if (run.exitCode !== null && run.exitCode !== 0) {
    throw new TrialFailure(
      "crashed",
      "ERR_VERIFIER_EXIT",
      `the tests ended with exit code ${run.exitCode} and left no reward in ${REWARD_DIRECTORY}${said}`,
    );
  }
  throw new TrialFailure(
    "missing",
    "ERR_REWARD_MISSING",
    `the verifier ended and left neither ${REWARD_FILES.join(" nor ")} in ${REWARD_DIRECTORY}${said}`,
  );
}
