import {
  DEFAULT_LIFETIME_MS,
  parseNetworkPolicy,
  parseRuntimeSpec,
  refusals,
  sameNetworkPolicy,
  type NetworkPolicy,
  type RefusalCode,
  type RuntimeCapabilities,
} from "@breakwater/runtime-api";

import {
  effectiveArtifacts,
  parseArtifactEntries,
  resolveArtifacts,
  type KeyProblem,
} from "./artifacts-declaration.ts";
import { resolveEnv } from "./env-template.ts";
import { lineOfKey } from "./key-lines.ts";
import { DEFAULT_ARTIFACT_LIMITS, type ArtifactLimits, type PlanOptions } from "./options.ts";
import type {
  AgentBoxPlan,
  ArtifactPlan,
  ModeOrigin,
  NotEnforced,
  OraclePlan,
  PlannedSpec,
  TrialPlan,
  VerifierBoxPlan,
} from "./plan.ts";
import { TasksetError, type TasksetProblem } from "./problems.ts";
import type { Task, TaskEnvironment, TaskFolder, TaskHealthcheck, VerifierMode } from "./task.ts";
import { chooseVerifierImage, resolveVerifierMode, type ImageChoice } from "./verifier-choice.ts";

const TASK_FILE = "task.toml";
/** Stands for the caller in problems. */
const OPTIONS = "options";

/** What a box needs besides the phases that have their own limits: its start, reads, collection, teardown. */
const BOX_OVERHEAD_MS = 40 * 60 * 1000;
/** What is left for a phase must be worth a start. */
const LEAST_PHASE_MS = 60 * 1000;
/** Timers of the platform cannot be longer; 24 days. */
const MAX_DURATION_MS = 2 ** 31 - 1;

/**
 * Makes every decision of a trial. Pure. Throws a `TasksetError` with `ERR_PLAN_REFUSED` and every reason if this task cannot be run
 * with these capabilities (of `driver.probe()`) and options; a `TypeError` for options that make no sense by themselves.
 */
