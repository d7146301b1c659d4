import { afterAll, describe, expect, test } from "vitest";

import type { RuntimeCapabilities } from "@breakwater/runtime-api";

import { TaskFolders, type FakeFile } from "../test/write-task.ts";
import { describePlan } from "./describe-plan.ts";
import { loadTask } from "./load-task.ts";
import type { PlanOptions } from "./options.ts";
import { planTrial } from "./plan-trial.ts";
import type { StepPlan, TrialPlan } from "./plan.ts";
import { isTasksetError, type TasksetError } from "./problems.ts";
import type { Task } from "./task.ts";

const folders = new TaskFolders();
afterAll(() => folders.dispose());

const CAPABILITIES: RuntimeCapabilities = {
  networkModes: ["public", "no-network", "allowlist"],
  networkChange: "cuts",
  allowlistEntries: ["name", "wildcard"],
  allowlistPorts: [80, 443],
  stop: "halted",
  firstProcess: "ours",
  freeze: "freezes",
  limits: ["cpus", "memory", "pids"],
  maxCpus: 4,
  maxMemoryMb: 8192,
  gpus: 0,
  users: "any",
  imagePin: "id",
  imageSources: ["reference", "build"],
  services: "none",
  operatingSystems: ["linux"],
  maxLifetimeMs: null,
};
const OVERHEAD_MS = 40 * 60 * 1000;

/** A task that names the image `agent:1`, unless `environment` is written as one inline table. */
async function load(toml: string, files: Readonly<Record<string, FakeFile>> = {}): Promise<Task> {
  const image = /^environment = /m.test(toml) ? "" : 'environment.docker_image = "agent:1"';
  return loadTask(await folders.write({ "task.toml": `${toml}\n${image}\n`, ...files }));
}

async function plan(
  toml: string,
  options: PlanOptions = {},
  files: Readonly<Record<string, FakeFile>> = {},
  capabilities: Partial<RuntimeCapabilities> = {},
): Promise<TrialPlan & StepPlan> {
  const planned = planTrial(await load(toml, files), { ...CAPABILITIES, ...capabilities }, { hostEnv: {}, ...options });
  // Most tests are about tasks of one step.
  return { ...planned, ...planned.steps[0] };
}

async function refusal(...args: Parameters<typeof plan>): Promise<TasksetError> {
  const error: unknown = await plan(...args).then(
    () => "it was planned",
    (reason: unknown) => reason,
  );
  if (!isTasksetError(error, "ERR_PLAN_REFUSED"))
    throw new Error(`expected a refusal, got ${String(error)}`, { cause: error });
  return error;
}

const places = (error: TasksetError): string[] =>
  error.problems.map(({ file, key }) => (key === null ? file : `${file}: ${key}`));
const warned = (planned: TrialPlan): string[] =>
  planned.warnings.map(({ file, key }) => (key === null ? file : `${file}: ${key}`));

const SEPARATE = 'verifier.environment_mode = "separate"\nartifacts = ["/app/out"]';
const NO_SCRIPT = { "tests/test.sh": null };
const DOCKERFILE = { "tests/Dockerfile": "FROM x\n" };

describe("another operating system", () => {
  const BAT = { "tests/test.sh": null, "tests/test.bat": "" };
  const windows = 'environment.os = "Windows"';
  const PLACES = "task.toml: environment.os";

  test("is refused by a driver that does not have it, and needs its own script", async () => {
    expect(places(await refusal(windows, {}, BAT))).toEqual([PLACES]);
    expect(places(await refusal(windows))).toEqual(["tests/test.bat", PLACES]);
    const own = await plan(windows, {}, BAT, { operatingSystems: ["linux", "windows"] });
    expect([own.verifier.script, own.agentBox.spec.operatingSystem]).toEqual(["test.bat", "windows"]);
  });

  test("of the verifier is its own word, else the agent's", async () => {
    const both = { operatingSystems: ["linux", "windows"] } as const;
    const own = await plan(`${windows}\nverifier.environment.os = "linux"`, {}, {}, both);
    expect([own.verifier.script, own.verifier.box?.spec.operatingSystem]).toEqual(["test.sh", "linux"]);
    const inherited = await plan(`${windows}\nverifier.environment.memory_mb = 512`, {}, BAT, both);
    expect([inherited.verifier.script, inherited.verifier.box?.spec.operatingSystem]).toEqual(["test.bat", "windows"]);
  });

  test("of a step is the step's", async () => {
    const steps =
      '[[steps]]\nname = "one"\nverifier.environment.os = "windows"\n[environment]\ndocker_image = "agent:1"';
    const task = await loadTask(
      await folders.write({ "task.toml": steps, "steps/one/instruction.md": "Do it.\n", "instruction.md": null }),
    );
    const run = (): unknown => planTrial(task, CAPABILITIES, { hostEnv: {} });
    expect(run).toThrow(/steps\/one\/tests\/test\.bat: is missing/);
    expect(run).toThrow(/steps\[0\]\.verifier\.environment\.os: .*windows boxes cannot be had here/);
  });
});

