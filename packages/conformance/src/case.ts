import type {
  Runtime,
  RuntimeCapabilities,
  RuntimeDriver,
  RuntimeSpecInput,
  SweptObject,
} from "@breakwater/runtime-api";
import type { CapabilityNeed } from "./needs.ts";
import type { DriverModule, FixtureImages, NetworkTargets, Sabotage } from "./options.ts";

/** `SHOULD`: a driver may have a reason to differ, and then says so with a waiver. `MUST`: a driver that differs is not conformant. */
export type ConformanceLevel = "MUST" | "SHOULD";

/** Something that only the caller of the suite can give. Without it a case is not run, and says so. */
export type Prerequisite =
  | "network.reachable"
  | "network.name"
  | "network.unreachable"
  | "network.unreachable for public boxes"
  | "network.datagrams"
  | "network.resolver"
  | "network.allowlist"
  | "images.entrypoint"
  | "images.entrypointThatEnds"
  | "images.nonRoot"
  | "images.path"
  | "images.noShell"
  | "sabotage.endBox"
  | "sabotage.endService"
  | "sabotage.foreignBox"
  | "driverModule";

/** One promise of the contract, executable. Data, so that cases can be listed, documented and run against mutants. */
export interface ConformanceCase {
  /** `area.promise`: stable, never reused for something else. */
  readonly id: string;
  readonly level: ConformanceLevel;
  /** Goes on where the level stops: "MUST *return a non-zero exit as a result*". */
  readonly title: string;
  /** The sentence of the contract that the case holds the driver to. */
  readonly promise: string;
  /** Capabilities without which the promise is not made. */
  readonly needs?: readonly CapabilityNeed[];
  /** A refusal twin: runs only where this capability is *not* claimed. */
  readonly unless?: CapabilityNeed;
  readonly prerequisites?: readonly Prerequisite[];
  /** Field reports that the case covers, by number. */
  readonly covers?: readonly string[];
  /** Measures this process, loads the machine or sweeps the backend: nothing else of the suite runs meanwhile. Default is `false`. */
  readonly alone?: boolean;
  /** The case's own deadline, removal of its boxes not included. Default is `DEFAULT_CASE_TIMEOUT_MS`. */
  readonly timeoutMs?: number;
  run(context: CaseContext): Promise<void>;
}

/** Much more than any case takes: the machine may be busy with other work. */
export const DEFAULT_CASE_TIMEOUT_MS = 180_000;

/** What a case gets. Boxes that it asks for are removed when it ends. */
export interface CaseContext {
  readonly driver: RuntimeDriver;
  /** Another driver of the same kind. The case disposes it. */
  readonly newDriver: () => RuntimeDriver;
  /** What the backend enforces here, from `probe`. */
  readonly capabilities: RuntimeCapabilities;
  /** Debian-like: `sh`, coreutils, findutils and perl (perl-base is enough). */
  readonly image: string;
  readonly images: FixtureImages;
  readonly network: NetworkTargets;
  readonly sabotage: Sabotage;
  readonly driverModule: DriverModule | undefined;
  /** Aborted when the case's time is over. */
  readonly signal: AbortSignal;
  /** A running box for cases that leave it as they found it. It has no network where that can be had. */
  readonly sharedBox: () => Promise<Runtime>;
  /** A running box of the case's own. */
  readonly ownBox: (spec?: Partial<RuntimeSpecInput>) => Promise<Runtime>;
  /** The same, not started. */
  readonly newBox: (spec?: Partial<RuntimeSpecInput>) => Runtime;
  /** Everything of this box that the backend still has, by the driver's own listing. */
  readonly objectsOf: (box: Runtime) => Promise<readonly SweptObject[]>;
  readonly objectsOfTrial: (trial: string | null) => Promise<readonly SweptObject[]>;
}

/** The area of a case: what its id starts with. */
export function areaOf(id: string): string {
  return id.slice(0, id.indexOf("."));
}
