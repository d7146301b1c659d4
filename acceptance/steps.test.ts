import { afterAll, describe, expect, test } from "vitest";
import {
  isTasksetError,
  nopAgent,
  oracleAgent,
  planTrial,
  type Agent,
  type TrialEvent,
} from "@breakwater/harbor-taskset";
import { dockerHost, image, otherImage } from "./support/backend.ts";
import { Stranger } from "./support/engine.ts";
import { type Files, type Finished, outcome, shortLived, when, Workbench } from "./support/trials.ts";

/* Tasks of several steps: one box for the agent, a verdict after each step. */

const workbench = new Workbench();
const stranger = new Stranger(dockerHost);
afterAll(() => workbench[Symbol.asyncDispose]());

/** A `task.toml` for the test image, without a network. `steps`: the lines of each table, its name first. */
function toml(
  task: readonly string[],
  steps: readonly (readonly [name: string, ...lines: readonly string[]])[],
): string {
  return [
    ...task,
    ...(task.some((line) => line.startsWith("[environment]"))
      ? []
      : ["[environment]", `docker_image = "${image}"`, 'network_mode = "no-network"']),
    ...steps.flatMap(([name, ...lines]) => ["[[steps]]", `name = "${name}"`, ...lines]),
    "",
  ].join("\n");
}

/** One script for the box's `sh` in each step; nothing where there is none. */
function agentOf(scripts: Readonly<Record<string, string>>): Agent {
  return async ({ box, step }) => {
    const script = scripts[step ?? ""];
    if (script === undefined) return;
    const { exitCode, stderr } = await box.exec(["sh", "-euc", script]);
    if (exitCode !== 0) throw new Error(`${step}: ${Buffer.from(stderr).toString("utf8")}`);
  };
}

/** Writes every `name=value` that the shell lines print as a reward. */
function grader(lines: string): string {
  return `#!/bin/sh
{ ${lines}
} >/tmp/facts
python3 - <<'END'
import json
facts = dict(line.strip().split("=", 1) for line in open("/tmp/facts") if "=" in line)
json.dump({name: float(value) for name, value in facts.items()}, open("/logs/verifier/reward.json", "w"))
END
`;
}

const there = (name: string, path: string): string => `[ -e ${path} ] && echo ${name}=1 || echo ${name}=0;`;
const entries = (name: string, folder: string): string => `echo ${name}=$(ls -A ${folder} 2>/dev/null | wc -l);`;

const instructions = (...names: readonly string[]): Files =>
  Object.fromEntries(names.map((name) => [`steps/${name}/instruction.md`, `Do ${name}.\n`]));

function types(trial: Finished, ...wanted: readonly TrialEvent["type"][]): readonly string[] {
  return trial.events.filter(({ type }) => wanted.includes(type)).map(({ type, step }) => `${step ?? "-"} ${type}`);
}

const rewardsOf = (trial: Finished): readonly unknown[] => trial.result.steps?.map(({ rewards }) => rewards) ?? [];