export function planTrial(task: Task, capabilities: RuntimeCapabilities, options: PlanOptions = {}): TrialPlan {
  checkOptions(options);
  const notes = new Notes(task);

  // 1. Where it is graded, and with which image
  const { mode, modeFrom } = chooseMode(task, options, notes);
  const image = mode === "separate" ? chooseImage(task, options, notes) : null;
  const inherits = task.verifier.environment === null;
  const verifierEnvironment = task.verifier.environment ?? task.environment;
  const verifierTable = inherits ? "environment" : "verifier.environment";
  const tests = image === null || image.kind === "agent-image" ? task.files.testFiles : null;
  if (!options.customVerifier) checkScript(task, mode, image, notes);
  if (mode === "separate" && options.borrowedAgentRuntime) {
    notes.refuse({
      file: OPTIONS,
      key: "agentRuntime",
      message: "a borrowed box cannot be proven gone, which grading in a separate one needs",
      advice: "let the trial make the agent's box, or set ignoreSeparateVerifier",
    });
  }

  // 2. What the phases may reach
  const environmentHosts = { option: "allowEnvironmentHosts", hosts: options.allowEnvironmentHosts } as const;
  const agentHosts = { option: "allowAgentHosts", hosts: options.allowAgentHosts } as const;
  const verifierHosts = { option: "allowVerifierHosts", hosts: options.allowVerifierHosts } as const;
  const agentBaseline = allowHosts(task.environment.network, environmentHosts);
  const agentPolicy = allowHosts(task.agent.network ?? agentBaseline, agentHosts);
  const verifierBaseline =
    image === null ? agentBaseline : allowHosts(inherits ? agentBaseline : verifierEnvironment.network, verifierHosts);
  const verifierPolicy = allowHosts(task.verifier.network ?? verifierBaseline, verifierHosts);
  notes.warnOfNoEffect(environmentHosts, [task.environment.network]);
  notes.warnOfNoEffect(agentHosts, [agentPolicy]);
  notes.warnOfNoEffect(verifierHosts, [verifierBaseline, verifierPolicy]);
  const agentNetwork = sameNetworkPolicy(agentPolicy, agentBaseline) ? null : agentPolicy;
  const verifierNetwork = sameNetworkPolicy(verifierPolicy, verifierBaseline) ? null : verifierPolicy;
  const agentPhase = placePolicy(agentNetwork, task.agent.network, "agent.network_mode", agentHosts);
  const verifierPhase = placePolicy(verifierNetwork, task.verifier.network, "verifier.network_mode", verifierHosts);

  // 3. Deadlines
  const scale = (specific: number | undefined, ms: number): number =>
    Math.min(Math.max(1, Math.ceil(ms * (specific ?? options.timeoutMultiplier ?? 1))), MAX_DURATION_MS);
  const verifierTimeoutMs = options.ignoreTimeouts
    ? unlimitedVerifierMs(mode, capabilities)
    : scale(options.verifierTimeoutMultiplier, task.verifier.timeoutMs);
  const agentTimeoutMs =
    options.ignoreTimeouts || task.agent.timeoutMs === null
      ? null
      : scale(options.agentTimeoutMultiplier, task.agent.timeoutMs);
  const imageTimeoutMs = (environment: TaskEnvironment): number =>
    scale(options.environmentBuildTimeoutMultiplier, environment.buildTimeoutMs);
  const otherPhasesMs =
    BOX_OVERHEAD_MS +
    healthcheckMs(task.environment.healthcheck) +
    task.verifier.collect.reduce((sum, hook) => sum + hook.timeoutMs, 0) +
    (mode === "shared" ? verifierTimeoutMs : 0);
  let agentDeadlineMs = agentTimeoutMs ?? options.agentDeadlineMs ?? DEFAULT_LIFETIME_MS;
  if (agentTimeoutMs === null && capabilities.maxLifetimeMs !== null) {
    // If nothing is left, the lifetime that is asked for below is refused.
    const left = Math.max(LEAST_PHASE_MS, capabilities.maxLifetimeMs - otherPhasesMs);
    agentDeadlineMs = Math.min(agentDeadlineMs, left);
  }

  // 4. What travels
  const { artifacts, convention } = planArtifacts(task, options, notes);
  if (mode === "separate" && convention && artifacts.length === 1) {
    notes.warnKey(
      "artifacts",
      "nothing is declared, so the verifier sees only what is left in /logs/artifacts",
      "declare what the tests need as artifacts",
    );
  }

  // 5. The boxes
  const agentEnv = resolve(task, "environment.env", task.environment.env, options, notes);
  const agentSpec = planSpec(task.environment, agentEnv, options, {
    initial: agentBaseline,
    later: [agentNetwork, image === null ? verifierNetwork : null],
    lifetimeMs: Math.min(agentDeadlineMs + otherPhasesMs, MAX_DURATION_MS),
  });
  const agentBox: AgentBoxPlan = {
    image:
      task.environment.image === null
        ? { kind: "build", context: task.files.environment.path, name: imageName(task, "") }
        : { kind: "declared", reference: task.environment.image },
    imageTimeoutMs: imageTimeoutMs(task.environment),
    spec: agentSpec,
    staged: stage(task, task.environment),
    healthcheck: task.environment.healthcheck,
  };
  notes.refuseSpec("agent", agentSpec, capabilities, "environment", options, [
    placePolicy(agentBaseline, task.environment.network, "environment.network_mode", environmentHosts),
    agentPhase,
    ...(image === null ? [verifierPhase] : []),
  ]);

  let verifierBox: VerifierBoxPlan | null = null;
  if (image !== null) {
    // A copy of the agent's environment has had its templates checked already.
    const env = inherits
      ? agentEnv
      : resolve(task, "verifier.environment.env", verifierEnvironment.env, options, notes);
    const healthcheck = !inherits || image.kind === "agent-image" ? verifierEnvironment.healthcheck : null;
    const spec = planSpec(verifierEnvironment, env, options, {
      initial: verifierBaseline,
      later: [verifierNetwork],
      lifetimeMs: Math.min(verifierTimeoutMs + BOX_OVERHEAD_MS, MAX_DURATION_MS),
    });
    verifierBox = {
      image:
        image.kind === "build"
          ? { kind: "build", context: image.folder.path, name: imageName(task, "-verifier") }
          : image,
      imageTimeoutMs: imageTimeoutMs(verifierEnvironment),
      spec,
      staged: image.kind === "agent-image" ? stage(task, verifierEnvironment) : null,
      healthcheck,
    };
    notes.refuseSpec("verifier", spec, capabilities, verifierTable, options, [
      placePolicy(verifierBaseline, verifierEnvironment.network, `${verifierTable}.network_mode`, verifierHosts),
      verifierPhase,
    ]);
  }
  refuseImages(agentBox, verifierBox, capabilities, notes);
  refuseUsers(task, capabilities, notes);

  // 6. The programs
  const verifierEnv = resolve(task, "verifier.env", task.verifier.env, options, notes, options.verifierEnv);
  const { oracle, oracleUnavailable } = planOracle(task, options);
  if (options.oracle && oracleUnavailable !== null) notes.refuse(oracleUnavailable);
  if (task.instruction.trim() === "") {
    notes.warn({
      file: "instruction.md",
      key: null,
      message: "is empty",
      advice: "write what the agent is to do into it",
    });
  }

  if (notes.problems.length > 0) {
    throw new TasksetError({ code: "ERR_PLAN_REFUSED", directory: task.directory, problems: notes.problems });
  }
  return {
    task: { name: task.name, shortName: task.shortName, directory: task.directory },
    mode,
    modeFrom,
    warnings: [...task.warnings, ...notes.warnings],
    notEnforced: findNotEnforced(agentBox, verifierBox, capabilities),
    agentBox,
    agent: {
      instruction: task.instruction,
      timeoutMs: agentTimeoutMs,
      deadlineMs: agentDeadlineMs,
      user: task.agent.user,
      env: { ...options.agentEnv },
      network: agentNetwork,
      skillsDirectory: task.environment.skillsDirectory,
    },
    oracle,
    oracleUnavailable,
    collect: task.verifier.collect,
    artifacts,
    strictArtifacts: options.strictArtifacts ?? false,
    sumRewards: options.sumRewards ?? false,
    verifier: {
      box: verifierBox,
      script: "test.sh",
      tests,
      user: task.verifier.user,
      env: verifierEnv,
      timeoutMs: verifierTimeoutMs,
      network: verifierNetwork,
    },
  };
}

