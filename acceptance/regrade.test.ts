import { chmod, cp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { loadTask, nopAgent, regradeTrial, runTrial, shellAgent, type TrialResult } from "@breakwater/harbor-taskset";
import { otherImage } from "./support/backend.ts";
import { cli } from "./support/cli.ts";
import { taskFile, Workbench, type Files } from "./support/trials.ts";

/* Stored trials, graded again with better tests: real boxes for the verifiers, none for an agent. */

const workbench = new Workbench();
afterAll(() => workbench[Symbol.asyncDispose]());

const script = (expected: string): string =>
  `#!/bin/sh\nif [ "$(cat /app/answer)" = ${expected} ] && [ -x /app/tools/run ] && [ "$(/app/tools/run)" = ran ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt\n`;
const files = (expected: string, lines: readonly string[] = []): Files => ({
  "task.toml": `${taskFile({ mode: "separate", artifacts: ["/app/answer", "/app/tools"], verifier: [...lines] })}[task]\nname = "org/answer"\n`,
  "instruction.md": "Write the answer.\n",
  "tests/test.sh": script(expected),
});
// A program without an interpreter line in it keeps its mode on the way over the host, too.
const works = shellAgent(
  "mkdir -p /app/tools && echo 42 >/app/answer && printf 'echo ran\\n' >/app/tools/run && chmod 700 /app/tools/run && touch /root/secret",
);

async function run(task: string, agent = works, outputDir = "trials"): Promise<TrialResult & { readonly dir: string }> {
  const result = await runTrial(await loadTask(task), {
    driver: workbench.driver,
    agent,
    outputDir: await workbench.folder(outputDir),
  });
  if (result.dir === null) throw new Error("the trial has no folder");
  return { ...result, dir: result.dir };
}

const regrade = async (directory: string, task: string): Promise<TrialResult> =>
  regradeTrial(directory, await loadTask(task), {
    driver: workbench.driver,
    outputDir: await workbench.folder("again"),
  });

async function eventTypes({ dir }: TrialResult): Promise<string[]> {
  const lines = (await readFile(join(dir ?? "", "events.jsonl"), "utf8")).trimEnd().split("\n");
  return lines.map((line) => (JSON.parse(line) as { type: string }).type);
}

describe.concurrent("regrade", () => {
  test("A18: new tests, a new reward, no agent's box; the record is not changed", async () => {
    const before = await run(await workbench.writeTask(files("41"), "old/answer"));
    expect([before.error, before.reward]).toEqual([null, 0]);
    const recorded = await snapshot(before.dir);

    const after = await regrade(before.dir, await workbench.writeTask(files("42"), "new/answer"));
    expect([after.error, after.reward]).toEqual([null, 1]);
    const types = await eventTypes(after);
    expect(types.filter((type) => type.startsWith("agent"))).toEqual([]);
    expect(types).toContain("verifier-box.gone");
    expect(await snapshot(before.dir)).toEqual(recorded);
    expect(after.agent).toEqual(before.agent);
    expect(after.artifacts.map(({ source, status }) => [source, status])).toEqual(
      before.artifacts.map(({ source, status }) => [source, status]),
    );
    expect(after.regradedFrom).toMatchObject({ trial: before.trial, dir: before.dir, rewards: { reward: 0 } });
    const json = JSON.parse(await readFile(join(after.dir ?? "", "result.json"), "utf8")) as Record<string, unknown>;
    expect(json).toMatchObject({
      config: { source_trial: { action: "regrade", type: "local", path: before.dir } },
      agent_execution: { started_at: expect.any(String) },
      exception_info: null,
    });
    // And a trial that was graded again can be graded again.
    const third = await regrade(after.dir ?? "", await workbench.writeTask(files("43"), "third/answer"));
    expect([third.error, third.reward]).toEqual([null, 0]);
  });

  test("an image of its own grades, and what the agent did not make is missing again", async () => {
    const before = await run(await workbench.writeTask(files("42"), "old/image"), nopAgent());
    expect([before.error, before.reward]).toEqual([null, 0]);
    const toml = taskFile({ mode: "separate", artifacts: ["/app/answer", "/app/tools"] });
    const after = await regrade(
      before.dir,
      await workbench.writeTask(
        {
          "task.toml": `${toml}[task]\nname = "org/answer"\n`,
          "instruction.md": "Write the answer.\n",
          "tests/Dockerfile": `FROM ${otherImage}\nRUN mkdir -p /app/tools && echo 42 >/app/answer && printf 'echo ran\\n' >/app/tools/run && chmod 755 /app/tools/run\nCOPY test.sh /tests/test.sh\n`,
          "tests/test.sh": script("42"),
        },
        "new/image",
      ),
    );
    // What the verifier's own image has there was cleared: the agent had made nothing.
    expect([after.error, after.reward]).toEqual([null, 0]);
  });

  test("an agent that ran out of time stays one, and its work is graded", async () => {
    const slow = shellAgent(
      "mkdir -p /app/tools; echo 42 >/app/answer; printf 'echo ran\\n' >/app/tools/run; chmod 755 /app/tools/run; sleep 600",
    );
    const timed = (expected: string): Files => ({
      ...files(expected),
      "task.toml": `${taskFile({ mode: "separate", artifacts: ["/app/answer", "/app/tools"], agentTimeoutSeconds: 30 })}[task]\nname = "org/answer"\n`,
    });
    const before = await run(await workbench.writeTask(timed("41"), "old/slow"), slow);
    expect([before.agent?.status, before.reward]).toEqual(["timed-out", 0]);
    const after = await regrade(before.dir, await workbench.writeTask(timed("42"), "new/slow"));
    expect([after.agent?.status, after.reward]).toEqual(["timed-out", 1]);
    const json = JSON.parse(await readFile(join(after.dir ?? "", "result.json"), "utf8")) as Record<string, unknown>;
    expect(json["exception_info"]).toMatchObject({ exception_type: "AgentTimeoutError" });
  });

  test("steps: each with its own artifacts, and the rewards of all of them", async () => {
    const steps = (first: string, second: string): Files => ({
      "task.toml": `${taskFile({ mode: "separate", artifacts: ["/app/n"] })}[[steps]]\nname = "one"\nmin_reward = 0.5\n[[steps]]\nname = "two"\nartifacts = ["/app/two"]\n[task]\nname = "org/steps"\n`,
      "steps/one/instruction.md": "1\n",
      "steps/one/tests/test.sh": `#!/bin/sh\n[ "$(cat /app/n)" = 1 ] && [ ! -e /app/two ] && echo ${first} >/logs/verifier/reward.txt\n`,
      "steps/two/instruction.md": "2\n",
      "steps/two/tests/test.sh": `#!/bin/sh\n[ "$(cat /app/n)" = 2 ] && [ -f /app/two ] && echo ${second} >/logs/verifier/reward.txt\n`,
    });
    const agent = shellAgent(
      'mkdir -p /app; n=$(cat /app/n 2>/dev/null || echo 0); echo $((n + 1)) >/app/n; [ "$n" = 0 ] || touch /app/two',
    );
    const before = await run(await workbench.writeTask(steps("1", "0"), "old/steps"), agent);
    expect([before.error, before.reward]).toEqual([null, 0.5]);
    // The first step's new rewards are below its min_reward: its agent went on then, and the second one counts.
    const after = await regrade(before.dir, await workbench.writeTask(steps("0", "1"), "new/steps"));
    expect([after.error, after.steps?.map(({ reward }) => reward), after.reward]).toEqual([null, [0, 1], 0.5]);
    expect((await readdir(join(after.dir ?? "", "steps"))).sort()).toEqual(["one", "two"]);
  });

  test("a trial that Harbor wrote: no ids, no modes, no keys of ours", async () => {
    const before = await run(await workbench.writeTask(files("41"), "old/harbors"));
    const harbors = await workbench.folder("harbors");
    await cp(join(before.dir, "artifacts"), join(harbors, "artifacts"), { recursive: true });
    await chmod(join(harbors, "artifacts/app/tools/run"), 0o755);
    const manifest = JSON.parse(await readFile(join(harbors, "artifacts/manifest.json"), "utf8")) as Record<
      string,
      unknown
    >[];
    for (const entry of manifest) delete entry["breakwater"];
    await writeFile(join(harbors, "artifacts/manifest.json"), JSON.stringify(manifest));
    const result = {
      task_name: "org/answer",
      trial_name: "answer__abc1234",
      trial_uri: "file:///x",
      task_id: { path: "answer" },
      task_checksum: "",
      config: { task: { path: "answer" } },
      agent_info: { name: "claude-code", version: "2.0" },
    };
    await writeFile(join(harbors, "result.json"), JSON.stringify(result));
    const after = await regrade(harbors, await workbench.writeTask(files("42"), "new/harbors"));
    expect([after.error, after.reward, after.agent]).toEqual([null, 1, null]);
    const json = JSON.parse(await readFile(join(after.dir ?? "", "result.json"), "utf8")) as Record<string, unknown>;
    expect(json["agent_info"]).toEqual(result.agent_info);
  });

  test("breakwater regrade: a mixed job, trial by trial", async () => {
    const tasks = await workbench.folder("tasks/mixed");
    const named = (name: string, expected: string, mode: "shared" | "separate" = "separate"): Files => ({
      ...files(expected),
      "task.toml": `${taskFile({ mode, artifacts: ["/app/answer", "/app/tools"] })}[task]\nname = "org/${name}"\n`,
    });
    await workbench.writeTask(named("changed", "41"), "mixed/changed");
    await workbench.writeTask(named("same", "42"), "mixed/same");
    await workbench.writeTask(named("shared", "42", "shared"), "mixed/shared");
    await workbench.writeTask(named("gone", "42"), "mixed/gone");
    for (const name of ["changed", "same", "shared", "gone"]) await run(join(tasks, name), works, "jobs/source");
    await rm(join(tasks, "gone"), { recursive: true });
    for (const task of ["changed", "shared"])
      await writeFile(join(tasks, task, "tests/test.sh"), `${script("42")}# anew\n`);
    const cwd = await workbench.folder("jobs");
    const recorded = await snapshot(join(cwd, "source"));

    const all = await cli(["regrade", "source", "-p", tasks, "-o", ".", "--job-name", "again", "--json"], { cwd });
    expect(all.stderr).toBe("");
    const lines = all.stdout
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    const byTask = Object.fromEntries(
      lines.map((line) => [line["task"], [line["outcome"], line["before"], line["rewards"], line["error"] ?? null]]),
    );
    expect(byTask).toEqual({
      "org/changed": ["regraded", { reward: 0 }, { reward: 1 }, null],
      "org/same": ["reused", { reward: 1 }, { reward: 1 }, null],
      "org/shared": ["refused", { reward: 1 }, null, "ERR_REGRADE_SHARED"],
      "org/gone": ["refused", { reward: 1 }, null, "ERR_REGRADE_TASK"],
    });
    expect(all.exitCode).toBe(1);
    expect(await snapshot(join(cwd, "source"))).toEqual(recorded);
    const job = async (file: string): Promise<unknown> => JSON.parse(await readFile(join(cwd, "again", file), "utf8"));
    expect(await job("config.json")).toMatchObject({
      source_job: { action: "regrade", type: "local", path: join(cwd, "source") },
    });
    expect(await job("result.json")).toMatchObject({ n_total_trials: 4, stats: { n_completed_trials: 2 } });

    // A trial that is named by itself is graded, changed or not; the text form says both rewards.
    const same = String(lines.find((line) => line["task"] === "org/same")?.["trial"]);
    const one = await cli(
      ["regrade", join("source", same), "-p", join(tasks, "same"), "-o", ".", "--job-name", "one"],
      { cwd },
    );
    expect([one.exitCode, one.stdout]).toEqual([
      0,
      expect.stringMatching(/regraded {2}\{"reward":1\} -> \{"reward":1\}\n1 regraded, 0 reused, 0 refused\n$/),
    ]);
    const nothing = await cli(["regrade", "nowhere", "-p", tasks, "-o", ".", "--job-name", "none"], { cwd });
    expect([nothing.exitCode, nothing.stderr]).toEqual([2, expect.stringContaining("neither a trial")]);
  });
});

async function snapshot(directory: string): Promise<Record<string, string>> {
  const entries = (await readdir(directory, { recursive: true, withFileTypes: true })).filter((entry) =>
    entry.isFile(),
  );
  const read = entries.map(async ({ parentPath, name }) => {
    const path = join(parentPath, name);
    return [path, await readFile(path, "base64")] as const;
  });
  return Object.fromEntries(await Promise.all(read));
}
