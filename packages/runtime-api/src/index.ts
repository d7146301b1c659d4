export type { LimitKind, RuntimeCapabilities } from "./capabilities.ts";
export type {
  DoctorLine,
  ImageSource,
  PreparedImage,
  PrepareImageOptions,
  RuntimeDriver,
  SweepOptions,
  SweepReport,
  SweptObject,
} from "./driver.ts";
export { isRuntimeError, RuntimeError } from "./errors.ts";
export type { Refusal, RefusalCode, RuntimeErrorCode, RuntimeErrorDetails } from "./errors.ts";
export { parseAllowlistEntry, parseNetworkPolicy, sameNetworkPolicy, widensNothing } from "./network.ts";
export type { AllowlistEntryKind, NetworkMode, NetworkPolicy } from "./network.ts";
export { currentOwner, isOwnerAlive, ownerLabel, parseOwner } from "./owner.ts";
export type { Owner } from "./owner.ts";
export { refusals } from "./refusals.ts";
export type {
  BoxReport,
  DownloadLimits,
  EgressDenial,
  EgressReport,
  EndedBy,
  ExecOptions,
  ExecResult,
  KillReport,
  OperationOptions,
  OutputStream,
  PathComponent,
  Proof,
  Runtime,
  RuntimeService,
  RuntimeState,
  UploadEntry,
  UploadOptions,
} from "./runtime.ts";
export {
  DEFAULT_LIFETIME_MS,
  DEFAULT_PIDS_LIMIT,
  isAbsolutePath,
  isEnvironmentName,
  isServiceName,
  isUser,
  MAIN_SERVICE,
  parseRuntimeSpec,
} from "./spec.ts";
export type { RuntimeSpec, RuntimeSpecInput, ServiceHealthcheck, ServiceSpec, VolumeMount } from "./spec.ts";
export { provisionRuntime, withRuntime } from "./with-runtime.ts";