describe("where it is graded", () => {
  test.each<[string, string, PlanOptions, Record<string, FakeFile>, object]>([
    ["nothing is said", "", {}, {}, { mode: "shared", modeFrom: "default", verifier: { box: null, tests: {} } }],
    [
      "shared is said",
      'verifier.environment_mode = "shared"',
      {},
      {},
      { mode: "shared", modeFrom: "verifier.environment_mode" },
    ],
    [
      "fresh copy",
      SEPARATE,
      {},
      {},
      {
        mode: "separate",
        modeFrom: "verifier.environment_mode",
        verifier: { box: { image: { kind: "agent-image" } }, tests: {} },
      },
    ],
    [
      "fresh copy with an environment of its own",
      "verifier.environment = {}",
      {},
      {},
      { mode: "separate", modeFrom: "verifier.environment", verifier: { box: { image: { kind: "agent-image" } } } },
    ],
    [
      "built",
      SEPARATE,
      {},
      { ...DOCKERFILE, ...NO_SCRIPT },
      { mode: "separate", verifier: { box: { image: { kind: "build" } }, tests: null } },
    ],
    [
      "declared",
      'verifier.environment.docker_image = "v:1"',
      {},
      { ...DOCKERFILE, ...NO_SCRIPT },
      { mode: "separate", verifier: { box: { image: { kind: "declared", reference: "v:1" } }, tests: null } },
    ],
    [
      "declared without tests/",
      'verifier.environment.docker_image = "v:1"',
      {},
      NO_SCRIPT,
      { verifier: { box: { image: { reference: "v:1" } }, tests: null } },
    ],
    [
      "ignoreSeparateVerifier",
      SEPARATE,
      { ignoreSeparateVerifier: true },
      {},
      { mode: "shared", modeFrom: "ignoreSeparateVerifier", verifier: { box: null, tests: {} } },
    ],
    [
      "ignoreDockerfile",
      SEPARATE,
      { ignoreDockerfile: true },
      DOCKERFILE,
      { mode: "separate", verifier: { box: { image: { kind: "agent-image" } }, tests: {} } },
    ],
    [
      "ignoreDockerfile, declared",
      'verifier.environment.docker_image = "v:1"',
      { ignoreDockerfile: true },
      DOCKERFILE,
      { verifier: { box: { image: { reference: "v:1" } } } },
    ],
  ])("%s", async (_, toml, options, files, expected) => {
    expect(await plan(toml, options, files)).toMatchObject(expected);
  });

  test("the build's context is tests/", async () => {
    const planned = await plan(
      SEPARATE,
      {},
      { ...DOCKERFILE, "task.toml": `${SEPARATE}\nenvironment.docker_image = "a"\ntask.name = "org/My.Task"` },
    );
    expect(planned.verifier.box?.image).toEqual({
      kind: "build",
      context: `${planned.task.directory}/tests`,
      name: "my-task-verifier",
    });
  });

  test.each<[string, string, PlanOptions, Record<string, FakeFile>, string[]]>([
    ["shared without a script", "", {}, NO_SCRIPT, ["tests/test.sh"]],
    ["shared with a folder as script", "", {}, { ...NO_SCRIPT, "tests/test.sh/x": "" }, ["tests/test.sh"]],
    ["fresh copy without a script", SEPARATE, {}, NO_SCRIPT, ["tests/test.sh"]],
    [
      "ignoreDockerfile without a script",
      SEPARATE,
      { ignoreDockerfile: true },
      { ...DOCKERFILE, ...NO_SCRIPT },
      ["tests/test.sh"],
    ],
    [
      "ignoreSeparateVerifier without a script",
      SEPARATE,
      { ignoreSeparateVerifier: true },
      { ...DOCKERFILE, ...NO_SCRIPT },
      ["tests/test.sh"],
    ],
    [
      "a verifier of several services",
      SEPARATE,
      {},
      { "tests/docker-compose.yaml": "" },
      ["tests/docker-compose.yaml"],
    ],
    ["a borrowed box", SEPARATE, { borrowedAgentRuntime: true }, {}, ["options: agentRuntime"]],
  ])("refused: %s", async (_, toml, options, files, expected) => {
    expect(places(await refusal(toml, options, files))).toEqual(expected);
  });

  test("a grader in TypeScript needs no script, a borrowed box can be graded in itself", async () => {
    expect((await plan("", { customVerifier: true }, NO_SCRIPT)).verifier.tests).toBeNull();
    expect((await plan("", { borrowedAgentRuntime: true })).mode).toBe("shared");
  });

  test("what overrules the task is a warning", async () => {
    expect(warned(await plan(SEPARATE, { ignoreSeparateVerifier: true }))).toEqual([
      "task.toml: verifier.environment_mode",
    ]);
    expect(warned(await plan(SEPARATE, { ignoreDockerfile: true }, DOCKERFILE))).toEqual(["tests/Dockerfile"]);
    expect(warned(await plan("", { ignoreSeparateVerifier: true, ignoreDockerfile: true }, DOCKERFILE))).toEqual([]);
  });

  test("a separate verifier that gets nothing is a warning", async () => {
    expect(warned(await plan('verifier.environment_mode = "separate"'))).toEqual(["task.toml: artifacts"]);
    expect(warned(await plan(SEPARATE))).toEqual([]);
    expect(warned(await plan("artifacts = []"))).toEqual([]);
  });
});

describe("a driver that cannot build", () => {
  const cannot = { imageSources: ["reference"] as const };

  test("is told about both definitions at once, with where to name the images", async () => {
    const error = await refusal(
      "",
      {},
      { ...DOCKERFILE, "environment/Dockerfile": "FROM x", "task.toml": SEPARATE },
      cannot,
    );
    expect(places(error)).toEqual(["environment/Dockerfile", "tests/Dockerfile"]);
    expect(error.problems[0]?.advice).toContain(
      "build and push the image, then name it as docker_image in [environment]",
    );
    expect(error.problems[1]?.advice).toContain(
      "build and push the image, then name it as docker_image in [verifier.environment]",
    );
    expect(error.problems[1]?.advice).toContain("ignoreDockerfile");
  });

  test("ignoreDockerfile and ignoreSeparateVerifier are the ways out", async () => {
    expect(places(await refusal(SEPARATE, {}, DOCKERFILE, cannot))).toEqual(["tests/Dockerfile"]);
    expect((await plan(SEPARATE, { ignoreDockerfile: true }, DOCKERFILE, cannot)).verifier.box?.image).toEqual({
      kind: "agent-image",
    });
    expect((await plan(SEPARATE, { ignoreSeparateVerifier: true }, DOCKERFILE, cannot)).mode).toBe("shared");
  });
});