describe.concurrent("shared and separate steps", () => {
  test("mixed in any order: who sees what, in which box, and in which order boxes come and go", async () => {
    const files: Files = {
      ...instructions("one", "two", "three"),
      "task.toml": toml(
        ['artifacts = ["/app/every"]'],
        [
          ["one", 'artifacts = ["/app/one"]', "[steps.verifier]", 'environment_mode = "separate"'],
          ["two"],
          ["three", 'artifacts = ["/app/three"]', "[steps.verifier]", 'environment_mode = "separate"'],
        ],
      ),
      "tests/helper": "base\n",
      "tests/test.sh": grader("echo reward=0;"),
      "steps/one/tests/test.sh": grader(
        `echo reward=1; ${there("every", "/app/every")} ${there("one", "/app/one")} ${there("undeclared", "/app/undeclared")} ${there("helper", "/tests/helper")} ${entries("artifacts", "/logs/artifacts")}`,
      ),
      "steps/two/tests/test.sh": grader(
        `echo reward=1; ${there("every", "/app/every")} ${there("one", "/app/one")} ${there("undeclared", "/app/undeclared")} ${there("helper", "/tests/helper")} ${entries("artifacts", "/logs/artifacts")}`,
      ),
      "steps/three/tests/test.sh": grader(
        `echo reward=1; ${there("every", "/app/every")} ${there("one", "/app/one")} ${there("three", "/app/three")} ${there("undeclared", "/app/undeclared")} ${entries("artifacts", "/logs/artifacts")}`,
      ),
    };
    const agent = agentOf({
      one: "mkdir -p /app; touch /app/every /app/one /app/undeclared /logs/artifacts/of-one /logs/artifacts/of-one-too",
      two: "touch /logs/artifacts/of-two",
      three: "touch /app/three /logs/artifacts/of-three",
    });
    const trial = await workbench.run(files, { agent });
    expect(trial.result.error).toBeNull();
    expect(rewardsOf(trial)).toEqual([
      { reward: 1, every: 1, one: 1, undeclared: 0, helper: 1, artifacts: 2 },
      { reward: 1, every: 1, one: 1, undeclared: 1, helper: 1, artifacts: 1 },
      // Only what this step declares travels, although the file of step one is still there.
      { reward: 1, every: 1, one: 0, three: 1, undeclared: 0, artifacts: 1 },
    ]);
    expect(trial.result.steps?.map(({ mode, collectedFrom }) => [mode, collectedFrom])).toEqual([
      ["separate", "frozen"],
      ["shared", "frozen"],
      ["separate", "halted"],
    ]);
    expect(
      types(
        trial,
        "agent.frozen",
        "agent.thawed",
        "agent-box.cleared",
        "agent-box.gone",
        "verifier-box.create",
        "verifier-box.gone",
        "agent.started",
      ),
    ).toEqual([
      "one agent.started",
      "one agent.frozen",
      "one verifier-box.create",
      "one verifier-box.gone",
      "two agent.thawed",
      "two agent-box.cleared",
      "two agent.started",
      // To collect, and to read the reward.
      "two agent.frozen",
      "two agent.thawed",
      "two agent.frozen",
      "three agent.thawed",
      "three agent-box.cleared",
      "three agent.started",
      "three agent-box.gone",
      "three verifier-box.create",
      "- verifier-box.gone",
    ]);
    // What the steps left is theirs, in Harbor's layout.
    for (const [step, file] of [
      ["one", "of-one"],
      ["two", "of-two"],
      ["three", "of-three"],
    ]) {
      expect(await trial.file(`steps/${step}/artifacts/logs/artifacts/${file}`), `${step}/${file}`).toBe("");
      expect(JSON.parse((await trial.file(`steps/${step}/artifacts/manifest.json`)) ?? "null")).toMatchObject([
        { source: "/logs/artifacts", destination: "artifacts/logs/artifacts", status: "ok" },
        { source: "/app/every" },
        ...(step === "two" ? [] : [{ source: `/app/${step}` }]),
      ]);
    }
    expect(await trial.file("steps/two/artifacts/logs/artifacts/of-one")).toBeNull();
    expect(await trial.file("artifacts/manifest.json")).toBeNull();
    expect(await trial.file("steps/one/verifier/reward.json")).not.toBeNull();
    expect(await stranger.objectsOf(trial.result.trial)).toEqual([]);
  });

  test("a frozen box does nothing while its step is graded, and goes on afterwards", async () => {
    const files: Files = {
      ...instructions("one", "two"),
      "task.toml": toml(["[verifier]", 'environment_mode = "separate"'], [["one"], ["two"]]),
      "tests/test.sh": grader("echo reward=1;"),
      "steps/one/tests/test.sh": `#!/bin/sh\nsleep 4\n${grader("echo reward=1;").replace("#!/bin/sh\n", "")}`,
      "steps/two/tests/test.sh": grader(
        "echo reward=1; echo before=$(cat /logs/artifacts/before); echo pause=$(cat /logs/artifacts/pause); echo after=$(cat /logs/artifacts/after);",
      ),
    };
    // A clock that writes down its longest pause, as a process that outlives its step.
    const ticker = `import time
last, pause, ticks = time.time(), 0.0, 0
while True:
    time.sleep(0.05)
    now = time.time()
    pause, last, ticks = max(pause, now - last), now, ticks + 1
    with open("/ticks.new", "w") as file: file.write(f"{ticks} {pause}")
    import os; os.rename("/ticks.new", "/ticks")`;
    const agent = agentOf({
      one: `cat >/ticker.py <<'END'
${ticker}
END
setsid python3 /ticker.py >/dev/null 2>&1 </dev/null &
until [ -s /ticks ]; do sleep 0.1; done; sleep 1; cp /ticks /ticks-before`,
      two: `first=$(cut -d' ' -f1 /ticks); until [ $(cut -d' ' -f1 /ticks) -gt $first ]; do sleep 0.1; done
cut -d' ' -f1 /ticks-before >/logs/artifacts/before; cut -d' ' -f2 /ticks >/logs/artifacts/pause; cut -d' ' -f1 /ticks >/logs/artifacts/after`,
    });
    const trial = await workbench.run(files, { agent });
    expect(outcome(trial), `${trial.result.error?.message}`).toBe(1);
    const [, two] = trial.result.steps ?? [];
    const { before = 0, pause = 0, after = 0 } = two?.rewards ?? {};
    expect(before, "it ran while the agent worked").toBeGreaterThan(0);
    expect(after, "it runs again").toBeGreaterThan(before);
    expect(pause, "it stood still for as long as the tests slept").toBeGreaterThan(4);
  });

  test("after a shared step the next agent finds no tests and no verdict", async () => {
    const look = `{ ${there("tests", "/tests")} ${entries("verdict", "/logs/verifier")} ${entries("logs", "/logs/agent")} ${there("kept", "/app/kept")} } >/logs/artifacts/seen`;
    const files: Files = {
      ...instructions("one", "two"),
      "task.toml": toml([], [["one"], ["two"]]),
      "tests/test.sh": grader(
        `echo reward=1; ${there("tests", "/tests/test.sh")} cat /logs/artifacts/seen; echo x >/logs/verifier/more`,
      ),
    };
    const trial = await workbench.run(files, {
      agent: agentOf({
        one: "mkdir -p /app; touch /app/kept /logs/agent/of-one; echo >/logs/artifacts/seen",
        two: look,
      }),
    });
    expect(trial.result.error).toBeNull();
    expect(rewardsOf(trial)).toMatchObject([
      { reward: 1, tests: 1 },
      { reward: 1, tests: 0, verdict: 0, logs: 0, kept: 1 },
    ]);
    expect(trial.result.warnings.map(({ key }) => key)).toEqual(["steps[0]"]);
    expect(await trial.file("steps/one/agent/of-one")).toBe("");
  });

  test("each step's image: its own, its tests', the task's, the task's tests', the agent's", async () => {
    const dockerfile = (mark: string, tests: string): string =>
      `FROM ${otherImage}\nRUN echo ${mark} >/mark\nCOPY ${tests} /tests/test.sh\n`;
    const built = (mark: string): Files => ({
      Dockerfile: dockerfile(mark, "test.sh"),
      "test.sh": `#!/bin/sh\ncase $(cat /mark) in ${mark}) echo 1;; *) echo 0;; esac >/logs/verifier/reward.txt\n`,
    });
    const below = (folder: string, files: Files): Files =>
      Object.fromEntries(Object.entries(files).map(([path, content]) => [`${folder}/${path}`, content]));
    const task = await workbench.driver.prepareImage({
      context: await workbench.writeTask(built("task-image"), "image-of-task"),
      name: "acceptance-steps-task",
    });
    const step = await workbench.driver.prepareImage({
      context: await workbench.writeTask(built("step-image"), "image-of-step"),
      name: "acceptance-steps-step",
    });
    const script = "#!/bin/sh\n[ ! -e /mark ] && echo 1 >/logs/verifier/reward.txt\n";
    const names = ["step-image", "step-tests", "task-image"] as const;
    const withImage = await workbench.run(
      {
        ...instructions(...names),
        ...below("tests", built("task-tests")),
        ...below("steps/step-image/tests", built("step-image")),
        ...below("steps/step-tests/tests", built("step-tests")),
        "task.toml": toml(
          ["[verifier.environment]", `docker_image = "${task.reference}"`, 'network_mode = "no-network"'],
          [
            [
              "step-image",
              "[steps.verifier.environment]",
              `docker_image = "${step.reference}"`,
              'network_mode = "no-network"',
            ],
            ["step-tests"],
            // A step's table without an image: its resources, the task's image.
            ["task-image", "[steps.verifier.environment]", "memory_mb = 256", 'network_mode = "no-network"'],
          ],
        ),
      },
      { agent: nopAgent() },
    );
    expect(withImage.result.error).toBeNull();
    expect(rewardsOf(withImage)).toEqual([{ reward: 1 }, { reward: 1 }, { reward: 1 }]);

    const separate = ["[verifier]", 'environment_mode = "separate"'];
    const fromTests = {
      ...instructions("one"),
      ...below("tests", built("task-tests")),
      "task.toml": toml(separate, [["one"]]),
    };
    expect(outcome(await workbench.run(fromTests, { agent: nopAgent() }))).toBe(1);
    const fromAgent = {
      ...instructions("one"),
      "steps/one/tests/test.sh": script,
      "task.toml": toml(separate, [["one"]]),
    };
    expect(outcome(await workbench.run(fromAgent, { agent: nopAgent() }))).toBe(1);
  });
});

