import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { type Agent, shellAgent, type TrialEvent } from "@breakwater/harbor-taskset";
import { dockerDriver } from "@breakwater/runtime-docker";
import { dockerHost, image } from "./support/backend.ts";
import { Stranger, until } from "./support/engine.ts";
import { SmallEngine } from "./support/small-engine.ts";
import { type Files, type Finished, outcome, taskFile, type TaskOptions, when, Workbench } from "./support/trials.ts";

/*
 * What goes wrong in the middle of a trial through nobody's fault: the result says what happened and what may be tried again, it is on disk, nothing
 * is left running, and it is never a 0.
 */

const workbench = new Workbench();
const stranger = new Stranger(dockerHost);
afterAll(() => workbench[Symbol.asyncDispose]());

const GRADER = `#!/bin/sh
if [ "$(cat /app/answer.txt)" = right ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
`;
const HONEST = "mkdir -p /app && echo right >/app/answer.txt";

function task(options: TaskOptions, testScript: string = GRADER): Files {
  return {
    "task.toml": taskFile({ artifacts: ["/app"], ...options }),
    "instruction.md": "Leave the answer in /app/answer.txt.\n",
    "tests/test.sh": testScript,
  };
}

/** The result is the one on disk, and the engine has nothing of the trial any more. */
async function assertSettled(trial: Finished): Promise<void> {
  const onDisk = JSON.parse((await trial.file("result.json")) ?? "null") as {
    readonly trial: string;
    readonly error: unknown;
  };
  expect([onDisk.trial, onDisk.error]).toEqual([trial.result.trial, trial.result.error]);
  expect(trial.events.at(-1)?.type).toBe("trial.ended");
  expect(await stranger.objectsOf(trial.result.trial)).toEqual([]);
}

function boxOf(event: TrialEvent): string {
  if (event.box === undefined) throw new Error(`${event.type} names no box`);
  return event.box;
}

describe.concurrent("a box that is lost", () => {
  test.for(["shared", "separate"] as const)("the agent's, killed from outside, %s", async (mode) => {
    const kill = when("agent.started", (event) => stranger.kill(boxOf(event)));
    const trial = await workbench.run(task({ mode }), {
      agent: shellAgent(`${HONEST}; sleep 1000`),
      onEvent: kill.onEvent,
    });
    await kill.acted();
    expect(trial.result).toMatchObject({ rewards: null, reward: null });
    expect(trial.result.error).toMatchObject({ reason: "infrastructure", code: "ERR_BOX_LOST", retry: "trial" });
    expect(trial.events.map(({ type }) => type)).not.toContain("verifier.started");
    await assertSettled(trial);
  });

  test.for(["shared", "separate"] as const)(
    "the verifier's, killed after it wrote a 0 for the time being, %s",
    async (mode) => {
      const script = "#!/bin/sh\necho 0 >/logs/verifier/reward.txt\nsleep 1000\necho 1 >/logs/verifier/reward.txt\n";
      const kill = when("verifier.started", async (event) => {
        const box = boxOf(event);
        await until("the 0", () => stranger.hasFile(box, "/logs/verifier/reward.txt"));
        await stranger.kill(box);
      });
      const trial = await workbench.run(task({ mode }, script), { agent: shellAgent(HONEST), onEvent: kill.onEvent });
      await kill.acted();
      expect(trial.result).toMatchObject({ rewards: null, reward: null });
      expect(trial.result.error).toMatchObject({
        reason: "infrastructure",
        code: "ERR_BOX_LOST",
        phase: "run",
        retry: mode === "separate" ? "grading" : "trial",
      });
      await assertSettled(trial);
    },
  );

  test("the verifier's, removed while it is made ready", async () => {
    const remove = when("verifier-box.started", async (event) => {
      await stranger.call("DELETE", `/containers/${boxOf(event)}?force=1&v=1`);
    });
    const healthcheck = ["[environment.healthcheck]", 'command = "sleep 10"'];
    const files = task({ mode: "separate", environment: [`docker_image = "${image}"`] });
    const trial = await workbench.run(
      { ...files, "task.toml": `${String(files["task.toml"])}${healthcheck.join("\n")}\n` },
      { agent: shellAgent(HONEST), onEvent: remove.onEvent },
    );
    await remove.acted();
    expect(trial.result.rewards).toBeNull();
    expect(trial.result.error).toMatchObject({
      reason: "infrastructure",
      code: "ERR_BOX_LOST",
      phase: "provision",
      retry: "grading",
    });
    await assertSettled(trial);
  });

  test("one trial's loss is no other's", async () => {
    const kill = when("agent.started", (event) => stranger.kill(boxOf(event)));
    const [lost, other] = await Promise.all([
      workbench.run(task({ mode: "separate" }), { agent: shellAgent("sleep 1000"), onEvent: kill.onEvent }),
      workbench.run(task({ mode: "separate" }), { agent: shellAgent(`sleep 2; ${HONEST}`) }),
    ]);
    expect(lost.result.error?.code).toBe("ERR_BOX_LOST");
    expect(outcome(other)).toBe(1);
  });
});

