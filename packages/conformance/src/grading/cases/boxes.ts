import assert from "node:assert/strict";
import type { GradingCase } from "../case.ts";
import { assertFacts, explain, fact, has, onlyEvent } from "../facts.ts";
import { buildNeeds } from "../needs.ts";
import { SEPARATE_TASKS, TASK_TITLES } from "../standard-tasks.ts";
import type { FinishedTrial } from "../trials.ts";

/** Which box grades, and that no two of a trial live at the same time. */
export const boxCases: readonly GradingCase[] = [
  {
    id: "grading.shared-box",
    title: "shared grades in the agent's box",
    promise: "Shared mode: the script runs in the agent's box; no other is made.",
    async run({ trials }) {
      const trial = await trials.standard("shared");
      assert.equal(trial.result.mode, "shared");
      assertFacts(trial, { reward: 1, undeclared_mark: 1 });
      assert.equal(has(trial, "verifier-box.create"), false, "a verifier's box was made");
      const boxes = await trials.boxes(trial.result.trial);
      if (boxes !== null) assert.equal(boxes.length, 1, "boxes that the backend made");
    },
  },
  {
    id: "grading.shared-leftovers",
    title: "shared sees the agent's leftovers",
    promise: "Shared mode protects against nothing: what the agent left is there, processes included.",
    async run({ trials }) {
      const trial = await trials.standard("shared");
      assertFacts(trial, { undeclared_file: 1, undeclared_mark: 1, agent_process: 1 });
      // But for what is ours: earlier rewards and tests are removed first.
      assertFacts(trial, { stale_test: 0, stale_reward: 0, file_of_task: 1 });
    },
  },
  ...SEPARATE_TASKS.map((task): GradingCase => ({
    id: `grading.own-box-${task}`,
    title: `${TASK_TITLES[task]} gets its own box`,
    promise: "Separate mode: the tests run in a second, clean box.",
    ...buildNeeds(task),
    async run({ trials }) {
      const trial = await trials.standard(task);
      assert.equal(trial.result.mode, "separate");
      assertFacts(trial, { reward: 1, undeclared_mark: 0, agent_process: 0 });
      const [agentBox, verifierBox] = createdBoxes(trial);
      assert.notEqual(verifierBox, agentBox, "both phases ran in one box");
      assert.equal(onlyEvent(trial, "verifier.started").box ?? verifierBox, verifierBox);
    },
  })),
  ...SEPARATE_TASKS.map((task): GradingCase => ({
    id: `grading.gone-first-${task}`,
    title: `agent's box gone (asked by id) before the verifier's create call: ${TASK_TITLES[task]}`,
    promise: "teardownConfirmed: proven by asking the backend by id. Not confirmed: no verifier box is created.",
    ...buildNeeds(task),
    async run({ trials }) {
      const trial = await trials.standard(task);
      const [agentBox] = createdBoxes(trial);
      const gone = onlyEvent(trial, "agent-box.gone");
      const create = onlyEvent(trial, "verifier-box.create");
      assert.equal(gone.box, agentBox);
      assert.ok(gone.proof !== undefined, "agent-box.gone has no proof");
      for (const part of ["id", "question", "answer", "at"] as const)
        assert.notEqual(gone.proof[part], "", `the proof has no ${part}`);
      assert.ok(gone.proof.question.includes(gone.proof.id), `not asked by id: ${gone.proof.question}`);
      assert.ok(gone.sequence < create.sequence, `event ${gone.sequence} is after ${create.sequence}`);
      assert.ok(gone.proof.at <= create.at, `proven at ${gone.proof.at}, the create call was at ${create.at}`);
      const order = `events ${gone.sequence} < ${create.sequence}, "${gone.proof.question}": "${gone.proof.answer}"`;

      const boxes = await trials.boxes(trial.result.trial);
      if (boxes === null) return `${order}; the backend's own record was not asked for`;
      const [first, second] = boxes;
      assert.ok(first !== undefined && second !== undefined && boxes.length === 2, `${boxes.length} boxes were made`);
      assert.equal(first.id, gone.proof.id, "the box that was proven gone is not the one that the backend made first");
      assert.ok(first.goneAt !== null && first.goneAt < second.createdAt, "both boxes lived at the same time");
      assert.notEqual(second.goneAt, null, "the verifier's box is still there");
      return `${order}; the backend's own record agrees`;
    },
  })),
  {
    id: "grading.stale-tests-wiped",
    title: "stale /tests wiped in the fresh copy",
    promise: "Where we supply the tests, /tests is wiped and they are uploaded last; /logs/verifier is made anew.",
    async run({ trials }) {
      const trial = await trials.standard("fresh");
      assertFacts(trial, { stale_marker: 1, stale_test: 0, stale_reward: 0, uploaded_suite: 1, file_of_task: 1 });
    },
  },
  {
    id: "grading.dedicated-tests-kept",
    title: "a dedicated image's own /tests kept",
    promise: "Where a dedicated image brings the tests, they are proven to be there and never wiped or overwritten.",
    ...buildNeeds("declared"),
    async run({ trials }) {
      const trial = await trials.standard("declared");
      assertFacts(trial, { uploaded_suite: 0, own_file_of_image: 1, file_of_task: 0, stale_test: 0 });
      onlyEvent(trial, "tests.found");
    },
  },
  {
    id: "grading.declared-image-used",
    title: "declared image really used",
    promise: "[verifier.environment].docker_image is what the verifier's box is made from.",
    ...buildNeeds("declared"),
    async run({ trials }) {
      const trial = await trials.standard("declared");
      const [verifier, agent] = [fact(trial, "python_minor"), fact(trial, "agent_python_minor")];
      assert.notEqual(verifier, agent, "the verifier's Python is the agent's");
      return `Python 3.${verifier} against 3.${agent}`;
    },
  },
  {
    id: "grading.fresh-image-kept",
    title: "fresh copy keeps the task's image",
    promise: "Without an image of its own the verifier gets a fresh copy of the agent's environment.",
    async run({ trials }) {
      const trial = await trials.standard("fresh");
      const [verifier, agent] = [fact(trial, "python_minor"), fact(trial, "agent_python_minor")];
      assert.equal(verifier, agent);
      return `Python 3.${verifier} in both`;
    },
  },
];

/** The boxes that the trial asked for: the agent's, and the verifier's. */
function createdBoxes(trial: FinishedTrial): readonly [agent: string, verifier: string] {
  const [agent, verifier] = [onlyEvent(trial, "agent-box.create").box, onlyEvent(trial, "verifier-box.create").box];
  assert.ok(agent !== undefined && verifier !== undefined, `events name no box: ${explain(trial.result)}`);
  return [agent, verifier];
}