describe("the boxes", () => {
  const ENVIRONMENT = `
environment.workdir = "/app"
environment.cpus = 0.5
environment.memory_mb = 100
environment.storage_mb = 200
environment.build_timeout_sec = 9
environment.env = { A = "\${A:-x}" }
environment.healthcheck = { command = "up" }
environment.network_mode = "no-network"
`;

  test("the agent's box has what [environment] says", async () => {
    const { agentBox, notEnforced } = await plan(ENVIRONMENT, {}, { "environment/data.txt": "x" });
    expect(agentBox).toMatchObject({
      image: { kind: "declared", reference: "agent:1" },
      imageTimeoutMs: 9000,
      spec: {
        env: { A: "x" },
        workdir: "/app",
        cpus: 0.5,
        memoryMb: 100,
        storageMb: 200,
        network: { initial: { mode: "no-network" }, later: [] },
      },
      staged: { directory: "/app", folder: { entries: [{ path: "data.txt" }] } },
      healthcheck: { command: "up" },
    });
    expect(notEnforced).toEqual([{ box: "agent", key: "storageMb", value: 200 }]);
  });

  test("a fresh copy has the same, a declared environment inherits nothing", async () => {
    const copy = await plan(ENVIRONMENT + SEPARATE, {}, { "environment/data.txt": "x" });
    expect(copy.verifier.box).toMatchObject({
      spec: {
        env: { A: "x" },
        workdir: "/app",
        cpus: 0.5,
        memoryMb: 100,
        network: { initial: { mode: "no-network" } },
      },
      staged: { directory: "/app" },
      healthcheck: { command: "up" },
      imageTimeoutMs: 9000,
    });
    expect(copy.notEnforced.map(({ box }) => box)).toEqual(["agent", "verifier"]);

    const own = await plan(`${ENVIRONMENT}verifier.environment.memory_mb = 300`, {}, { "environment/data.txt": "x" });
    const spec = own.verifier.box?.spec;
    expect(spec).toMatchObject({ env: {}, memoryMb: 300, network: { initial: { mode: "public" } } });
    expect(spec).not.toHaveProperty("cpus");
    expect(spec).not.toHaveProperty("workdir");
    expect(own.verifier.box).toMatchObject({ healthcheck: null, staged: { directory: null }, imageTimeoutMs: 600_000 });
  });

  test("a built verifier inherits resources and network, not the healthcheck and the files of another image", async () => {
    const built = await plan(ENVIRONMENT + SEPARATE, {}, { ...DOCKERFILE, "environment/data.txt": "x" });
    expect(built.verifier.box).toMatchObject({
      spec: { memoryMb: 100, network: { initial: { mode: "no-network" } } },
      healthcheck: null,
      staged: null,
    });
  });

  test("a declared environment's healthcheck and build timeout are its own", async () => {
    const toml =
      'verifier.environment = { docker_image = "v:1", build_timeout_sec = 7, healthcheck = { command = "ready", retries = 2 } }';
    expect((await plan(toml)).verifier.box).toMatchObject({
      imageTimeoutMs: 7000,
      healthcheck: { command: "ready", retries: 2 },
    });
  });

  test("files are not staged for a built image, nor when there are none", async () => {
    expect(
      (await plan("", {}, { "environment/Dockerfile": "FROM x", "environment/data": "" })).agentBox.staged,
    ).toBeNull();
    expect((await plan("", {}, { "environment/": "" })).agentBox.staged).toBeNull();
  });

  test("overrides hold for every box", async () => {
    const options = { overrideCpus: 2, overrideMemoryMb: 64, overrideStorageMb: 10 };
    const { agentBox, verifier } = await plan(
      'environment.cpus = 1\nverifier.environment = { docker_image = "v:1", memory_mb = 900 }',
      options,
    );
    expect(agentBox.spec).toMatchObject({ cpus: 2, memoryMb: 64, storageMb: 10 });
    expect(verifier.box?.spec).toMatchObject({ cpus: 2, memoryMb: 64, storageMb: 10 });
  });

  test("a user is a matter of the phase", async () => {
    const { agent, verifier, collect, agentBox } = await plan(
      'agent.user = "dev"\nverifier.user = 0\nverifier.collect = [{ command = "x" }]',
    );
    expect([agent.user, verifier.user, collect[0]?.user]).toEqual(["dev", "0", null]);
    expect(agentBox.spec).not.toHaveProperty("user");
  });
});