describe.concurrent("what a step begins with", () => {
  test("its files in the working directory, setup.sh as its user, its healthcheck; the solution that is its own", async () => {
    const environment = [
      "[environment]",
      `docker_image = "${image}"`,
      'network_mode = "no-network"',
      'workdir = "/work"',
    ];
    const files: Files = {
      ...instructions("one", "two"),
      "task.toml": toml(
        ["[agent]", 'user = "nobody"', ...environment, "[solution.env]", 'WHICH = "env"'],
        [
          [
            "one",
            "[steps.agent]",
            'user = "root"',
            "[steps.healthcheck]",
            'command = "test -e /ready"',
            "interval_sec = 0.2",
            "retries = 100",
          ],
          ["two"],
        ],
      ),
      "steps/one/workdir/setup.sh": "id -un >/setup-user\npwd >/setup-cwd\n(sleep 1; touch /ready) >/dev/null 2>&1 &\n",
      "steps/one/workdir/data/file": "of step one\n",
      "steps/two/workdir/setup.sh": "id -un >/tmp/setup-user-two\n",
      "solution/solve.sh": '#!/bin/sh\necho "task $WHICH $(id -un)" >/tmp/solved-by-task\n',
      "steps/one/solution/solve.sh": '#!/bin/sh\necho "step $WHICH $(id -un)" >/tmp/solved; ls /ready; cat data/file\n',
      "tests/test.sh":
        "#!/bin/sh\necho 1 >/logs/verifier/reward.txt; cat /setup-user /setup-cwd /tmp/solved; [ ! -e /tmp/setup-user-two ] || cat /tmp/solved-by-task /tmp/setup-user-two\n",
    };
    const trial = await workbench.run(files, { agent: oracleAgent() });
    expect(outcome(trial), `${trial.result.error?.message}`).toBe(1);
    const [one, two] = trial.result.steps ?? [];
    expect(one?.agent?.status, `${one?.agent?.message}`).toBe("completed");
    expect(one?.verifier?.output.head).toMatch(/^root\n\/work\nstep env root\n/);
    expect(two?.verifier?.output.head).toMatch(/\ntask env nobody\nnobody\n/);
    expect(await trial.file("steps/one/agent/agent.log")).toContain("of step one");
    expect(types(trial, "setup.ended", "agent-box.healthy", "agent.started")).toEqual([
      "one setup.ended",
      "one agent-box.healthy",
      "one agent.started",
      "two setup.ended",
      "two agent.started",
    ]);
  });

  test("a setup that fails: no agent, no verdict; to be tried again only if no agent can have brought it about", async () => {
    const files = (...scripts: readonly string[]): Files => ({
      ...instructions("one", "two"),
      "task.toml": toml([], [["one"], ["two"]]),
      ...Object.fromEntries(
        scripts.map((script, index) => [`steps/${["one", "two"][index]}/workdir/setup.sh`, script]),
      ),
      "tests/test.sh": grader("echo reward=1;"),
    });
    const first = await workbench.run(files("echo why; exit 3", ""), { agent: nopAgent() });
    expect(first.result).toMatchObject({
      rewards: null,
      error: { reason: "unhealthy", phase: "setup", code: "ERR_STEP_SETUP", retry: "trial" },
      stepsNotRun: ["two"],
    });
    expect(first.result.error?.message).toContain("setup.sh ended with exit code 3: why");
    const second = await workbench.run(files("", "test ! -e /broken"), { agent: agentOf({ one: "touch /broken" }) });
    expect(second.result, "a step without keys").toMatchObject({
      rewards: { reward: 0.5 },
      error: { reason: "crashed", code: "ERR_STEP_SETUP", retry: "never" },
    });
    expect(rewardsOf(second)).toEqual([{ reward: 1 }, null]);
    const own = files("", "test ! -e /broken");
    const separate = await workbench.run(
      { ...own, "task.toml": `${own["task.toml"] as string}[verifier]\nenvironment_mode = "separate"\n` },
      { agent: agentOf({ one: "touch /broken", two: "exit 1" }) },
    );
    expect(separate.result, "a box of its own grades it as it is").toMatchObject({
      rewards: { reward: 1 },
      error: null,
    });
    expect(separate.result.steps?.map((step) => step.agent?.status ?? null)).toEqual(["completed", null]);
    expect(separate.result.warnings.map(({ message }) => message).join("\n")).toContain(
      "setup.sh ended with exit code 1",
    );
    const link = await workbench.run(files("", ""), { agent: agentOf({ one: "rm -rf /logs; ln -s /var/lib /logs" }) });
    expect(outcome(link), "a link in the way is taken away").toBe(1);
  });

  test("a box that its contents ended is graded, and so are the further steps, of which there is nothing", async () => {
    const files: Files = {
      ...instructions("one", "two"),
      "task.toml": toml(['artifacts = ["/app"]', "[verifier]", 'environment_mode = "separate"'], [["one"], ["two"]]),
      "tests/test.sh": grader(`echo reward=1; ${there("app", "/app/done")}`),
    };
    const agent: Agent = async ({ box }) =>
      void (await box.exec(["sh", "-c", "mkdir -p /app; touch /app/done; sleep 600"], { timeoutMs: 600_000 }));
    const trial = await workbench.run(files, { agent, driver: shortLived(workbench.driver, 30_000) });
    expect(trial.result).toMatchObject({ rewards: { reward: 1, app: 0.5 }, error: null, stepsNotRun: [] });
    expect(rewardsOf(trial)).toEqual([
      { reward: 1, app: 1 },
      { reward: 1, app: 0 },
    ]);
    const [one, two] = trial.result.steps ?? [];
    expect(one).toMatchObject({ agent: { status: "box-ended", boxEndedBy: "lifetime" }, collectedFrom: "halted" });
    expect(two).toMatchObject({ agent: null, artifactsRefused: [{}, {}] });
    expect(types(trial, "agent-box.gone", "verifier-box.create")).toEqual([
      "one agent-box.gone",
      "one verifier-box.create",
      "two verifier-box.create",
    ]);
    expect(await stranger.objectsOf(trial.result.trial)).toEqual([]);
  });

  test("a box that was ended from outside is an infrastructure failure, to be tried again", async () => {
    const files: Files = {
      ...instructions("one", "two"),
      "task.toml": toml(["[verifier]", 'environment_mode = "separate"'], [["one"], ["two"]]),
      "tests/test.sh": grader("echo reward=1;"),
    };
    const killing = when("step.ended", async ({ trial }) => {
      for (const { kind, name } of await stranger.objectsOf(trial)) if (kind === "container") await stranger.kill(name);
    });
    const trial = await workbench.run(files, { agent: nopAgent(), onEvent: killing.onEvent });
    await killing.acted();
    expect(trial.result.error).toMatchObject({ reason: "infrastructure", phase: "setup", retry: "trial" });
    expect(rewardsOf(trial)).toEqual([{ reward: 1 }, null]);
  });
});

