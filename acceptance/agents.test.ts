import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { type Agent, shellAgent } from "@breakwater/harbor-taskset";
import { ScriptedModel, type ScriptedAnswer } from "./support/scripted-model.ts";
import { type Files, outcome, taskFile, Workbench } from "./support/trials.ts";

/* The example agents work by tools on a model, and an installed agent is graded by what it did and by what it wrote about it. */

const workbench = new Workbench();
afterAll(() => workbench[Symbol.asyncDispose]());

/** Graded by the work and by the transcript, which is an artifact like any other. */
const TASK: Files = {
  "task.toml": taskFile({ mode: "separate", artifacts: ["/app", "/logs/agent"] }),
  "instruction.md": "Leave the answer in /app/answer.txt.\n",
  "tests/test.sh": `#!/bin/sh
right=0; [ "$(cat /app/answer.txt)" = right ] && right=1
said=$(grep -c answer /logs/agent/transcript.jsonl)
printf '{"reward": %d, "lines": %d}' $right $said >/logs/verifier/reward.json
`,
};

const SCRIPT: readonly ScriptedAnswer[] = [
  { tools: [["exec", { command: "mkdir -p /app && pwd; exit 3" }]] },
  {
    tools: [
      ["write", { path: "/app/answer.txt", content: "right\n" }],
      ["read", { path: "/app/answer.txt" }],
    ],
  },
  { tools: [["read", { path: "/app/nothing" }]] },
  { text: "The answer is in place." },
];

async function agent(name: string): Promise<Agent> {
  const module = (await import(join(import.meta.dirname, "../examples/agents", name))) as { readonly default: Agent };
  return module.default;
}

describe.concurrent.each(["openai-compatible.ts", "ai-sdk.ts"])("%s", (file) => {
  const env = (model: ScriptedModel): Readonly<Record<string, string>> => ({
    OPENAI_BASE_URL: model.baseURL,
    OPENAI_API_KEY: "key-of-the-test",
    MODEL: "scripted",
  });

  test("works by exec, write and read, tells the model what came of each, and leaves a transcript", async () => {
    await using model = await ScriptedModel.start(SCRIPT);
    const trial = await workbench.run(TASK, { agent: await agent(file), agentEnv: env(model) });
    expect(trial.result.error).toBeNull();
    expect(trial.result).toMatchObject({ reward: 1, agent: { status: "completed" } });
    expect(trial.result.rewards?.["lines"]).toBeGreaterThan(2);
    expect(model.requests.map((request) => [request.model, request.authorization])).toEqual(
      Array.from(SCRIPT, () => ["scripted", "Bearer key-of-the-test"]),
    );
    const told = JSON.stringify(model.requests.at(-1)?.messages);
    for (const expected of ["exit code 3", "wrote 6 bytes", "right", "/app/nothing does not exist"])
      expect(told).toContain(expected);
    const transcript = (await trial.file("agent/transcript.jsonl")) ?? "";
    expect(transcript).toContain("The answer is in place.");
    expect(transcript).not.toContain("key-of-the-test");
  });

  test("is ended by its limit of steps, and graded", async () => {
    await using model = await ScriptedModel.start([{ tools: [["exec", { command: "mkdir -p /app; true" }]] }]);
    const trial = await workbench.run(TASK, { agent: await agent(file), agentEnv: { ...env(model), MAX_STEPS: "3" } });
    expect(model.requests).toHaveLength(3);
    expect(trial.result.agent).toMatchObject({
      status: "failed",
      message: expect.stringContaining("3 steps") as unknown,
    });
    expect(outcome(trial)).toBe(0);
  });
});

test("an installed agent has its environment, and its transcript under /logs/agent is graded", async () => {
  const command = [
    'mkdir -p /app && printf "%s\\n" "$ANSWER" >/app/answer.txt',
    `printf '{"answer":"%s"}\\n' "$BREAKWATER_INSTRUCTION" >>/logs/agent/transcript.jsonl`,
  ].join(" && ");
  const trial = await workbench.run(TASK, { agent: shellAgent(command), agentEnv: { ANSWER: "right" } });
  expect(trial.result.rewards).toEqual({ reward: 1, lines: 1 });
  expect(await trial.file("agent/transcript.jsonl")).toContain("Leave the answer");
});