describe("what the backend cannot do", () => {
  test.each<[string, string, Partial<RuntimeCapabilities>, string[]]>([
    ["cores", "environment.cpus = 8", {}, ["task.toml: environment.cpus"]],
    ["memory", "environment.memory_mb = 9000", {}, ["task.toml: environment.memory_mb"]],
    ["memory in old words", 'environment.memory = "16G"', {}, ["task.toml: environment.memory"]],
    [
      "the verifier's memory",
      'verifier.environment = { docker_image = "v", memory_mb = 9000 }',
      {},
      ["task.toml: verifier.environment.memory_mb"],
    ],
    [
      "both boxes of a copy",
      `environment.cpus = 8\n${SEPARATE}`,
      {},
      ["task.toml: environment.cpus", "task.toml: environment.cpus"],
    ],
    ["GPUs", "environment.gpus = 1", {}, ["task.toml: environment.gpus"]],
    ["TPUs", 'environment.tpu = {type = "v5e", topology = "2x4"}', {}, ["task.toml: environment.tpu"]],
    [
      "a network mode",
      'environment.network_mode = "no-network"',
      { networkModes: ["public"] },
      ["task.toml: environment.network_mode"],
    ],
    [
      "a network mode in old words",
      "environment.allow_internet = false",
      { networkModes: ["public"] },
      ["task.toml: environment.allow_internet"],
    ],
    [
      "a phase's mode",
      'agent = { network_mode = "allowlist", allowed_hosts = ["a.b"] }',
      { networkModes: ["public", "no-network"] },
      ["task.toml: agent.network_mode"],
    ],
    [
      "a phase's change",
      'agent.network_mode = "no-network"',
      { networkChange: "none" },
      ["task.toml: agent.network_mode"],
    ],
    [
      "the verifier's change",
      `verifier.network_mode = "no-network"\n${SEPARATE}`,
      { networkChange: "none" },
      ["task.toml: verifier.network_mode"],
    ],
    [
      "an allowlist entry",
      'environment = { docker_image = "a", network_mode = "allowlist", allowed_hosts = ["10.0.0.1"] }',
      {},
      ["task.toml: environment.network_mode"],
    ],
    [
      "users",
      'agent.user = "a"\nverifier.user = "b"\nverifier.collect = [{ command = "x", user = "c" }]',
      { users: "image" },
      ["task.toml: agent.user", "task.toml: verifier.user", "task.toml: verifier.collect[0].user"],
    ],
    ["a lifetime", "agent.timeout_sec = 7200", { maxLifetimeMs: 3_600_000 }, ["task.toml: agent.timeout_sec"]],
    ["no time for an agent without a limit", "", { maxLifetimeMs: OVERHEAD_MS }, ["task.toml: agent.timeout_sec"]],
  ])("%s", async (_, toml, capabilities, expected) => {
    const error = await refusal(toml, {}, {}, capabilities);
    expect(places(error)).toEqual(expected);
    for (const problem of error.problems) expect(problem.advice).not.toBe("");
  });

  test("an override is to blame where there is one", async () => {
    const error = await refusal("environment.cpus = 1", { overrideCpus: 64, overrideMemoryMb: 999_999 });
    expect(places(error)).toEqual(["options: overrideCpus", "options: overrideMemoryMb"]);
  });

  test("an equal phase policy is no change", async () => {
    const toml =
      'environment.network_mode = "no-network"\nagent.network_mode = "no-network"\nverifier.network_mode = "allowlist"';
    const { agent, verifier, agentBox } = await plan(toml, {}, {}, { networkChange: "none" });
    expect([agent.network, verifier.network, agentBox.spec.network?.later]).toEqual([null, null, []]);
  });

  test("storage is never a refusal", async () => {
    expect((await plan("environment.storage_mb = 999999", {}, {}, { limits: ["storage"] })).notEnforced).toEqual([]);
  });

  test("everything at once, each with its line", async () => {
    const error = await refusal(
      'environment.cpus = 8\nenvironment.gpus = 1\nverifier.env = { K = "${UNSET}" }',
      {},
      NO_SCRIPT,
    );
    expect(places(error)).toEqual([
      "tests/test.sh",
      "task.toml: environment.cpus",
      "task.toml: environment.gpus",
      "task.toml: verifier.env.K",
    ]);
    expect(error.problems.map(({ line }) => line)).toEqual([undefined, 1, 2, 3]);
  });
});

