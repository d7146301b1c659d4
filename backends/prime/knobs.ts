import { z } from "zod";

/**
 * What the service's documents leave open, and how fast things happen here. Set while the emulator runs: `PATCH /admin/knobs`.
 * Every default is what its documents, its own clients or its users' reports make likely; short times are for tests.
 */
export interface Knobs {
  /** From the create call to PROVISIONING. */
  readonly pendingMs: number;
  /** From there to RUNNING, on top of what the engine takes. */
  readonly provisioningMs: number;
  /** How long a RUNNING sandbox is not known to the gateway yet. */
  readonly reachableLagMs: number;
  /** How long a VM's image is built when it is first used; 0 = it is there. */
  readonly imageBuildMs: number;
  /** The length of a minute of `timeout_minutes` and `idle_timeout_minutes`. */
  readonly minuteMs: number;
  /** Idle sandboxes are looked for this often. */
  readonly idleScanMs: number;
  readonly tokenTtlMs: number;
  /** The answer to a create call whose idempotency key is known. */
  readonly replayStatus: 200 | 201;
  /** How long a sandbox lives on after a DELETE that was answered with 200. */
  readonly deleteLingersMs: number;
  /** A DELETE before RUNNING is answered with 200, and the sandbox comes up all the same. */
  readonly deleteRaceLeavesOrphan: boolean;
  readonly getAfterDelete: "terminated" | "not-found";
  /** What the gateway says about a sandbox that was deleted. */
  readonly gatewayAfterDelete: "410" | "502";
  readonly authAfterDelete: 404 | 409 | 200;
  /** The status of a sandbox whose time is over. */
  readonly timeoutStatus: "TERMINATED" | "TIMEOUT";
  /** Whether a command of a container that timed out is killed; what it started never is. */
  readonly execTimeoutKills: boolean;
  /** The proxy in front of the gateway gives up after this long, with 524. */
  readonly proxyLimitMs: number;
  /** Longer commands of containers fail with 500. */
  readonly maxCommandBytes: number;
  readonly maxUploadBytes: number;
  readonly maxReadFileBytes: number;
  readonly uploadRefusesRelativePaths: boolean;
  /** `connect+json` and `json` beside `connect+proto` and `proto`. */
  readonly jsonCodec: boolean;
  readonly keepaliveMs: number;
  /** How long a new egress policy is only stored. */
  readonly egressAppliesAfterMs: number;
  readonly vmAcceptsSecrets: boolean;
  readonly rateLimits: boolean;
  readonly retryAfter: "seconds" | "date" | "none";
}

const schema = z.strictObject({
  pendingMs: z.number().min(0).default(50),
  provisioningMs: z.number().min(0).default(50),
  reachableLagMs: z.number().min(0).default(100),
  imageBuildMs: z.number().min(0).default(0),
  minuteMs: z.number().min(1).default(60_000),
  idleScanMs: z.number().min(10).default(1000),
  tokenTtlMs: z
    .number()
    .min(1)
    .default(15 * 60_000),
  replayStatus: z.union([z.literal(200), z.literal(201)]).default(201),
  deleteLingersMs: z.number().min(0).default(200),
  deleteRaceLeavesOrphan: z.boolean().default(false),
  getAfterDelete: z.enum(["terminated", "not-found"]).default("terminated"),
  gatewayAfterDelete: z.enum(["410", "502"]).default("410"),
  authAfterDelete: z.union([z.literal(404), z.literal(409), z.literal(200)]).default(404),
  timeoutStatus: z.enum(["TERMINATED", "TIMEOUT"]).default("TERMINATED"),
  execTimeoutKills: z.boolean().default(true),
  proxyLimitMs: z.number().min(1).default(100_000),
  maxCommandBytes: z
    .number()
    .min(1)
    .default(64 * 1024),
  maxUploadBytes: z
    .number()
    .min(1)
    .default(512 * 1024 * 1024),
  maxReadFileBytes: z
    .number()
    .min(1)
    .default(10 * 1024 * 1024),
  uploadRefusesRelativePaths: z.boolean().default(true),
  jsonCodec: z.boolean().default(true),
  keepaliveMs: z.number().min(10).default(10_000),
  egressAppliesAfterMs: z.number().min(0).default(150),
  vmAcceptsSecrets: z.boolean().default(false),
  rateLimits: z.boolean().default(true),
  retryAfter: z.enum(["seconds", "date", "none"]).default("seconds"),
});

/** Throws zod's error for a knob that there is not, or that cannot be set so. */
export function parseKnobs(value: unknown): Knobs {
  return schema.parse(value);
}

export function defaultKnobs(): Knobs {
  return parseKnobs({});
}
