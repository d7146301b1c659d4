import {
  DEFAULT_LIFETIME_MS,
  isEnvironmentName,
  parseNetworkPolicy,
  parseRuntimeSpec,
  refusals,
  sameNetworkPolicy,
  type NetworkPolicy,
  type RuntimeCapabilities,
} from "@breakwater/runtime-api";

import type { PlanOptions } from "./options.ts";
import {
  composeBox,
  composedImage,
  refuseUnknownServices,
  servicesWith,
  withCompose,
  withoutSharedArtifacts,
} from "./plan-compose.ts";
import { allowHosts, Notes, OPTIONS, placePolicy } from "./plan-notes.ts";
import {
  checkWhatGoesOn,
  chooseGrading,
  planArtifacts,
  planHooks,
  planMcpServers,
  planNetworks,
  planOracle,
  planVerifierEnv,
  resolve,
  scriptOf,
  stepSources,
  usersOf,
  written,
  writtenTimeouts,
  type CallersHosts,
  type GradingChoice,
  type StepNetworks,
  type StepSource,
} from "./plan-step.ts";
import type {
  AgentBoxPlan,
  NotEnforced,
  PlannedImage,
  PlannedSpec,
  StepPlan,
  StepSetupPlan,
  TrialPlan,
  VerifierBoxPlan,
} from "./plan.ts";
import { TasksetError } from "./problems.ts";
import type { Task, TaskEnvironment, TaskFolder, TaskHealthcheck } from "./task.ts";

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
  /** Of what only the agent's box needs. */
  const agentNotes = options.gradesOnly === true ? new Notes(task) : notes;

  // 1. Where each step is graded, with which image, and what its phases may reach
  const hosts: CallersHosts = {
    agent: { option: "allowAgentHosts", hosts: options.allowAgentHosts },
    environment: { option: "allowEnvironmentHosts", hosts: options.allowEnvironmentHosts },
    verifier: { option: "allowVerifierHosts", hosts: options.allowVerifierHosts },
  };
  const agentBaseline = allowHosts(task.environment.network, hosts.environment);
  const drafts = stepSources(task).map((source): Draft => {
    const grading = chooseGrading(source, options, notes);
    checkWhatGoesOn(source, grading.mode, capabilities, options, agentNotes);
    return { source, grading, networks: planNetworks(source, grading, agentBaseline, hosts) };
  });
  notes.warnOfNoEffect(hosts.environment, [task.environment.network]);
  notes.warnOfNoEffect(
    hosts.agent,
    drafts.map(({ networks }) => networks.agentPolicy),
  );
  notes.warnOfNoEffect(
    hosts.verifier,
    drafts.flatMap(({ networks }) => [networks.verifierPolicy, networks.verifierBaseline.policy ?? agentBaseline]),
  );
  if (options.borrowedAgentRuntime && drafts.some(({ grading }) => grading.mode === "separate")) {
    notes.refuse({
      file: OPTIONS,
      key: "agentRuntime",
      message: "a borrowed box cannot be proven gone, which grading in a separate one needs",
      advice: "let the trial make the agent's box, or set ignoreSeparateVerifier",
    });
  }

  // 2. Deadlines, and how long the agent's box must live for them
  const { steps: deadlines, agentBoxMs } = planDeadlines(task, drafts, capabilities, options);

  // 3. The agent's box
  const inheritsEnv = drafts.some(({ grading }) => grading.inherits);
  const envNotes = inheritsEnv ? notes : agentNotes;
  const agentEnv = resolve(task, "environment.env", task.environment.env, options, envNotes);
  const inAgentBox = drafts.flatMap(({ grading, networks }) =>
    grading.image === null ? [networks.agent, networks.verifier] : [networks.agent],
  );
  const composed = composeBox(
    task.files.environment.compose,
    {
      env: agentEnv,
      policies: [agentBaseline, ...inAgentBox.map(({ policy }) => policy)],
      imageName: imageName(task, ""),
      hasSteps: task.steps.length > 0,
    },
    options,
    notes,
  );
  const plainSpec = planSpec(task.environment, agentEnv, options, {
    initial: agentBaseline,
    later: inAgentBox.map(({ policy }) => policy),
    lifetimeMs: agentBoxMs,
  });
  const agentSpec = withCompose(plainSpec, composed);
  const agentImage: PlannedImage =
    task.environment.image === null
      ? composedImage(composed, task.files.environment, imageName(task, ""), notes)
      : { kind: "declared", reference: task.environment.image };
  const agentBox: AgentBoxPlan = {
    image: agentImage,
    imageTimeoutMs: imageTimeoutMs(task.environment, options),
    spec: agentSpec,
    services: servicesWith(composed, agentImage),
    fromHost: composed.fromHost,
    staged: stage(task, task.environment),
    healthcheck: task.environment.healthcheck ?? composed.main?.healthcheck ?? null,
  };
  const baseline = placePolicy(agentBaseline, task.environment.network, "environment.network_mode", hosts.environment);
  agentNotes.refuseBox(
    {
      of: "agent",
      spec: agentSpec,
      composed,
      table: "environment",
      lifetimeKey: task.steps.length === 0 ? "agent.timeout_sec" : "steps",
      policies: [baseline, ...inAgentBox],
    },
    capabilities,
    options,
  );
  const inheritsImage = drafts.some(({ grading }) => grading.image?.kind === "agent-image");
  refuseImage(agentBox, "environment", "environment", capabilities, inheritsImage ? notes : agentNotes);
  refuseAccelerators(task.environment, "environment", envNotes);

  if (options.borrowedAgentRuntime && composed.services.length > 0 && composed.file !== null) {
    notes.refuse({
      file: composed.file,
      key: "services",
      message: "a borrowed box brings no services",
      advice: "let the trial make the agent's box",
    });
  }
  refuseUnknownServices(task, composed, options, notes);

  // 4. The steps
  const steps = deadlines.map((times) => {
    const { draft, verifierMs } = times;
    const verifierBox = planVerifierBox(draft, agentEnv, agentImage, verifierMs, capabilities, options, notes);
    return planStep(times, verifierBox, options, notes);
  });
  refuseUsers(drafts, capabilities, options, notes);

  const [first, ...others] = steps;
  if (notes.problems.length > 0 || first === undefined) {
    throw new TasksetError({ code: "ERR_PLAN_REFUSED", directory: task.directory, problems: notes.problems });
  }
  return {
    task: { name: task.name, shortName: task.shortName, directory: task.directory },
    warnings: [...task.warnings, ...notes.warnings],
    notEnforced: findNotEnforced(agentBox, steps, capabilities),
    agentBox,
    steps: [first, ...others],
    rewardStrategy: task.rewardStrategy,
    strictArtifacts: options.strictArtifacts ?? false,
    sumRewards: options.sumRewards ?? false,
  };
}

