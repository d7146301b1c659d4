import type { GradingCase } from "./case.ts";
import { boxCases } from "./cases/boxes.ts";
import { networkCases } from "./cases/network.ts";
import { planCases } from "./cases/plan.ts";
import { rewardCases } from "./cases/rewards.ts";
import { stepCases } from "./cases/steps.ts";
import { travelCases } from "./cases/travel.ts";

/** What separate grading promises, line by line, as data. */
export const gradingCases: readonly GradingCase[] = [
  ...boxCases,
  ...travelCases,
  ...networkCases,
  ...rewardCases,
  ...planCases,
  ...stepCases,
];
