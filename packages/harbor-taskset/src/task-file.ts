import {
  isAbsolutePath,
  isEnvironmentName,
  isServiceName,
  MAIN_SERVICE,
  parseAllowlistEntry,
  parseNetworkPolicy,
  type NetworkPolicy,
} from "@breakwater/runtime-api";
import { parse, TomlDate, TomlError } from "smol-toml";
import { z } from "zod";

import { parseArtifactEntries, type DeclaredArtifact, type KeyProblem } from "./artifacts-declaration.ts";
import { findKeyLines, formatKey, lineOfKey } from "./key-lines.ts";
import type { TasksetProblem } from "./problems.ts";
import { closest } from "./suggest.ts";
import { findRepeated, refuseStepName } from "./step-name.ts";
import type {
  CollectHook,
  McpServer,
  MinReward,
  TaskAbout,
  TaskAgent,
  TaskEnvironment,
  TaskHealthcheck,
  TaskStep,
  TaskVerifier,
} from "./task.ts";

/** What `task.toml` says, in our words and units. Harbor's seconds, MB and snake_case end in this file. */
export interface TaskFile {
  readonly schemaVersion: string;
  /** `[task].name`. */
  readonly name: string | null;
  readonly about: TaskAbout | null;
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly source: string | null;
  readonly agent: TaskAgent;
  readonly environment: TaskEnvironment;
  readonly verifier: TaskVerifier;
  readonly solutionEnv: Readonly<Record<string, string>>;
  readonly artifacts: readonly DeclaredArtifact[];
  readonly steps: readonly TaskFileStep[];
  readonly rewardStrategy: "mean" | "final";
}

/** A step without what is in its folder. */
export interface TaskFileStep extends Pick<TaskStep, "name" | "agent" | "verifier" | "minReward" | "healthcheck"> {
  readonly artifacts: readonly DeclaredArtifact[];
}

export interface TaskFileResult {
  /** `null` if there are problems. */
  readonly file: TaskFile | null;
  readonly problems: readonly TasksetProblem[];
  readonly warnings: readonly TasksetProblem[];
  readonly lines: Readonly<Record<string, number>>;
}

const FILE = "task.toml";
/** Timers of the platform cannot be longer; 24 days. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;
/** Harbor's defaults, in seconds. */
const DEFAULT_BUILD_TIMEOUT = 600;
const DEFAULT_HOOK_TIMEOUT = 60;
/** More is a mistake. */
const MAX_STEPS = 100;

/** Reads the text of a `task.toml`: every mistake at once, each with its key and line. */
export function parseTaskFile(text: string): TaskFileResult {
  let raw: Readonly<Record<string, unknown>>;
  try {
    raw = toPlain(parse(text)) as Readonly<Record<string, unknown>>;
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    const [summary = "it cannot be parsed"] = error.message.replace(/^Invalid TOML document: /, "").split("\n");
    const problem = {
      file: FILE,
      key: null,
      line: error.line,
      message: `is not TOML: ${summary}`,
      advice: `look at column ${error.column}`,
    };
    return { file: null, problems: [problem], warnings: [], lines: {} };
  }

  const lines = findKeyLines(text);
  const place = ({ key, message, advice }: KeyProblem): TasksetProblem => {
    const line = lineOfKey(lines, key);
    return { file: FILE, key: key === "" ? null : key, ...(line === undefined ? {} : { line }), message, advice };
  };

  const warnings: KeyProblem[] = [];
  const problems: KeyProblem[] = findContradictions(raw);
  let parsed = rootTable.safeParse(raw);
  const unknown = (parsed.error?.issues ?? []).filter((issue) => issue.code === "unrecognized_keys");
  for (const issue of unknown) {
    for (const key of issue.keys) {
      warnings.push(warnUnknownKey(issue.path, key));
      removeKey(raw, [...issue.path, key]);
    }
  }
  // Unknown keys are only a doubt: what is left must stand by itself.
  if (unknown.length > 0) parsed = rootTable.safeParse(raw);
  problems.push(...(parsed.error?.issues ?? []).map((issue) => explainIssue(issue, raw)));
  warnings.push(...warnLegacy(raw));

  const declare = (table: Readonly<Record<string, unknown>>, key: string): readonly DeclaredArtifact[] => {
    const declared = parseArtifactEntries(Array.isArray(table["artifacts"]) ? table["artifacts"] : [], key);
    problems.push(...declared.problems);
    warnings.push(...declared.warnings);
    return declared.entries;
  };
  const artifacts = declare(raw, "artifacts");
  const stepArtifacts = stepTables(raw).map(([key, step]) => declare(step, `${key}.artifacts`));

  const inOrder = (list: readonly KeyProblem[]): TasksetProblem[] =>
    list.map((problem) => place(problem)).sort((a, b) => (a.line ?? 0) - (b.line ?? 0));
  if (!parsed.success || problems.length > 0) {
    return { file: null, problems: inOrder(problems), warnings: inOrder(warnings), lines };
  }
  const steps = parsed.data.steps.map((step, index) => ({ ...step, artifacts: stepArtifacts[index] ?? [] }));
  const file: TaskFile = { ...parsed.data, artifacts, steps };
  return { file, problems: inOrder(problems), warnings: inOrder(warnings), lines };
}

