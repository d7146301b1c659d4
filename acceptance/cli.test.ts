import { readFile, writeFile } from "node:fs/promises";
import { join, relative } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, describe, expect, test } from "vitest";
import { dockerHost, image } from "./support/backend.ts";
import { Cli, cli, trialAt } from "./support/cli.ts";
import { Stranger, until } from "./support/engine.ts";
import { SmallEngine } from "./support/small-engine.ts";
import { type Files, taskFile, Workbench } from "./support/trials.ts";

/* The command line as people run it: a process of its own, with signals, exit codes and files. */

const workbench = new Workbench();
const stranger = new Stranger(dockerHost);
afterAll(() => workbench[Symbol.asyncDispose]());

const TASK: Files = {
  "task.toml": taskFile({ mode: "separate", artifacts: ["/app"] }),
  "instruction.md": "Leave the answer in /app/answer.txt.\n",
  "tests/test.sh": `#!/bin/sh\nif [ "$(cat /app/answer.txt)" = right ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt\n`,
  "solution/solve.sh": "#!/bin/sh\nmkdir -p /app && echo right >/app/answer.txt\n",
};
const SILENT: Files = { ...TASK, "tests/test.sh": "#!/bin/sh\ntrue\n" };

interface Line {
  readonly task: string;
  readonly trial: string;
  readonly reward: number | null;
  readonly error: { readonly code: string } | null;
  readonly dir: string;
}

function lines(stdout: string): readonly Line[] {
  return stdout
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as Line);
}

