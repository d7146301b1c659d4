export type { GradingCase, GradingContext } from "./grading/case.ts";
export { describeGrading } from "./grading/describe-grading.ts";
export { delegate } from "./grading/delegate.ts";
export { dedicatedImageFiles } from "./grading/look-around.ts";
export { gradingCases } from "./grading/list.ts";
export type { BackendRecord, BoxRecord, DescribeGradingOptions } from "./grading/options.ts";
export type { FinishedTrial } from "./grading/trials.ts";
export { writeTask } from "./grading/write-task.ts";
export type { TaskFileContent } from "./grading/write-task.ts";
