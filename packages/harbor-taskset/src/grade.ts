import type { AgentBox } from "./agents.ts";
import type { Rewards } from "./reward.ts";

/** A grader in TypeScript. Returns rewards, one number, or nothing if it left a reward file in `/logs/verifier`. */
export type Verify = (context: VerifyContext) => Promise<Rewards | number | void>;

export interface VerifyContext {
  /** The box to grade in: clean in separate mode, the agent's own in shared mode. */
  readonly box: AgentBox;
  readonly env: Readonly<Record<string, string>>;
  readonly user: string | null;
  readonly workdir: string;
  /** Fires when the verifier's time is over, and when the trial is aborted. */
  readonly signal: AbortSignal;
  readonly task: { readonly name: string };
  /** Output for `verifier/test-stdout.txt`; bounded. */
  readonly log: (chunk: Uint8Array | string) => void;
}
