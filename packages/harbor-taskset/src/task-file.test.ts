import { describe, expect, test } from "vitest";

import { parseTaskFile, type TaskFile } from "./task-file.ts";

function valid(text: string): TaskFile {
  const { file, problems } = parseTaskFile(text);
  expect(problems).toEqual([]);
  if (file === null) throw new Error("no problems and no file");
  return file;
}

const problemKeys = (text: string): (string | null)[] => parseTaskFile(text).problems.map(({ key }) => key);
const warningKeys = (text: string): (string | null)[] => parseTaskFile(text).warnings.map(({ key }) => key);

test("an empty file has Harbor's defaults", () => {
  const file = valid("");
  expect(file).toMatchObject({
    schemaVersion: "1.4",
    name: null,
    about: null,
    metadata: {},
    artifacts: [],
    agent: { timeoutMs: null, user: null, network: null },
    verifier: { timeoutMs: null, env: {}, user: null, mode: null, environment: null, collect: [], network: null },
    solutionEnv: {},
  });
  expect(file.environment).toEqual({
    buildTimeoutMs: 600_000,
    image: null,
    operatingSystem: "linux",
    operatingSystemWritten: false,
    cpus: null,
    memoryMb: null,
    storageMb: null,
    gpus: null,
    gpuTypes: [],
    tpu: null,
    env: {},
    skillsDirectory: null,
    mcpServers: [],
    healthcheck: null,
    workdir: null,
    network: { mode: "public" },
  });
});

test("everything that can be written is read", () => {
  const text = `
schema_version = "1.3"
source = "somewhere"
artifacts = ["/app/out", { source = "logs", destination = "l", exclude = ["*.tmp"] }]
[task]
name = "org/some.task_1-x"
version = "2"
description = "d"
keywords = ["k"]
authors = [{ name = "A", email = "a@b.c" }, { name = "B" }]
[metadata]
when = 2026-01-02
deep = { x = [1, 2.5] }
[agent]
timeout_sec = 1.5
user = 1000
network_mode = "allowlist"
allowed_hosts = ["PyPI.org."]
[environment]
docker_image = "a:1"
cpus = 0.5
memory_mb = 2048
storage_mb = 10240
workdir = "/app"
network_mode = "no-network"
env = { A = "\${HOST_A}" }
[environment.healthcheck]
command = "true"
interval_sec = 0.5
timeout_sec = 0
retries = 0
[verifier]
timeout_sec = 60
user = "root"
environment_mode = "separate"
env = { K = "v" }
network_mode = "public"
[verifier.environment]
docker_image = "v:1"
build_timeout_sec = 30
allow_internet = false
[[verifier.collect]]
command = "git diff > /logs/artifacts/model.patch"
service = "main"
timeout_sec = 0.5
user = "agent"
[solution.env]
S = "1"
`;
  const file = valid(text);
  expect(file).toMatchObject({
    schemaVersion: "1.3",
    name: "org/some.task_1-x",
    source: "somewhere",
    about: {
      description: "d",
      version: "2",
      authors: [
        { name: "A", email: "a@b.c" },
        { name: "B", email: null },
      ],
      keywords: ["k"],
    },
    metadata: { when: "2026-01-02", deep: { x: [1, 2.5] } },
    agent: { timeoutMs: 1500, user: "1000", network: { mode: "allowlist", hosts: ["pypi.org"] } },
    environment: {
      image: "a:1",
      cpus: 0.5,
      memoryMb: 2048,
      storageMb: 10240,
      workdir: "/app",
      network: { mode: "no-network" },
      env: { A: "${HOST_A}" },
      healthcheck: {
        command: "true",
        intervalMs: 500,
        timeoutMs: null,
        startPeriodMs: 0,
        startIntervalMs: 5000,
        retries: 1,
      },
    },
    verifier: {
      timeoutMs: 60_000,
      user: "root",
      mode: "separate",
      env: { K: "v" },
      network: { mode: "public" },
      environment: { image: "v:1", buildTimeoutMs: 30_000, network: { mode: "no-network" }, cpus: null },
      collect: [{ command: "git diff > /logs/artifacts/model.patch", timeoutMs: 500, user: "agent" }],
    },
    solutionEnv: { S: "1" },
  });
  expect(file.artifacts.map(({ key, source, destination, exclude }) => [key, source, destination, exclude])).toEqual([
    ["artifacts[0]", "/app/out", null, []],
    ["artifacts[1]", "logs", "l", ["*.tmp"]],
  ]);
});

