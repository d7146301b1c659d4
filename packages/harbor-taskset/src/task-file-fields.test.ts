import { describe, expect, test } from "vitest";

import { KNOWN_KEYS, parseTaskFile, type TaskFile } from "./task-file.ts";

/*
 * Every field of the format: what it is when nobody writes it, and what lenient and old spellings come to. The values are those of Harbor's own models
 * (0.26), but where docs/tasks.md says otherwise. The last test holds the tables to the known keys: a new one needs its rows.
 */

function read(toml: string): TaskFile {
  const { file, problems } = parseTaskFile(toml);
  if (file === null) throw new Error(JSON.stringify(problems));
  return file;
}
function refusedAt(toml: string): readonly (string | null)[] {
  return parseTaskFile(toml).problems.map(({ key }) => key);
}

const ENVIRONMENT = read("").environment;
const SERVER = { name: "m", transport: "sse", url: "http://x", headers: {} };

/** Table (as in `KNOWN_KEYS`), key, lines, what is read, what it is without the lines, and with them. */
type Row = readonly [
  table: string,
  key: string,
  toml: string,
  get: (file: TaskFile) => unknown,
  missing: unknown,
  written: unknown,
];
const inEnvironment = (
  key: string,
  value: string,
  get: (environment: TaskFile["environment"]) => unknown,
  missing: unknown,
  written: unknown,
): Row => [
  "environment",
  key,
  `environment.${key} = ${value}`,
  ({ environment }) => get(environment),
  missing,
  written,
];
const check = (file: TaskFile): object => ({ ...file.environment.healthcheck });
const hook = ({ verifier }: TaskFile): object => ({ ...verifier.collect[0] });
const server = ({ environment }: TaskFile): object => ({ ...environment.mcpServers[0] });
const step = ({ steps }: TaskFile): object => ({ ...steps[0] });