describe.concurrent("exit codes and JSON lines", () => {
  test("0: every trial has rewards; one line for each trial", async () => {
    const task = await workbench.writeTask(TASK, "good");
    const cwd = await workbench.folder("tasks");
    const { exitCode, stdout, stderr } = await cli(
      ["run", "-p", "good", "-a", "oracle", "-k", "2", "-n", "2", "-o", "jobs", "--json"],
      { cwd },
    );
    expect([exitCode, stderr]).toEqual([0, ""]);
    const found = lines(stdout);
    expect(found).toHaveLength(2);
    for (const line of found) {
      expect(line).toMatchObject({ task: "good", mode: "separate", rewards: { reward: 1 }, reward: 1, error: null });
      expect(Object.keys(line)).toEqual(["task", "trial", "mode", "rewards", "reward", "error", "durationMs", "dir"]);
      expect(relative(cwd, line.dir)).toMatch(/^jobs\//);
      expect(JSON.parse(await readFile(join(line.dir, "result.json"), "utf8"))).toMatchObject({
        trial: line.trial,
        reward: 1,
      });
    }
    expect(task).toBe(join(cwd, "good"));
  });

  test("0: a wrong answer is a reward too", async () => {
    await workbench.writeTask(TASK, "wrong");
    const cwd = await workbench.folder("tasks");
    const run = await cli(["run", "-p", "wrong", "-a", "nop", "-o", "jobs", "--json"], { cwd });
    expect([run.exitCode, lines(run.stdout).map(({ reward }) => reward)]).toEqual([0, [0]]);
  });

  test("1: some trial has no reward; the others have theirs", async () => {
    await workbench.writeTask(SILENT, "mixed/silent");
    await workbench.writeTask(TASK, "mixed/sound");
    const cwd = await workbench.folder("tasks");
    const run = await cli(["run", "-p", "mixed", "-a", "oracle", "-n", "2", "-o", "jobs", "--json"], { cwd });
    const found = lines(run.stdout).toSorted((a, b) => (a.task < b.task ? -1 : 1));
    expect(run.exitCode).toBe(1);
    expect(found).toMatchObject([
      { task: "silent", rewards: null, reward: null, error: { reason: "missing", code: "ERR_REWARD_MISSING" } },
      { task: "sound", reward: 1, error: null },
    ]);
  });

  test("2: an invalid task, and nothing is started", async () => {
    await workbench.writeTask({ ...TASK, "task.toml": "[verifier]\nenvironment_mode = 'elsewhere'\n" }, "half/invalid");
    await workbench.writeTask(TASK, "half/valid");
    const cwd = await workbench.folder("tasks");
    const run = await cli(["run", "-p", "half", "-o", "no-jobs", "--json"], { cwd });
    expect([run.exitCode, run.stdout]).toEqual([2, ""]);
    expect(run.stderr).toMatch(/task\.toml:2: verifier\.environment_mode/);
    await expect(readFile(join(cwd, "no-jobs"))).rejects.toMatchObject({ code: "ENOENT" });
  });

  test.for([
    ["no path", ["run"]],
    ["an unknown flag", ["run", "-p", ".", "--no-such-flag"]],
    ["a number that is none", ["run", "-p", ".", "-n", "many"]],
    ["a folder that is none", ["run", "-p", "/nonexistent"]],
    ["an unknown driver", ["doctor", "--runtime", "no-such-driver"]],
  ] as const)("2: %s", async ([, args]) => {
    const { exitCode, stdout, stderr } = await cli(args, { cwd: "/" });
    expect([exitCode, stdout]).toEqual([2, ""]);
    expect(stderr).not.toMatch(/\n\s+at /);
  });

  test("1: no engine, and the message says so", async () => {
    await workbench.writeTask(TASK, "nowhere");
    const env = { DOCKER_HOST: "unix:///nonexistent/docker.sock" };
    const run = await cli(["run", "-p", "nowhere", "-o", "jobs"], { cwd: await workbench.folder("tasks"), env });
    expect(run.exitCode).toBe(1);
    expect(run.stderr).toContain("ERR_BACKEND_UNAVAILABLE");
    expect(run.stderr).not.toMatch(/\n\s+at /);
  });

  test("check: prints the decisions, or all problems", async () => {
    await workbench.writeTask(TASK, "checked");
    await workbench.writeTask({ ...TASK, "task.toml": `artifacts = ["/tests", "/"]\n` }, "unchecked");
    const cwd = await workbench.folder("tasks");
    const good = await cli(["check", "-p", "checked", "--json"], { cwd });
    expect([good.exitCode, JSON.parse(good.stdout)]).toMatchObject([0, { task: "checked", ok: true, problems: [] }]);
    const bad = await cli(["check", "-p", "unchecked", "--json"], { cwd });
    expect(bad.exitCode).toBe(2);
    const { problems } = JSON.parse(bad.stdout) as { readonly problems: readonly { readonly key: string }[] };
    expect(problems.map(({ key }) => key)).toEqual(expect.arrayContaining(["artifacts[0]", "artifacts[1]"]));
  });

  test("doctor: 0 on this engine", async () => {
    const { exitCode, stdout } = await cli(["doctor", "--json"], { cwd: "/" });
    expect([exitCode, stdout]).toEqual([0, expect.stringContaining('"status":"ok"')]);
  });
});

test("Ctrl-C, three times: boxes are torn down, exit code 130, a result on disk", async () => {
  await workbench.writeTask(TASK, "interrupted");
  const cwd = await workbench.folder("tasks");
  const run = new Cli(
    ["run", "-p", "interrupted", "--agent-command", "sleep 1000", "-o", "jobs", "--job-name", "interrupted", "--json"],
    { cwd },
  );
  const job = join(cwd, "jobs/interrupted");
  const trial = await trialAt(job, "agent.started");
  expect(await stranger.objectsOf(trial), "a box is there").not.toEqual([]);
  for (let press = 0; press < 3; press += 1) {
    run.signal("SIGINT");
    // All three come before the boxes can be gone.
    await sleep(20);
  }
  const { exitCode, signal, stdout } = await run.result();
  expect([exitCode, signal]).toEqual([130, null]);
  expect(await stranger.objectsOf(trial)).toEqual([]);
  expect(lines(stdout)).toMatchObject([{ trial, reward: null, error: { code: "ERR_ABORTED" } }]);
  expect(JSON.parse(await readFile(join(job, trial, "result.json"), "utf8"))).toMatchObject({
    error: { reason: "aborted" },
  });
});

test("kill -9 in mid-trial, then sweep: nothing of the dead run is left; a live run and foreign boxes are untouched", async () => {
  // On an engine of its own, where that can be had: other tests sweep too, and would take what the dead run left.
  await using own =
    SmallEngine.unavailable() === null ? await SmallEngine.start(900, { host: dockerHost, image }) : null;
  const host = own?.host ?? dockerHost;
  const stranger = new Stranger(host);
  const env = { DOCKER_HOST: host };
  await workbench.writeTask(
    { ...TASK, "task.toml": taskFile({ mode: "separate", artifacts: ["/app"] }).replace("no-network", "public") },
    "killed",
  );
  await workbench.writeTask(TASK, "living");
  const cwd = await workbench.folder("tasks");
  await using foreign = await stranger.foreignBox(image);
  const start = (task: string, ...agent: readonly string[]): Cli =>
    new Cli(["run", "-p", task, ...agent, "-o", "jobs", "--job-name", task, "--json"], { cwd, env });
  const signal = join(cwd, "go-on");
  await writeFile(join(cwd, "patient-agent.mjs"), patientAgent(signal));
  const living = start("living", "-a", "./patient-agent.mjs");
  const killed = start("killed", "--agent-command", "sleep 1000");
  const [livingTrial, killedTrial] = await Promise.all([
    trialAt(join(cwd, "jobs/living"), "agent.started"),
    trialAt(join(cwd, "jobs/killed"), "agent.started"),
  ]);
  killed.signal("SIGKILL");
  expect((await killed.result()).signal).toBe("SIGKILL");
  expect(await stranger.objectsOf(killedTrial), "the dead run's box is still there").not.toEqual([]);
  const before = await stranger.objectsOf(livingTrial);
  expect(before).not.toEqual([]);

  const sweep = await cli(["sweep", "--json"], { cwd, env });
  expect([sweep.exitCode, sweep.stderr]).toEqual([0, ""]);
  const report = JSON.parse(sweep.stdout) as { readonly removed: readonly { readonly trial: string | null }[] };
  expect(report.removed.map(({ trial }) => trial)).toContain(killedTrial);
  expect(report.removed.map(({ trial }) => trial)).not.toContain(livingTrial);
  expect(await stranger.objectsOf(killedTrial)).toEqual([]);
  expect(await stranger.objectsOf(livingTrial)).toEqual(before);
  expect(await foreign.runs()).toBe(true);

  // The living one goes on to its end.
  expect(living.running).toBe(true);
  await writeFile(signal, "");
  const { exitCode, stdout } = await living.result();
  expect([exitCode, lines(stdout).map(({ reward }) => reward)]).toEqual([0, [1]]);
  await until("its boxes' end", async () => (await stranger.objectsOf(livingTrial)).length === 0);
});

/** An agent as a module: waits for a file on the host, then does the work. */
function patientAgent(signal: string): string {
  return `import { existsSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

export default async function patient({ box }) {
  while (!existsSync(${JSON.stringify(signal)})) await sleep(100);
  await box.exec(["sh", "-c", "mkdir -p /app && echo right >/app/answer.txt"]);
}
`;
}