/** A step of which the first decisions are made. */
interface Draft {
  readonly source: StepSource;
  readonly grading: GradingChoice;
  readonly networks: StepNetworks;
}

function planStep(
  { draft: { source, grading, networks }, agentTimeoutMs, agentMs, verifierMs }: StepDeadlines,
  verifierBox: VerifierBoxPlan | null,
  options: PlanOptions,
  notes: Notes,
): StepPlan {
  const { task, step, folder } = source;
  const { instruction } = step ?? task;
  if (instruction.trim() === "") {
    const advice = "write what the agent is to do into it";
    notes.warn({ file: `${folder}instruction.md`, key: null, message: "is empty", advice });
  }
  const verifierEnv = planVerifierEnv(source, options, notes);
  const { oracle, oracleUnavailable } = planOracle(source, options);
  if (options.oracle && oracleUnavailable !== null) notes.refuse(oracleUnavailable);
  return {
    name: step?.name ?? null,
    mode: grading.mode,
    modeFrom: grading.modeFrom,
    setup: planSetup(source, options),
    agent: {
      instruction,
      timeoutMs: agentTimeoutMs,
      deadlineMs: agentMs,
      user: written(source, "agent.user", ({ agent }) => agent.user).value,
      env: { ...options.agentEnv },
      network: networks.agent.policy,
      skillsDirectory: task.environment.skillsDirectory,
      mcpServers: planMcpServers(task, options, options.gradesOnly === true ? new Notes(task) : notes),
    },
    oracle,
    oracleUnavailable,
    collect: planHooks(source),
    artifacts: planArtifacts(source, grading.mode, options, notes),
    verifier: {
      box: verifierBox,
      script: scriptOf(grading.operatingSystem),
      tests: grading.tests,
      user: written(source, "verifier.user", ({ verifier }) => verifier.user).value,
      env: verifierEnv,
      timeoutMs: verifierMs,
      network: networks.verifier.policy,
    },
    minReward: step?.minReward ?? null,
  };
}

