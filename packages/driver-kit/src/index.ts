export { UNKNOWN_USAGE } from "./backend-box.ts";
export type {
  BackendBox,
  BoxEnd,
  BoxExec,
  BoxImage,
  BoxOperation,
  BoxUsage,
  LocatedPath,
  OpenArchive,
  ProgramOutcome,
  StartedBox,
  StoppedBox,
} from "./backend-box.ts";
export { createBox } from "./box.ts";
export type { BoxOptions } from "./box.ts";
export { deadline, withDeadline } from "./deadline.ts";
export type { Deadline, OperationDescription } from "./deadline.ts";
export { joinArchives, readSingleFile } from "./download.ts";
export type { PathArchive } from "./download.ts";
export { runExec } from "./exec-session.ts";
export type { AbnormalEnd, ExecCall, ExecRequest, ExecTransport } from "./exec-session.ts";
export { failure, NOT_SENT } from "./failure.ts";
export type { Fail } from "./failure.ts";
export {
  boxImage,
  HOLD_LIFETIME_EXIT_CODE,
  HOLD_START_EXIT_CODE,
  holdArgv,
  programEnvironment,
} from "./first-process.ts";
export type { ImageConfig } from "./first-process.ts";
export { askHelper, interfaces, killProcesses } from "./in-box.ts";
export type { HelperContext } from "./in-box.ts";
export { isLeftover, LABELS, labelsFor, parseLabels } from "./labels.ts";
export type { ObjectLabels } from "./labels.ts";
export { DEFAULT_MAX_OUTPUT_BYTES, HeadCapture } from "./output.ts";
export { currentOwner, isOwnerAlive, ownerLabel, parseOwner } from "@breakwater/runtime-api";
export type { Owner } from "@breakwater/runtime-api";
export { proofOf } from "./proof.ts";
export { remembered } from "./remembered.ts";
export { retry } from "./retry.ts";
export type { RetryOptions } from "./retry.ts";
export { streamTransport } from "./stream-transport.ts";
export { sweepObjects } from "./sweep.ts";
export type { LabelledObject } from "./sweep.ts";
export { MAX_TIMER_MS, settlesWithin, sleep } from "./timers.ts";
export { archiveError, codeOfErrno, transferError } from "./transfer-errors.ts";
export type { TransferContext } from "./transfer-errors.ts";
export { uploadArchive, uploadThroughHelper } from "./upload.ts";
export type { HelperUpload, UploadArchive } from "./upload.ts";
