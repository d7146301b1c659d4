import type { Runtime } from "@breakwater/runtime-api";

import type { OraclePlan } from "./plan.ts";

/** Does the task. What it throws is recorded, and what it left is graded all the same. */
export interface Agent {
  (context: AgentContext): Promise<void>;
  /** Gets the task's own solution; a task without one is refused. Default is `false`. */
  readonly needsSolution?: boolean | undefined;
}

export interface AgentContext {
  readonly instruction: string;
  readonly box: AgentBox;
  /** For the agent's programs; the default of `box.exec`. */
  readonly env: Readonly<Record<string, string>>;
  /** The agent's user; the default of `box.exec`. `null` = the image's. */
  readonly user: string | null;
  /** Where `box.exec` runs programs. */
  readonly workdir: string;
  /** Fires when the agent's time is over, and when the trial is aborted. */
  readonly signal: AbortSignal;
  readonly timeoutMs: number;
  /** A folder in the box with skills for agents, where the task has one. */
  readonly skillsDirectory: string | null;
  readonly task: { readonly name: string };
  /** Only for an agent with `needsSolution`. */
  readonly solution: OraclePlan | null;
  /** Output for `agent/agent.log` in the trial's folder; bounded. */
  readonly log: (chunk: Uint8Array | string) => void;
}

/** What an agent, or a grader in TypeScript, may do with a box. It cannot start, stop or remove it, and it is over with the phase. */
export type AgentBox = Pick<
  Runtime,
  "id" | "driver" | "exec" | "upload" | "download" | "readBounded" | "inspectPath" | "removePaths"
>;

/** The task's own solution, run as Harbor runs it: from `/solution`. */
export function oracleAgent(): Agent {
  throw new Error("not yet");
}

/** Does nothing: what the tests say about an untouched environment. */
export function nopAgent(): Agent {
  throw new Error("not yet");
}

/** A command for the box's `sh`. `BREAKWATER_INSTRUCTION` has the instruction. */
export function shellAgent(command: string): Agent {
  throw new Error(`not yet: ${command}`);
}