function planSetup({ task, step }: StepSource, options: PlanOptions): StepSetupPlan | null {
  if (step === null) return null;
  const files = step.files.workdirFiles;
  const script = files?.entries.find(({ path }) => path === "setup.sh");
  if (files === null && step.healthcheck === null) return null;
  return {
    files,
    script: script === undefined || script.kind === "directory" ? null : "setup.sh",
    timeoutMs: imageTimeoutMs(task.environment, options),
    healthcheck: step.healthcheck,
  };
}

function planVerifierBox(
  { source, grading, networks }: Draft,
  agentEnv: Readonly<Record<string, string>>,
  agentImage: PlannedImage,
  timeoutMs: number,
  capabilities: RuntimeCapabilities,
  options: PlanOptions,
  notes: Notes,
): VerifierBoxPlan | null {
  const { task, step, levels } = source;
  const { image, inherits, environment, table } = grading;
  if (image === null) return null;
  // A copy of the agent's environment has had its templates checked already.
  const env = inherits ? agentEnv : resolve(task, `${table}.env`, environment.env, options, notes);
  const { verifierBaseline, verifier } = networks;
  const baseline = verifierBaseline.policy ?? environment.network;
  const level = levels.find(({ tests }) => image.kind === "build" && tests === image.folder);
  // What all steps have from the task is one image.
  const isOfStep = step !== null && level !== undefined && level !== levels.at(-1);
  const name = imageName(task, isOfStep ? `-${step.name}-verifier` : "-verifier");
  const declaring = levels.find(({ verifier: one }) => one.environment?.image);
  const compose =
    image.kind === "agent-image" ? task.files.environment.compose : ((level ?? declaring)?.tests.compose ?? null);
  const asked = { env, policies: [baseline, verifier.policy], imageName: name };
  const composed = withoutSharedArtifacts(composeBox(compose, asked, options, notes));
  const plainSpec = planSpec({ ...environment, operatingSystem: grading.operatingSystem }, env, options, {
    initial: baseline,
    later: [verifier.policy],
    lifetimeMs: Math.min(timeoutMs + BOX_OVERHEAD_MS, MAX_DURATION_MS),
  });
  const spec = withCompose(plainSpec, composed);
  const planned = image.kind === "build" ? composedImage(composed, image.folder, name, notes) : image;
  const box: VerifierBoxPlan = {
    image: planned,
    imageTimeoutMs: imageTimeoutMs(environment, options),
    spec,
    services: servicesWith(composed, planned.kind === "agent-image" ? agentImage : planned),
    fromHost: composed.fromHost,
    staged: image.kind === "agent-image" ? stage(task, environment) : null,
    healthcheck:
      (!inherits || image.kind === "agent-image" ? environment.healthcheck : null) ??
      composed.main?.healthcheck ??
      null,
  };
  const lifetimeKey = writtenTimeouts(source).verifierKey;
  const policies = [verifierBaseline, verifier];
  notes.refuseBox({ of: "verifier", spec, composed, table, lifetimeKey, policies }, capabilities, options);
  if (!inherits) refuseAccelerators(environment, table, notes);
  refuseImage(box, level?.testsPath ?? "tests", `${declaring?.prefix ?? ""}verifier.environment`, capabilities, notes);
  return box;
}