describe("coercions", () => {
  test.each([
    ['version = "1.0"', { schemaVersion: "1.0" }],
    ['version = "1.0"\nschema_version = "1.3"', { schemaVersion: "1.3" }],
    ['agent.timeout_sec = "60"', { agent: { timeoutMs: 60_000 } }],
    ["agent.timeout_sec = 1e9", { agent: { timeoutMs: 2 ** 31 - 1 } }],
    ['agent.user = "1000"', { agent: { user: "1000" } }],
    ["agent.user = 0", { agent: { user: "0" } }],
    ['agent.user = "a:b"', { agent: { user: "a:b" } }],
    ["environment.cpus = 2.0", { environment: { cpus: 2 } }],
    ['environment.cpus = "1.5"', { environment: { cpus: 1.5 } }],
    ['environment.memory_mb = "2"', { environment: { memoryMb: 2 } }],
    ["environment.memory_mb = 2.0", { environment: { memoryMb: 2 } }],
    ['environment.os = "LINUX"', { environment: { operatingSystem: "linux", operatingSystemWritten: true } }],
    ['environment.docker_image = ""', { environment: { image: null } }],
    ['environment.docker_image = " a:1 "', { environment: { image: "a:1" } }],
    ["steps = []", { schemaVersion: "1.4" }],
    ['verifier.collect = [{ command = "x", service = " main " }]', { verifier: { collect: [{ timeoutMs: 60_000 }] } }],
    ['verifier.collect = [{ command = "x", service = " db " }]', { verifier: { collect: [{ service: "db" }] } }],
  ])("%s", (text, expected) => {
    expect(valid(text)).toMatchObject(expected);
  });

  test.each([
    ["schema_version = 1.0", "schema_version"],
    ["version = 1.0", "version"],
    ["agent.timeout_sec = 0", "agent.timeout_sec"],
    ["agent.timeout_sec = -1", "agent.timeout_sec"],
    ["agent.timeout_sec = nan", "agent.timeout_sec"],
    ["verifier.timeout_sec = inf", "verifier.timeout_sec"],
    ['verifier.timeout_sec = "soon"', "verifier.timeout_sec"],
    ["agent.user = true", "agent.user"],
    ["agent.user = -1", "agent.user"],
    ['agent.user = ""', "agent.user"],
    ['agent.user = "a b"', "agent.user"],
    ["environment.cpus = 0", "environment.cpus"],
    ["environment.cpus = nan", "environment.cpus"],
    ["environment.memory_mb = 1.5", "environment.memory_mb"],
    ["environment.memory_mb = 0", "environment.memory_mb"],
    ["environment.gpus = -1", "environment.gpus"],
    ['environment.os = "beos"', "environment.os"],
    ['environment.docker_image = "a b"', "environment.docker_image"],
    ['environment.workdir = "app"', "environment.workdir"],
    ['environment.workdir = "/a/../b"', "environment.workdir"],
    ["environment.env.A = 1", "environment.env.A"],
    ['environment.env."A=B" = "1"', 'environment.env."A=B"'],
    ['environment.env.A = "\\u0000"', "environment.env.A"],
    ["environment.healthcheck = {}", "environment.healthcheck.command"],
    ['environment.healthcheck.command = " "', "environment.healthcheck.command"],
    ['environment.healthcheck = { command = "x", retries = 1.5 }', "environment.healthcheck.retries"],
    ["environment = 1", "environment"],
    ['artifacts = "x"', "artifacts"],
    ['verifier.environment_mode = "Separate"', "verifier.environment_mode"],
    ['verifier.collect = [{ service = "main" }]', "verifier.collect[0].command"],
    ['verifier.collect = [{ command = "x", service = "a b" }]', "verifier.collect[0].service"],
    ['multi_step_reward_strategy = "MEAN"', "multi_step_reward_strategy"],
    ["task = {}", "task.name"],
    ['task.name = "noslash"', "task.name"],
    ['task.name = "a/.b"', "task.name"],
    ['task.name = "a/b..c"', "task.name"],
    ['task.name = "a/b/c"', "task.name"],
  ])("%s is refused", (text, key) => {
    expect(problemKeys(text)).toEqual([key]);
  });
});