// ---------------------------------------------------------------------------------------------------------------------------
// Problems and warnings, with their places.

class Notes {
  readonly problems: TasksetProblem[] = [];
  readonly warnings: TasksetProblem[] = [];
  readonly #lines: Readonly<Record<string, number>>;

  constructor(task: Task) {
    this.#lines = task.lines;
  }

  refuse(problem: TasksetProblem): void {
    this.problems.push(problem);
  }

  refuseKey(key: string, message: string, advice: string): void {
    this.problems.push(this.#atKey({ key, message, advice }));
  }

  warn(problem: TasksetProblem): void {
    this.warnings.push(problem);
  }

  warnKey(key: string, message: string, advice: string): void {
    this.warnings.push(this.#atKey({ key, message, advice }));
  }

  /** Hosts that are added to nothing but public networks. */
  warnOfNoEffect({ option, hosts = [] }: AllowedHosts, policies: readonly NetworkPolicy[]): void {
    if (hosts.length === 0 || policies.some(({ mode }) => mode !== "public")) return;
    this.warn({
      file: OPTIONS,
      key: option,
      message: "has no effect: the network is public",
      advice: "leave it out",
    });
  }

  /** Everything that a backend will not do for this box, at the keys that asked for it. */
  refuseSpec(
    box: "agent" | "verifier",
    spec: PlannedSpec,
    capabilities: RuntimeCapabilities,
    table: string,
    options: PlanOptions,
    policies: readonly PlacedPolicy[],
  ): void {
    for (const { key, code, message, advice } of refusals(
      parseRuntimeSpec({ ...spec, image: "planned" }),
      capabilities,
    )) {
      const place = this.#placeOf(key, code, table, box, spec, options, policies);
      this.problems.push({ ...place, message: `the ${box}'s box: ${message}`, advice });
    }
  }

  #placeOf(
    key: string,
    code: RefusalCode,
    table: string,
    box: "agent" | "verifier",
    spec: PlannedSpec,
    options: PlanOptions,
    policies: readonly PlacedPolicy[],
  ): Pick<TasksetProblem, "file" | "key" | "line"> {
    const written = (...names: readonly string[]): Pick<TasksetProblem, "file" | "key" | "line"> => {
      const keys = names.map((name) => `${table}.${name}`);
      return this.#placeOfKey(keys.find((one) => Object.hasOwn(this.#lines, one)) ?? keys[0] ?? table);
    };
    switch (code) {
      case "REFUSED_CPUS":
        return options.overrideCpus === undefined ? written("cpus") : { file: OPTIONS, key: "overrideCpus" };
      case "REFUSED_MEMORY":
        return options.overrideMemoryMb === undefined
          ? written("memory_mb", "memory")
          : { file: OPTIONS, key: "overrideMemoryMb" };
      case "REFUSED_GPUS":
        return written("gpus");
      case "REFUSED_OPERATING_SYSTEM":
        return written("os");
      case "REFUSED_LIFETIME":
        return this.#placeOfKey(box === "agent" ? "agent.timeout_sec" : "verifier.timeout_sec");
      case "REFUSED_NETWORK_MODE":
      case "REFUSED_NETWORK_CHANGE":
      case "REFUSED_ALLOWLIST_ENTRY": {
        const [initial, ...phases] = policies;
        const index = /^network\.later\[(\d+)\]$/.exec(key)?.[1];
        const later = index === undefined ? undefined : spec.network?.later?.[Number(index)];
        const placed =
          key === "network.initial"
            ? initial
            : phases.find(({ policy }) => policy !== null && (later === undefined || sameNetworkPolicy(policy, later)));
        if (placed?.option !== undefined) return { file: OPTIONS, key: placed.option };
        return placed === undefined || placed === initial
          ? written("network_mode", "allow_internet")
          : this.#placeOfKey(placed.key);
      }
      case "REFUSED_SERVICES":
      case "REFUSED_USER":
        return this.#placeOfKey(table);
    }
  }

  #placeOfKey(key: string): Pick<TasksetProblem, "file" | "key" | "line"> {
    const line = lineOfKey(this.#lines, key);
    return { file: TASK_FILE, key, ...(line === undefined ? {} : { line }) };
  }

  #atKey({ key, message, advice }: KeyProblem): TasksetProblem {
    return { ...this.#placeOfKey(key), message, advice };
  }
}

// ---------------------------------------------------------------------------------------------------------------------------
// The decisions, in the order in which they are made.

function chooseMode(
  task: Task,
  options: PlanOptions,
  notes: Notes,
): { readonly mode: VerifierMode; readonly modeFrom: ModeOrigin } {
  const level = { mode: task.verifier.mode, hasEnvironment: task.verifier.environment !== null };
  const { mode, from } = resolveVerifierMode(level);
  const modeFrom = from === "default" ? "default" : (`verifier.${from}` as const);
  if (mode === "shared" || !options.ignoreSeparateVerifier) return { mode, modeFrom };
  const dropped = task.verifier.environment === null ? "" : "; [verifier.environment] has no effect";
  notes.warnKey(
    modeFrom,
    `ignoreSeparateVerifier: graded in the agent's box, which the agent could prepare${dropped}`,
    "leave the option out to grade in a separate box",
  );
  return { mode: "shared", modeFrom: "ignoreSeparateVerifier" };
}

function chooseImage(task: Task, options: PlanOptions, notes: Notes): ImageChoice {
  const { tests } = task.files;
  if (tests.hasComposeFile) {
    notes.refuse({
      file: "tests/docker-compose.yaml",
      key: null,
      message: "verifiers of several services cannot be run yet",
      advice: "use one image for the verifier",
    });
  }
  const choice = chooseVerifierImage([{ image: task.verifier.environment?.image ?? null, tests }]);
  if (choice.kind !== "build" || !options.ignoreDockerfile) return choice;
  notes.warn({
    file: "tests/Dockerfile",
    key: null,
    message: "ignoreDockerfile: graded in a fresh copy of the agent's image instead of the image that is defined here",
    advice: "leave the option out to build it, or name a built one as docker_image in [verifier.environment]",
  });
  return { kind: "agent-image" };
}

/** A dedicated image brings its own tests; everywhere else the script must be at hand. */
function checkScript(task: Task, mode: VerifierMode, image: ImageChoice | null, notes: Notes): void {
  if (image !== null && image.kind !== "agent-image") return;
  const script = task.files.testFiles?.entries.find((entry) => entry.path === "test.sh");
  if (script !== undefined && script.kind !== "directory") return;
  const elsewhere =
    mode === "separate"
      ? "or give the verifier an image of its own that has /tests/test.sh"
      : "it is what grades the agent's work";
  notes.refuse({
    file: "tests/test.sh",
    key: null,
    message: script === undefined ? "is missing" : "is a folder",
    advice: `write the script; ${elsewhere}`,
  });
}

/** A policy and what asked for it. */
interface PlacedPolicy {
  /** `null` = none of its own. */
  readonly policy: NetworkPolicy | null;
  readonly key: string;
  /** Set if the caller's hosts are what made it. */
  readonly option: AllowedHosts["option"] | undefined;
}

function placePolicy(
  policy: NetworkPolicy | null,
  written: NetworkPolicy | null,
  key: string,
  { option, hosts = [] }: AllowedHosts,
): PlacedPolicy {
  const asWritten = policy === null || (written !== null && sameNetworkPolicy(policy, written));
  return { policy, key, option: asWritten || hosts.length === 0 ? undefined : option };
}

interface AllowedHosts {
  readonly option: "allowAgentHosts" | "allowEnvironmentHosts" | "allowVerifierHosts";
  readonly hosts: readonly string[] | undefined;
}

/** A policy with the caller's hosts: public stays public, everything else becomes an allowlist. */
function allowHosts(policy: NetworkPolicy, { hosts = [] }: AllowedHosts): NetworkPolicy {
  if (hosts.length === 0 || policy.mode === "public") return policy;
  return parseNetworkPolicy({
    mode: "allowlist",
    hosts: [...(policy.mode === "allowlist" ? policy.hosts : []), ...hosts],
  });
}

/** `ignoreTimeouts`: the verifier has what a box's lifetime allows; in the agent's own box it shares that with the agent. */
function unlimitedVerifierMs(mode: VerifierMode, capabilities: RuntimeCapabilities): number {
  if (capabilities.maxLifetimeMs === null) return DEFAULT_LIFETIME_MS;
  const free = Math.floor((capabilities.maxLifetimeMs - BOX_OVERHEAD_MS) / (mode === "shared" ? 2 : 1));
  return Math.max(LEAST_PHASE_MS, Math.min(DEFAULT_LIFETIME_MS, free));
}

/** The longest that a healthcheck can take: its start period, then failures in a row. */
function healthcheckMs(check: TaskHealthcheck | null): number {
  if (check === null) return 0;
  return check.startPeriodMs + check.retries * ((check.timeoutMs ?? 0) + check.intervalMs);
}

function planArtifacts(
  task: Task,
  options: PlanOptions,
  notes: Notes,
): { readonly artifacts: readonly ArtifactPlan[]; readonly convention: boolean } {
  const limits: ArtifactLimits = { ...DEFAULT_ARTIFACT_LIMITS, ...options.artifactLimits };
  const own = task.artifacts.map((entry, index) => ({ ...entry, key: `artifacts[${index}]` }));
  const added = parseArtifactEntries(options.artifacts ?? [], "--artifact");
  for (const problem of added.problems) notes.refuse({ file: OPTIONS, ...problem });
  for (const warning of added.warnings) notes.warn({ file: OPTIONS, ...warning });

  const { artifacts, warnings } = effectiveArtifacts(own, added.entries, limits);
  for (const warning of warnings) {
    if (warning.key.startsWith("--artifact")) notes.warn({ file: OPTIONS, ...warning });
    else notes.warnKey(warning.key, warning.message, warning.advice);
  }
  const convention = artifacts.some((artifact) => artifact.declaredBy === "convention");
  if (task.environment.workdir === null) return { artifacts, convention };
  const resolved = resolveArtifacts(artifacts, task.environment.workdir);
  for (const { key, message, advice } of resolved.problems) notes.refuseKey(key, message, advice);
  return { artifacts: resolved.artifacts, convention };
}

function planSpec(
  environment: TaskEnvironment,
  env: Readonly<Record<string, string>>,
  options: PlanOptions,
  phases: {
    readonly initial: NetworkPolicy;
    readonly later: readonly (NetworkPolicy | null)[];
    readonly lifetimeMs: number;
  },
): PlannedSpec {
  const cpus = options.overrideCpus ?? environment.cpus;
  const memoryMb = options.overrideMemoryMb ?? environment.memoryMb;
  const storageMb = options.overrideStorageMb ?? environment.storageMb;
  const later: NetworkPolicy[] = [];
  for (const policy of phases.later) {
    if (policy !== null && ![phases.initial, ...later].some((known) => sameNetworkPolicy(known, policy)))
      later.push(policy);
  }
  return {
    env,
    ...(environment.workdir === null ? {} : { workdir: environment.workdir }),
    ...(cpus === null ? {} : { cpus }),
    ...(memoryMb === null ? {} : { memoryMb }),
    ...(storageMb === null ? {} : { storageMb }),
    ...(environment.gpus === null ? {} : { gpus: environment.gpus }),
    network: { initial: phases.initial, later },
    lifetimeMs: phases.lifetimeMs,
    operatingSystem: environment.operatingSystem,
  };
}

/** Harbor's rule for tasks that only name an image: the files of `environment/` go to the working directory. */
function stage(task: Task, environment: TaskEnvironment): AgentBoxPlan["staged"] {
  const folder: TaskFolder | null = task.environment.image === null ? null : task.files.environmentFiles;
  return folder === null || folder.entries.length === 0 ? null : { folder, directory: environment.workdir };
}

/** A table of environment variables with its templates filled in; a template without a value is refused. Literals on top win. */
function resolve(
  task: Task,
  table: string,
  env: Readonly<Record<string, string>>,
  options: PlanOptions,
  notes: Notes,
  literal: Readonly<Record<string, string>> = {},
): Readonly<Record<string, string>> {
  const asked = Object.fromEntries(Object.entries(env).filter(([name]) => !Object.hasOwn(literal, name)));
  const resolved = resolveEnv(asked, options.hostEnv ?? process.env);
  for (const { name, variable } of resolved.missing) {
    const key = Object.hasOwn(task.lines, `${table}.${name}`) ? `${table}.${name}` : table;
    notes.refuseKey(
      key,
      `${name} needs the variable ${variable}, which is not set`,
      `set ${variable}, or give it a default: \${${variable}:-value}`,
    );
  }
  return { ...resolved.env, ...literal };
}

function planOracle(
  task: Task,
  options: PlanOptions,
): { readonly oracle: OraclePlan | null; readonly oracleUnavailable: TasksetProblem | null } {
  const unavailable = (
    problem: TasksetProblem,
  ): { readonly oracle: null; readonly oracleUnavailable: TasksetProblem } => ({
    oracle: null,
    oracleUnavailable: problem,
  });
  const solution = task.files.solutionFiles;
  const script = solution?.entries.find((entry) => entry.path === "solve.sh");
  if (solution === null || script === undefined || script.kind === "directory") {
    return unavailable({
      file: "solution/solve.sh",
      key: null,
      message: "is missing: the task has no solution to run",
      advice: "write one, or use another agent",
    });
  }
  const notes = new Notes(task);
  const env = resolve(task, "solution.env", task.solutionEnv, options, notes);
  const [missing] = notes.problems;
  return missing === undefined
    ? { oracle: { solution, script: "solve.sh", env }, oracleUnavailable: null }
    : unavailable(missing);
}

function refuseImages(
  agentBox: AgentBoxPlan,
  verifierBox: VerifierBoxPlan | null,
  capabilities: RuntimeCapabilities,
  notes: Notes,
): void {
  const advice = (table: string): string => `build and push the image, then name it as docker_image in [${table}]`;
  if (!capabilities.imageSources.includes("build")) {
    const message = "defines an image, and images cannot be built here";
    if (agentBox.image.kind === "build")
      notes.refuse({ file: "environment/Dockerfile", key: null, message, advice: advice("environment") });
    if (verifierBox?.image.kind === "build") {
      notes.refuse({
        file: "tests/Dockerfile",
        key: null,
        message,
        advice: `${advice("verifier.environment")}; or set ignoreDockerfile to grade in a fresh copy of the agent's image`,
      });
    }
  }
  if (!capabilities.imageSources.includes("reference")) {
    const message = "images cannot be had by their name here";
    if (agentBox.image.kind === "declared")
      notes.refuseKey("environment.docker_image", message, "write environment/Dockerfile");
    if (verifierBox?.image.kind === "declared")
      notes.refuseKey("verifier.environment.docker_image", message, "write tests/Dockerfile");
  }
}

function refuseUsers(task: Task, capabilities: RuntimeCapabilities, notes: Notes): void {
  const users = [
    ["agent.user", task.agent.user] as const,
    ["verifier.user", task.verifier.user] as const,
    ...task.verifier.collect.map((hook, index) => [`verifier.collect[${index}].user`, hook.user] as const),
  ];
  for (const [key, user] of users) {
    if (user === null) continue;
    for (const refusal of refusals(parseRuntimeSpec({ image: "planned", user }), capabilities)) {
      if (refusal.code === "REFUSED_USER") notes.refuseKey(key, refusal.message, refusal.advice);
    }
  }
}

function findNotEnforced(
  agentBox: AgentBoxPlan,
  verifierBox: VerifierBoxPlan | null,
  capabilities: RuntimeCapabilities,
): readonly NotEnforced[] {
  if (capabilities.limits.includes("storage")) return [];
  const found: NotEnforced[] = [];
  const { storageMb } = agentBox.spec;
  if (storageMb !== undefined) found.push({ box: "agent", key: "storageMb", value: storageMb });
  const verifierStorageMb = verifierBox?.spec.storageMb;
  if (verifierStorageMb !== undefined) found.push({ box: "verifier", key: "storageMb", value: verifierStorageMb });
  return found;
}

/** What people know the task's image by. Any character that is not allowed in every backend's names becomes `-`. */
function imageName(task: Task, suffix: string): string {
  const name = task.shortName
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-+|-+$/g, "");
  return `${name === "" ? "task" : name.slice(0, 60)}${suffix}`;
}

