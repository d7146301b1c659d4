import type { NetworkPolicy } from "@breakwater/runtime-api";

import type { ArtifactPlan, PlannedSpec, StepPlan, TrialPlan } from "./plan.ts";
import { formatProblem } from "./problems.ts";
import type { TaskHealthcheck } from "./task.ts";

/** The decisions of a plan in plain sentences, for people; its warnings are beside it. Of environment variables only the names. */
export function describePlan(plan: TrialPlan): string[] {
  const { agentBox } = plan;
  const lines = [`Task ${plan.task.name} in ${plan.task.directory}.`];
  const image =
    agentBox.image.kind === "build"
      ? `an image built from ${agentBox.image.context} (at most ${seconds(agentBox.imageTimeoutMs)})`
      : agentBox.image.reference;
  lines.push(`The agent's box runs ${image}; ${describeSpec(agentBox.spec, agentBox.healthcheck)}.`);
  lines.push(...describeServices(agentBox));
  if (agentBox.staged !== null) {
    const place = agentBox.staged.directory ?? "the image's working directory";
    lines.push(
      `The files of environment/ (${count(agentBox.staged.folder.entries.length, "entry", "entries")}) are put into ${place}.`,
    );
  }
  for (const [index, step] of plan.steps.entries()) {
    lines.push(
      ...describeStep(step).map((line) => (step.name === null ? line : `Step ${index + 1}, ${step.name}: ${line}`)),
    );
  }
  if (plan.steps.length > 1) {
    lines.push(
      plan.rewardStrategy === "mean"
        ? "The trial's rewards are the mean, key by key, over the steps that were done."
        : "The trial's rewards are those of the last step that was done.",
    );
  }
  if (plan.strictArtifacts) lines.push("An artifact that has to be left out makes the trial end without rewards.");
  for (const { box, key, value } of plan.notEnforced)
    lines.push(`Not enforced here: ${key} = ${value} of the ${box}'s box.`);
  return lines;
}

function describeStep(step: StepPlan): string[] {
  const { setup, agent, verifier } = step;
  const lines = [describeMode(step)];
  if (setup?.files) {
    const run =
      setup.script === null ? "" : `, and ${setup.script} is run there for at most ${seconds(setup.timeoutMs)}`;
    const files = count(setup.files.entries.length, "entry", "entries");
    lines.push(`Its files (${files}) are put into the working directory${run}.`);
  }
  if (setup?.healthcheck) lines.push(`It begins when this succeeds: ${oneLine(setup.healthcheck.command)}.`);
  const limit =
    agent.timeoutMs === null
      ? `without a limit of the task, and is ended after ${seconds(agent.deadlineMs)}`
      : `for at most ${seconds(agent.timeoutMs)}`;
  lines.push(
    `The agent works ${limit}, as ${agent.user ?? "the image's user"}${phase(agent.network)}${names(agent.env)}.`,
  );
  if (agent.mcpServers.length > 0) {
    lines.push(`It is told of the MCP servers ${agent.mcpServers.map(({ name }) => name).join(", ")}.`);
  }
  lines.push(
    step.oracle === null && step.oracleUnavailable !== null
      ? `The oracle cannot be used: ${formatProblem(step.oracleUnavailable)}.`
      : `The oracle runs solution/solve.sh${names(step.oracle?.env ?? {})}.`,
  );
  for (const hook of step.collect) {
    lines.push(
      `Then a collect hook runs ${hook.service === undefined ? "" : `in the service ${hook.service} `}for at most ${seconds(hook.timeoutMs)}, as ${hook.user ?? "the image's user"}: ${oneLine(hook.command)}`,
    );
  }
  lines.push(...step.artifacts.map(describeArtifact));

  if (verifier.box !== null) {
    const { box } = verifier;
    const from =
      box.image.kind === "agent-image"
        ? "a fresh copy of the agent's image"
        : box.image.kind === "build"
          ? `an image built from ${box.image.context} (at most ${seconds(box.imageTimeoutMs)})`
          : box.image.reference;
    lines.push(`The verifier's box runs ${from}; ${describeSpec(box.spec, box.healthcheck)}.`);
    lines.push(...describeServices(box));
    if (box.staged !== null) lines.push("The files of environment/ are put into it as well.");
  }
  lines.push(
    verifier.tests === null
      ? "The tests are the image's own /tests; none are uploaded."
      : `The tests (${count(verifier.tests.entries.length, "entry", "entries")}) are uploaded to /tests after the agent.`,
  );
  lines.push(
    `/tests/${verifier.script} grades for at most ${seconds(verifier.timeoutMs)}, as ${verifier.user ?? "the image's user"}${phase(verifier.network)}${names(verifier.env)}.`,
  );
  if (step.minReward !== null) {
    const least =
      typeof step.minReward === "number"
        ? `reward of ${step.minReward}`
        : Object.entries(step.minReward)
            .map(([key, value]) => `${key} of ${value}`)
            .join(" and ");
    lines.push(`A ${least} or more is needed for the next step.`);
  }
  return lines;
}