describe("sizes of old files", () => {
  test.each([
    ['"2G"', 2048],
    ['"2g"', 2048],
    ['" 2G "', 2048],
    ['"512M"', 512],
    ['"1048576K"', 1024],
    ['"1.5G"', 1536],
    ['"1.5M"', 1],
  ])("memory = %s is %d MB", (size, megabytes) => {
    const text = `[environment]\nmemory = ${size}\nstorage = ${size}`;
    expect(valid(text).environment).toMatchObject({ memoryMb: megabytes, storageMb: megabytes });
    expect(warningKeys(text)).toEqual(["environment.memory", "environment.storage"]);
  });

  test.each(['"2GB"', '"2"', '""', '"-1G"', '"0G"', '"1K"', '"G"', '"1e3M"', '"1.G"'])(
    "memory = %s is refused",
    (size) => {
      expect(problemKeys(`[environment]\nmemory = ${size}`)).toEqual(["environment.memory"]);
    },
  );

  test("what is no text is dropped with a warning, as Harbor does", () => {
    expect(valid("[environment]\nmemory = 2").environment.memoryMb).toBeNull();
    expect(warningKeys("[environment]\nmemory = 2")).toEqual(["environment.memory"]);
  });

  test("old and new name must agree", () => {
    expect(valid('[environment]\nmemory = "2G"\nmemory_mb = 2048').environment.memoryMb).toBe(2048);
    expect(problemKeys('[environment]\nmemory = "2G"\nmemory_mb = 1024')).toEqual(["environment.memory"]);
    expect(problemKeys('[verifier.environment]\nstorage = "2G"\nstorage_mb = 1024')).toEqual([
      "verifier.environment.storage",
    ]);
  });
});

describe("network", () => {
  test.each([
    ["", { mode: "public" }],
    ['network_mode = "no-network"', { mode: "no-network" }],
    ['network_mode = "allowlist"', { mode: "no-network" }],
    ['network_mode = "allowlist"\nallowed_hosts = []', { mode: "no-network" }],
    [
      'network_mode = "allowlist"\nallowed_hosts = ["PyPI.org", "*.IANA.org."]',
      { mode: "allowlist", hosts: ["pypi.org", "*.iana.org"] },
    ],
    [
      'network_mode = "allowlist"\nallowed_hosts = ["10.0.0.1", "10.0.0.0/8", "2001:db8::1"]',
      { mode: "allowlist", hosts: ["10.0.0.1", "10.0.0.0/8", "2001:db8::1"] },
    ],
    ["allowed_hosts = []", { mode: "public" }],
    ['network_mode = "public"\nallowed_hosts = []', { mode: "public" }],
    ["allow_internet = false", { mode: "no-network" }],
    ['allow_internet = "no"', { mode: "no-network" }],
    ["allow_internet = 0", { mode: "no-network" }],
    ["allow_internet = true", { mode: "public" }],
    ['allow_internet = true\nnetwork_mode = "no-network"', { mode: "no-network" }],
    ['allow_internet = false\nnetwork_mode = "public"', { mode: "public" }],
  ])("[environment] %s", (text, network) => {
    expect(valid(`[environment]\n${text}`).environment.network).toEqual(network);
    expect(valid(`[verifier.environment]\n${text}`).verifier.environment?.network).toEqual(network);
  });

  test("a verifier's environment inherits nothing", () => {
    expect(
      valid('[environment]\nnetwork_mode = "no-network"\n[verifier.environment]').verifier.environment?.network,
    ).toEqual({ mode: "public" });
  });

  test.each([
    ['network_mode = "PUBLIC"', "network_mode"],
    ['network_mode = "internet"', "network_mode"],
    ['allowed_hosts = ["a.b"]', "allowed_hosts"],
    ['network_mode = "public"\nallowed_hosts = ["a.b"]', "allowed_hosts"],
    ['network_mode = "no-network"\nallowed_hosts = ["a.b"]', "allowed_hosts"],
    ["allow_internet = 2", "allow_internet"],
    ...[
      "https://a.b",
      "a.b:80",
      "a.b/c",
      "*",
      "*.",
      "pypi.*",
      "api.*.pypi.org",
      "*pypi.org",
      "a_b.com",
      "",
      "10.0.0.1/8",
      "*.10.0.0.1",
    ].map((host): [string, string] => [
      `network_mode = "allowlist"\nallowed_hosts = ["ok.org", ${JSON.stringify(host)}]`,
      "allowed_hosts[1]",
    ]),
  ])("[environment] %s is refused", (text, key) => {
    expect(problemKeys(`[environment]\n${text}`)).toEqual([`environment.${key}`]);
  });

  test.each(["agent", "verifier"])("a phase's hosts need its mode: [%s]", (table) => {
    expect(problemKeys(`[${table}]\nallowed_hosts = []`)).toEqual([`${table}.allowed_hosts`]);
    expect(problemKeys(`[${table}]\nnetwork_mode = "public"\nallowed_hosts = ["a.b"]`)).toEqual([
      `${table}.allowed_hosts`,
    ]);
    expect(valid(`[${table}]\nnetwork_mode = "allowlist"`)).toMatchObject({
      [table]: { network: { mode: "no-network" } },
    });
  });

  test("the old switch is a doubt", () => {
    expect(warningKeys("[environment]\nallow_internet = false")).toEqual(["environment.allow_internet"]);
  });
});

