import { builds } from "../needs.ts";
import type { GradingCase } from "./case.ts";
import type { StandardTask } from "./standard-tasks.ts";

/** What a driver or the caller must bring for the verifier's image of a standard task. */
export function buildNeeds(task: StandardTask): Pick<GradingCase, "needs" | "dedicatedImage"> {
  switch (task) {
    case "built":
      return { needs: [builds] };
    case "declared":
      return { dedicatedImage: true };
    case "shared":
    case "fresh":
      return {};
  }
}