function describeServices({ services }: Pick<TrialPlan["agentBox"], "services">): string[] {
  return services.map(({ image, spec }) => {
    const from = image.kind === "build" ? `an image built from ${image.context}` : image.reference;
    const networks = spec.networks ?? [];
    const network = networks.length === 0 ? "in that box's network" : `on its own networks ${networks.join(", ")}`;
    const after = Object.entries(spec.dependsOn ?? {}).map(([name, condition]) => `${name} is ${condition}`);
    return `Beside it the service ${spec.name} runs ${from}, ${network}${after.length === 0 ? "" : `, when ${after.join(" and ")}`}${names(spec.env ?? {})}.`;
  });
}

function describeMode({ mode, modeFrom }: StepPlan): string {
  const where = mode === "separate" ? "Graded in a box of its own" : "Graded in the agent's box";
  switch (modeFrom) {
    case "default":
      return `${where}, as [verifier] says nothing else.`;
    case "verifier.environment":
    case "steps.verifier.environment":
      return `${where}, as there is a table [${modeFrom}].`;
    case "verifier.environment_mode":
    case "steps.verifier.environment_mode":
      return `${where}, as environment_mode in [${modeFrom.replace(".environment_mode", "")}] says.`;
    case "ignoreSeparateVerifier":
      return `${where}, as ignoreSeparateVerifier overrules the task.`;
  }
}

function describeSpec(spec: PlannedSpec, healthcheck: TaskHealthcheck | null): string {
  const parts = [`network ${describePolicy(spec.network?.initial ?? { mode: "public" })}`];
  if (spec.cpus !== undefined) parts.push(count(spec.cpus, "core", "cores"));
  if (spec.memoryMb !== undefined) parts.push(`${spec.memoryMb} MiB of memory`);
  if (spec.storageMb !== undefined) parts.push(`${spec.storageMb} MiB of disk`);
  if (spec.gpus !== undefined && spec.gpus > 0) parts.push(count(spec.gpus, "GPU", "GPUs"));
  if (spec.workdir !== undefined) parts.push(`working directory ${spec.workdir}`);
  const variables = Object.keys(spec.env ?? {});
  if (variables.length > 0) parts.push(`variables ${variables.join(", ")}`);
  if (healthcheck !== null) parts.push(`healthy when this succeeds: ${oneLine(healthcheck.command)}`);
  if (spec.lifetimeMs !== undefined) parts.push(`gone after ${seconds(spec.lifetimeMs)} at the latest`);
  return parts.join(", ");
}

function describeArtifact(artifact: ArtifactPlan): string {
  const where = artifact.source.startsWith("/")
    ? artifact.source
    : `${artifact.source} (below the image's working directory)`;
  const exclude = artifact.exclude.length === 0 ? "" : ` without ${artifact.exclude.join(", ")}`;
  const why = {
    convention: "always",
    task: "declared by the task",
    trial: "asked for by the caller",
    step: "declared by the step",
  }[artifact.declaredBy];
  const bounds = `at most ${artifact.limits.maxBytes} bytes and ${count(artifact.limits.maxEntries, "entry", "entries")}`;
  const of = artifact.service === undefined ? "" : ` of the service ${artifact.service}`;
  return `Artifact ${where}${of}${exclude} is collected to ${artifact.destination} (${why}; ${bounds}).`;
}

function describePolicy(policy: NetworkPolicy): string {
  return policy.mode === "allowlist" ? `allowlist (${policy.hosts.join(", ")})` : policy.mode;
}

function phase(policy: NetworkPolicy | null): string {
  return policy === null ? "" : `, with network ${describePolicy(policy)} meanwhile`;
}

function names(env: Readonly<Record<string, string>>): string {
  const all = Object.keys(env);
  return all.length === 0 ? "" : `, with ${all.join(", ")} set`;
}

function seconds(ms: number): string {
  return `${ms / 1000} s`;
}

function count(number: number, one: string, many: string): string {
  return `${number} ${number === 1 ? one : many}`;
}

function oneLine(command: string): string {
  const line = command.trim().replace(/\s+/g, " ");
  return line.length > 200 ? `${line.slice(0, 200)}…` : line;
}