describe("the verifier's mode", () => {
  test("shared and an environment of its own contradict each other", () => {
    expect(problemKeys('[verifier]\nenvironment_mode = "shared"\n[verifier.environment]')).toEqual([
      "verifier.environment_mode",
    ]);
  });
  test("separate without an environment is fine", () => {
    expect(valid('verifier.environment_mode = "separate"').verifier).toMatchObject({
      mode: "separate",
      environment: null,
    });
  });
});

describe("unknown keys", () => {
  test.each([
    ["instrction = 1", "instrction", "known keys"],
    ["artefacts = []", "artefacts", "artifacts"],
    ["[environment]\nmemry_mb = 1", "environment.memry_mb", "memory_mb"],
    ["[environment]\nMemory-MB = 1", "environment.Memory-MB", "memory_mb"],
    ["[verifier]\nmemory_mb = 1", "verifier.memory_mb", "[environment]"],
    [
      "[verifier.environment.healthcheck]\ncommand = 'x'\ntimeout = 1",
      "verifier.environment.healthcheck.timeout",
      "timeout_sec",
    ],
    ["[[verifier.collect]]\ncommand = 'x'\ncomand = 'y'", "verifier.collect[0].comand", "command"],
    ["timeout_sec = 1", "timeout_sec", "[agent]"],
    ["[solutions]\nx = 1", "solutions", "solution"],
    ["artifacts = [{ source = '/a', exclud = [] }]", "artifacts[0].exclud", "exclude"],
  ])("%s", (text, key, suggestion) => {
    const { warnings, problems } = parseTaskFile(text);
    expect(problems).toEqual([]);
    expect(warnings.map((warning) => warning.key)).toEqual([key]);
    expect(warnings[0]?.advice).toContain(suggestion);
    expect(warnings[0]?.line).toBeGreaterThan(0);
  });

  test("free tables have none", () => {
    expect(warningKeys("[metadata]\nanything = 1\n[metadata.deep]\nx = 1\n[environment.env]\nANYTHING = 'x'")).toEqual(
      [],
    );
  });
});

test("all mistakes come at once, in the order of the file, each with its line and advice", () => {
  const { file, problems } = parseTaskFile(`schema_version = 1
artifacts = ["/tests", "/ok"]
[agent]
timeout_sec = -1
[environment]
memory = "2GB"
network_mode = "PUBLIC"
[verifier]
env = { A = 1 }
[[verifier.collect]]
timeout_sec = 3
`);
  expect(file).toBeNull();
  expect(problems.map(({ key, line }) => [key, line])).toEqual([
    ["schema_version", 1],
    ["artifacts[0]", 2],
    ["agent.timeout_sec", 4],
    ["environment.memory", 6],
    ["environment.network_mode", 7],
    ["verifier.env.A", 9],
    ["verifier.collect[0].command", 10],
  ]);
  for (const problem of problems) {
    expect(problem.file).toBe("task.toml");
    expect(problem.message).not.toBe("");
    expect(problem.advice).not.toBe("");
  }
});

test("what is not TOML has the line of its mistake", () => {
  const { file, problems } = parseTaskFile('[environment]\ncpus = 1\nmemory_mb = "\n');
  expect(file).toBeNull();
  expect(problems).toHaveLength(1);
  expect(problems[0]).toMatchObject({ file: "task.toml", key: null, line: 3 });
});