// ---------------------------------------------------------------------------------------------------------------------------
// Values. Harbor reads leniently: "60" is a number, 1 is true. Enumerations are exact, but for `os`.

/** For `params` of an issue: what to do about it. */
function advise(
  message: string,
  advice: string,
): { readonly message: string; readonly params: { readonly advice: string } } {
  return { message, params: { advice } };
}

const toNumber = (value: unknown): unknown =>
  typeof value === "string" && /^\s*[+-]?\d[\d_]*(?:\.\d+)?(?:e[+-]?\d+)?\s*$/i.test(value)
    ? Number(value.replaceAll("_", ""))
    : value;

const number = z.preprocess(toNumber, z.number());
const wholeFrom = (least: number): z.ZodType<number> =>
  z.preprocess(toNumber, z.number().int().min(least)) as z.ZodType<number>;

/** Seconds to milliseconds, fractions kept. */
const durationFrom0 = number
  .refine((seconds) => seconds >= 0, advise("is below 0", "write a number of seconds"))
  .transform((seconds) => Math.min(Math.ceil(seconds * 1000), MAX_TIMEOUT_MS));
const duration = number
  .refine((seconds) => seconds > 0, advise("is not above 0", "write a number of seconds above 0"))
  .transform((seconds) => Math.min(Math.ceil(seconds * 1000), MAX_TIMEOUT_MS));

const TRUE = ["true", "t", "yes", "y", "on", "1"];
const FALSE = ["false", "f", "no", "n", "off", "0"];
const flag = z.preprocess((value) => {
  if (typeof value !== "string" && typeof value !== "number") return value;
  const word = String(value).toLowerCase();
  return TRUE.includes(word) ? true : FALSE.includes(word) ? false : value;
}, z.boolean());

const text = z.string().refine((value) => !value.includes("\0"), advise("has a NUL character", "leave it out"));
const filled = text.refine((value) => value.trim() !== "", advise("is empty", "write a text or leave the key out"));

const user = z
  .preprocess((value) => (Number.isSafeInteger(value) && Number(value) >= 0 ? String(value) : value), z.string())
  .refine(
    (value) => /^[^\s:\p{Cc}]+(?::[^\s:\p{Cc}]+)?$/u.test(value),
    advise("names no user", 'write a name, an id, or "user:group"'),
  );

const env = z.record(z.string(), text).superRefine((table, ctx) => {
  for (const name of Object.keys(table)) {
    if (!isEnvironmentName(name))
      ctx.addIssue({
        code: "custom",
        path: [name],
        ...advise("is no name of an environment variable", "leave out = and NUL"),
      });
  }
});

const hosts = z.array(text).superRefine((entries, ctx) => {
  for (const [index, entry] of entries.entries()) {
    try {
      parseAllowlistEntry(entry);
    } catch (error) {
      const message = (error as Error).message.replace(/^allowlist entry /, "");
      ctx.addIssue({
        code: "custom",
        path: [index],
        ...advise(message, 'write bare host names, "*.example.com", addresses or networks'),
      });
    }
  }
});
const networkMode = z.enum(["public", "no-network", "allowlist"]);

// ---------------------------------------------------------------------------------------------------------------------------
// Tables, in the order of Harbor's reference. Every one has its list of known keys through its schema.

