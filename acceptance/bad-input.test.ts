import { afterAll, describe, expect, test } from "vitest";
import { ensureFixtureImages } from "@breakwater/backends/docker/fixtures";
import { isTasksetError, loadTasks, nopAgent, planTrial, shellAgent } from "@breakwater/harbor-taskset";
import { isRuntimeError } from "@breakwater/runtime-api";
import { dockerDriver } from "@breakwater/runtime-docker";
import { dockerHost, image } from "./support/backend.ts";
import { Stranger } from "./support/engine.ts";
import { type Files, type Finished, outcome, taskFile, Workbench } from "./support/trials.ts";

/* What is wrong with a task or with where it is to run: a clear error with a code, before anything starts where that can be known. */

const workbench = new Workbench();
const stranger = new Stranger(dockerHost);
afterAll(() => workbench[Symbol.asyncDispose]());

const GOOD: Files = {
  "task.toml": taskFile({ mode: "shared" }),
  "instruction.md": "Nothing to do.\n",
  "tests/test.sh": "#!/bin/sh\necho 1 >/logs/verifier/reward.txt\n",
};

function without(file: string): Files {
  return Object.fromEntries(Object.entries(GOOD).filter(([path]) => path !== file));
}

async function assertSettled(trial: Finished): Promise<void> {
  const onDisk = JSON.parse((await trial.file("result.json")) ?? "null") as { readonly error: unknown };
  expect(onDisk.error).toEqual(trial.result.error);
  expect(await stranger.objectsOf(trial.result.trial)).toEqual([]);
}

describe("a task that does not load", () => {
  const cases: readonly { readonly name: string; readonly files: Files; readonly problem: object }[] = [
    {
      name: "invalid TOML",
      files: { ...GOOD, "task.toml": '[environment]\ndocker_image = "x\n' },
      problem: { file: "task.toml", line: 2 },
    },
    {
      name: "an unknown mode",
      files: { ...GOOD, "task.toml": taskFile({ mode: "shared" }).replace('"shared"', '"elsewhere"') },
      problem: { file: "task.toml", key: "verifier.environment_mode", line: 8 },
    },
    { name: "no instruction", files: without("instruction.md"), problem: { file: "instruction.md", key: null } },
    {
      name: "an artifact in the verifier's ground",
      files: { ...GOOD, "task.toml": taskFile({ mode: "separate", artifacts: ["/tests/data"] }) },
      problem: { file: "task.toml", key: "artifacts[0]", line: 1 },
    },
  ];

  test.for(cases)("$name: ERR_TASK_INVALID with the place", async ({ files, problem }) => {
    const error = await rejection(workbench.load(files));
    expect(isTasksetError(error, "ERR_TASK_INVALID")).toBe(true);
    expect(error).toMatchObject({ problems: [problem] });
  });

  test("a missing test script: refused by the plan", async () => {
    const task = await workbench.load(without("tests/test.sh"));
    const capabilities = await workbench.driver.probe();
    const error = await rejection((async () => planTrial(task, capabilities))());
    expect(isTasksetError(error, "ERR_PLAN_REFUSED")).toBe(true);
    expect(error).toMatchObject({ problems: [{ file: "tests/test.sh" }] });
  });

  test("one bad task in a folder takes none of the others with it", async () => {
    const folder = await workbench.folder("tasks/folder");
    await workbench.writeTask(GOOD, "folder/good");
    await workbench.writeTask({ ...GOOD, "task.toml": "= broken" }, "folder/bad");
    const { tasks, invalid } = await loadTasks(folder);
    expect([tasks.map(({ name }) => name), invalid.map(({ code }) => code)]).toEqual([["good"], ["ERR_TASK_INVALID"]]);
  });

  test("a folder that is none", async () => {
    const error = await rejection(loadTasks(await workbench.folder("nothing")));
    expect(isTasksetError(error, "ERR_TASK_NOT_FOUND")).toBe(true);
  });
});