test("keys that JavaScript knows are only unknown keys", () => {
  expect(warningKeys("__proto__ = 1\nconstructor = 1\n[environment]\ntoString = 1")).toEqual([
    "__proto__",
    "constructor",
    "environment.toString",
  ]);
  expect(({} as { polluted?: unknown }).polluted).toBeUndefined();
});

test("two thousand broken files: never an exception, never a refusal without file and advice", () => {
  const whole = `schema_version = "1.4"\nartifacts = ["/a", { source = "/b", exclude = ["x"] }]\n[task]\nname = "a/b"\n[agent]\ntimeout_sec = 5\n[environment]\nmemory = "2G"\nenv = { A = "b" }\n[[verifier.collect]]\ncommand = """\nx\n"""\n`;
  const pieces = [
    "[",
    "]",
    "{",
    "}",
    '"',
    "'",
    '"""',
    "=",
    ".",
    ",",
    "\n",
    "#",
    "\\",
    "\0",
    "-1",
    "nan",
    "inf",
    "true",
    "[[",
    "x",
    "1979-05-27",
    "\u{1f600}",
  ];
  let state = 42;
  const random = (below: number): number => {
    state = (state * 1103515245 + 12345) % 2 ** 31;
    return state % below;
  };
  for (let round = 0; round < 2000; round++) {
    let text = whole;
    for (let change = random(4); change >= 0; change--) {
      const at = random(text.length);
      text = text.slice(0, at) + (pieces[random(pieces.length)] ?? "") + text.slice(at + random(3));
    }
    const { file, problems } = parseTaskFile(text);
    expect(file === null).toBe(problems.length > 0);
    expect(
      problems.every(({ file: name, message, advice }) => name === "task.toml" && message !== "" && advice !== ""),
    ).toBe(true);
  }
});

const STEPS = `
[[steps]]
name = "one"
min_reward = 0.5
artifacts = ["/app/one", { source = "/app/two", exclude = ["*.pyc"] }]
[steps.agent]
timeout_sec = 42
user = "dev"
network_mode = "public"
[steps.healthcheck]
command = "true"
[steps.verifier]
env = { A = "b" }
[steps.verifier.environment]
cpus = 2
[[steps.verifier.collect]]
command = "git diff"
[[steps]]
name = "two"
min_reward = { reward = "1", style = 0.5 }
`;

test("steps, with what they do not write left open", () => {
  const { steps, rewardStrategy } = valid(STEPS);
  expect(rewardStrategy).toBe("mean");
  expect(valid('multi_step_reward_strategy = "final"').rewardStrategy).toBe("final");
  expect(steps).toMatchObject([
    {
      name: "one",
      minReward: 0.5,
      agent: { timeoutMs: 42_000, user: "dev", network: { mode: "public" } },
      verifier: {
        timeoutMs: null,
        env: { A: "b" },
        mode: null,
        environment: { cpus: 2 },
        collect: [{ command: "git diff" }],
      },
      healthcheck: { command: "true" },
      artifacts: [{ source: "/app/one", key: "steps[0].artifacts[0]" }, { exclude: ["*.pyc"] }],
    },
    {
      name: "two",
      agent: { timeoutMs: null, user: null, network: null },
      verifier: { timeoutMs: null, user: null, mode: null, environment: null, collect: [], network: null },
      healthcheck: null,
      artifacts: [],
    },
  ]);
});

