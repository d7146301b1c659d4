export type { CaseContext, ConformanceCase, ConformanceLevel, Prerequisite } from "./case.ts";
export { areaOf } from "./case.ts";
export { CaseEnvironment, missing } from "./context.ts";
export { describeRuntime, summarize } from "./describe-runtime.ts";
export type { ConformanceMeta, ConformanceOutcome } from "./describe-runtime.ts";
export { conformanceCases } from "./list.ts";
export type { CapabilityNeed } from "./needs.ts";
export type {
  DescribeRuntimeOptions,
  DriverModule,
  FixtureImages,
  ForbiddenTarget,
  ForeignBox,
  NetworkTargets,
  Sabotage,
} from "./options.ts";
