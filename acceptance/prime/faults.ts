import type { TrialEvent } from "@breakwater/harbor-taskset";
import type { PrimeDriverOptions } from "@breakwater/runtime-prime";

export type SandboxKind = NonNullable<PrimeDriverOptions["kind"]>;

/** What may go wrong with the service in the middle of a trial: the faults and knobs of the emulator (`backends/prime`), as the service's users met them. */
export interface ServiceFault {
  readonly name: string;
  /** Default is both. */
  readonly kind?: SandboxKind;
  /** From this step of the trial on. Default is its beginning. */
  readonly from?: TrialEvent["type"];
  readonly knobs?: Readonly<Record<string, unknown>>;
  readonly rules?: readonly object[];
  /** The platform ends the box in which that step is. */
  readonly endsBox?: true;
  /** Default is 300. */
  readonly verifierTimeoutSeconds?: number;
  /** What becomes of a trial that meets nothing else: `graded`, or why there is no reward. */
  readonly alone: string;
}

const answer = (status: number, body: unknown = { detail: "fault" }, headers = {}): object => ({
  kind: "answer",
  status,
  body,
  headers,
});
const reset = { kind: "reset" } as const;
const deletion = { origin: "control", method: "DELETE", path: "/sandbox/" } as const;
const creation = { origin: "control", method: "POST", path: "/sandbox$" } as const;
const program = { origin: "gateway", method: "POST", path: "/exec$|/Start$" } as const;
const AWAY_MS = 30_000;

/** Of the deletion and of time: those that decide whether a box is gone. */
const teardownFaults: readonly ServiceFault[] = [
  { name: "DELETE 500 twice", rules: [{ ...deletion, times: 2, fault: answer(500) }], alone: "graded" },
  { name: "DELETE 404 without effect", rules: [{ ...deletion, fault: answer(404) }], alone: "graded" },
  { name: "DELETE 409", rules: [{ ...deletion, fault: answer(409) }], alone: "graded" },
  { name: "DELETE 200, lives on for 20 s", knobs: { deleteLingersMs: 20_000 }, alone: "graded" },
  {
    name: "provisioning outlasts the verifier",
    from: "agent.started",
    knobs: { provisioningMs: 30_000 },
    verifierTimeoutSeconds: 15,
    alone: "timeout ERR_VERIFIER_TIMEOUT provision",
  },
  {
    name: "API away for 30 s",
    from: "agent.started",
    rules: [{ origin: "control", times: null, forMs: AWAY_MS, fault: reset }],
    alone: "graded",
  },
];

const otherFaults: readonly ServiceFault[] = [
  { name: "DELETE cut after it was done", rules: [{ ...deletion, carriedOut: true, fault: reset }], alone: "graded" },
  { name: "deletion races the start", knobs: { deleteRaceLeavesOrphan: true }, alone: "graded" },
  {
    name: "forgotten once deleted",
    knobs: { getAfterDelete: "not-found", gatewayAfterDelete: "502" },
    alone: "graded",
  },
  { name: "create 500 three times", rules: [{ ...creation, times: 3, fault: answer(500) }], alone: "graded" },
  { name: "create's answer lost", rules: [{ ...creation, carriedOut: true, fault: reset }], alone: "graded" },
  {
    name: "create 429, Retry-After",
    rules: [{ ...creation, fault: answer(429, { detail: "slow down" }, { "retry-after": "2" }) }],
    alone: "graded",
  },
  { name: "create 429, nothing said", rules: [{ ...creation, fault: answer(429) }], alone: "graded" },
  {
    name: "no credit for the verifier's box",
    rules: [{ ...creation, after: 1, times: null, fault: answer(402) }],
    alone: "infrastructure ERR_BACKEND_QUOTA provision",
  },
  {
    name: "status batch unknown",
    rules: [{ origin: "control", path: "status:batchGet", times: null, fault: answer(404) }],
    alone: "graded",
  },
  {
    name: "status and list 503",
    rules: [
      { origin: "control", path: "status:batchGet", times: 5, fault: answer(503) },
      { origin: "control", method: "GET", path: "/sandbox\\?", times: 2, fault: answer(503) },
    ],
    alone: "graded",
  },
  { name: "reachable late", knobs: { reachableLagMs: 3000 }, alone: "graded" },
  {
    name: "token refused",
    rules: [{ origin: "gateway", after: 4, fault: answer(401, { error: "invalid_token" }) }],
    alone: "graded",
  },
  {
    name: "program 409 while RUNNING",
    rules: [{ ...program, after: 4, times: 3, fault: answer(409) }],
    alone: "graded",
  },
  {
    name: "program 502",
    rules: [{ ...program, after: 4, times: 3, fault: answer(502, { error: "gateway_error", code: 502 }) }],
    alone: "graded",
  },
  {
    name: "program 524",
    rules: [{ ...program, after: 4, fault: answer(524, "error code: 524") }],
    alone: "graded",
  },
  {
    name: "upload 503 and 408",
    rules: [503, 408].map((status) => ({ origin: "gateway", path: "/upload", fault: answer(status) })),
    alone: "graded",
  },
  {
    name: "gateway away for 30 s",
    from: "agent-box.healthy",
    rules: [{ origin: "gateway", times: null, forMs: AWAY_MS, fault: reset }],
    alone: "graded",
  },
  {
    name: "slow answers",
    rules: [{ times: 8, after: 6, fault: { kind: "delay", delayMs: 1500 } }],
    alone: "graded",
  },
  {
    name: "agent's stream cut",
    kind: "vm",
    from: "agent.started",
    rules: [{ ...program, fault: { kind: "truncate", events: 1 } }],
    alone: "infrastructure ERR_EXEC_UNKNOWN agent",
  },
  {
    name: "stream INTERNAL",
    kind: "vm",
    from: "verifier.started",
    rules: [
      { ...program, fault: { kind: "connect-error", events: 1, code: "internal", message: "Error reading content" } },
    ],
    alone: "graded",
  },
  {
    name: "sandbox_not_found",
    rules: [{ ...program, after: 6, fault: answer(502, { error: "sandbox_not_found", code: 502 }) }],
    alone: "infrastructure ERR_BOX_LOST agent",
  },
  {
    name: "the verifier's box ended",
    from: "verifier.started",
    endsBox: true,
    alone: "infrastructure ERR_BOX_LOST run",
  },
];

const allFaults: readonly ServiceFault[] = [...teardownFaults, ...otherFaults];

export function faultsOf(kind: SandboxKind): readonly ServiceFault[] {
  return allFaults.filter((fault) => fault.kind === undefined || fault.kind === kind);
}

export function faultsNamed(...names: readonly string[]): readonly ServiceFault[] {
  return names.map((name) => {
    const found = allFaults.find((fault) => fault.name === name);
    if (found === undefined) throw new Error(`there is no fault ${name}`);
    return found;
  });
}

/** Every two of them, once. */
export function pairsOf(faults: readonly ServiceFault[]): readonly (readonly [ServiceFault, ServiceFault])[] {
  return faults.flatMap((one, at) => faults.slice(at + 1).map((other) => [one, other] as const));
}