// ---------------------------------------------------------------------------------------------------------------------------
// Deadlines.

interface StepDeadlines {
  readonly draft: Draft;
  /** The task's limit with its multiplier; `null` = none. */
  readonly agentTimeoutMs: number | null;
  /** Always a number: the limit, or what the box's lifetime leaves. */
  readonly agentMs: number;
  readonly verifierMs: number;
}

function planDeadlines(
  task: Task,
  drafts: readonly Draft[],
  capabilities: RuntimeCapabilities,
  options: PlanOptions,
): { readonly steps: readonly StepDeadlines[]; readonly agentBoxMs: number } {
  const { ignoreTimeouts, agentTimeoutMultiplier, verifierTimeoutMultiplier } = options;
  // Whether the agent's box has to wait for a step's grading.
  const waits = ({ source, grading }: Draft): boolean => grading.mode === "shared" || !source.isLast;
  const unlimitedMs = (draft: Draft): number => {
    const phases = waits(draft) ? drafts.length + drafts.filter(waits).length : 1;
    return unlimitedVerifierMs(phases, capabilities);
  };
  const limited = drafts.map((draft) => {
    const { agentMs, verifierMs } = writtenTimeouts(draft.source);
    return {
      draft,
      agentTimeoutMs: ignoreTimeouts || agentMs === null ? null : scale(agentMs, agentTimeoutMultiplier, options),
      verifierMs: ignoreTimeouts ? unlimitedMs(draft) : scale(verifierMs, verifierTimeoutMultiplier, options),
    };
  });

  let othersMs = BOX_OVERHEAD_MS + healthcheckMs(task.environment.healthcheck);
  for (const { draft, verifierMs } of limited) {
    const { source, grading } = draft;
    othersMs += planHooks(source).reduce((sum, hook) => sum + hook.timeoutMs, 0) + setupMs(planSetup(source, options));
    if (waits(draft)) othersMs += verifierMs;
    if (grading.mode === "separate" && !source.isLast) othersMs += BOX_OVERHEAD_MS;
  }
  let unlimitedAgentMs = options.agentDeadlineMs ?? DEFAULT_LIFETIME_MS;
  if (capabilities.maxLifetimeMs !== null) {
    // If nothing is left, the lifetime that is asked for below is refused.
    const limitedMs = limited.reduce((sum, { agentTimeoutMs }) => sum + (agentTimeoutMs ?? 0), 0);
    const sharing = limited.filter(({ agentTimeoutMs }) => agentTimeoutMs === null).length;
    const left = Math.floor((capabilities.maxLifetimeMs - othersMs - limitedMs) / Math.max(1, sharing));
    unlimitedAgentMs = Math.min(unlimitedAgentMs, Math.max(LEAST_PHASE_MS, left));
  }
  const steps = limited.map((one) => ({ ...one, agentMs: one.agentTimeoutMs ?? unlimitedAgentMs }));
  const agentBoxMs = Math.min(othersMs + steps.reduce((sum, { agentMs }) => sum + agentMs, 0), MAX_DURATION_MS);
  return { steps, agentBoxMs };
}

function scale(ms: number, specific: number | undefined, options: PlanOptions): number {
  return Math.min(Math.max(1, Math.ceil(ms * (specific ?? options.timeoutMultiplier ?? 1))), MAX_DURATION_MS);
}

function imageTimeoutMs(environment: TaskEnvironment, options: PlanOptions): number {
  return scale(environment.buildTimeoutMs, options.environmentBuildTimeoutMultiplier, options);
}

function setupMs(setup: StepSetupPlan | null): number {
  if (setup === null) return 0;
  return (setup.script === null ? 0 : setup.timeoutMs) + healthcheckMs(setup.healthcheck);
}