describe("networks", () => {
  test("phases are announced to the box in which they happen", async () => {
    const toml =
      'agent = { network_mode = "allowlist", allowed_hosts = ["a.b"] }\nverifier.network_mode = "no-network"';
    const shared = await plan(toml);
    expect(shared.agentBox.spec.network).toEqual({
      initial: { mode: "public" },
      later: [{ mode: "allowlist", hosts: ["a.b"] }, { mode: "no-network" }],
    });
    const separate = await plan(`${toml}\n${SEPARATE}`);
    expect(separate.agentBox.spec.network?.later).toEqual([{ mode: "allowlist", hosts: ["a.b"] }]);
    expect(separate.verifier.box?.spec.network).toEqual({
      initial: { mode: "public" },
      later: [{ mode: "no-network" }],
    });
    expect(separate.verifier.network).toEqual({ mode: "no-network" });
  });

  test("hosts are added only where the caller says so, never to the other phase", async () => {
    const toml = `environment.network_mode = "no-network"\n${SEPARATE}`;
    expect((await plan(toml)).agent.network).toBeNull();
    const planned = await plan(toml, { allowAgentHosts: ["api.model.example"] });
    expect(planned.agent.network).toEqual({ mode: "allowlist", hosts: ["api.model.example"] });
    expect(planned.agentBox.spec.network?.initial).toEqual({ mode: "no-network" });
    expect(planned.verifier.box?.spec.network).toEqual({ initial: { mode: "no-network" }, later: [] });
    const verifier = await plan(toml, { allowVerifierHosts: ["pypi.org"] });
    expect(verifier.verifier.box?.spec.network).toEqual({
      initial: { mode: "allowlist", hosts: ["pypi.org"] },
      later: [],
    });
    expect(verifier.agent.network).toBeNull();
  });

  test("hosts of the environment are in every box that [environment] describes, from its start", async () => {
    const toml = 'environment.network_mode = "no-network"';
    const allowEnvironmentHosts = ["pypi.org"];
    const baseline = { mode: "allowlist", hosts: ["pypi.org"] };
    const copy = await plan(`${toml}\n${SEPARATE}`, { allowEnvironmentHosts, allowVerifierHosts: ["a.b"] });
    expect(copy.agentBox.spec.network).toEqual({ initial: baseline, later: [] });
    expect(copy.verifier.box?.spec.network?.initial).toEqual({ mode: "allowlist", hosts: ["pypi.org", "a.b"] });
    expect([copy.agent.network, copy.verifier.network]).toEqual([null, null]);

    const own = await plan(`${toml}\nverifier.environment = { network_mode = "no-network" }`, {
      allowEnvironmentHosts,
    });
    expect(own.verifier.box?.spec.network).toEqual({ initial: { mode: "no-network" }, later: [] });

    const agent = await plan(`${toml}\nagent.network_mode = "no-network"`, { allowEnvironmentHosts });
    expect(agent.agentBox.spec.network).toEqual({ initial: baseline, later: [{ mode: "no-network" }] });
    expect(agent.agent.network).toEqual({ mode: "no-network" });
  });

  test("the verifier's hosts are in a shared phase, and in its own box from its start", async () => {
    const toml = 'environment.network_mode = "no-network"\nverifier.network_mode = "no-network"';
    const allowVerifierHosts = ["a.b"];
    const listed = { mode: "allowlist", hosts: ["a.b"] };
    const shared = await plan(toml, { allowVerifierHosts });
    expect(shared.agentBox.spec.network).toEqual({ initial: { mode: "no-network" }, later: [listed] });
    expect(shared.verifier.network).toEqual(listed);
    const separate = await plan(`${toml}\nverifier.environment = { network_mode = "no-network" }`, {
      allowVerifierHosts,
    });
    expect(separate.verifier.box?.spec.network).toEqual({ initial: listed, later: [] });
  });

  test("the caller's hosts are to blame for a policy that cannot be had", async () => {
    const toml = `environment.network_mode = "no-network"\nverifier.environment = { network_mode = "no-network" }`;
    const hosts = { allowAgentHosts: ["a.b"], allowVerifierHosts: ["c.d"] };
    expect(places(await refusal(toml, hosts, {}, { networkModes: ["public", "no-network"] }))).toEqual([
      "options: allowAgentHosts",
      "options: allowVerifierHosts",
    ]);
    expect(
      places(await refusal(toml, { allowEnvironmentHosts: ["a.b"] }, {}, { networkModes: ["public", "no-network"] })),
    ).toEqual(["options: allowEnvironmentHosts"]);
    expect(places(await refusal(toml, { allowAgentHosts: ["a.b"] }, {}, { networkChange: "none" }))).toEqual([
      "options: allowAgentHosts",
    ]);
  });

  test("a public network stays public, with a warning", async () => {
    const planned = await plan("", { allowAgentHosts: ["a.b"] });
    expect(planned.agent.network).toBeNull();
    expect(warned(planned)).toEqual(["options: allowAgentHosts"]);
  });
});

describe("deadlines", () => {
  test.each<[PlanOptions, number, number, number]>([
    [{}, 100_000, 50_000, 600_000],
    [{ timeoutMultiplier: 2 }, 200_000, 100_000, 1_200_000],
    [{ timeoutMultiplier: 2, agentTimeoutMultiplier: 3 }, 300_000, 100_000, 1_200_000],
    [{ timeoutMultiplier: 2, verifierTimeoutMultiplier: 0.5 }, 200_000, 25_000, 1_200_000],
    [{ environmentBuildTimeoutMultiplier: 0.1 }, 100_000, 50_000, 60_000],
  ])("%j", async (options, agentMs, verifierMs, buildMs) => {
    const { agent, verifier, agentBox } = await plan("agent.timeout_sec = 100\nverifier.timeout_sec = 50", options);
    expect([agent.timeoutMs, agent.deadlineMs, verifier.timeoutMs, agentBox.imageTimeoutMs]).toEqual([
      agentMs,
      agentMs,
      verifierMs,
      buildMs,
    ]);
    expect(agentBox.spec.lifetimeMs).toBe(OVERHEAD_MS + agentMs + verifierMs);
  });

  test("healthchecks and hooks are part of the lifetime; a separate verifier has its own", async () => {
    const toml = `agent.timeout_sec = 100
environment.healthcheck = { command = "x", start_period_sec = 10, retries = 2, timeout_sec = 3, interval_sec = 1 }
verifier.collect = [{ command = "a" }, { command = "b", timeout_sec = 5 }]
${SEPARATE}`;
    const { agentBox, verifier } = await plan(toml, {}, { ...DOCKERFILE });
    expect(agentBox.spec.lifetimeMs).toBe(OVERHEAD_MS + 100_000 + 18_000 + 65_000);
    expect(verifier.box?.spec.lifetimeMs).toBe(OVERHEAD_MS + 600_000);
  });

  test("an agent without a limit has 6 hours, what the caller says, or what a box's lifetime leaves", async () => {
    expect((await plan("")).agent).toMatchObject({ timeoutMs: null, deadlineMs: 6 * 3_600_000 });
    expect((await plan("", { agentDeadlineMs: 1000 })).agent).toMatchObject({ timeoutMs: null, deadlineMs: 1000 });
    const { agent, agentBox } = await plan("", {}, {}, { maxLifetimeMs: 2 * 3_600_000 });
    expect(agent).toMatchObject({ timeoutMs: null, deadlineMs: 2 * 3_600_000 - OVERHEAD_MS - 600_000 });
    expect(agentBox.spec.lifetimeMs).toBe(2 * 3_600_000);
  });

  test("ignoreTimeouts leaves the lifetimes", async () => {
    const toml = "agent.timeout_sec = 1\nverifier.timeout_sec = 1";
    const { agent, verifier } = await plan(toml, { ignoreTimeouts: true });
    expect([agent.timeoutMs, agent.deadlineMs, verifier.timeoutMs]).toEqual([null, 6 * 3_600_000, 6 * 3_600_000]);
    const short = await plan(toml, { ignoreTimeouts: true }, {}, { maxLifetimeMs: 3_600_000 });
    expect(short.agentBox.spec.lifetimeMs).toBe(3_600_000);
    expect(short.verifier.timeoutMs).toBe(600_000);
  });

  test("no deadline is longer than a timer can be", async () => {
    const { agent, agentBox } = await plan("agent.timeout_sec = 1e9", { timeoutMultiplier: 10 });
    expect(agent.timeoutMs).toBe(2 ** 31 - 1);
    expect(agentBox.spec.lifetimeMs).toBe(2 ** 31 - 1);
  });
});