describe.concurrent("what steps come to", () => {
  const GRADER = grader("cat /logs/artifacts/rewards");
  const task = (head: readonly string[], ...steps: readonly (readonly [string, ...string[]])[]): Files => ({
    ...instructions(...steps.map(([name]) => name)),
    "task.toml": toml(head, steps),
    "tests/test.sh": GRADER,
  });
  const agent = agentOf({
    one: "echo reward=0 >/logs/artifacts/rewards",
    two: "printf 'reward=1\\nstyle=0.5\\n' >/logs/artifacts/rewards",
    half: "echo reward=0.5 >/logs/artifacts/rewards",
    none: "",
  });

  test.for([
    ["the mean by key, a missing one is 0", [], { reward: 0.5, style: 0.25 }],
    ["mean is said", ['multi_step_reward_strategy = "mean"'], { reward: 0.5, style: 0.25 }],
    ["the last one's", ['multi_step_reward_strategy = "final"'], { reward: 1, style: 0.5 }],
  ] as const)("%s", async ([, head, rewards]) => {
    const trial = await workbench.run(task(head, ["one"], ["two"]), { agent });
    expect(trial.result).toMatchObject({ rewards, reward: rewards.reward, error: null, stepsNotRun: [], mode: null });
  });

  test.for([
    ["a number that is reached", "min_reward = 0.5", { reward: 0.75 }, []],
    ["a number that is not", "min_reward = 0.6", { reward: 0.5 }, ["two"]],
    ["a map of which one is missing", "min_reward = { reward = 0.1, style = 0.1 }", { reward: 0.5 }, ["two"]],
  ] as const)("min_reward: %s", async ([, least, rewards, notRun]) => {
    const trial = await workbench.run(task([], ["half", least], ["two"]), { agent });
    expect(trial.result).toMatchObject({ rewards, error: null, stepsNotRun: notRun });
    expect(await stranger.objectsOf(trial.result.trial)).toEqual([]);
  });

  test("a step without a verdict counts as one without keys, and so do those after it", async () => {
    const trial = await workbench.run(task([], ["two"], ["none"], ["one"]), { agent });
    const rewards = { reward: 1 / 3, style: 0.5 / 3 };
    expect(trial.result).toMatchObject({
      rewards,
      reward: rewards.reward,
      error: { reason: "invalid", code: "ERR_REWARD_INVALID", retry: "never" },
      stepsNotRun: ["one"],
    });
    expect(rewardsOf(trial)).toEqual([{ reward: 1, style: 0.5 }, null]);
    expect(JSON.parse((await trial.file("result.json")) ?? "null")).toMatchObject({ rewards, steps: [{}, {}] });

    const final = ['multi_step_reward_strategy = "final"'];
    const last = await workbench.run(task(final, ["two"], ["none"]), { agent });
    expect(last.result, "the last one's is none").toMatchObject({ rewards: null, error: { reason: "invalid" } });
  });

  test("a step's timeout is the task's where it writes none", async () => {
    const files = {
      ...task(["[verifier]", "timeout_sec = 3"], ["one", "[steps.verifier]", 'user = "root"']),
      "tests/test.sh": "#!/bin/sh\nsleep 100\n",
    };
    const trial = await workbench.run(files, { agent });
    expect(trial.result.error).toMatchObject({ reason: "timeout", phase: "run", code: "ERR_VERIFIER_TIMEOUT" });
    expect(trial.result.error?.message).toContain("3000 ms");
  });
});

test("where boxes cannot be frozen, a separate step before another one is refused, unless the agent's box may run on", async () => {
  const capabilities = { ...(await workbench.driver.probe()), freeze: "none" as const };
  const loaded = await workbench.load({
    ...instructions("one", "two"),
    "task.toml": toml(["[verifier]", 'environment_mode = "separate"'], [["one"], ["two"]]),
    "tests/test.sh": grader("echo reward=1;"),
  });
  let refusal: unknown;
  try {
    planTrial(loaded, capabilities);
  } catch (error) {
    refusal = error;
  }
  expect(isTasksetError(refusal, "ERR_PLAN_REFUSED")).toBe(true);
  expect(refusal).toMatchObject({ problems: [{ file: "task.toml", key: "steps[0]" }] });
  expect(planTrial(loaded, capabilities, { allowLiveAgentBox: true }).steps).toHaveLength(2);
});