const healthcheckTable = z
  .strictObject({
    command: filled,
    interval_sec: durationFrom0.default(5000),
    timeout_sec: durationFrom0.default(30_000),
    start_period_sec: durationFrom0.default(0),
    start_interval_sec: durationFrom0.default(5000),
    retries: wholeFrom(0).default(3),
  })
  .transform((table): TaskHealthcheck => ({
    command: table.command,
    intervalMs: table.interval_sec,
    timeoutMs: table.timeout_sec === 0 ? null : table.timeout_sec,
    startPeriodMs: table.start_period_sec,
    startIntervalMs: table.start_interval_sec,
    retries: Math.max(1, table.retries),
  }));

/** Headers whose value may be written in a task only by naming a variable of the host. */
const CREDENTIAL = /KEY|SECRET|TOKEN(?!S)|PASSWORD|CREDENTIAL|AUTH|COOKIE/i;
const mcpServerTable = z
  .strictObject({
    name: filled,
    transport: z
      .preprocess(
        (value) => (value === "http" ? "streamable-http" : value),
        z.enum(["stdio", "sse", "streamable-http"]),
      )
      .default("sse"),
    url: filled.optional(),
    command: filled.optional(),
    args: z.array(text).default([]),
    headers: z.record(z.string(), text).default({}),
  })
  .superRefine((table, ctx) => {
    const refuse = (key: string, message: string, what: string): void => {
      ctx.addIssue({ code: "custom", path: [key], ...advise(message, what) });
    };
    const isStdio = table.transport === "stdio";
    if (isStdio && table.command === undefined) refuse("command", "is missing", "a stdio server needs a command");
    if (!isStdio && table.url === undefined) refuse("url", "is missing", `a server by ${table.transport} needs a url`);
    for (const [name, value] of Object.entries(table.headers)) {
      const header = (message: string, what: string): void =>
        ctx.addIssue({ code: "custom", path: ["headers", name], ...advise(message, what) });
      if (isStdio) header("a stdio server has no headers", "leave it out");
      else if (!/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(name))
        header("is no name of a header", "use letters, digits and -");
      else if (/[\r\n]/.test(value)) header("has a line break", "leave it out");
      else if (CREDENTIAL.test(name) && !/^(?:\w+ )?\$\{[^}:]+\}$/.test(value))
        header("is a credential written into the task", 'name a variable of the host: "${VAR}", or "Bearer ${VAR}"');
    }
  })
  .transform((table): McpServer => {
    const { name, transport, url = "", command = "", args, headers } = table;
    return transport === "stdio" ? { name, transport, command, args } : { name, transport, url, headers };
  });

const tpuTable = z.strictObject({
  type: filled,
  topology: text.refine(
    (topology) => /^[1-9]\d*x[1-9]\d*(?:x[1-9]\d*)?$/.test(topology),
    advise("is no topology", 'write the numbers of chips along each side: "2x4", or "2x2x1"'),
  ),
});

/** `[environment]` and `[verifier.environment]`. */
const environmentKeys = z.strictObject({
  build_timeout_sec: duration.default(DEFAULT_BUILD_TIMEOUT * 1000),
  docker_image: text
    .refine((image) => !/\s/.test(image.trim()), advise("has blanks in it", "write one image reference"))
    .optional(),
  os: z
    .preprocess((value) => (typeof value === "string" ? value.toLowerCase() : value), z.enum(["linux", "windows"]))
    .optional(),
  cpus: number
    .refine((value) => value > 0, advise("is not above 0", "write a number of cores, fractions allowed"))
    .optional(),
  memory_mb: wholeFrom(1).optional(),
  storage_mb: wholeFrom(1).optional(),
  gpus: wholeFrom(0).optional(),
  gpu_types: z.array(filled).optional(),
  tpu: tpuTable.optional(),
  mcp_servers: z.array(mcpServerTable).max(100).default([]),
  env: env.default({}),
  skills_dir: filled.optional(),
  healthcheck: healthcheckTable.optional(),
  workdir: text
    .refine(isAbsolutePath, advise("is no absolute path", 'write a path from the root, without ".."'))
    .optional(),
  network_mode: networkMode.optional(),
  allowed_hosts: hosts.optional(),
  allow_internet: flag.optional(),
  memory: z.unknown().optional(),
  storage: z.unknown().optional(),
});