describe("environment variables", () => {
  const TEMPLATES = `
environment.env = { E = "\${HOST_E}" }
verifier.env = { V = "\${HOST_V}", W = "literal" }
verifier.environment = { docker_image = "v:1", env = { X = "\${HOST_X}" } }
solution.env = { S = "\${HOST_S}" }
`;
  const hostEnv = { HOST_E: "e", HOST_V: "v", HOST_X: "x", HOST_S: "s" };

  test("every table reaches its own programs", async () => {
    const planned = await plan(
      TEMPLATES,
      { hostEnv, agentEnv: { A: "${HOST_E}" }, verifierEnv: { W: "over", Z: "z" } },
      { "solution/solve.sh": "" },
    );
    expect(planned.agentBox.spec.env).toEqual({ E: "e" });
    expect(planned.agent.env).toEqual({ A: "${HOST_E}" });
    expect(planned.verifier.box?.spec.env).toEqual({ X: "x" });
    expect(planned.verifier.env).toEqual({ V: "v", W: "over", Z: "z" });
    expect(planned.oracle).toMatchObject({ script: "solve.sh", env: { S: "s" } });
  });

  test("everything that is missing is named; the solution's only if it is to run", async () => {
    const files = { "solution/solve.sh": "" };
    const keys = ["task.toml: environment.env.E", "task.toml: verifier.environment.env.X", "task.toml: verifier.env.V"];
    const error = await refusal(TEMPLATES, {}, files);
    expect(places(error)).toEqual(keys);
    expect(error.problems[0]?.message).toContain("HOST_E");
    expect(places(await refusal(TEMPLATES, { oracle: true }, files))).toEqual([...keys, "task.toml: solution.env.S"]);
    const planned = await plan(TEMPLATES, { hostEnv: { ...hostEnv, HOST_S: undefined } }, files);
    expect(planned).toMatchObject({ oracle: null, oracleUnavailable: { key: "solution.env.S" } });
  });

  test("headers of MCP servers get the host's variables, also within a text", async () => {
    const toml =
      'environment = { docker_image = "a", mcp_servers = [{ name = "m", url = "u", headers = { Authorization = "Bearer ${TOKEN}", X = "a ${B:-b}" } }] }';
    const planned = await plan(toml, { hostEnv: { TOKEN: "hunter2" } });
    expect(planned.agent.mcpServers).toMatchObject([{ headers: { Authorization: "Bearer hunter2", X: "a b" } }]);
    expect(describePlan(planned).join()).not.toContain("hunter2");
    expect(places(await refusal(toml))).toEqual(["task.toml: environment.mcp_servers[0].headers.Authorization"]);
  });

  test("a variable that the caller gives needs no template", async () => {
    expect((await plan('verifier.env = { V = "${UNSET}" }', { verifierEnv: { V: "v" } })).verifier.env).toEqual({
      V: "v",
    });
  });

  test("a copied environment's missing variable is named once", async () => {
    expect(places(await refusal(`environment.env = { E = "\${UNSET}" }\n${SEPARATE}`))).toEqual([
      "task.toml: environment.env.E",
    ]);
  });

  test("an oracle without a solution is refused only when it is asked for", async () => {
    expect(places(await refusal("", { oracle: true }))).toEqual(["solution/solve.sh"]);
    expect((await plan("")).oracleUnavailable?.file).toBe("solution/solve.sh");
  });
});

describe("artifacts", () => {
  test("the caller's come last; all have the caller's limits", async () => {
    const { artifacts } = await plan('artifacts = ["/app/a"]', {
      artifacts: ["/app/b", { source: "/app/c", destination: "c" }],
      artifactLimits: { maxBytes: 5 },
    });
    expect(
      artifacts.map(({ source, declaredBy, limits }) => [source, declaredBy, limits.maxBytes, limits.maxEntries]),
    ).toEqual([
      ["/logs/artifacts", "convention", 5, 100_000],
      ["/app/a", "task", 5, 100_000],
      ["/app/b", "trial", 5, 100_000],
      ["/app/c", "trial", 5, 100_000],
    ]);
  });

  test("the caller's mistakes are the caller's", async () => {
    expect(places(await refusal("", { artifacts: ["/app", "/tests"] }))).toEqual(["options: --artifact[1]"]);
  });

  test("relative sources are resolved where the working directory is written", async () => {
    expect((await plan('environment.workdir = "/app"\nartifacts = ["out"]')).artifacts[1]).toMatchObject({
      source: "/app/out",
      destination: "artifacts/out",
    });
    expect((await plan('artifacts = ["out"]')).artifacts[1]?.source).toBe("out");
    expect(places(await refusal('environment.workdir = "/"\nartifacts = ["tests"]'))).toEqual(["task.toml: artifacts"]);
  });
});

