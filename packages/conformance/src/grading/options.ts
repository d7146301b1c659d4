import type { RuntimeDriver } from "@breakwater/runtime-api";

export interface DescribeGradingOptions {
  /** Called once. */
  readonly driver: () => RuntimeDriver;
  /** Debian-like: `sh`, coreutils and `python3`. No ENTRYPOINT, root. */
  readonly image: string;
  /** The same with another minor version of Python, so that it shows which image a verifier got. */
  readonly otherImage: string;
  /**
   * An image made from `dedicatedImageFiles(otherImage)`. Needed only where the driver cannot build: the cases of a declared image are not
   * run without it. Default: built by the driver.
   */
  readonly dedicatedImage?: string | undefined;
  /**
   * A TCP server that a `public` box reaches. Without it a box's routes are looked at instead, which tells nothing on a backend that cuts a box
   * off by filters: name one there.
   */
  readonly reachable?: { readonly host: string; readonly port: number } | undefined;
  /** The backend's own account of boxes. Without it the order of teardown and creation is read from `events.jsonl` only. */
  readonly backendRecord?: (() => Promise<BackendRecord>) | undefined;
  /** Cases that this driver is known not to pass, each with a link to the reason. A waived case that passes fails the run. */
  readonly waive?: Readonly<Record<string, string>> | undefined;
  /** In titles and in the summary. Default is the driver's name. */
  readonly name?: string | undefined;
}

/** Listens to the backend, behind the driver's back, from before the first trial until it is disposed. */
export interface BackendRecord extends AsyncDisposable {
  /** Every box of a trial that the backend made, in that order. Called after the trial. */
  boxes(trial: string): Promise<readonly BoxRecord[]>;
}

/** When the backend made a box and when it was gone, by the backend's clock. Any unit: only compared. */
export interface BoxRecord {
  readonly id: string;
  readonly createdAt: number;
  /** `null` = still there. */
  readonly goneAt: number | null;
}
