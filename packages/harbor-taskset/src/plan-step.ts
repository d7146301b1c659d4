import type { NetworkPolicy, RuntimeCapabilities } from "@breakwater/runtime-api";
import { sameNetworkPolicy } from "@breakwater/runtime-api";

import { effectiveArtifacts, parseArtifactEntries, resolveArtifacts } from "./artifacts-declaration.ts";
import { resolveEmbedded, resolveEnv } from "./env-template.ts";
import { DEFAULT_ARTIFACT_LIMITS, type PlanOptions } from "./options.ts";
import { allowHosts, Notes, OPTIONS, placePolicy, type AllowedHosts, type PlacedPolicy } from "./plan-notes.ts";
import type { ArtifactPlan, CollectHookPlan, ModeOrigin, OraclePlan } from "./plan.ts";
import type { TasksetProblem } from "./problems.ts";
import type {
  BuildFolder,
  McpServer,
  Task,
  TaskAgent,
  TaskEnvironment,
  TaskFolder,
  TaskStep,
  TaskVerifier,
  VerifierMode,
} from "./task.ts";
import { chooseVerifierImage, resolveVerifierMode, type ImageChoice } from "./verifier-choice.ts";

/** Harbor's default, where neither the step nor the task writes one. */
const DEFAULT_VERIFIER_TIMEOUT_MS = 600_000;

/** A step of a task, or the task itself where it has none: what both levels say, the closer one first. */
export interface StepSource {
  readonly task: Task;
  /** `null`: the task has no steps. */
  readonly step: TaskStep | null;
  readonly levels: readonly Level[];
  /** Relative to the task's folder: where the step's files are. */
  readonly folder: string;
  readonly isLast: boolean;
}

interface Level {
  /** Of its keys: `steps[0].`, or nothing. */
  readonly prefix: string;
  readonly agent: TaskAgent;
  readonly verifier: TaskVerifier;
  readonly tests: BuildFolder;
  readonly testsPath: string;
}

export function stepSources(task: Task): readonly StepSource[] {
  const own: Level = {
    prefix: "",
    agent: task.agent,
    verifier: task.verifier,
    tests: task.files.tests,
    testsPath: "tests",
  };
  if (task.steps.length === 0) return [{ task, step: null, levels: [own], folder: "", isLast: true }];
  return task.steps.map((step, index): StepSource => {
    const folder = `steps/${step.name}/`;
    const level = { ...step, prefix: `steps[${index}].`, tests: step.files.tests, testsPath: `${folder}tests` };
    return { task, step, levels: [level, own], folder, isLast: index === task.steps.length - 1 };
  });
}

interface Written<T> {
  readonly value: T | null;
  /** Of the level that wrote it, else of the task. */
  readonly key: string;
}

/** What the closest level writes that writes something. */
export function written<T>({ levels }: StepSource, key: string, read: (level: Level) => T | null): Written<T> {
  const level = levels.find((one) => read(one) !== null);
  return level === undefined ? { value: null, key } : { value: read(level), key: `${level.prefix}${key}` };
}

/** Where a step is graded, and with which image, environment and tests. */
export interface GradingChoice {
  readonly mode: VerifierMode;
  readonly modeFrom: ModeOrigin;
  /** `null` in shared mode. */
  readonly image: ImageChoice | null;
  readonly environment: TaskEnvironment;
  /** The table that describes it. */
  readonly table: string;
  /** No environment of the verifier's own is declared. */
  readonly inherits: boolean;
  /** To be uploaded; `null` where the image brings its own. */
  readonly tests: TaskFolder | null;
  /** Of the box in which the tests run: an environment that does not say inherits the agent's. */
  readonly operatingSystem: TaskEnvironment["operatingSystem"];
}

/** What a box of this system runs as its tests. */
export function scriptOf(operatingSystem: TaskEnvironment["operatingSystem"]): "test.sh" | "test.bat" {
  return operatingSystem === "windows" ? "test.bat" : "test.sh";
}