describe("steps", () => {
  const steps = (head: string, ...tables: readonly string[]): string =>
    `${head}\nenvironment.docker_image = "agent:1"\n${tables.map((table, index) => `[[steps]]\nname = "s${index}"\n${table}\n`).join("")}`;
  const instructions = (count: number): Record<string, FakeFile> => ({
    "instruction.md": null,
    ...Object.fromEntries(Array.from({ length: count }, (_, index) => [`steps/s${index}/instruction.md`, "Do it.\n"])),
  });
  const planSteps = async (
    toml: string,
    files: Readonly<Record<string, FakeFile>> = {},
    options: PlanOptions = {},
    capabilities: Partial<RuntimeCapabilities> = {},
  ): Promise<TrialPlan> => {
    const count = toml.split("[[steps]]").length - 1;
    const task = await loadTask(await folders.write({ ...instructions(count), ...files, "task.toml": toml }));
    return planTrial(task, { ...CAPABILITIES, ...capabilities }, { hostEnv: {}, ...options });
  };
  const problemsOf = async (...args: Parameters<typeof planSteps>): Promise<string[]> => {
    const error: unknown = await planSteps(...args).catch((reason: unknown) => reason);
    if (!isTasksetError(error, "ERR_PLAN_REFUSED")) throw new Error("it was planned", { cause: error });
    return places(error);
  };

  test("one image for all steps that have it from the task, another for a step's own", async () => {
    const dockerfiles = { "tests/Dockerfile": "FROM scratch\n", "steps/s2/tests/Dockerfile": "FROM scratch\n" };
    const planned = await planSteps(steps('verifier.environment_mode = "separate"', "", "", ""), dockerfiles);
    const [first, second, third] = planned.steps.map(({ verifier }) => verifier.box?.image);
    expect(first).toMatchObject({ kind: "build" });
    expect(second).toEqual(first);
    expect(third).not.toEqual(first);
  });

  test("what a step does not write is the task's; env, hooks and artifacts add up", async () => {
    const toml = steps(
      `artifacts = ["/app/all"]
agent = { timeout_sec = 10, user = "dev", network_mode = "no-network" }
verifier = { timeout_sec = 20, user = "judge", env = { A = "task", B = "task" }, collect = [{ command = "first" }] }`,
      "",
      `artifacts = ["/app/two"]
agent = { timeout_sec = 1, user = "root", network_mode = "public" }
verifier = { timeout_sec = 2, user = "root", env = { B = "step" }, collect = [{ command = "then" }], environment_mode = "separate" }
min_reward = 1`,
    );
    const planned = await planSteps(toml, {}, { artifacts: ["/app/callers"], verifierEnv: { C: "caller" } });
    const [one, two] = planned.steps;
    expect(one).toMatchObject({
      name: "s0",
      mode: "shared",
      modeFrom: "default",
      agent: { timeoutMs: 10_000, user: "dev", network: { mode: "no-network" } },
      verifier: { timeoutMs: 20_000, user: "judge", env: { A: "task", B: "task", C: "caller" }, box: null },
      collect: [{ command: "first" }],
      minReward: null,
    });
    expect(two).toMatchObject({
      name: "s1",
      mode: "separate",
      modeFrom: "steps.verifier.environment_mode",
      agent: { timeoutMs: 1000, user: "root", network: null },
      verifier: { timeoutMs: 2000, user: "root", env: { A: "task", B: "step", C: "caller" } },
      collect: [{ command: "first" }, { command: "then" }],
      minReward: 1,
    });
    expect(two?.artifacts.map(({ source, declaredBy }) => [source, declaredBy])).toEqual([
      ["/logs/artifacts", "convention"],
      ["/app/all", "task"],
      ["/app/callers", "trial"],
      ["/app/two", "step"],
    ]);
    expect(planned.agentBox.spec.network).toEqual({ initial: { mode: "public" }, later: [{ mode: "no-network" }] });
    expect(describePlan(planned).join("\n")).toContain(
      "Step 2, s1: A reward of 1 or more is needed for the next step.",
    );
  });

  test("the agent's box lives for all of it: agents, shared tests, and boxes of their own before a further step", async () => {
    const toml = steps(
      "agent.timeout_sec = 100\nverifier.timeout_sec = 50",
      "",
      'verifier.environment_mode = "separate"',
      'verifier.environment_mode = "separate"\nhealthcheck = { command = "x", retries = 2, timeout_sec = 3, interval_sec = 1 }',
    );
    const { agentBox, steps: planned } = await planSteps(toml);
    expect(agentBox.spec.lifetimeMs).toBe(OVERHEAD_MS + 300_000 + 50_000 + (50_000 + OVERHEAD_MS) + 8000);
    expect(planned[2]?.verifier.box?.spec.lifetimeMs).toBe(50_000 + OVERHEAD_MS);
    const capped = await planSteps(steps("", "", "agent.timeout_sec = 600"), {}, {}, { maxLifetimeMs: 4 * 3_600_000 });
    expect(capped.agentBox.spec.lifetimeMs).toBe(4 * 3_600_000);
    expect(capped.steps.map(({ agent }) => agent.deadlineMs)).toEqual([
      4 * 3_600_000 - OVERHEAD_MS - 1_800_000,
      600_000,
    ]);
  });

  test("the tests of a step are put over the task's; its own solution is instead of the task's", async () => {
    const planned = await planSteps(steps("", "", ""), {
      "tests/test.sh": "base",
      "tests/helper": "base",
      "steps/s0/tests/test.sh": "own",
      "steps/s0/tests/more": "own",
      "solution/solve.sh": "base",
      "steps/s1/solution/solve.sh": "own",
    });
    const [one, two] = planned.steps;
    expect(
      one.verifier.tests?.entries.map((entry) => (entry.kind === "file" ? [entry.path, entry.bytes] : [])),
    ).toEqual([
      ["helper", 4],
      ["more", 3],
      ["test.sh", 3],
    ]);
    expect(two?.verifier.tests?.entries.map(({ path }) => path)).toEqual(["helper", "test.sh"]);
    expect(
      [one.oracle?.solution.path, two?.oracle?.solution.path].map((path) => path?.slice(planned.task.directory.length)),
    ).toEqual(["/solution", "/steps/s1/solution"]);
  });

  test("what is wrong is wrong at the step's own keys, each once", async () => {
    expect(await problemsOf(steps("", "", ""), { "tests/test.sh": null })).toEqual([
      "steps/s0/tests/test.sh",
      "steps/s1/tests/test.sh",
    ]);
    const toml = steps(
      'verifier.env = { T = "${UNSET}" }',
      'agent = { user = "a" }\nverifier = { environment = { cpus = 99 }, env = { S = "${UNSET}" } }',
      'verifier.network_mode = "no-network"',
    );
    expect(await problemsOf(toml, {}, {}, { users: "image", networkModes: ["public"] })).toEqual([
      "task.toml: steps[1].verifier.network_mode",
      "task.toml: steps[0].verifier.environment.cpus",
      "task.toml: steps[0].verifier.env.S",
      "task.toml: verifier.env.T",
      "task.toml: steps[0].agent.user",
    ]);
    const notFrozen = steps('verifier.environment_mode = "separate"', "", "");
    expect(await problemsOf(notFrozen, {}, {}, { freeze: "none" })).toEqual(["task.toml: steps[0]"]);
    expect((await planSteps(notFrozen, {}, { allowLiveAgentBox: true }, { freeze: "none" })).steps).toHaveLength(2);
    expect(
      await problemsOf(notFrozen, { "steps/s1/tests/Dockerfile": "FROM x" }, {}, { imageSources: ["reference"] }),
    ).toEqual(["steps/s1/tests/Dockerfile"]);
    expect(await problemsOf(steps("", "", ""), {}, { oracle: true })).toEqual([
      "steps/s0/solution/solve.sh",
      "steps/s1/solution/solve.sh",
    ]);
  });

  test("a step graded in a box that goes on is a doubt", async () => {
    expect(warned(await planSteps(steps("", "", "")))).toEqual(["task.toml: steps[0]"]);
    expect(warned(await planSteps(steps("", "")))).toEqual([]);
  });
});

