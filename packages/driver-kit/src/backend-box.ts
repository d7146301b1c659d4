import type {
  BoxReport,
  EgressReport,
  NetworkPolicy,
  PreparedImage,
  Proof,
  RuntimeService,
} from "@breakwater/runtime-api";
import type { Deadline, OperationDescription } from "./deadline.ts";
import type { ExecTransport } from "./exec-session.ts";
import type { HelperContext } from "./in-box.ts";
import type { PathArchive } from "./download.ts";

/**
 * One box as its backend sees it: what differs between backends. `createBox` makes a `Runtime` of it and keeps the promises that are the
 * same everywhere: states, deadlines, errors, programs, files. Methods are in the order of a box's life.
 *
 * Every method gets the clock of the operation and ends with it. It may throw the backend's own errors, see `toRuntimeError`. No method is
 * called before `start`; several may run at the same time.
 */
export interface BackendBox {
  /** What the backend calls the box, for proofs and for people who look for what is left. Our id as long as there is no other name. */
  readonly handle: string;

  /**
   * Makes the box and runs our hold as its first process, under `spec.network.initial`, with the helper at `BOX_HELPER_PATH`. The backend
   * says that it runs when this resolves; a program that runs is proven afterwards.
   *
   * A call that creates something is not to be ended by the clock: wait for its answer on a clock of its own, so that nothing is under way
   * any more when this settles. `remove` is called then. What has been made is not undone here.
   */
  start(clock: Deadline): Promise<StartedBox>;
  /** What can be shown only from within, once programs run: for instance that the first network policy is in force. Throws if it is not so. */
  prove?(inside: HelperContext, clock: Deadline): Promise<void>;
  /** For people, when a box ended while it was started: the end of what it wrote. */
  lastWords?(clock: Deadline): Promise<string>;

  /** Asks the backend. `ended`: it is still known and runs no more. `gone`: the backend works and does not know it. */
  look(clock: Deadline): Promise<"running" | "frozen" | "ended" | "gone">;

  /**
   * Starts a program of ours in a box that runs, as root in `/` with an empty environment, argv as it is, and connects its three streams. Only what is known to have
   * started nothing is ever repeated. With `stop: "sealed"` also called after `stop`, for our reader.
   */
  openExec(argv: readonly string[], clock: Deadline): Promise<BoxExec>;
  /** The backend ends an exec's connection when its program ends, whatever input is under way. Default is `false`. */
  readonly streamsEndWithProgram?: boolean;
  /** What the network policy adds to the environment of every program: over the image's, under the spec's. */
  environmentFor?(policy: NetworkPolicy): Readonly<Record<string, string>>;

  /**
   * Asked after every program of a caller that ended with a result: whether what enforces the box's policies still does. What it throws, `exec` throws
   * in place of the result; `ERR_NETWORK_LOST` makes the box unfit.
   */
  afterProgram?(clock: Deadline): Promise<void>;

  /**
   * Files read by the backend itself, whatever runs; `path` is absolute and canonical, and no link is followed. Without it our helper reads, which takes a
   * box that runs it.
   */
  locate?(path: string, clock: Deadline): Promise<LocatedPath>;
  /** With `stop: "halted"` and without `locate`: starts our reader over the files of a box that has stopped, as `openExec` does in one that runs. */
  openReader?(argv: readonly string[], clock: Deadline): Promise<BoxExec>;

  /** Whether the network of a frozen box can be changed. Default is `true`. */
  readonly changesNetworkWhileFrozen?: boolean;
  /**
   * Changes the policy, and shows that it is in force as far as the backend can tell. Absent with `networkChange: "none"`. One change at a time. When it throws, the
   * box is unfit and stopped.
   */
  setNetwork?(policy: NetworkPolicy, clock: Deadline): Promise<void>;
  /**
   * Shows the same from within, after `setNetwork`, unless the box is frozen; throws if it is not so. Where our helper cannot answer, the box is ended by its contents.
   */
  proveNetwork?(inside: HelperContext, clock: Deadline): Promise<void>;

  /** Absent with `freeze: "none"`. `look` says whether it worked. */
  freeze?(clock: Deadline): Promise<void>;
  thaw?(clock: Deadline): Promise<void>;

  /**
   * Ends everything that came from the image or a caller and proves it, by what the capability `stop` says. Called for running, frozen and ended boxes, and again.
   * `inside` is for a box that has to be sealed by our helper.
   */
  stop(inside: HelperContext, clock: Deadline): Promise<StoppedBox>;
  /** How a box ended that `look` calls `ended`, from the backend's own records. Called once. */
  howItEnded(clock: Deadline): Promise<BoxEnd>;
  /** What the box has used until now, where our helper cannot tell. Default: nobody knows. */
  usage?(clock: Deadline): Promise<BoxUsage>;
  /**
   * What allowlists kept the box from reaching; for every report, also when the box is gone. `ERR_NETWORK_LOST` makes the box unfit.
   */
  egress?(clock: Deadline): Promise<EgressReport | null>;

  /**
   * Removes all that there is of the box, and asks the backend by id until it is gone. Called in every state, also when `start` failed
   * before or while anything was made, and again. A failed question is no proof.
   */
  remove(clock: Deadline): Promise<Proof>;

  /** A service of the spec, with the capability `services`. */
  service?(name: string): RuntimeService;
  /**
   * The typed error for one of the backend's own, by status and structure. `ERR_BOX_LOST`, `ERR_BOX_STATE` and `ERR_BACKEND` of a program that could not be started
   * make us `look`. Default: `ERR_BACKEND` with the cause.
   */
  toRuntimeError?(error: unknown, doing: BoxOperation): unknown;
}

export interface StartedBox {
  readonly image: BoxImage;
  /** Unix time from which the lifetime counts. */
  readonly startedAtMs: number;
}

/** What a box needs to know of its image. */
export type BoxImage = Omit<PreparedImage, "reference">;

export interface BoxExec extends ExecTransport {
  /** Asked when the streams ended without our helper's word: what the backend knows of the program. Default: nothing. */
  outcome?(clock: Deadline): Promise<ProgramOutcome | null>;
}

export interface ProgramOutcome {
  /** `null` as long as it runs, or if it is not known. */
  readonly exitCode: number | null;
  /** The program never started; what the backend says about it. */
  readonly startFailure?: string | undefined;
}

/** What is at a path. `missing` and `link` may be about a component on the way to it. */
export type LocatedPath =
  | {
      readonly at: "found";
      readonly kind: "file" | "directory" | "link" | "other";
      /** Bytes of a file. */
      readonly size: number;
      readonly open: () => Promise<OpenArchive>;
    }
  | { readonly at: "missing"; readonly path: string }
  | { readonly at: "link"; readonly path: string };

/** The archive of one path, to be read to its end or closed. */
export interface OpenArchive extends PathArchive {
  readonly close: () => void | Promise<void>;
}

export interface StoppedBox {
  readonly proof: Proof;
  /** Of the first process; `null` where it goes on or nobody recorded it. */
  readonly exitCode: number | null;
  /** The box had ended before we could stop it. */
  readonly endedBefore: boolean;
}

/** How a box ended. */
export type BoxEnd = Pick<BoxReport, "endedBy" | "exitCode"> & BoxUsage;

export type BoxUsage = Pick<BoxReport, "oomKills" | "memoryPeakBytes" | "cpuMs">;

export const UNKNOWN_USAGE: BoxUsage = { oomKills: null, memoryPeakBytes: null, cpuMs: null };

/** What was going on in a box, for the error that comes out of it. */
export interface BoxOperation extends OperationDescription {
  readonly boxId: string;
}
