import { afterAll, describe, expect, test } from "vitest";

import type { RuntimeCapabilities } from "@breakwater/runtime-api";

import { type FakeFile, TaskFolders } from "../test/write-task.ts";
import { expand, parseDurationMs, splitWords } from "./compose-values.ts";
import { loadTask } from "./load-task.ts";
import type { PlanOptions } from "./options.ts";
import { planTrial } from "./plan-trial.ts";
import type { TrialPlan } from "./plan.ts";
import { isTasksetError } from "./problems.ts";

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
  services: "full",
  operatingSystems: ["linux"],
  maxLifetimeMs: null,
};
const NO_NETWORK = 'environment.network_mode = "no-network"';

interface Asked {
  readonly toml?: string;
  readonly files?: Readonly<Record<string, FakeFile>>;
  readonly options?: PlanOptions;
  readonly capabilities?: Partial<RuntimeCapabilities>;
}

async function plan(
  compose: string,
  { toml = "", files = {}, options = {}, capabilities = {} }: Asked = {},
): Promise<TrialPlan> {
  const folder = await folders.write({
    "task.toml": `${toml}\n`,
    "environment/docker-compose.yaml": compose,
    "environment/Dockerfile": "FROM x\n",
    ...files,
  });
  return planTrial(await loadTask(folder), { ...CAPABILITIES, ...capabilities }, { hostEnv: {}, ...options });
}

async function refused(...asked: Parameters<typeof plan>): Promise<readonly string[]> {
  const error: unknown = await plan(...asked).then(
    () => null,
    (reason: unknown) => reason,
  );
  if (!isTasksetError(error)) throw new Error(`expected a refusal, got ${String(error)}`, { cause: error });
  return error.problems.map(({ file, key }) => (key === null ? file : key));
}

const service = (...lines: readonly string[]): string =>
  `services:\n  s:\n    image: s:1\n${lines.map((line) => `    ${line}\n`).join("")}`;

test("what tasks use is planned", async () => {
  const { agentBox, warnings } = await plan(
    `
x-common: &common
  restart: always
services:
  main:
    build: .
    image: \${MAIN_IMAGE_NAME}
    command: ["sh", "-c", "sleep infinity"]
    environment: { A: compose, B: "\${TOKEN}" }
    volumes: ["\${HOST_AGENT_LOGS_PATH}:\${ENV_AGENT_LOGS_PATH}", "data:/data"]
    depends_on: { api: { condition: service_healthy } }
    deploy: { resources: { limits: { cpus: "\${CPUS}", memory: "\${MEMORY}" } } }
  api:
    <<: *common
    build: { context: "\${CONTEXT_DIR}/api", dockerfile: Api }
    command: serve --greeting 'hello world'
    environment: ["PORT=8000", "TOKEN", "UNSET"]
    env_file: ./api.env
    user: 1000
    working_dir: /srv
    ports: ["8080:8000"]
    expose: [9000]
    volumes: ["./conf:/etc/api:ro", "data:/data:ro", "/cache"]
    healthcheck: { test: "curl -f \\"$$URL\\"", interval: 1m30s, timeout: 500ms, retries: 5, start_period: 2s }
    depends_on: [db]
  db:
    image: postgres:16
    healthcheck: { test: ["CMD", "pg_isready"], start_interval: 1s }
  twin:
    image: \${MAIN_IMAGE_NAME}
    depends_on: { main: { condition: service_started } }
volumes:
  data: {}
networks:
  default: {}
version: "3"
`,
    {
      toml: 'environment.env = { A = "task" }',
      options: { hostEnv: { TOKEN: "hunter2secret" } },
      files: { "environment/api/Api": "FROM y\n", "environment/api.env": "X=1\nPORT=2\n", "environment/conf/a": "" },
    },
  );
  expect(agentBox).toMatchObject({
    image: { kind: "build" },
    spec: {
      env: { A: "task", B: "hunter2secret" },
      volumes: [{ volume: "data", path: "/data", readOnly: false }],
      dependsOn: { api: "healthy" },
    },
    fromHost: ["hunter2secret"],
  });
  const main = agentBox.image;
  const [api, db, twin, ...more] = agentBox.services;
  expect(more).toEqual([]);
  expect(api).toMatchObject({
    image: { kind: "build", dockerfile: "Api" },
    spec: {
      name: "api",
      command: ["serve", "--greeting", "hello world"],
      env: { X: "1", PORT: "8000", TOKEN: "hunter2secret" },
      user: "1000",
      workdir: "/srv",
      dependsOn: { db: "started" },
      volumes: [
        { volume: "data", path: "/data", readOnly: true },
        { volume: "anonymous-api-2", path: "/cache", readOnly: false },
      ],
      copies: [{ path: "/etc/api" }],
      healthcheck: {
        argv: ["/bin/sh", "-c", 'curl -f "$URL"'],
        intervalMs: 90_000,
        timeoutMs: 500,
        startPeriodMs: 2000,
        retries: 5,
      },
    },
  });
  expect(api?.spec.env).not.toHaveProperty("UNSET");
  expect(db?.spec.healthcheck).toMatchObject({ argv: ["pg_isready"], intervalMs: 30_000, retries: 3 });
  expect(twin?.image).toEqual(main);
  expect(warnings.map(({ key }) => key)).toEqual(["services.main.deploy", "services.api.ports"]);
});