export function chooseGrading(source: StepSource, options: PlanOptions, notes: Notes): GradingChoice {
  const { task } = source;
  const { mode, modeFrom } = chooseMode(source, options, notes);
  const image = mode === "separate" ? chooseImage(source, options, notes) : null;
  const declared = written(source, "verifier.environment", ({ verifier }) => verifier.environment);
  const uploads = image === null || image.kind === "agent-image";
  const tests = uploads ? overlay(task.files.testFiles, source.step?.files.testFiles ?? null) : null;
  const environment = declared.value ?? task.environment;
  const own = image !== null && environment.operatingSystemWritten ? environment : task.environment;
  const { operatingSystem } = own;
  if (uploads && !options.customVerifier) checkScript(source, mode, tests, scriptOf(operatingSystem), notes);
  return {
    mode,
    modeFrom,
    image,
    environment,
    operatingSystem,
    table: declared.value === null ? "environment" : declared.key,
    inherits: declared.value === null,
    tests,
  };
}

function chooseMode(
  { levels }: StepSource,
  options: PlanOptions,
  notes: Notes,
): { readonly mode: VerifierMode; readonly modeFrom: ModeOrigin } {
  const [step, task] = levels.length === 1 ? [undefined, levels[0]] : levels;
  const says = (level: Level): { readonly mode: VerifierMode | null; readonly hasEnvironment: boolean } => ({
    mode: level.verifier.mode,
    hasEnvironment: level.verifier.environment !== null,
  });
  const { mode, from, level } = resolveVerifierMode(
    task === undefined ? { mode: null, hasEnvironment: false } : says(task),
    step === undefined ? undefined : says(step),
  );
  const key = from === "default" ? from : (`verifier.${from}` as const);
  const modeFrom = key === "default" ? key : level === "step" ? (`steps.${key}` as const) : key;
  if (mode === "shared" || !options.ignoreSeparateVerifier) return { mode, modeFrom };
  const dropped = levels.every(({ verifier }) => verifier.environment === null)
    ? ""
    : "; [verifier.environment] has no effect";
  notes.warnKey(
    level === "step" ? `${step?.prefix}${key}` : key,
    `ignoreSeparateVerifier: graded in the agent's box, which the agent could prepare${dropped}`,
    "leave the option out to grade in a separate box",
  );
  return { mode: "shared", modeFrom: "ignoreSeparateVerifier" };
}

function chooseImage({ levels }: StepSource, options: PlanOptions, notes: Notes): ImageChoice {
  const choice = chooseVerifierImage(
    levels.map(({ verifier, tests }) => ({ image: verifier.environment?.image ?? null, tests })),
  );
  if (choice.kind !== "build" || !options.ignoreDockerfile) return choice;
  notes.warn({
    file: `${levels.find(({ tests }) => tests === choice.folder)?.testsPath ?? "tests"}/Dockerfile`,
    key: null,
    message: "ignoreDockerfile: graded in a fresh copy of the agent's image instead of the image that is defined here",
    advice: "leave the option out to build it, or name a built one as docker_image in [verifier.environment]",
  });
  return { kind: "agent-image" };
}

/** Harbor's overlay: the step's files are put over the task's. Kinds agree; that was checked when the task was loaded. */
function overlay(below: TaskFolder | null, over: TaskFolder | null): TaskFolder | null {
  if (below === null || over === null) return over ?? below;
  const entries = new Map([...below.entries, ...over.entries].map((entry) => [entry.path, entry]));
  const sorted = [...entries.values()].sort((a, b) => (a.path < b.path ? -1 : 1));
  const bytes = sorted.reduce((sum, entry) => sum + (entry.kind === "file" ? entry.bytes : 0), 0);
  return { path: over.path, entries: sorted, bytes };
}

/** A dedicated image brings its own tests; everywhere else the script must be at hand. */
function checkScript(
  { levels }: StepSource,
  mode: VerifierMode,
  tests: TaskFolder | null,
  name: ReturnType<typeof scriptOf>,
  notes: Notes,
): void {
  const script = tests?.entries.find((entry) => entry.path === name);
  if (script !== undefined && script.kind !== "directory") return;
  const elsewhere =
    mode === "separate"
      ? `or give the verifier an image of its own that has /tests/${name}`
      : "it is what grades the agent's work";
  const [closest = "tests", ...others] = levels.map(({ testsPath }) => testsPath);
  notes.refuse({
    file: `${closest}/${name}`,
    key: null,
    message:
      script === undefined
        ? ["is missing", ...others.map((path) => `${path}/${name}`)].join(", as is ")
        : "is a folder",
    advice: `write the script; ${elsewhere}`,
  });
}

/** What a step's phases may reach, each `null` where it is the box's baseline. */
export interface StepNetworks {
  readonly agent: PlacedPolicy;
  readonly verifier: PlacedPolicy;
  readonly verifierBaseline: PlacedPolicy;
  /** The policies themselves, for a warning about hosts that have no effect. */
  readonly agentPolicy: NetworkPolicy;
  readonly verifierPolicy: NetworkPolicy;
}

