import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { text } from "node:stream/consumers";
import type { TrialEventType, TrialPhase, TrialResult } from "@breakwater/harbor-taskset";
import { dockerHost, image } from "./backend.ts";
import { Stranger } from "./engine.ts";
import type { JobOrder, Moment } from "./job-process.ts";

const PROCESS_TIMEOUT_MS = 15 * 60_000;
const AGENT = "mkdir -p /app && echo right >/app/answer.txt && echo worked >>/logs/agent/transcript.txt && sleep 1";
const GRADER = `#!/bin/sh
if [ "$(cat /app/answer.txt)" = right ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
`;

type Files = Readonly<Record<string, string>>;
const ENVIRONMENT = `artifacts = ["/app"]\n[environment]\ndocker_image = "${image}"\nnetwork_mode = "no-network"\n`;
const ONE: Files = {
  "task.toml": `${ENVIRONMENT}[verifier]\nenvironment_mode = "separate"\n[[verifier.collect]]\ncommand = "true"\n`,
  "instruction.md": "Leave the answer in /app/answer.txt.\n",
  "tests/test.sh": GRADER,
};
const separate = '[steps.verifier]\nenvironment_mode = "separate"\n';
/** The phase `setup` is there only between steps. */
const STEPS: Files = {
  "task.toml": `${ENVIRONMENT}[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n${separate}`,
  "steps/one/instruction.md": "Leave the answer in /app/answer.txt.\n",
  "steps/two/instruction.md": "Leave it again.\n",
  "tests/test.sh": GRADER,
};

export interface KillCase extends Moment {
  readonly phase: TrialPhase | "end";
  readonly task?: "steps";
}

const at = (phase: KillCase["phase"], after: TrialEventType, delayMs = 0): KillCase => ({
  phase,
  after,
  occurrence: 1,
  delayMs,
});

/** At least two in each phase; what is hit a while after an event may be the next phase, and the table says so. */
export const KILLS: readonly KillCase[] = [
  at("images", "trial.planned"),
  at("images", "image.prepared"),
  at("agent-box", "agent-box.create"),
  at("agent-box", "agent-box.create", 150),
  at("agent-box", "agent-box.started"),
  { ...at("setup", "step.started"), occurrence: 3, task: "steps" },
  { ...at("setup", "agent-box.cleared"), task: "steps" },
  at("agent", "agent.started"),
  at("agent", "agent.started", 700),
  at("collect", "agent.ended"),
  at("collect", "collect-hook.ended"),
  at("collect", "agent-box.stopped"),
  at("collect", "artifact.collected"),
  at("teardown", "work.saved"),
  at("teardown", "work.saved", 30),
  at("provision", "agent-box.gone"),
  at("provision", "verifier-box.create"),
  at("provision", "verifier-box.create", 150),
  at("provision", "verifier-box.started"),
  at("provision", "artifact.restored"),
  at("run", "verifier.started"),
  at("run", "verifier.started", 50),
  at("run", "verifier.ended"),
  at("reward", "verifier-box.stopped"),
  at("reward", "reward.read"),
  at("reward", "verifier-logs.read"),
  at("end", "verifier-box.gone"),
  at("end", "trial.ended"),
  at("end", "trial.ended", 5),
];

interface SeenEvent {
  readonly trial: string;
  readonly type: TrialEventType;
}

/** What one kill has hit and what came of it: a line of the table. */
export interface KillOutcome {
  readonly phase: string;
  readonly moment: string;
  /** The last event of each trial when the process was gone. */
  readonly hit: readonly string[];
  /** How each trial went on. */
  readonly wentOn: readonly ("finished" | "graded" | "anew")[];
  /** Agent phases that had ended without their work being on disk, and were begun again. */
  readonly agentsLost: number;
  readonly problems: readonly string[];
}

export class KilledJobs {
  readonly #folder: string;
  readonly #stranger = new Stranger(dockerHost);
  readonly #undisturbed = new Map<string, unknown>();
  #count = 0;

  /** `folder`: for everything. */
  constructor(folder: string) {
    this.#folder = folder;
  }