/** `ignoreTimeouts`: the verifier has what a box's lifetime allows; the agent's own box is shared by several phases. */
function unlimitedVerifierMs(phases: number, capabilities: RuntimeCapabilities): number {
  if (capabilities.maxLifetimeMs === null) return DEFAULT_LIFETIME_MS;
  const free = Math.floor((capabilities.maxLifetimeMs - BOX_OVERHEAD_MS) / phases);
  return Math.max(LEAST_PHASE_MS, Math.min(DEFAULT_LIFETIME_MS, free));
}

/** The longest that a healthcheck can take: its start period, then failures in a row. */
function healthcheckMs(check: TaskHealthcheck | null): number {
  if (check === null) return 0;
  return check.startPeriodMs + check.retries * ((check.timeoutMs ?? 0) + check.intervalMs);
}

// ---------------------------------------------------------------------------------------------------------------------------
// Boxes.

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

function refuseImage(
  { image }: AgentBoxPlan | VerifierBoxPlan,
  folder: string,
  table: string,
  { imageSources }: RuntimeCapabilities,
  notes: Notes,
): void {
  const isAgents = folder === "environment";
  if (image.kind === "build" && !imageSources.includes("build")) {
    const push = `build and push the image, then name it as docker_image in [${table.replace(/\[\d+\]/, "")}]`;
    notes.refuse({
      file: `${folder}/Dockerfile`,
      key: null,
      message: "defines an image, and images cannot be built here",
      advice: isAgents ? push : `${push}; or set ignoreDockerfile to grade in a fresh copy of the agent's image`,
    });
  }
  if (image.kind === "declared" && !imageSources.includes("reference")) {
    const message = "images cannot be had by their name here";
    notes.refuseKey(`${table}.docker_image`, message, `write ${folder}/Dockerfile`);
  }
}

/** No driver can say that it has them. */
function refuseAccelerators({ gpus, gpuTypes, tpu }: TaskEnvironment, table: string, notes: Notes): void {
  if (tpu !== null)
    notes.refuseKey(`${table}.tpu`, "TPUs cannot be had here", "leave it out if the task can do without");
  if (gpus !== null && gpus > 0 && gpuTypes.length > 0)
    notes.refuseKey(`${table}.gpu_types`, "the kind of a GPU cannot be chosen here", "leave it out to take any");
}

function refuseUsers(
  drafts: readonly Draft[],
  capabilities: RuntimeCapabilities,
  options: PlanOptions,
  notes: Notes,
): void {
  const users = drafts.flatMap(({ source }) => usersOf(source));
  const asked = options.gradesOnly === true ? users.filter(([key]) => key.endsWith("verifier.user")) : users;
  for (const [key, user] of asked) {
    for (const refusal of refusals(parseRuntimeSpec({ image: "planned", user }), capabilities)) {
      if (refusal.code === "REFUSED_USER") notes.refuseKey(key, refusal.message, refusal.advice);
    }
  }
}

function findNotEnforced(
  agentBox: AgentBoxPlan,
  steps: readonly StepPlan[],
  capabilities: RuntimeCapabilities,
): readonly NotEnforced[] {
  if (capabilities.limits.includes("storage")) return [];
  const boxes = [["agent", agentBox] as const, ...steps.map(({ verifier }) => ["verifier", verifier.box] as const)];
  const found = new Map<string, NotEnforced>();
  for (const [box, planned] of boxes) {
    const value = planned?.spec.storageMb;
    if (value !== undefined) found.set(`${box} ${value}`, { box, key: "storageMb", value });
  }
  return [...found.values()];
}

/** What people know the task's image by. Any character that is not allowed in every backend's names becomes `-`. */
function imageName(task: Task, suffix: string): string {
  const name = task.shortName
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-+|-+$/g, "");
  return `${name === "" ? "task" : name.slice(0, 60)}${suffix}`;
}

// ---------------------------------------------------------------------------------------------------------------------------
// Options.

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
      if (!isEnvironmentName(name) || value.includes("\0"))
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
