import { networkMode } from "../../needs.ts";
import type { GradingCase, GradingContext } from "../case.ts";
import { assertFacts } from "../facts.ts";
import { buildNeeds } from "../needs.ts";
import type { FinishedTrial } from "../trials.ts";

/** The verifier's network is the task's word. */
export const networkCases: readonly GradingCase[] = [
  {
    id: "grading.no-network",
    title: "allow_internet = false enforced",
    promise: "no-network: nothing but the box's own loopback.",
    needs: [networkMode("no-network")],
    async run(context) {
      return expectNetwork(context, await context.trials.standard("fresh"), 0);
    },
  },
  {
    id: "grading.public-network",
    title: "public verifier has its network",
    promise: "Each box has the network policy of its own environment.",
    needs: [networkMode("public")],
    ...buildNeeds("declared"),
    async run(context) {
      return expectNetwork(context, await context.trials.standard("declared"), 1);
    },
  },
];

function expectNetwork({ options }: GradingContext, trial: FinishedTrial, expected: 0 | 1): string {
  if (options.reachable === undefined) {
    assertFacts(trial, { reward: 1, default_route: expected });
    return "by its routes";
  }
  assertFacts(trial, { reward: 1, reached: expected });
  return `by a connection to ${options.reachable.host}:${options.reachable.port}`;
}
