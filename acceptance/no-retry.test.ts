import { afterAll, describe, expect, test } from "vitest";
import { type RunTrialOptions, shellAgent } from "@breakwater/harbor-taskset";
import type { RuntimeDriver } from "@breakwater/runtime-api";
import { dockerDriver } from "@breakwater/runtime-docker";
import { dockerHost, image } from "./support/backend.ts";
import { SmallEngine } from "./support/small-engine.ts";
import { type Files, type Finished, outcome, taskFile, type TaskOptions, Workbench } from "./support/trials.ts";

/*
 * What an agent does to its box, or hands in, so that grading cannot begin: a trial without a verdict would be tried again, and its bad result would be gone. Each
 * scores 0, and the same with honest work scores 1.
 */

const workbench = new Workbench();
afterAll(() => workbench[Symbol.asyncDispose]());

const HONEST = "mkdir -p /app && echo right >/app/answer.txt";
const WRONG = "mkdir -p /app && echo wrong >/app/answer.txt";

async function attempt(
  options: Partial<TaskOptions>,
  script: string,
  driver: RuntimeDriver = workbench.driver,
  trialOptions: Partial<RunTrialOptions> = {},
): Promise<Finished> {
  const files: Files = {
    "task.toml": taskFile({ mode: "separate", artifacts: ["/app"], ...options }),
    "instruction.md": "Leave /app/answer.txt.\n",
    "tests/test.sh": `#!/bin/sh
if [ "$(cat /app/answer.txt)" = right ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
`,
  };
  return workbench.run(files, { agent: shellAgent(script), driver, ...trialOptions });
}

describe("a box in which nothing can be started any more, whose network has to be changed back", () => {
  const task = { agent: ['network_mode = "public"'] };

  test("because something kills whatever is started", async () => {
    const killer = `setsid python3 -c '
import os
while True:
    try:
        os.kill(-1, 9)
    except ProcessLookupError:
        pass
' </dev/null >/dev/null 2>&1 & sleep 60`;
    const attack = await attempt(task, `${WRONG}\n${killer}`);
    expect(attack.result.agent, "its own shell is killed, too").toMatchObject({ exitCode: 137 });
    expect(outcome(attack)).toBe(0);
    expect(outcome(await attempt(task, `${HONEST}\n${killer}`)), "what was done counts all the same").toBe(1);
  });

  test("because there is no room for another process", async () => {
    const full = `setsid python3 -c '
import os, time
while True:
    try:
        if os.fork() == 0:
            time.sleep(300)
    except BlockingIOError:
        time.sleep(0.01)
' </dev/null >/dev/null 2>&1 &
while (sleep 0.01); do :; done 2>/logs/agent/evidence.txt`;
    const attack = await attempt(task, `${WRONG}\n${full}`);
    expect(outcome(attack)).toBe(0);
    expect(outcome(await attempt(task, `${HONEST}\n${full}`)), "what was done counts all the same").toBe(1);
  });
});

describe("an artifact that is a file where the tests have to be started", () => {
  const inApp = [`docker_image = "${image}"`, 'workdir = "/app"'];

  test("in place of the working directory is left out, and the tests run without it", async () => {
    const trial = await attempt({ environment: inApp }, "cd / && rm -rf /app && echo right >/app");
    expect(outcome(trial)).toBe(0);
    expect(trial.result.artifacts).toContainEqual(expect.objectContaining({ source: "/app", status: "refused" }));
    const manifest = JSON.parse((await trial.file("artifacts/manifest.json")) ?? "[]") as Record<string, unknown>[];
    expect(manifest.find(({ source }) => source === "/app")).toMatchObject({
      status: "failed",
      breakwater: { status: "refused", reason: expect.stringContaining("no folder") as unknown },
    });
    expect(outcome(await attempt({ environment: inApp }, HONEST)), "honest work").toBe(1);
  });

  test("in an artifact that is a folder is left out, and the rest of it comes", async () => {
    const inFolder = [`docker_image = "${image}"`, 'workdir = "/app/src"'];
    const script = "cd / && rm -rf /app/src && touch /app/src";
    const trial = await attempt({ environment: inFolder }, `${HONEST}; ${script}`);
    expect(outcome(trial)).toBe(1);
    expect(trial.result.artifactsRefused).toMatchObject([{ source: "/app", members: [{ path: "/app/src" }] }]);
    expect(outcome(await attempt({ environment: inFolder }, `${WRONG}; ${script}`))).toBe(0);
  });

  test("in the agent's box, where that grades, too", async () => {
    const shared = { mode: "shared", environment: inApp } as const;
    expect(outcome(await attempt(shared, "cd / && rm -rf /app && echo right >/app"))).toBe(0);
    expect(outcome(await attempt(shared, HONEST)), "honest work").toBe(1);
  });
});

describe("artifacts that are too much", () => {
  const many = "cd /app && seq 2000 | xargs touch";
  const deep = (levels: number): string => `cd /app && python3 -c '
import os
for _ in range(${levels}):
    os.mkdir("d" * 20)
    os.chdir("d" * 20)
'`;

  test("by their number are left out whole", async () => {
    const trial = await attempt({}, `${WRONG} && ${many}`, workbench.driver, { artifactLimits: { maxEntries: 1000 } });
    expect(outcome(trial)).toBe(0);
    expect(trial.result.artifactsRefused).toMatchObject([
      { source: "/app", reason: expect.stringContaining("limit") as unknown },
    ]);
    const allowed = await attempt({}, `${HONEST} && ${many}`);
    expect(outcome(allowed), "honest work, where so many are allowed").toBe(1);
  });

  test("by their depth are left out whole", async () => {
    const trial = await attempt({}, `${WRONG} && ${deep(600)}`);
    expect(outcome(trial)).toBe(0);
    expect(trial.result.artifactsRefused).toMatchObject([
      { source: "/app", reason: expect.stringContaining("limit") as unknown },
    ]);
    expect(outcome(await attempt({}, `${HONEST} && ${deep(50)}`)), "honest work, less deep").toBe(1);
  });
});

describe("artifacts that fill the disk of the box that grades", { timeout: 900_000 }, () => {
  const reason = SmallEngine.unavailable();

  test("are left out, and the tests run without them", async (context) => {
    if (reason !== null) context.skip(reason);
    await using engine = await SmallEngine.start(900, { host: dockerHost, image });
    await using driver = dockerDriver({ host: engine.host });
    const filler = (megabytes: number): string => `head -c ${megabytes}M /dev/zero >/app/filler`;
    // A disk holds one such box at a time: what there is room for is found out by filling it.
    const measure = `${filler(2000)} 2>/dev/null; size=$(stat -c %s /app/filler); rm /app/filler; echo $size >/logs/agent/room.txt`;
    const full = await attempt({}, `${WRONG}; ${measure}`, driver);
    const roomMegabytes = Math.floor(Number(await full.file("agent/room.txt")) / 1024 ** 2);
    expect(roomMegabytes).toBeGreaterThan(200);
    const attack = await attempt({}, `${WRONG}; ${filler(roomMegabytes - 1)} 2>/dev/null; true`, driver);
    expect(outcome(attack), "it leaves no room").toBe(0);
    expect(attack.result.artifacts.find(({ source }) => source === "/app")?.status).toBe("refused");
    expect(outcome(await attempt({}, `${HONEST}; ${filler(100)}`, driver)), "honest work of some size").toBe(1);
  });
});