test("everything else is refused at its key, all at once", async () => {
  const compose = `
services:
  s:
    image: s:1
    privileged: true
    cap_add: [NET_ADMIN]
    network_mode: host
    volumes: ["/etc:/etc:ro", "./data:/data", "nowhere:/x", "../..:/up:ro", "v:/v:rshared"]
    environment: { A: "\${NOT_SET}" }
    depends_on: { t: { condition: service_healthy }, gone: {} }
    build: { context: ., args: { A: 1 } }
  t: { image: "t:1", healthcheck: { test: [], interval: soon } }
  main: { entrypoint: [x], user: root, command: [python3, app.py] }
volumes: { v: { external: true } }
networks: { n: { internal: true } }
secrets: {}
`;
  expect((await refused(compose, { files: { "environment/data/x": "" } })).toSorted()).toEqual([
    "networks.n.internal",
    "secrets",
    "services.main.command",
    "services.main.entrypoint",
    "services.main.user",
    "services.s.build.args",
    "services.s.cap_add",
    "services.s.depends_on.gone",
    "services.s.depends_on.t.condition",
    "services.s.environment.A",
    "services.s.network_mode",
    "services.s.privileged",
    "services.s.volumes[0]",
    "services.s.volumes[1]",
    "services.s.volumes[2]",
    "services.s.volumes[3]",
    "services.s.volumes[4]",
    "services.t.healthcheck.interval",
    "services.t.healthcheck.test",
    "volumes.v.external",
  ]);
});

describe("refused", () => {
  test.each<[string, string, Asked, readonly string[]]>([
    ["no services here", service(), { capabilities: { services: "none" } }, ["environment/docker-compose.yaml"]],
    ["no table", "[]", {}, ["environment/docker-compose.yaml"]],
    ["nothing", "", {}, ["environment/docker-compose.yaml"]],
    ["no image of the main box", service(), { files: { "environment/Dockerfile": null } }, ["services.main"]],
    [
      "a circle",
      `${service("depends_on: [main]")}  main: { depends_on: [s] }\n`,
      {},
      ["services.s.depends_on", "services.main.depends_on"],
    ],
    [
      "one port twice",
      `${service("expose: [80]")}  t: { image: "t:1", ports: ["8080:80"] }\n`,
      {},
      ["services.t.ports[0]"],
    ],
    [
      "a port of the allowlist",
      service("expose: [80]"),
      { toml: 'environment.network_mode = "allowlist"\nenvironment.allowed_hosts = ["a.b"]' },
      ["services.s.expose[0]"],
    ],
    [
      "the main box's networks under a policy",
      "services: { main: { networks: [default] } }",
      { toml: NO_NETWORK },
      ["services.main.networks"],
    ],
    [
      "half of the main box's networks",
      `networks: { n: }\n${service("networks: [default, n]")}`,
      {},
      ["services.s.networks"],
    ],
    [
      "a hook of no service",
      service(),
      { toml: 'verifier.collect = [{ command = "x", service = "db" }]' },
      ["verifier.collect[0].service"],
    ],
    [
      "an artifact of no service",
      service(),
      { toml: 'artifacts = [{ source = "/x", service = "db" }]' },
      ["artifacts[0].service"],
    ],
    ["the verifier's folder", service('volumes: ["${HOST_VERIFIER_LOGS_PATH}:/v"]'), {}, ["services.s.volumes[0]"]],
  ])("%s", async (_, compose, asked, expected) => {
    expect((await refused(compose, asked)).toSorted()).toEqual(expected.toSorted());
  });
});

test("a service that names a network is on its own under a policy, and where the main box is otherwise", async () => {
  const compose = `${service("networks: [default]")}  t: { image: "t:1" }\n`;
  const networks = async (toml: string): Promise<unknown> =>
    (await plan(compose, { toml })).agentBox.services.map(({ spec }) => spec.networks);
  expect(await networks(NO_NETWORK)).toEqual([["default"], undefined]);
  expect(await networks("")).toEqual([undefined, undefined]);
});

test("Harbor's folder of artifacts is a volume that a service shares with the main box", async () => {
  const { agentBox } = await plan(service('volumes: ["${HOST_ARTIFACTS_PATH}:${ENV_ARTIFACTS_PATH}"]'));
  const volume = { volume: "harbor-artifacts", path: "/logs/artifacts", readOnly: false };
  expect([agentBox.spec.volumes, agentBox.services[0]?.spec.volumes]).toEqual([[volume], [volume]]);
});

test("a verifier has the agent's services in a fresh copy of its box, else those beside its own tests", async () => {
  const toml = 'verifier.environment_mode = "separate"';
  const fresh = await plan(service(), { toml });
  expect(fresh.steps[0].verifier.box?.services.map(({ spec }) => spec.name)).toEqual(["s"]);
  const own = await plan(service(), {
    toml,
    files: {
      "tests/test.sh": null,
      "tests/docker-compose.yaml": 'services: { main: { image: "v:1" }, oracle: { image: "o:1" } }',
    },
  });
  expect(own.steps[0].verifier.box).toMatchObject({
    image: { reference: "v:1" },
    services: [{ spec: { name: "oracle" } }],
  });
});

test("values of compose files", () => {
  const variables = { A: "a", EMPTY: "" };
  const text = "$A ${A} ${B:-b} ${EMPTY-e}${EMPTY:-f} ${A:+set} $$A ${C} $D";
  expect(expand(text, variables)).toMatchObject({ text: "a a b f set $A  ", missing: ["C", "D"], invalid: false });
  expect(expand("100$", variables)).toMatchObject({ invalid: true });
  expect(["1m30s", "500ms", "0", "1.5h", "", "5", "-1s", 5].map(parseDurationMs)).toEqual([
    90_000,
    500,
    0,
    5_400_000,
    null,
    null,
    null,
    null,
  ]);
  expect(splitWords(`a  'b c' "d\\"e" f\\ g ''`)).toEqual(["a", "b c", 'd"e', "f g", ""]);
  expect(splitWords("a 'b")).toBeNull();
});
