import { appendFile } from "node:fs/promises";
import type { Runtime } from "@breakwater/runtime-api";

import type { BoxKind } from "./boxes.ts";
import { messageOf } from "./trial-error.ts";
import { warn, type Trial } from "./trial.ts";

const REPORT_TIMEOUT_MS = 60_000;

/** One line of `egress.jsonl`: a connection that a box's allowlist refused. */
export interface EgressLine {
  /** ISO 8601, UTC. */
  readonly at: string;
  readonly box: BoxKind;
  readonly boxId: string;
  /** As the box named it; `null` where it named none. */
  readonly host: string | null;
  readonly port: number;
  /** What refused it. */
  readonly rule: string;
}

/** Writes down what a box was refused, once, when it is over with it. For people: nothing of a trial depends on it, and it never rejects. */
export async function recordEgress(trial: Trial, box: Runtime, of: BoxKind): Promise<void> {
  const { folder, record, redactor } = trial;
  if (!policiesOf(box).some(({ mode }) => mode === "allowlist")) return;
  try {
    const { egress } = await box.report({ timeoutMs: REPORT_TIMEOUT_MS });
    if (egress === null || egress === undefined) return;
    record.deniedConnections[of] += egress.deniedCount;
    const path = egress.denials.length === 0 ? null : await folder.path("egress.jsonl");
    if (path === null) return;
    const lines = egress.denials.map(({ at, host, port, rule }): EgressLine => ({
      at,
      box: of,
      boxId: box.id,
      host,
      port,
      rule,
    }));
    await appendFile(path, lines.map((line) => `${JSON.stringify(redactor.value(line))}\n`).join(""));
  } catch (error) {
    warn(trial, "egress.jsonl", `what the ${of}'s box was refused is not known: ${messageOf(error)}`);
  }
}

function policiesOf({ spec: { network } }: Runtime): Runtime["spec"]["network"]["later"] {
  return [network.initial, ...network.later];
}