const environmentTable = environmentKeys.transform((table): TaskEnvironment => {
  const size = (legacy: unknown): number | null => (typeof legacy === "string" ? parseLegacySize(legacy) : null);
  const image = table.docker_image?.trim() ?? "";
  const legacyMode = table.allow_internet === false ? "no-network" : "public";
  return {
    buildTimeoutMs: table.build_timeout_sec,
    image: image === "" ? null : image,
    operatingSystem: table.os ?? "linux",
    operatingSystemWritten: table.os !== undefined,
    cpus: table.cpus ?? null,
    memoryMb: table.memory_mb ?? size(table.memory),
    storageMb: table.storage_mb ?? size(table.storage),
    gpus: table.gpus ?? null,
    gpuTypes: table.gpu_types ?? [],
    tpu: table.tpu ?? null,
    env: table.env,
    skillsDirectory: table.skills_dir ?? null,
    mcpServers: table.mcp_servers,
    healthcheck: table.healthcheck ?? null,
    workdir: table.workdir ?? null,
    network: toPolicy(table.network_mode ?? legacyMode, table.allowed_hosts),
  };
});

/** `"1.5G"` is 1536: binary multiples of K, M and G, either case; parts of a MB are cut off. `null` if it is no size or less than 1 MB. */
function parseLegacySize(size: string): number | null {
  const match = /^\s*(\d+(?:\.\d+)?)\s*([kmg])\s*$/i.exec(size);
  if (match === null) return null;
  const [, amount = "", unit = ""] = match;
  const megabytes = Math.trunc(Number(amount) * { k: 1 / 1024, m: 1, g: 1024 }[unit.toLowerCase() as "k" | "m" | "g"]);
  return Number.isSafeInteger(megabytes) && megabytes >= 1 ? megabytes : null;
}

function toPolicy(mode: NetworkPolicy["mode"], hosts: readonly string[] | undefined): NetworkPolicy {
  return mode === "allowlist" ? parseNetworkPolicy({ mode, hosts: hosts ?? [] }) : { mode };
}

const agentKeys = z.strictObject({
  timeout_sec: duration.optional(),
  user: user.optional(),
  network_mode: networkMode.optional(),
  allowed_hosts: hosts.optional(),
});
const agentTable = agentKeys.transform((table): TaskAgent => ({
  timeoutMs: table.timeout_sec ?? null,
  user: table.user ?? null,
  network: table.network_mode === undefined ? null : toPolicy(table.network_mode, table.allowed_hosts),
}));

const serviceName = filled.refine(
  (name) => isServiceName(name.trim()),
  advise("is no name of a service", "name one of docker-compose.yaml"),
);
/** Of the main box nothing is said. */
function toService(name: string | undefined): { readonly service?: string } {
  return name === undefined || name.trim() === MAIN_SERVICE ? {} : { service: name.trim() };
}

const collectTable = z
  .strictObject({
    command: filled,
    service: serviceName.optional(),
    timeout_sec: duration.default(DEFAULT_HOOK_TIMEOUT * 1000),
    user: user.optional(),
  })
  .transform((table): CollectHook => ({
    command: table.command,
    ...toService(table.service),
    timeoutMs: table.timeout_sec,
    user: table.user ?? null,
  }));

const verifierKeys = z.strictObject({
  timeout_sec: duration.optional(),
  env: env.default({}),
  user: user.optional(),
  environment_mode: z.enum(["shared", "separate"]).optional(),
  environment: environmentTable.optional(),
  collect: z.array(collectTable).max(100).default([]),
  network_mode: networkMode.optional(),
  allowed_hosts: hosts.optional(),
});
const verifierTable = verifierKeys.transform((table): TaskVerifier => ({
  timeoutMs: table.timeout_sec ?? null,
  env: table.env,
  user: table.user ?? null,
  mode: table.environment_mode ?? null,
  environment: table.environment ?? null,
  collect: table.collect,
  network: table.network_mode === undefined ? null : toPolicy(table.network_mode, table.allowed_hosts),
}));

