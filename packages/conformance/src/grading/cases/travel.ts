import type { GradingCase } from "../case.ts";
import { assertFacts } from "../facts.ts";
import { buildNeeds } from "../needs.ts";
import { SEPARATE_TASKS, TASK_TITLES } from "../standard-tasks.ts";

/** What crosses over from the agent's box. */
export const travelCases: readonly GradingCase[] = [
  ...SEPARATE_TASKS.map((task): GradingCase => ({
    id: `grading.declared-travels-${task}`,
    title: `declared artifact travelled: ${TASK_TITLES[task]}`,
    promise: "Artifacts are restored to their source paths in the verifier's box; /logs/artifacts always.",
    ...buildNeeds(task),
    async run({ trials }) {
      assertFacts(await trials.standard(task), { reward: 1, convention_artifact: 1 });
    },
  })),
  ...SEPARATE_TASKS.map((task): GradingCase => ({
    id: `grading.undeclared-stays-${task}`,
    title: `undeclared file did not: ${TASK_TITLES[task]}`,
    promise: "Only declared artifacts cross over.",
    ...buildNeeds(task),
    async run({ trials }) {
      // In shared mode the same agent's files are seen: they were really made.
      assertFacts(await trials.standard("shared"), { undeclared_file: 1, undeclared_mark: 1 });
      assertFacts(await trials.standard(task), { undeclared_file: 0, undeclared_mark: 0 });
    },
  })),
];