describe.concurrent("time", () => {
  test("an agent that does not end is ended, and what it left is graded", async () => {
    const trial = await workbench.run(task({ mode: "separate", agentTimeoutSeconds: 20 }), {
      agent: shellAgent(`${HONEST}; sleep 1000`),
    });
    expect(trial.result.agent?.status).toBe("timed-out");
    expect(outcome(trial)).toBe(1);
    await assertSettled(trial);
  });

  test("tests that do not end are a timeout of phase run, and no reward although one was written", async () => {
    const script = "#!/bin/sh\necho 1 >/logs/verifier/reward.txt\nsleep 1000\n";
    const trial = await workbench.run(task({ mode: "separate", verifierTimeoutSeconds: 40 }, script), {
      agent: shellAgent(HONEST),
    });
    expect(trial.result.rewards).toBeNull();
    expect(trial.result.error).toMatchObject({
      reason: "timeout",
      code: "ERR_VERIFIER_TIMEOUT",
      phase: "run",
      retry: "never",
    });
    await assertSettled(trial);
  });

  test("a trial that is aborted leaves nothing and says so", async () => {
    const controller = new AbortController();
    const abort = when("agent.started", async () => controller.abort());
    const trial = await workbench.run(task({ mode: "separate" }), {
      agent: shellAgent("sleep 1000"),
      signal: controller.signal,
      onEvent: abort.onEvent,
    });
    expect(trial.result.rewards).toBeNull();
    expect(trial.result.error).toMatchObject({ reason: "aborted", code: "ERR_ABORTED", retry: "trial" });
    await assertSettled(trial);
  });

  test("an agent that throws is graded", async () => {
    const agent: Agent = async ({ box }) => {
      await box.exec(["sh", "-c", HONEST]);
      throw new Error("lost my way");
    };
    const trial = await workbench.run(task({ mode: "separate" }), { agent });
    expect(trial.result.agent).toMatchObject({
      status: "failed",
      message: expect.stringContaining("lost my way") as unknown,
    });
    expect(outcome(trial)).toBe(1);
  });
});

test("a result that cannot be written: the reward is told, and that it is nowhere else, which is an error", async () => {
  let blocked: string | null = null;
  const trialName = "unwritten";
  const blockResult: Agent = async ({ box }) => {
    blocked = join(await workbench.folder("trials"), trialName, "result.json", "in-the-way");
    await mkdir(blocked, { recursive: true });
    await box.exec(["sh", "-c", HONEST]);
  };
  const trial = await workbench.run(task({ mode: "shared" }), { agent: blockResult, trialName });
  expect(blocked).not.toBeNull();
  expect(trial.result).toMatchObject({ rewards: { reward: 1 }, reward: 1 });
  expect(trial.result.error).toMatchObject({ reason: "infrastructure", code: "ERR_HOST_FILES", retry: "never" });
  expect(trial.result.error?.message).toContain("result.json");
});

describe("an engine with little room, and its end", { timeout: 900_000 }, () => {
  const reason = SmallEngine.unavailable();

  test("full disks and an engine that dies", async (context) => {
    if (reason !== null) context.skip(reason);
    await using engine = await SmallEngine.start(900, { host: dockerHost, image });
    await using driver = dockerDriver({ host: engine.host });
    const onEngine = new Stranger(engine.host);
    const fill = "head -c 2G /dev/zero >/fill 2>/logs/agent/full.txt";

    // An agent fills the disk. Its own box goes, and the disk with it: it is graded.
    const separate = await workbench.run(task({ mode: "separate" }), {
      driver,
      agent: shellAgent(`${HONEST}; ${fill}; true`),
    });
    expect(outcome(separate)).toBe(1);

    // Where its box has to be graded in, there is no room for the tests, and no reward.
    const shared = await workbench.run(task({ mode: "shared" }), {
      driver,
      agent: shellAgent(`${HONEST}; ${fill}; true`),
    });
    expect(shared.result.rewards).toBeNull();
    expect(shared.result.error).toMatchObject({ reason: "crashed", code: "ERR_VERIFIER_START", retry: "never" });
    expect(shared.result.error?.causes.join("\n")).toMatch(/disk is full|no space/i);
    for (const trial of [separate, shared]) {
      expect(await onEngine.objectsOf(trial.result.trial)).toEqual([]);
      expect(await trial.file("result.json")).not.toBeNull();
    }

    // The tests fill it, and their verdict does not fit.
    const script = `#!/bin/sh\n${fill.replace("agent", "verifier")}\necho 1 >/logs/verifier/reward.txt || exit 9\n`;
    const verdict = await workbench.run(task({ mode: "separate" }, script), { driver, agent: shellAgent(HONEST) });
    expect(verdict.result.rewards).toBeNull();
    expect(verdict.result.error).toMatchObject({ reason: "empty", code: "ERR_REWARD_EMPTY" });

    // The engine dies and comes back; a trial on another one does not notice.
    const kill = when("agent.started", () => engine.kill());
    const restart = when("agent.ended", () => engine.restart());
    const [died, other] = await Promise.all([
      workbench.run(task({ mode: "separate" }), {
        driver,
        agent: shellAgent("sleep 1000"),
        onEvent: (event) => {
          kill.onEvent(event);
          restart.onEvent(event);
        },
      }),
      workbench.run(task({ mode: "separate" }), { agent: shellAgent(`sleep 2; ${HONEST}`) }),
    ]);
    await kill.acted();
    await restart.acted();
    expect(died.result.rewards).toBeNull();
    expect(died.result.error).toMatchObject({ reason: "infrastructure", retry: "trial" });
    expect(died.result.error?.code).toMatch(/^ERR_(?:BACKEND_UNAVAILABLE|BOX_LOST|EXEC_UNKNOWN)$/);
    expect(await onEngine.objectsOf(died.result.trial)).toEqual([]);
    expect(died.result.leftovers).toEqual([]);
    expect(await died.file("result.json")).not.toBeNull();
    expect(outcome(other)).toBe(1);
  });
});