test.each([
  ["no name", "[[steps]]\n", ["steps[0].name"]],
  ["a name that is none", '[[steps]]\nname = "a/b"', ["steps[0].name"]],
  ["the same name", '[[steps]]\nname = "a"\n[[steps]]\nname = "A"', ["steps[1].name"]],
  [
    "shared with an environment",
    '[[steps]]\nname = "a"\n[steps.verifier]\nenvironment_mode = "shared"\nenvironment = {}',
    ["steps[0].verifier.environment_mode"],
  ],
  [
    "hosts without a mode",
    '[[steps]]\nname = "a"\n[steps.agent]\nallowed_hosts = ["a.b"]',
    ["steps[0].agent.allowed_hosts"],
  ],
  [
    "hosts of a mode that takes none",
    '[[steps]]\nname = "a"\n[steps.verifier.environment]\nnetwork_mode = "public"\nallowed_hosts = ["a.b"]',
    ["steps[0].verifier.environment.allowed_hosts"],
  ],
  ["an artifact in the verifier's ground", '[[steps]]\nname = "a"\nartifacts = ["/tests"]', ["steps[0].artifacts[0]"]],
  [
    "a hook nowhere",
    '[[steps]]\nname = "a"\n[[steps.verifier.collect]]\ncommand = "x"\nservice = "-db"',
    ["steps[0].verifier.collect[0].service"],
  ],
  ["a reward that is no number", '[[steps]]\nname = "a"\nmin_reward = "high"', ["steps[0].min_reward"]],
  ["a reward of a key that is no number", '[[steps]]\nname = "a"\nmin_reward = { a = true }', ["steps[0].min_reward"]],
  ["a strategy that is none", 'multi_step_reward_strategy = "max"', ["multi_step_reward_strategy"]],
  ["no list", 'steps = "one"', ["steps"]],
])("steps that are refused: %s", (_, text, keys) => {
  const { problems } = parseTaskFile(text);
  expect(problems.map(({ key }) => key)).toEqual(keys);
  for (const { line, advice } of problems) expect([typeof line, advice !== ""]).toEqual(["number", true]);
});

describe("MCP servers", () => {
  const server = (...lines: readonly string[]): string => ["[[environment.mcp_servers]]", ...lines].join("\n");

  test("by command, by URL, with Harbor's defaults", () => {
    const toml = [
      server('name = "a"', 'transport = "stdio"', 'command = "npx"', 'args = ["-y", "x"]'),
      server('name = "b"', 'url = "http://b/sse"'),
      server(
        'name = "c"',
        'transport = "http"',
        'url = "http://c"',
        'headers = { Authorization = "Bearer ${TOKEN}", "X-Team" = "a ${TEAM:-b}" }',
      ),
    ].join("\n");
    expect(valid(toml).environment.mcpServers).toEqual([
      { name: "a", transport: "stdio", command: "npx", args: ["-y", "x"] },
      { name: "b", transport: "sse", url: "http://b/sse", headers: {} },
      {
        name: "c",
        transport: "streamable-http",
        url: "http://c",
        headers: { Authorization: "Bearer ${TOKEN}", "X-Team": "a ${TEAM:-b}" },
      },
    ]);
  });

  test.each([
    ["no name", ['url = "x"'], "name"],
    ["no url", ['name = "a"'], "url"],
    ["no command", ['name = "a"', 'transport = "stdio"'], "command"],
    ["another transport", ['name = "a"', 'transport = "websocket"', 'url = "x"'], "transport"],
    [
      "headers of a command",
      ['name = "a"', 'transport = "stdio"', 'command = "x"', 'headers = { X = "y" }'],
      "headers.X",
    ],
    ["no header's name", ['name = "a"', 'url = "x"', 'headers = { "X Y" = "z" }'], 'headers."X Y"'],
    ["a line break", ['name = "a"', 'url = "x"', 'headers = { X = "y\\nz" }'], "headers.X"],
    ["a credential", ['name = "a"', 'url = "x"', 'headers = { "X-Api-Key" = "sk-123" }'], "headers.X-Api-Key"],
    [
      "a credential with a default",
      ['name = "a"', 'url = "x"', 'headers = { Cookie = "${C:-abc}" }'],
      "headers.Cookie",
    ],
  ])("refused: %s", (_, lines, key) => {
    expect(problemKeys(server(...lines))).toEqual([`environment.mcp_servers[0].${key}`]);
  });

  test("unknown keys, and a verifier's, are doubts", () => {
    expect(warningKeys(server('name = "a"', 'url = "x"', "header = {}"))).toEqual([
      "environment.mcp_servers[0].header",
    ]);
    expect(warningKeys('[verifier.environment]\nmcp_servers = [{ name = "a", url = "x" }]')).toEqual([
      "verifier.environment.mcp_servers",
    ]);
  });
});

test("unknown and old keys of steps are doubts", () => {
  expect(
    warningKeys(
      '[[steps]]\nname = "a"\nmin_rewrd = 1\n[steps.verifier.environment]\nallow_internet = false\nskills_dir = "x"',
    ),
  ).toEqual([
    "steps[0].min_rewrd",
    "steps[0].verifier.environment.allow_internet",
    "steps[0].verifier.environment.skills_dir",
  ]);
});