export interface CallersHosts {
  readonly agent: AllowedHosts;
  readonly environment: AllowedHosts;
  readonly verifier: AllowedHosts;
}

export function planNetworks(
  source: StepSource,
  grading: GradingChoice,
  agentBaseline: NetworkPolicy,
  hosts: CallersHosts,
): StepNetworks {
  const agent = written(source, "agent.network_mode", (level) => level.agent.network);
  const verifier = written(source, "verifier.network_mode", (level) => level.verifier.network);
  const agentPolicy = allowHosts(agent.value ?? agentBaseline, hosts.agent);
  const inherited = grading.inherits ? agentBaseline : grading.environment.network;
  const verifierBaseline = grading.image === null ? agentBaseline : allowHosts(inherited, hosts.verifier);
  const verifierPolicy = allowHosts(verifier.value ?? verifierBaseline, hosts.verifier);
  const phase = (policy: NetworkPolicy, baseline: NetworkPolicy): NetworkPolicy | null =>
    sameNetworkPolicy(policy, baseline) ? null : policy;
  return {
    agent: placePolicy(phase(agentPolicy, agentBaseline), agent.value, agent.key, hosts.agent),
    verifier: placePolicy(phase(verifierPolicy, verifierBaseline), verifier.value, verifier.key, hosts.verifier),
    verifierBaseline: placePolicy(
      verifierBaseline,
      grading.environment.network,
      `${grading.table}.network_mode`,
      hosts.verifier,
    ),
    agentPolicy,
    verifierPolicy,
  };
}

/** As written, without multipliers. `null` = no limit. */
export function writtenTimeouts(source: StepSource): {
  readonly agentMs: number | null;
  readonly verifierMs: number;
  readonly verifierKey: string;
} {
  const verifier = written(source, "verifier.timeout_sec", (level) => level.verifier.timeoutMs);
  return {
    agentMs: written(source, "agent.timeout_sec", (level) => level.agent.timeoutMs).value,
    verifierMs: verifier.value ?? DEFAULT_VERIFIER_TIMEOUT_MS,
    verifierKey: verifier.key,
  };
}

/** The task's hooks, then the step's. */
export function planHooks({ levels }: StepSource): readonly CollectHookPlan[] {
  return levels.toReversed().flatMap(({ verifier }) => verifier.collect);
}

export function planArtifacts(
  { task, step, levels }: StepSource,
  mode: VerifierMode,
  options: PlanOptions,
  notes: Notes,
): readonly ArtifactPlan[] {
  const limits = { ...DEFAULT_ARTIFACT_LIMITS, ...options.artifactLimits };
  const [{ prefix } = { prefix: "" }] = levels;
  const own = task.artifacts.map((entry, index) => ({ ...entry, key: `artifacts[${index}]` }));
  const ofStep = (step?.artifacts ?? []).map((entry, index) => ({ ...entry, key: `${prefix}artifacts[${index}]` }));
  const added = parseArtifactEntries(options.artifacts ?? [], "--artifact");
  for (const problem of added.problems) notes.refuse({ file: OPTIONS, ...problem });
  for (const warning of added.warnings) notes.warn({ file: OPTIONS, ...warning });

  const { artifacts, warnings } = effectiveArtifacts(own, added.entries, ofStep, limits);
  for (const warning of warnings) {
    if (warning.key.startsWith("--artifact")) notes.warn({ file: OPTIONS, ...warning });
    else notes.warnKey(warning.key, warning.message, warning.advice);
  }
  const [first, ...others] = artifacts;
  if (mode === "separate" && first?.declaredBy === "convention" && others.length === 0) {
    notes.warnKey(
      "artifacts",
      "nothing is declared, so the verifier sees only what is left in /logs/artifacts",
      "declare what the tests need as artifacts",
    );
  }
  if (task.environment.workdir === null) return artifacts;
  const resolved = resolveArtifacts(artifacts, task.environment.workdir);
  for (const { key, message, advice } of resolved.problems) notes.refuseKey(key, message, advice);
  return resolved.artifacts;
}

/** The task's `[verifier.env]`, the step's over it, the caller's over both. */
export function planVerifierEnv(
  { task, levels }: StepSource,
  options: PlanOptions,
  notes: Notes,
): Readonly<Record<string, string>> {
  let above: Readonly<Record<string, string>> = options.verifierEnv ?? {};
  for (const { prefix, verifier } of levels)
    above = resolve(task, `${prefix}verifier.env`, verifier.env, options, notes, above);
  return above;
}

