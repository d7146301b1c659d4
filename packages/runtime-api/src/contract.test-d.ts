/**
 * The shape of the contract, checked by `tsc`: a change here is a change for every driver and every caller, and needs a changeset that says so.
 */
import { expectTypeOf } from "vitest";
import type {
  BoxReport,
  DoctorLine,
  DownloadLimits,
  ExecOptions,
  ExecResult,
  ImageSource,
  isRuntimeError,
  KillReport,
  NetworkPolicy,
  OperationOptions,
  PathComponent,
  PreparedImage,
  PrepareImageOptions,
  Proof,
  provisionRuntime,
  Refusal,
  refusals,
  Runtime,
  RuntimeCapabilities,
  RuntimeDriver,
  RuntimeError,
  RuntimeErrorCode,
  RuntimeService,
  RuntimeSpec,
  RuntimeSpecInput,
  RuntimeState,
  SweepOptions,
  SweepReport,
  UploadEntry,
  UploadOptions,
  withRuntime,
} from "./index.ts";

type Bytes = Uint8Array;
type Bounded = (
  path: string,
  limits: { readonly maxBytes: number },
  options?: OperationOptions,
) => Promise<Bytes | null>;
type Exec = (argv: readonly string[], options?: ExecOptions) => Promise<ExecResult>;
type Download = (paths: readonly string[], limits: DownloadLimits, options?: OperationOptions) => AsyncIterable<Bytes>;
type Verb<T> = (options?: OperationOptions) => Promise<T>;

expectTypeOf<Omit<Runtime, typeof Symbol.asyncDispose>>().toEqualTypeOf<{
  readonly id: string;
  readonly driver: string;
  readonly spec: RuntimeSpec;
  readonly state: RuntimeState;
  start: Verb<void>;
  exec: Exec;
  upload: (
    files: readonly UploadEntry[] | AsyncIterable<Bytes>,
    directory: string,
    options?: UploadOptions,
  ) => Promise<void>;
  download: Download;
  readBounded: Bounded;
  inspectPath: (path: string, options?: OperationOptions) => Promise<readonly PathComponent[]>;
  removePaths: (paths: readonly string[], options?: OperationOptions) => Promise<void>;
  killProcesses: Verb<KillReport>;
  setNetwork: (policy: NetworkPolicy, options?: OperationOptions) => Promise<void>;
  freeze: Verb<void>;
  thaw: Verb<void>;
  stop: Verb<void>;
  stopConfirmed: Verb<Proof>;
  teardownConfirmed: Verb<Proof>;
  report: Verb<BoxReport>;
  service: (name: string) => RuntimeService;
}>();

expectTypeOf<RuntimeService>().toEqualTypeOf<{
  readonly name: string;
  exec: Exec;
  download: Download;
  readBounded: Bounded;
  stopConfirmed: Verb<Proof>;
  report: Verb<BoxReport>;
}>();

expectTypeOf<Omit<RuntimeDriver, typeof Symbol.asyncDispose>>().toEqualTypeOf<{
  readonly name: string;
  readonly capabilities: RuntimeCapabilities;
  probe: Verb<RuntimeCapabilities>;
  doctor: (options?: OperationOptions) => AsyncIterable<DoctorLine>;
  create: (spec: RuntimeSpecInput) => Runtime;
  prepareImage: (source: ImageSource, options?: PrepareImageOptions) => Promise<PreparedImage>;
  sweep: (options?: SweepOptions) => Promise<SweepReport>;
}>();

expectTypeOf<Runtime | RuntimeDriver>().toExtend<AsyncDisposable>();

expectTypeOf<RuntimeState>().toEqualTypeOf<"new" | "starting" | "running" | "frozen" | "stopped" | "unfit" | "gone">();

expectTypeOf<keyof RuntimeCapabilities>().toEqualTypeOf<
  | "networkModes"
  | "networkChange"
  | "allowlistEntries"
  | "allowlistPorts"
  | "stop"
  | "firstProcess"
  | "freeze"
  | "limits"
  | "maxCpus"
  | "maxMemoryMb"
  | "gpus"
  | "users"
  | "imagePin"
  | "imageSources"
  | "services"
  | "operatingSystems"
  | "maxLifetimeMs"
>();

// A driver gets a complete spec: nothing in it may be absent.
expectTypeOf<undefined>().not.toExtend<RuntimeSpec[keyof RuntimeSpec]>();
expectTypeOf<keyof RuntimeSpec>().toEqualTypeOf<keyof RuntimeSpecInput>();
// All that a caller must say is the image.
expectTypeOf<{ readonly image: string }>().toExtend<RuntimeSpecInput>();
// Options may be passed on with keys that are undefined.
expectTypeOf<{ readonly signal: AbortSignal | undefined; readonly timeoutMs: undefined }>().toExtend<ExecOptions>();
// An exec always has a number: a program that cannot be started is an error.
expectTypeOf<ExecResult["exitCode"]>().toEqualTypeOf<number>();

expectTypeOf<RuntimeError["code"]>().toEqualTypeOf<RuntimeErrorCode>();
expectTypeOf<typeof isRuntimeError>().guards.toEqualTypeOf<RuntimeError>();
expectTypeOf<typeof refusals>().toEqualTypeOf<
  (spec: RuntimeSpec, capabilities: RuntimeCapabilities) => readonly Refusal[]
>();
expectTypeOf<ReturnType<typeof withRuntime<number>>>().toEqualTypeOf<Promise<number>>();
expectTypeOf<ReturnType<typeof provisionRuntime>>().toEqualTypeOf<Promise<Runtime>>();
