import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { TrialEvent, TrialEventType, TrialResult } from "@breakwater/harbor-taskset";

/* Folders of jobs that nobody ran: as large as wanted, and as hostile. */

export interface MadeTrial {
  readonly task?: string;
  /** Of the verifier. */
  readonly output?: string;
  readonly rewards?: Readonly<Record<string, number>> | null;
  /** Why there is no reward. */
  readonly message?: string;
  /** Stands wherever else a box, a task or a stranger has a say. */
  readonly foreign?: string;
}

/** Times of the events in milliseconds: an agent's box, its end, and a verifier's. */
const EVENTS: readonly (readonly [atMs: number, type: TrialEventType])[] = [
  [0, "trial.started"],
  [1, "trial.planned"],
  [500, "image.prepared"],
  [510, "agent-box.create"],
  [1_500, "agent-box.started"],
  [2_000, "agent.started"],
  [9_000, "agent.ended"],
  [9_200, "agent-logs.read"],
  [9_500, "agent-box.stopped"],
  [9_900, "artifact.collected"],
  [10_300, "agent-box.gone"],
  [10_310, "verifier-box.create"],
  [11_200, "verifier-box.started"],
  [11_500, "verifier-box.cleared"],
  [11_900, "artifact.restored"],
  [12_200, "tests.uploaded"],
  [12_300, "tests.compared"],
  [12_400, "verifier.started"],
  [17_000, "verifier.ended"],
  [17_300, "verifier-box.stopped"],
  [17_400, "reward.read"],
  [17_500, "verifier-logs.read"],
  [17_900, "verifier-box.gone"],
  [17_910, "trial.ended"],
];

export function makeTrial(job: string, name: string, made: MadeTrial = {}): void {
  const {
    task = "some-task",
    output = "5 passed\n",
    rewards = { reward: 1 },
    message = "the box was lost",
    foreign = "",
  } = made;
  const folder = join(job, name);
  mkdirSync(join(folder, "verifier"), { recursive: true });
  const start = Date.UTC(2026, 0, 1);
  const proof = {
    id: "c0ffee",
    question: "GET /containers/c0ffee/json",
    answer: `404 no such container${foreign}`,
    at: "2026-01-01T00:00:00Z",
  };
  const decisions = [`The agent's box runs an image${foreign}.`, "Graded in a box of its own."];
  const events = EVENTS.map(([atMs, type], index): TrialEvent => ({
    sequence: index + 1,
    at: new Date(start + atMs).toISOString(),
    trial: name,
    type,
    box: "breakwater-52f33d49a8e3551d72a4",
    ...(type.endsWith(".gone") || type.endsWith(".stopped") ? { proof } : {}),
    details: type === "trial.planned" ? { mode: "separate", decisions } : { note: `as it was${foreign}` },
  }));
  writeFileSync(join(folder, "events.jsonl"), `${events.map((event) => JSON.stringify(event)).join("\n")}\n`);
  const denial = {
    at: "2026-01-01T00:00:05Z",
    box: "agent",
    boxId: "b",
    host: `example.com${foreign}`,
    port: 443,
    rule: "not on the list",
  };
  writeFileSync(join(folder, "egress.jsonl"), `${JSON.stringify(denial)}\n`);
  if (rewards !== null) writeFileSync(join(folder, "verifier/reward.json"), `${JSON.stringify(rewards)}${foreign}`);
  writeFileSync(
    join(folder, "result.json"),
    JSON.stringify(resultOf({ task, output, rewards, message, foreign }, name)),
  );
}

function resultOf({ task, output, rewards, message, foreign }: Required<MadeTrial>, name: string): object {
  const sha256 = "835e5eba4470f07bc185a3c5b7f31f9b64b4f90405e82ff016db39dd0dbdb866";
  const result: TrialResult = {
    trial: name,
    task,
    driver: "docker",
    rewards,
    reward: rewards?.["reward"] ?? null,
    error:
      rewards === null
        ? { reason: "infrastructure", phase: "run", code: "ERR_BOX_LOST", message, retry: "grading", causes: [message] }
        : null,
    startedAt: "2026-01-01T00:00:00.000Z",
    finishedAt: "2026-01-01T00:00:17.910Z",
    durationMs: 17_910,
    dir: `/jobs/${name}`,
    eventsFile: null,
    steps: null,
    stepsNotRun: [],
    notEnforced: [{ box: "agent", key: "storageMb", value: 10_240 }],
    images: [{ of: "agent", id: `sha256:${sha256}`, reference: `debian:bookworm-slim${foreign}` }],
    deniedConnections: { agent: 1, verifier: 0 },
    warnings: [{ file: "task.toml", key: "artifacts", message: `is large${foreign}`, advice: "make it smaller" }],
    leftovers: [],
    retries: [],
    mode: "separate",
    agent: { status: "failed", exitCode: 3, message: `exit code 3${foreign}`, durationMs: 7_000, boxEndedBy: null },
    collectHooks: [{ command: `git diff${foreign}`, status: "completed", exitCode: 0, message: null }],
    artifacts: [
      {
        source: `/app${foreign}`,
        destination: "artifacts/app",
        status: "collected",
        type: "directory",
        entries: 12,
        bytes: 34_567,
        sha256,
        overlaps: [],
      },
    ],
    artifactsRefused: [{ source: "/app", reason: null, members: [], memberCount: 2 }],
    collectedFrom: "halted",
    verifier: {
      exitCode: 0,
      timedOut: false,
      durationMs: 4_600,
      output: { head: output, tail: "", bytes: Buffer.byteLength(output), truncated: false },
      rewardFrom: "reward.json",
      rewardSha256: sha256,
      testsSha256: sha256,
      readFrom: "halted",
      boxEndedBy: null,
      oomKills: 0,
    },
  };
  return { ...result, agent_info: { name: `oracle${foreign}` }, source: null };
}

/** Tasks of four attempts each; one attempt of ten has no reward, the rewards of the others differ. */
export function makeLargeJob(job: string, trials: number): void {
  for (let index = 0; index < trials; index += 1) {
    const task = `task-${String(Math.floor(index / 4)).padStart(4, "0")}`;
    const rewards = index % 10 === 9 ? null : { reward: index % 3 === 0 ? 0.5 : 1, style: (index % 37) / 37 };
    const output = Array.from({ length: 200 }, (_, line) => `tests/test_${line}.py ${".".repeat(60)} passed`).join(
      "\n",
    );
    makeTrial(job, `${task}__${String(index).padStart(7, "0")}`, { task, rewards, output });
  }
}