/** A table of environment variables with its templates filled in; a template without a value is refused. What is `above` wins. */
export function resolve(
  task: Task,
  table: string,
  env: Readonly<Record<string, string>>,
  options: PlanOptions,
  notes: Notes,
  above: Readonly<Record<string, string>> = {},
): Readonly<Record<string, string>> {
  const asked = Object.fromEntries(Object.entries(env).filter(([name]) => !Object.hasOwn(above, name)));
  const resolved = resolveEnv(asked, options.hostEnv ?? process.env);
  for (const { name, variable } of resolved.missing) {
    const key = Object.hasOwn(task.lines, `${table}.${name}`) ? `${table}.${name}` : table;
    notes.refuseKey(
      key,
      `${name} needs the variable ${variable}, which is not set`,
      `set ${variable}, or give it a default: \${${variable}:-value}`,
    );
  }
  return { ...resolved.env, ...above };
}

/** For the agent, with the host's variables in their headers. */
export function planMcpServers(task: Task, options: PlanOptions, notes: Notes): readonly McpServer[] {
  return task.environment.mcpServers.map((server, index): McpServer => {
    if (server.transport === "stdio") return server;
    const headers = Object.entries(server.headers).map(([name, value]) => {
      const { text, missing } = resolveEmbedded(value, options.hostEnv ?? process.env);
      for (const variable of missing) {
        notes.refuseKey(
          `environment.mcp_servers[${index}].headers.${name}`,
          `needs the variable ${variable}, which is not set`,
          `set ${variable}, or give it a default: \${${variable}:-value}`,
        );
      }
      return [name, text] as const;
    });
    return { ...server, headers: Object.fromEntries(headers) };
  });
}

/** The step's solution, else the task's. */
export function planOracle(
  { task, step, folder }: StepSource,
  options: PlanOptions,
): { readonly oracle: OraclePlan | null; readonly oracleUnavailable: TasksetProblem | null } {
  const own = step?.files.solutionFiles ?? null;
  const solution = own ?? task.files.solutionFiles;
  const script = solution?.entries.find((entry) => entry.path === "solve.sh");
  if (solution === null || script === undefined || script.kind === "directory") {
    return {
      oracle: null,
      oracleUnavailable: {
        file: `${folder}solution/solve.sh`,
        key: null,
        message: "is missing: the task has no solution to run",
        advice: "write one, or use another agent",
      },
    };
  }
  const notes = new Notes(task);
  const env = resolve(task, "solution.env", task.solutionEnv, options, notes);
  const [missing] = notes.problems;
  return missing === undefined
    ? { oracle: { solution, script: "solve.sh", env }, oracleUnavailable: null }
    : { oracle: null, oracleUnavailable: missing };
}

/** Users that this step's programs run as, with the keys that name them. */
export function usersOf(source: StepSource): readonly (readonly [key: string, user: string])[] {
  const agent = written(source, "agent.user", (level) => level.agent.user);
  const verifier = written(source, "verifier.user", (level) => level.verifier.user);
  const hooks = source.levels.flatMap(({ prefix, verifier: { collect } }) =>
    collect.map((hook, index) => ({ value: hook.user, key: `${prefix}verifier.collect[${index}].user` })),
  );
  return [agent, verifier, ...hooks].flatMap(({ key, value }) => (value === null ? [] : [[key, value] as const]));
}

/** Before another step the agent's box has to go on: still, while a box of its own grades, and with what was in it, where it was graded in. */
export function checkWhatGoesOn(
  { levels, isLast }: StepSource,
  mode: VerifierMode,
  { freeze }: RuntimeCapabilities,
  options: PlanOptions,
  notes: Notes,
): void {
  if (isLast) return;
  const key = (levels[0]?.prefix ?? "").slice(0, -1);
  if (mode === "shared") {
    notes.warnKey(
      key,
      "is graded in the agent's box, and another step follows: what survives in the box may have copied its tests",
      "grade it in a box of its own",
    );
  } else if (freeze !== "freezes" && options.allowLiveAgentBox !== true) {
    notes.refuseKey(
      key,
      "is graded in a box of its own before another step, and the agent's box cannot be frozen meanwhile here",
      "use a driver that can freeze boxes, or allow that it runs on (--allow-live-agent-box)",
    );
  }
}