test("a plan is pure data, the same every time, and changes nothing that it was given", async () => {
  const task = await load(SEPARATE, DOCKERFILE);
  const before = structuredClone(task);
  const options: PlanOptions = { hostEnv: {}, artifacts: ["/x"], agentEnv: { A: "b" } };
  const planned = planTrial(task, CAPABILITIES, options);
  expect(JSON.parse(JSON.stringify(planned))).toEqual(planned);
  expect(planTrial(task, CAPABILITIES, options)).toEqual(planned);
  expect(task).toEqual(before);
  expect(options).toEqual({ hostEnv: {}, artifacts: ["/x"], agentEnv: { A: "b" } });
});

test.each<PlanOptions>([
  { timeoutMultiplier: 0 },
  { agentTimeoutMultiplier: Number.NaN },
  { overrideMemoryMb: 1.5 },
  { overrideCpus: -1 },
  { agentDeadlineMs: 0 },
  { agentEnv: { "A=B": "" } },
  { verifierEnv: { A: "\0" } },
  { artifactLimits: { maxBytes: -1 } },
  { allowAgentHosts: ["https://x"] },
  { allowEnvironmentHosts: ["*"] },
  { allowVerifierHosts: ["a:443"] },
])("options that make no sense are a TypeError: %j", async (options) => {
  const task = await load("");
  expect(() => planTrial(task, CAPABILITIES, options)).toThrow(TypeError);
});

test("the plan in sentences, without a single value of a variable", async () => {
  const toml = `
artifacts = [{ source = "/app/out", exclude = ["*.pyc"] }]
environment.env = { API_KEY = "hunter2" }
agent = { timeout_sec = 60, network_mode = "allowlist", allowed_hosts = ["pypi.org"] }
verifier = { environment_mode = "separate", env = { TOKEN = "hunter2" }, collect = [{ command = "git diff" }] }
`;
  const planned = await plan(
    toml,
    { agentEnv: { SECRET: "hunter2" }, strictArtifacts: true },
    { ...DOCKERFILE, "solution/solve.sh": "", "environment/x": "" },
  );
  const text = describePlan(planned).join("\n");
  for (const part of [
    "a box of its own",
    "agent:1",
    "API_KEY",
    "SECRET",
    "TOKEN",
    "allowlist (pypi.org)",
    "git diff",
    "/app/out without *.pyc",
    "built from",
    "own /tests",
    "60 s",
  ]) {
    expect(text).toContain(part);
  }
  expect(text).not.toContain("hunter2");
});

test("the public software tasks: a patch made by a hook, a grader built beside the tests, no network", async () => {
  const toml = `
artifacts = ["/logs/artifacts/model.patch"]
environment.network_mode = "no-network"
environment.workdir = "/repo"
verifier.environment_mode = "separate"
verifier.environment.network_mode = "no-network"
verifier.collect = [{ command = "git diff base > /logs/artifacts/model.patch" }]
`;
  const planned = await plan(toml, {}, { ...DOCKERFILE, "environment/Dockerfile": "FROM x" });
  expect(planned.warnings).toEqual([]);
  expect(planned.artifacts.map(({ source, overlaps }) => [source, overlaps])).toEqual([
    ["/logs/artifacts", []],
    ["/logs/artifacts/model.patch", ["/logs/artifacts"]],
  ]);
  expect(planned.verifier).toMatchObject({
    box: { image: { kind: "build" }, spec: { network: { initial: { mode: "no-network" }, later: [] } } },
    tests: null,
  });
  expect(planned.collect).toHaveLength(1);
});