const ROWS: readonly Row[] = [
  ["", "schema_version", 'schema_version = "1.0"', (file) => file.schemaVersion, "1.4", "1.0"],
  ["", "version", 'version = "1.0"', (file) => file.schemaVersion, "1.4", "1.0"],
  ["", "source", 'source = "set"', (file) => file.source, null, "set"],
  [
    "",
    "metadata",
    "metadata = {a = 1979-05-27}",
    (file) => file.metadata,
    {},
    { a: expect.stringMatching(/^1979-05-27/) },
  ],
  [
    "",
    "artifacts",
    'artifacts = ["/a/", {source = "/b", exclude = ["*.o"]}]',
    (file) => file.artifacts.map(({ source, exclude }) => [source, exclude]),
    [],
    [
      ["/a", []],
      ["/b", ["*.o"]],
    ],
  ],
  [
    "",
    "multi_step_reward_strategy",
    'multi_step_reward_strategy = "final"',
    (file) => file.rewardStrategy,
    "mean",
    "final",
  ],
  ["", "task", 'task.name = "o/n"', (file) => file.name, null, "o/n"],
  [
    "",
    "agent",
    "agent = {}",
    (file) => file.agent,
    { timeoutMs: null, user: null, network: null },
    { timeoutMs: null, user: null, network: null },
  ],
  ["", "environment", "environment = {}", (file) => file.environment, ENVIRONMENT, ENVIRONMENT],
  ["", "verifier", "verifier = {}", (file) => file.verifier.mode, null, null],
  ["", "solution", 'solution.env.A = "${A}"', (file) => file.solutionEnv, {}, { A: "${A}" }],
  ["", "steps", '[[steps]]\nname = "s"', (file) => file.steps.length, 0, 1],
  ["task", "name", 'task.name = "o.rg/n_a-me"', (file) => file.name, null, "o.rg/n_a-me"],
  [
    "task",
    "version",
    'task = {name = "o/n", version = "any text"}',
    (file) => file.about?.version,
    undefined,
    "any text",
  ],
  [
    "task",
    "description",
    'task = {name = "o/n", description = "d"}',
    (file) => file.about?.description,
    undefined,
    "d",
  ],
  [
    "task",
    "authors",
    'task = {name = "o/n", authors = [{name = "a"}]}',
    (file) => file.about?.authors,
    undefined,
    [{ name: "a", email: null }],
  ],
  ["task", "keywords", 'task = {name = "o/n", keywords = ["k"]}', (file) => file.about?.keywords, undefined, ["k"]],
  [
    "authors",
    "name",
    'task = {name = "o/n", authors = [{name = "a"}]}',
    (file) => file.about?.authors[0]?.name,
    undefined,
    "a",
  ],
  [
    "authors",
    "email",
    'task = {name = "o/n", authors = [{name = "a", email = "e"}]}',
    (file) => file.about?.authors[0]?.email,
    undefined,
    "e",
  ],
  ["agent", "timeout_sec", 'agent.timeout_sec = "1.5"', (file) => file.agent.timeoutMs, null, 1500],
  ["agent", "user", "agent.user = 1000", (file) => file.agent.user, null, "1000"],
  [
    "agent",
    "network_mode",
    'agent.network_mode = "no-network"',
    (file) => file.agent.network,
    null,
    { mode: "no-network" },
  ],
  [
    "agent",
    "allowed_hosts",
    'agent = {network_mode = "allowlist", allowed_hosts = ["PyPI.org."]}',
    (file) => file.agent.network,
    null,
    { mode: "allowlist", hosts: ["pypi.org"] },
  ],
  inEnvironment("build_timeout_sec", '"60"', (one) => one.buildTimeoutMs, 600_000, 60_000),
  inEnvironment("docker_image", '" a:1 "', (one) => one.image, null, "a:1"),
  inEnvironment(
    "os",
    '"WINDOWS"',
    (one) => [one.operatingSystem, one.operatingSystemWritten],
    ["linux", false],
    ["windows", true],
  ),
  inEnvironment("cpus", '"0.5"', (one) => one.cpus, null, 0.5),
  inEnvironment("memory_mb", '"512"', (one) => one.memoryMb, null, 512),
  inEnvironment("storage_mb", "2.0", (one) => one.storageMb, null, 2),
  inEnvironment("gpus", "1", (one) => one.gpus, null, 1),
  inEnvironment("gpu_types", '["h100"]', (one) => one.gpuTypes, [], ["h100"]),
  inEnvironment("tpu", '{type = "v5e", topology = "2x4"}', (one) => one.tpu, null, { type: "v5e", topology: "2x4" }),
  inEnvironment("mcp_servers", '[{name = "m", url = "http://x"}]', (one) => one.mcpServers, [], [SERVER]),
  inEnvironment("env", '{A = "${A:-b}"}', (one) => one.env, {}, { A: "${A:-b}" }),
  inEnvironment("skills_dir", '"/skills"', (one) => one.skillsDirectory, null, "/skills"),
  inEnvironment("healthcheck", '{command = "c"}', (one) => one.healthcheck?.command, undefined, "c"),
  inEnvironment("workdir", '"/app"', (one) => one.workdir, null, "/app"),
  inEnvironment("network_mode", '"no-network"', (one) => one.network, { mode: "public" }, { mode: "no-network" }),
  inEnvironment("allow_internet", '"false"', (one) => one.network, { mode: "public" }, { mode: "no-network" }),
  inEnvironment("memory", '"1.5g"', (one) => one.memoryMb, null, 1536),
  inEnvironment("storage", '"2048K"', (one) => one.storageMb, null, 2),
  [
    "environment",
    "allowed_hosts",
    'environment = {network_mode = "allowlist"}',
    (file) => file.environment.network,
    { mode: "public" },
    { mode: "no-network" },
  ],
  [
    "tpu",
    "type",
    'environment.tpu = {type = "v5e", topology = "1x1"}',
    (file) => file.environment.tpu?.type,
    undefined,
    "v5e",
  ],
  [
    "tpu",
    "topology",
    'environment.tpu = {type = "v5e", topology = "2x2x1"}',
    (file) => file.environment.tpu?.topology,
    undefined,
    "2x2x1",
  ],
  [
    "healthcheck",
    "command",
    'environment.healthcheck.command = "c"',
    check,
    {},
    { command: "c", intervalMs: 5000, timeoutMs: 30_000, startPeriodMs: 0, startIntervalMs: 5000, retries: 3 },
  ],
  [
    "healthcheck",
    "interval_sec",
    'environment.healthcheck = {command = "c", interval_sec = 0}',
    check,
    {},
    expect.objectContaining({ intervalMs: 0 }),
  ],
  [
    "healthcheck",
    "timeout_sec",
    'environment.healthcheck = {command = "c", timeout_sec = 0}',
    check,
    {},
    expect.objectContaining({ timeoutMs: null }),
  ],
  [
    "healthcheck",
    "start_period_sec",
    'environment.healthcheck = {command = "c", start_period_sec = "0.5"}',
    check,
    {},
    expect.objectContaining({ startPeriodMs: 500 }),
  ],
  [
    "healthcheck",
    "start_interval_sec",
    'environment.healthcheck = {command = "c", start_interval_sec = 1}',
    check,
    {},
    expect.objectContaining({ startIntervalMs: 1000 }),
  ],
  [
    "healthcheck",
    "retries",
    'environment.healthcheck = {command = "c", retries = 0}',
    check,
    {},
    expect.objectContaining({ retries: 1 }),
  ],
  ["mcp_servers", "name", 'environment.mcp_servers = [{name = "m", url = "http://x"}]', server, {}, SERVER],
  [
    "mcp_servers",
    "transport",
    'environment.mcp_servers = [{name = "m", transport = "http", url = "http://x"}]',
    server,
    {},
    { ...SERVER, transport: "streamable-http" },
  ],
  [
    "mcp_servers",
    "url",
    'environment.mcp_servers = [{name = "m", url = "http://y"}]',
    server,
    {},
    { ...SERVER, url: "http://y" },
  ],
  [
    "mcp_servers",
    "command",
    'environment.mcp_servers = [{name = "m", transport = "stdio", command = "c"}]',
    server,
    {},
    { name: "m", transport: "stdio", command: "c", args: [] },
  ],
  [
    "mcp_servers",
    "args",
    'environment.mcp_servers = [{name = "m", transport = "stdio", command = "c", args = ["a"]}]',
    server,
    {},
    expect.objectContaining({ args: ["a"] }),
  ],
  [
    "mcp_servers",
    "headers",
    'environment.mcp_servers = [{name = "m", url = "http://x", headers = {X-Team = "a"}}]',
    server,
    {},
    { ...SERVER, headers: { "X-Team": "a" } },
  ],
  ["verifier", "timeout_sec", "verifier.timeout_sec = 0.5", (file) => file.verifier.timeoutMs, null, 500],
  ["verifier", "env", 'verifier.env.A = "a"', (file) => file.verifier.env, {}, { A: "a" }],
  ["verifier", "user", 'verifier.user = "1000:1000"', (file) => file.verifier.user, null, "1000:1000"],
  [
    "verifier",
    "environment_mode",
    'verifier.environment_mode = "separate"',
    (file) => file.verifier.mode,
    null,
    "separate",
  ],
  [
    "verifier",
    "environment",
    "verifier.environment.allow_internet = false",
    (file) => file.verifier.environment,
    null,
    { ...ENVIRONMENT, network: { mode: "no-network" } },
  ],
  ["verifier", "collect", 'verifier.collect = [{command = "c"}]', (file) => file.verifier.collect.length, 0, 1],
  [
    "verifier",
    "network_mode",
    'verifier.network_mode = "public"',
    (file) => file.verifier.network,
    null,
    { mode: "public" },
  ],
  [
    "verifier",
    "allowed_hosts",
    'verifier = {network_mode = "allowlist", allowed_hosts = ["*.a.b"]}',
    (file) => file.verifier.network,
    null,
    { mode: "allowlist", hosts: ["*.a.b"] },
  ],
  [
    "collect",
    "command",
    'verifier.collect = [{command = "c"}]',
    hook,
    {},
    expect.objectContaining({ command: "c", timeoutMs: 60_000, user: null }),
  ],
  [
    "collect",
    "service",
    'verifier.collect = [{command = "c", service = " main "}]',
    hook,
    {},
    expect.objectContaining({ command: "c" }),
  ],
  [
    "collect",
    "timeout_sec",
    'verifier.collect = [{command = "c", timeout_sec = 0.25}]',
    hook,
    {},
    expect.objectContaining({ timeoutMs: 250 }),
  ],
  [
    "collect",
    "user",
    'verifier.collect = [{command = "c", user = 0}]',
    hook,
    {},
    expect.objectContaining({ user: "0" }),
  ],
  ["solution", "env", 'solution.env.A = "a"', (file) => file.solutionEnv, {}, { A: "a" }],
  [
    "steps",
    "name",
    '[[steps]]\nname = "s"',
    step,
    {},
    expect.objectContaining({ name: "s", minReward: null, healthcheck: null, artifacts: [] }),
  ],
  [
    "steps",
    "agent",
    '[[steps]]\nname = "s"\nagent.timeout_sec = 1',
    step,
    {},
    expect.objectContaining({ agent: { timeoutMs: 1000, user: null, network: null } }),
  ],
  // Not Harbor's 600 s: what a step does not write is the task's.
  [
    "steps",
    "verifier",
    '[[steps]]\nname = "s"\nverifier.user = "u"',
    step,
    {},
    expect.objectContaining({ verifier: expect.objectContaining({ timeoutMs: null, user: "u" }) }),
  ],
  [
    "steps",
    "min_reward",
    '[[steps]]\nname = "s"\nmin_reward = {a = "0.5"}',
    step,
    {},
    expect.objectContaining({ minReward: { a: 0.5 } }),
  ],
  [
    "steps",
    "healthcheck",
    '[[steps]]\nname = "s"\nhealthcheck.command = "c"',
    step,
    {},
    expect.objectContaining({ healthcheck: expect.objectContaining({ command: "c" }) }),
  ],
  [
    "steps",
    "artifacts",
    '[[steps]]\nname = "s"\nartifacts = ["/a"]',
    step,
    {},
    expect.objectContaining({ artifacts: [expect.objectContaining({ source: "/a" })] }),
  ],
];