const stepKeys = z.strictObject({
  name: text.superRefine((name, ctx) => {
    const reason = refuseStepName(name);
    if (reason !== null) ctx.addIssue({ code: "custom", ...advise(reason, "use a plain name of a folder") });
  }),
  agent: agentTable.prefault({}),
  verifier: verifierTable.prefault({}),
  min_reward: z
    .preprocess(
      (value) =>
        isTable(value)
          ? Object.fromEntries(Object.entries(value).map(([key, one]) => [key, toNumber(one)]))
          : toNumber(value),
      z.custom<MinReward>(
        (value) => isFiniteNumber(value) || (isTable(value) && Object.values(value).every(isFiniteNumber)),
        advise("is neither a number nor a table of numbers", 'write min_reward = 1.0 or min_reward = { "key" = 1.0 }'),
      ),
    )
    .optional(),
  healthcheck: healthcheckTable.optional(),
  artifacts: z.array(z.unknown()).default([]),
});
const stepTable = stepKeys.transform((table): Omit<TaskFileStep, "artifacts"> => ({
  name: table.name,
  agent: table.agent,
  verifier: table.verifier,
  minReward: table.min_reward ?? null,
  healthcheck: table.healthcheck ?? null,
}));

const authorTable = z.strictObject({ name: text, email: text.optional() });
const TASK_NAME_HALF = /^[A-Za-z0-9_-][A-Za-z0-9._-]*$/;
const taskTable = z.strictObject({
  name: text.refine(
    (name) => {
      const halves = name.split("/");
      return halves.length === 2 && halves.every((half) => TASK_NAME_HALF.test(half)) && !name.includes("..");
    },
    advise("is no task name", 'write "organisation/name" with letters, digits, "-", "_" and "."'),
  ),
  version: filled.optional(),
  description: text.default(""),
  authors: z.array(authorTable).default([]),
  keywords: z.array(text).default([]),
});

const rootTable = z
  .strictObject({
    schema_version: text.optional(),
    version: text.optional(),
    task: taskTable.optional(),
    metadata: z.record(z.string(), z.unknown()).default({}),
    source: text.optional(),
    artifacts: z.array(z.unknown()).default([]),
    agent: agentTable.prefault({}),
    verifier: verifierTable.prefault({}),
    environment: environmentTable.prefault({}),
    solution: z.strictObject({ env: env.default({}) }).prefault({}),
    steps: z.array(stepTable).max(MAX_STEPS).default([]),
    multi_step_reward_strategy: z.enum(["mean", "final"]).optional(),
  })
  .transform(
    (table): Omit<TaskFile, "artifacts" | "steps"> & { readonly steps: Omit<TaskFileStep, "artifacts">[] } => ({
      schemaVersion: table.schema_version ?? table.version ?? "1.4",
      name: table.task?.name ?? null,
      about:
        table.task === undefined
          ? null
          : {
              description: table.task.description,
              version: table.task.version ?? null,
              authors: table.task.authors.map((author) => ({ name: author.name, email: author.email ?? null })),
              keywords: table.task.keywords,
            },
      metadata: table.metadata,
      source: table.source ?? null,
      agent: table.agent,
      environment: table.environment,
      verifier: table.verifier,
      solutionEnv: table.solution.env,
      steps: table.steps,
      rewardStrategy: table.multi_step_reward_strategy ?? "mean",
    }),
  );

/** The known keys of a table, by its last name. */
export const KNOWN_KEYS: Readonly<Record<string, readonly string[]>> = {
  "": Object.keys(rootTable.in.shape),
  task: Object.keys(taskTable.shape),
  authors: Object.keys(authorTable.shape),
  agent: Object.keys(agentKeys.shape),
  verifier: Object.keys(verifierKeys.shape),
  environment: Object.keys(environmentKeys.shape),
  healthcheck: Object.keys(healthcheckTable.in.shape),
  tpu: Object.keys(tpuTable.shape),
  collect: Object.keys(collectTable.in.shape),
  solution: ["env"],
  steps: Object.keys(stepKeys.shape),
  mcp_servers: Object.keys(mcpServerTable.in.shape),
};

// ---------------------------------------------------------------------------------------------------------------------------
// What the schema cannot say.