/** Mistakes of whoever calls: not the task's fault, and never a `TasksetError`. */
function checkOptions(options: PlanOptions): void {
  const mistakes: string[] = [];
  const positive = [
    "timeoutMultiplier",
    "agentTimeoutMultiplier",
    "verifierTimeoutMultiplier",
    "environmentBuildTimeoutMultiplier",
    "overrideCpus",
  ] as const;
  for (const key of positive) {
    const value = options[key];
    if (value !== undefined && !(Number.isFinite(value) && value > 0))
      mistakes.push(`${key}: expected a number above 0`);
  }
  for (const key of ["overrideMemoryMb", "overrideStorageMb", "agentDeadlineMs"] as const) {
    const value = options[key];
    if (value !== undefined && !(Number.isSafeInteger(value) && value > 0))
      mistakes.push(`${key}: expected a whole number above 0`);
  }
  for (const key of ["agentEnv", "verifierEnv"] as const) {
    for (const [name, value] of Object.entries(options[key] ?? {})) {
      if (name === "" || /[=\0]/.test(name) || value.includes("\0"))
        mistakes.push(`${key}: ${JSON.stringify(name)} is no environment variable`);
    }
  }
  for (const [key, value] of Object.entries(options.artifactLimits ?? {})) {
    if (!(Number.isSafeInteger(value) && value >= 0)) mistakes.push(`artifactLimits.${key}: expected a whole number`);
  }
  for (const key of ["allowAgentHosts", "allowEnvironmentHosts", "allowVerifierHosts"] as const) {
    try {
      parseNetworkPolicy({ mode: "allowlist", hosts: options[key] ?? [] });
    } catch (error) {
      mistakes.push(`${key}: ${(error as Error).message}`);
    }
  }
  if (mistakes.length > 0) throw new TypeError(`invalid options: ${mistakes.join("; ")}`);
}