describe("every field, missing and written", () => {
  test.each(ROWS)("[%s] %s", (_table, _key, toml, get, missing, written) => {
    expect(get(read(""))).toEqual(missing);
    expect(get(read(toml))).toEqual(written);
  });

  test("there is a row for every known key", () => {
    const rows = new Set(ROWS.map(([table, key]) => `${table}.${key}`));
    const known = Object.entries(KNOWN_KEYS).flatMap(([table, keys]) => keys.map((key) => `${table}.${key}`));
    expect(known.filter((key) => !rows.has(key))).toEqual([]);
  });
});

test.each<[string, string]>([
  ["schema_version = 1.0", "schema_version"],
  ["version = 1.0", "version"],
  ['task.name = "no-half"', "task.name"],
  ['task = {name = "o/n", version = ""}', "task.version"],
  ['multi_step_reward_strategy = "Mean"', "multi_step_reward_strategy"],
  ["agent.timeout_sec = 0", "agent.timeout_sec"],
  ["agent.user = true", "agent.user"],
  ['agent.allowed_hosts = ["a.b"]', "agent.allowed_hosts"],
  ['environment = {network_mode = "public", allowed_hosts = ["a.b"]}', "environment.allowed_hosts"],
  ['environment.network_mode = "PUBLIC"', "environment.network_mode"],
  ["environment.memory_mb = 1.5", "environment.memory_mb"],
  ['environment.memory = "2GB"', "environment.memory"],
  ['environment = {memory = "2G", memory_mb = 1}', "environment.memory"],
  ['environment.tpu = {type = "v5e", topology = "2x0"}', "environment.tpu.topology"],
  ['environment.tpu = {type = "", topology = "2x2"}', "environment.tpu.type"],
  ['environment.os = "mac"', "environment.os"],
  ["environment.env.A = 1", "environment.env.A"],
  ['environment.workdir = "app"', "environment.workdir"],
  ['environment.mcp_servers = [{name = "m"}]', "environment.mcp_servers[0].url"],
  ['environment.mcp_servers = [{name = "m", transport = "stdio"}]', "environment.mcp_servers[0].command"],
  [
    'environment.mcp_servers = [{name = "m", url = "u", headers = {X-Api-Key = "secret"}}]',
    "environment.mcp_servers[0].headers.X-Api-Key",
  ],
  ['verifier = {environment_mode = "shared", environment = {}}', "verifier.environment_mode"],
  ['verifier.environment_mode = "Separate"', "verifier.environment_mode"],
  ["verifier.collect = [{}]", "verifier.collect[0].command"],
  ["steps = [{}]", "steps[0].name"],
  ['steps = [{name = "a"}, {name = "A"}]', "steps[1].name"],
  ['steps = [{name = "a", min_reward = "x"}]', "steps[0].min_reward"],
])("%s is refused at %s", (toml, key) => {
  expect(refusedAt(toml)).toEqual([key]);
});

test("a key that nobody knows is one warning, with what may have been meant", () => {
  const { file, warnings } = parseTaskFile(
    '[verifier]\ntimout_sec = 5\n[environment]\ntimeout_sec = 5\nx_y_z = 1\ntpu = {type = "a", topology = "1x1", topologie = 1}',
  );
  expect(file).not.toBeNull();
  expect(warnings.map(({ key, line, advice }) => [key, line, advice])).toEqual([
    ["verifier.timout_sec", 2, "did you mean timeout_sec?"],
    ["environment.timeout_sec", 4, expect.stringContaining("did you mean")],
    ["environment.x_y_z", 5, expect.stringContaining("known keys here")],
    ["environment.tpu.topologie", 6, "did you mean topology?"],
  ]);
});