/** Values that contradict each other. */
function findContradictions(raw: Readonly<Record<string, unknown>>): KeyProblem[] {
  const problems: KeyProblem[] = [];
  const checkHosts = (key: string, table: Readonly<Record<string, unknown>>, isPhase: boolean): void => {
    const { network_mode: mode, allowed_hosts: listed } = table;
    const hasHosts = Array.isArray(listed) && listed.length > 0;
    if (mode === undefined && (hasHosts || (isPhase && listed !== undefined))) {
      problems.push({
        key: `${key}.allowed_hosts`,
        message: "needs network_mode",
        advice: 'add network_mode = "allowlist"',
      });
    } else if (hasHosts && (mode === "public" || mode === "no-network")) {
      const message = `does not go with network_mode = "${mode}"`;
      problems.push({ key: `${key}.allowed_hosts`, message, advice: 'use "allowlist", or leave the hosts out' });
    }
  };

  for (const [key, table] of environmentTables(raw)) {
    checkHosts(key, table, false);
    for (const legacy of ["memory", "storage"] as const) {
      const old = table[legacy];
      if (typeof old !== "string") continue; // Harbor drops it with a warning, and so do we
      const megabytes = parseLegacySize(old);
      const written = toNumber(table[`${legacy}_mb`]);
      if (megabytes === null) {
        const advice = `write ${legacy}_mb = <number of MB>, or a number with G, M or K`;
        problems.push({ key: `${key}.${legacy}`, message: `${JSON.stringify(old)} is no size`, advice });
      } else if (typeof written === "number" && written !== megabytes) {
        const message = `says ${megabytes} MB, ${legacy}_mb says ${written}`;
        problems.push({ key: `${key}.${legacy}`, message, advice: `leave ${legacy} out` });
      }
    }
  }

  for (const [key, table] of [...namedTables(raw, "agent"), ...namedTables(raw, "verifier")])
    checkHosts(key, table, true);
  for (const [key, verifier] of namedTables(raw, "verifier")) {
    if (verifier["environment_mode"] !== "shared" || verifier["environment"] === undefined) continue;
    problems.push({
      key: `${key}.environment_mode`,
      message: `"shared" does not go with [${key.replace(/\[\d+\]/, "")}.environment]`,
      advice: 'write "separate", or leave that table out',
    });
  }
  const names = stepTables(raw).map(([, step]) => step["name"]);
  for (const [index, earlier] of findRepeated(names)) {
    problems.push({
      key: `steps[${index}].name`,
      message: `${JSON.stringify(names[index])} is the name of another step (${JSON.stringify(names[earlier])}) on file systems that do not tell them apart`,
      advice: "give it another name",
    });
  }
  return problems;
}

function warnLegacy(raw: Readonly<Record<string, unknown>>): KeyProblem[] {
  const warnings: KeyProblem[] = [];
  for (const [key, table] of environmentTables(raw)) {
    if (table["allow_internet"] !== undefined) {
      warnings.push({
        key: `${key}.allow_internet`,
        message: "is an old name",
        advice: 'write network_mode = "public" or "no-network"',
      });
    }
    for (const legacy of ["memory", "storage"] as const) {
      if (table[legacy] === undefined) continue;
      const advice = `write ${legacy}_mb = <number of MB>`;
      const message = typeof table[legacy] === "string" ? "is an old name" : "is not a text and is ignored";
      warnings.push({ key: `${key}.${legacy}`, message, advice });
    }
    const gpus = table["gpus"];
    if (table["gpu_types"] !== undefined && (gpus === undefined || gpus === 0)) {
      warnings.push({
        key: `${key}.gpu_types`,
        message: "has no effect without gpus",
        advice: "ask for gpus, or leave it out",
      });
    }
  }
  for (const [key, table] of environmentTables(raw)) {
    if (key === "environment") continue;
    for (const name of ["skills_dir", "mcp_servers"]) {
      if (table[name] === undefined) continue;
      warnings.push({ key: `${key}.${name}`, message: "has no effect: it is for agents", advice: "leave it out" });
    }
  }
  return warnings;
}

type NamedTable = readonly [key: string, table: Readonly<Record<string, unknown>>];

function stepTables(raw: Readonly<Record<string, unknown>>): readonly NamedTable[] {
  const steps: readonly unknown[] = Array.isArray(raw["steps"]) ? raw["steps"].slice(0, MAX_STEPS) : [];
  return steps.map((step, index): NamedTable => [`steps[${index}]`, isTable(step) ? step : {}]);
}

/** The tables of a name that the task and its steps have. */
function namedTables(raw: Readonly<Record<string, unknown>>, name: "agent" | "verifier"): readonly NamedTable[] {
  return [["", raw] as const, ...stepTables(raw)].flatMap(([key, parent]): NamedTable[] => {
    const table = parent[name];
    return isTable(table) ? [[key === "" ? name : `${key}.${name}`, table]] : [];
  });
}