  /** Runs a job to the moment, kills it, resumes it, and looks at what there is. */
  async kill(moment: KillCase): Promise<KillOutcome> {
    const tasks = await this.#tasks(moment.task ?? "one");
    const expected = await this.#runUndisturbed(moment.task ?? "one", tasks);
    const outputDir = join(this.#folder, `killed-${(this.#count += 1)}`);
    const order = this.#order(tasks, outputDir);
    const problems: string[] = [];

    const killed = await runProcess({ ...order, killAt: moment });
    if (killed.signal !== "SIGKILL")
      problems.push(`it was not killed: ${killed.signal ?? killed.exitCode} ${killed.stderr}`);
    const before = await events(order.eventsFile);
    const resumed = await runProcess({ ...order, resume: true });
    if (resumed.exitCode !== 0) problems.push(`resumed: ${resumed.signal ?? resumed.exitCode} ${resumed.stderr}`);
    const after = (await events(order.eventsFile)).slice(before.length);

    const names = await trialsOf(outputDir);
    const yielded = resumed.stdout
      .trim()
      .split("\n")
      .map((line) => (JSON.parse(line || "{}") as { readonly trial?: string }).trial ?? "none");
    if (names.length !== 2 || yielded.toSorted().join() !== names.join())
      problems.push(`results of ${yielded.join()}, not of ${names.join()}`);
    const wentOn: KillOutcome["wentOn"][number][] = [];
    let agentsLost = 0;
    for (const name of names) {
      const types = (list: readonly SeenEvent[]): readonly string[] =>
        list.filter(({ trial }) => trial === name).map(({ type }) => type);
      const [earlier, later] = [types(before), types(after)];
      const isSaved = earlier.includes("work.saved");
      if (later.includes("agent.started")) {
        if (isSaved) problems.push(`${name}: its agent's work was on disk, and its agent worked again`);
        else if (earlier.includes("agent.ended")) agentsLost += 1;
      }
      wentOn.push(later.length === 0 ? "finished" : later.includes("trial.resumed") ? "graded" : "anew");
      const result = JSON.parse(await readFile(join(outputDir, name, "result.json"), "utf8")) as TrialResult;
      if (JSON.stringify(essence(result)) !== JSON.stringify(expected))
        problems.push(`${name}: ${JSON.stringify(essence(result))}, not ${JSON.stringify(expected)}`);
      const left = await this.#stranger.objectsOf(name);
      if (left.length > 0) problems.push(`${name}: left are ${JSON.stringify(left)}`);
      if (existsSync(join(outputDir, name, ".spools"))) problems.push(`${name}: its spools are left`);
    }
    const last = new Map(before.map(({ trial, type }) => [trial, type]));
    const { phase, after: event, occurrence, delayMs } = moment;
    return {
      phase,
      moment: `${delayMs} ms after ${event}${occurrence > 1 ? ` (${occurrence}.)` : ""}`,
      hit: [...last.values()],
      wentOn,
      agentsLost,
      problems,
    };
  }

  async #tasks(name: "one" | "steps"): Promise<string> {
    const folder = join(this.#folder, `tasks-${name}`);
    for (const [path, content] of Object.entries(name === "one" ? ONE : STEPS)) {
      const file = join(folder, name, path);
      await mkdir(dirname(file), { recursive: true });
      await writeFile(file, content, { mode: path.endsWith(".sh") ? 0o755 : 0o644 });
    }
    return folder;
  }

  #order(tasks: string, outputDir: string): JobOrder {
    return { tasks, outputDir, eventsFile: `${outputDir}.jsonl`, agentCommand: AGENT, resume: false, killAt: null };
  }

  /** What each trial comes to when nobody is killed: all are alike. */
  async #runUndisturbed(name: string, tasks: string): Promise<unknown> {
    const known = this.#undisturbed.get(name);
    if (known !== undefined) return known;
    const outputDir = join(this.#folder, `undisturbed-${name}`);
    const { exitCode, stderr } = await runProcess(this.#order(tasks, outputDir));
    if (exitCode !== 0) throw new Error(`the undisturbed job ended with ${exitCode}: ${stderr}`);
    const [first = ""] = await trialsOf(outputDir);
    const result = essence(JSON.parse(await readFile(join(outputDir, first, "result.json"), "utf8")) as TrialResult);
    this.#undisturbed.set(name, result);
    return result;
  }
}

/** Of a result, what does not depend on clocks and names. */
function essence({
  task,
  mode,
  rewards,
  reward,
  error,
  steps,
  artifacts,
  agent,
  leftovers,
  retries,
}: TrialResult): unknown {
  const files = (list: TrialResult["artifacts"]): unknown =>
    list.map(({ source, status, entries, bytes }) => ({ source, status, entries, bytes }));
  return {
    task,
    mode,
    rewards,
    reward,
    error,
    leftovers,
    retries,
    agent: agent?.status ?? null,
    artifacts: files(artifacts),
    steps:
      steps?.map((step) => ({
        name: step.name,
        rewards: step.rewards,
        agent: step.agent?.status ?? null,
        artifacts: files(step.artifacts),
      })) ?? null,
  };
}

async function trialsOf(outputDir: string): Promise<readonly string[]> {
  const names = await readdir(outputDir, { withFileTypes: true });
  return names.flatMap((entry) => (entry.isDirectory() && entry.name !== ".lock" ? [entry.name] : [])).toSorted();
}

async function events(file: string): Promise<readonly SeenEvent[]> {
  const lines = (await readFile(file, "utf8").catch(() => "")).split("\n");
  return lines.filter((line) => line !== "").map((line) => JSON.parse(line) as SeenEvent);
}

interface Ended {
  readonly exitCode: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

async function runProcess(order: JobOrder): Promise<Ended> {
  const child = spawn(
    process.execPath,
    ["--conditions=@breakwater/source", join(import.meta.dirname, "job-process.ts"), JSON.stringify(order)],
    {
      env: { ...process.env, NODE_OPTIONS: "" },
      stdio: ["ignore", "pipe", "pipe"],
      timeout: PROCESS_TIMEOUT_MS,
      killSignal: "SIGTERM",
    },
  );
  const ended = once(child, "close");
  const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr)]);
  const [exitCode, signal] = (await ended) as [number | null, NodeJS.Signals | null];
  return { exitCode, signal, stdout, stderr };
}

/** The table, for people. */
export function killTable(outcomes: readonly KillOutcome[]): string {
  const rows = outcomes.map(({ phase, moment, hit, wentOn, agentsLost, problems }) =>
    [
      phase,
      moment,
      hit.join(", ") || "nothing yet",
      wentOn.join(", "),
      String(agentsLost),
      problems.join("; ") || "none",
    ].join(" | "),
  );
  const head =
    "phase | killed | last events of the trials | went on | agent phases lost before their work was on disk | problems";
  return [`| ${head} |`, "| --- | --- | --- | --- | --- | --- |", ...rows.map((row) => `| ${row} |`), ""].join("\n");
}
