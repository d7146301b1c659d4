import type { RuntimeCapabilities } from "@breakwater/runtime-api";
import type { CapabilityNeed } from "../needs.ts";
import type { DescribeGradingOptions } from "./options.ts";
import type { Trials } from "./trials.ts";

/** One line of what separate grading promises, executable. Data, as the cases of `describeRuntime`. */
export interface GradingCase {
  /** `grading.promise`: stable, never reused for something else. */
  readonly id: string;
  /** The line as it is printed. */
  readonly title: string;
  /** The sentence that the case holds the trial and the driver to. */
  readonly promise: string;
  readonly needs?: readonly CapabilityNeed[];
  /** Needs an image with tests of its own: built by the driver, or given by the caller. */
  readonly dedicatedImage?: boolean;
  /** The case's own deadline. Default is `DEFAULT_GRADING_TIMEOUT_MS`. */
  readonly timeoutMs?: number;
  /** What a passing case has to say beyond its line, for instance which versions it saw. */
  run(context: GradingContext): Promise<string | void>;
}

export const DEFAULT_GRADING_TIMEOUT_MS = 300_000;

export interface GradingContext {
  readonly options: DescribeGradingOptions;
  readonly capabilities: RuntimeCapabilities;
  readonly trials: Trials;
}