function environmentTables(raw: Readonly<Record<string, unknown>>): readonly NamedTable[] {
  const own: NamedTable[] = isTable(raw["environment"]) ? [["environment", raw["environment"]]] : [];
  const verifiers = namedTables(raw, "verifier").flatMap(([key, { environment }]): NamedTable[] =>
    isTable(environment) ? [[`${key}.environment`, environment]] : [],
  );
  return [...own, ...verifiers];
}

function warnUnknownKey(path: readonly PropertyKey[], key: string): KeyProblem {
  const table = String(path.filter((part) => typeof part !== "number").at(-1) ?? "");
  const known = KNOWN_KEYS[table] ?? [];
  const meant = closest(key, known);
  const home = Object.entries(KNOWN_KEYS).find(([name, keys]) => name !== table && keys.includes(key))?.[0];
  let advice = `known keys here: ${known.join(", ")}`;
  if (meant !== undefined) advice = `did you mean ${meant}?`;
  else if (home !== undefined)
    advice =
      home === ""
        ? "did you mean the key of that name outside of every table?"
        : `did you mean the key of that name in [${home}]?`;
  return { key: formatKey([...path, key]), message: "is not a known key and is ignored", advice };
}

/** One issue of the schema in words, with what to do. */
function explainIssue(issue: z.core.$ZodIssue, raw: unknown): KeyProblem {
  const key = formatKey(issue.path);
  const value = valueAt(raw, issue.path);
  const shown = value === undefined ? "nothing" : show(value);
  switch (issue.code) {
    case "custom":
      return { key, message: issue.message, advice: String(issue.params?.["advice"] ?? "see docs/tasks.md") };
    case "invalid_type": {
      const expected = WORDS[issue.expected] ?? issue.expected;
      if (value === undefined) return { key, message: "is missing", advice: `write ${expected}` };
      const quote = issue.expected === "string" && (typeof value === "number" || typeof value === "boolean");
      return {
        key,
        message: `expected ${expected}, got ${shown}`,
        advice: quote ? `write it as text: "${String(value)}"` : `write ${expected}`,
      };
    }
    case "invalid_value": {
      const allowed = issue.values.map((one) => JSON.stringify(one)).join(", ");
      const meant =
        typeof value === "string"
          ? closest(
              value,
              issue.values.filter((one) => typeof one === "string"),
            )
          : undefined;
      return {
        key,
        message: `${shown} is not one of ${allowed}`,
        advice: meant === undefined ? `write one of ${allowed}` : `did you mean ${JSON.stringify(meant)}?`,
      };
    }
    case "too_small":
      return {
        key,
        message: `${shown} is less than ${String(issue.minimum)}`,
        advice: `write ${String(issue.minimum)} or more`,
      };
    case "too_big":
      return {
        key,
        message: `is more than ${String(issue.maximum)}`,
        advice: `write ${String(issue.maximum)} or fewer`,
      };
    case "invalid_element":
    case "invalid_format":
    case "invalid_key":
    case "invalid_union":
    case "not_multiple_of":
    case "unrecognized_keys":
      return { key, message: `${shown}: ${issue.message}`, advice: "see docs/tasks.md for this key" };
  }
}

const WORDS: Readonly<Record<string, string>> = {
  string: "a text",
  number: "a number",
  int: "a whole number",
  boolean: "true or false",
  array: "a list",
  object: "a table",
  record: "a table",
};

function show(value: unknown): string {
  if (Array.isArray(value)) return "a list";
  if (isTable(value)) return "a table";
  return (JSON.stringify(value) ?? String(value)).slice(0, 80);
}

function isTable(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isFiniteNumber(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value);
}

function valueAt(root: unknown, path: readonly PropertyKey[]): unknown {
  let value = root;
  for (const part of path) {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, part)) return undefined;
    value = (value as Readonly<Record<PropertyKey, unknown>>)[part];
  }
  return value;
}

function removeKey(root: unknown, path: readonly PropertyKey[]): void {
  const table = valueAt(root, path.slice(0, -1));
  const key = path.at(-1);
  if (typeof table === "object" && table !== null && key !== undefined) Reflect.deleteProperty(table, key);
}

/** JSON values only: dates become texts. */
function toPlain(value: unknown): unknown {
  if (value instanceof TomlDate) return value.toISOString();
  if (Array.isArray(value)) return value.map(toPlain);
  if (typeof value === "object" && value !== null) {
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, toPlain(inner)]));
  }
  return typeof value === "number" && !Number.isFinite(value) ? String(value) : value;
}