describe.concurrent("images", () => {
  const MISSING = "127.0.0.1:1/breakwater/no-such-image:1";

  test.for([
    ["the agent's", taskFile({ mode: "shared", environment: [`docker_image = "${MISSING}"`] })],
    [
      "the verifier's",
      taskFile({ mode: "separate", verifier: ["[verifier.environment]", `docker_image = "${MISSING}"`] }),
    ],
  ] as const)("%s cannot be had: nothing is started", async ([, file]) => {
    const trial = await workbench.run({ ...GOOD, "task.toml": file }, { agent: nopAgent() });
    expect(trial.result).toMatchObject({
      rewards: null,
      reward: null,
      error: { reason: "infrastructure", phase: "images" },
    });
    expect(trial.result.error?.code).toMatch(/^ERR_IMAGE_(?:PULL|NOT_FOUND)$/);
    expect(trial.result.error?.message).toContain(MISSING);
    expect(trial.events.map(({ type }) => type)).not.toContain("agent-box.create");
    await assertSettled(trial);
  });

  test("one that cannot be built: its log is in the message", async () => {
    const files = {
      ...GOOD,
      "task.toml": taskFile({ mode: "separate" }),
      "tests/Dockerfile": `FROM ${image}\nRUN echo what went wrong && exit 3\n`,
    };
    const trial = await workbench.run(files, { agent: nopAgent() });
    expect(trial.result.error).toMatchObject({
      reason: "infrastructure",
      phase: "images",
      code: "ERR_IMAGE_BUILD",
      retry: "never",
    });
    expect(trial.result.error?.message).toContain("what went wrong");
    await assertSettled(trial);
  });

  test("one without a shell for the agent: its programs cannot be started, and the tests neither", async () => {
    const { "no-shell": noShell } = await ensureFixtureImages(dockerHost, ["no-shell"]);
    const file = taskFile({ mode: "shared", environment: [`docker_image = "${noShell}"`] });
    const trial = await workbench.run({ ...GOOD, "task.toml": file }, { agent: shellAgent("true") });
    expect(trial.result.agent?.status).toBe("failed");
    expect(trial.result.agent?.message).toMatch(/ENOENT|not found|no such/i);
    expect(trial.result.error).toMatchObject({
      reason: "crashed",
      phase: "run",
      code: "ERR_VERIFIER_START",
      retry: "never",
    });
    await assertSettled(trial);
  });

  test("one without a shell for the verifier", async () => {
    const { "no-shell": noShell } = await ensureFixtureImages(dockerHost, ["no-shell"]);
    const files = {
      ...GOOD,
      "task.toml": taskFile({ mode: "separate" }),
      "tests/Dockerfile": `FROM ${noShell}\nCOPY test.sh /tests/test.sh\n`,
    };
    const trial = await workbench.run(files, { agent: shellAgent("true") });
    expect(trial.result.agent?.status).toBe("completed");
    expect(trial.result.error).toMatchObject({
      reason: "crashed",
      phase: "run",
      code: "ERR_VERIFIER_START",
      retry: "never",
    });
    await assertSettled(trial);
  });

  test("one for the verifier that brings no tests", async () => {
    const verifier = ["[verifier.environment]", `docker_image = "${image}"`];
    const trial = await workbench.run(
      { ...GOOD, "task.toml": taskFile({ mode: "separate", verifier }) },
      { agent: nopAgent() },
    );
    expect(trial.result.error).toMatchObject({ reason: "missing", code: "ERR_VERIFIER_SCRIPT", retry: "never" });
    await assertSettled(trial);
  });
});

describe("no engine", () => {
  const nowhere = "unix:///nonexistent/docker.sock";

  test("the driver says so", async () => {
    await using driver = dockerDriver({ host: nowhere });
    const error = await rejection(driver.probe());
    expect(isRuntimeError(error, "ERR_BACKEND_UNAVAILABLE")).toBe(true);
    expect((error as Error).message).toContain("/nonexistent/docker.sock");
  });

  test("a trial ends before it begins, with a result on disk", async () => {
    await using driver = dockerDriver({ host: nowhere });
    const trial = await workbench.run(GOOD, { agent: nopAgent(), driver });
    expect(trial.result).toMatchObject({
      rewards: null,
      error: { reason: "infrastructure", code: "ERR_BACKEND_UNAVAILABLE" },
    });
    expect(await trial.file("result.json")).not.toBeNull();
  });
});

describe.concurrent("artifacts of odd kinds", () => {
  const GRADER: Files = {
    "instruction.md": "Leave /app/answer.\n",
    "tests/test.sh": "#!/bin/sh\nif [ -f /app/answer ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt\n",
  };
  const kinds: readonly (readonly [string, string])[] = [
    ["a FIFO", "mkfifo /app/answer"],
    ["a device", "mknod /app/answer c 1 3"],
    ["a link out of its root", "ln -s /etc/passwd /app/answer"],
  ];

  test.for(kinds)("%s where a file was declared: left out, said, and graded without it", async ([, script]) => {
    const files = { ...GRADER, "task.toml": taskFile({ mode: "separate", artifacts: ["/app/answer"] }) };
    const trial = await workbench.run(files, { agent: shellAgent(`mkdir -p /app && ${script}`) });
    expect(outcome(trial)).toBe(0);
    expect(trial.result.artifactsRefused.map(({ source }) => source)).toEqual(["/app/answer"]);
    await assertSettled(trial);
  });

  test("with strictArtifacts it is no reward", async () => {
    const files = { ...GRADER, "task.toml": taskFile({ mode: "separate", artifacts: ["/app/answer"] }) };
    const agent = shellAgent("mkdir -p /app && mkfifo /app/answer");
    const trial = await workbench.run(files, { agent, strictArtifacts: true });
    expect(trial.result.error).toMatchObject({ reason: "artifacts", code: "ERR_ARTIFACTS_LEFT_OUT", retry: "never" });
    await assertSettled(trial);
  });

  test("one that is larger than its limit is left out whole; a file of holes counts as large as it says", async () => {
    const files = { ...GRADER, "task.toml": taskFile({ mode: "separate", artifacts: ["/app/answer"] }) };
    const agent = shellAgent("mkdir -p /app && truncate -s 40M /app/answer");
    const trial = await workbench.run(files, { agent, artifactLimits: { maxBytes: 32 * 1024 * 1024 } });
    expect(outcome(trial)).toBe(0);
    expect(trial.result.artifactsRefused).toMatchObject([{ source: "/app/answer" }]);
    expect((await workbench.run(files, { agent })).result.reward, "within its limit it travels").toBe(1);
  });

  test("one on a memory file system would be lost: refused before the agent starts", async () => {
    const files = { ...GRADER, "task.toml": taskFile({ mode: "separate", artifacts: ["/dev/shm/out"] }) };
    expect(isTasksetError(await rejection(workbench.load(files)), "ERR_TASK_INVALID")).toBe(true);
  });
});

async function rejection(work: Promise<unknown>): Promise<unknown> {
  try {
    await work;
  } catch (error) {
    return error;
  }
  throw new Error("expected it to reject");
}
