import type { Runtime } from "@breakwater/runtime-api";

import type { OraclePlan } from "./plan.ts";
import { packTaskFolder } from "./task-folder-archive.ts";
import type { McpServer } from "./task.ts";

/** Does the task. What it throws is recorded, and what it left is graded all the same. */
export interface Agent {
  (context: AgentContext): Promise<void>;
  /** In results. A function has one of its own; one without is `agent`. */
  readonly name: string;
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
  /** Servers of the Model Context Protocol that the task wants the agent to use. Those of transport `stdio` are programs of the box. */
  readonly mcpServers: readonly McpServer[];
  readonly task: { readonly name: string };
  /** The step's name; `null` for a task without steps. */
  readonly step: string | null;
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

/** Ends an agent that is a program in the box. Its exit code is recorded. */
class AgentProgramError extends Error {
  readonly exitCode: number;

  constructor(program: string, exitCode: number, output: string) {
    super(`${program} ended with exit code ${exitCode}${output === "" ? "" : `: ${output}`}`);
    this.exitCode = exitCode;
  }
}

const SOLUTION_DIRECTORY = "/solution";
const INSTRUCTION_DIRECTORY = "/logs/agent";
const INSTRUCTION_FILE = "instruction.md";
/** What one environment variable may have: Linux takes 128 KiB. */
const MAX_VARIABLE_BYTES = 120_000;
const MAX_MESSAGE_BYTES = 2000;

/** Of a function, for records. */
export function nameOf({ name }: { readonly name: string }): string {
  return name === "" ? "agent" : name;
}

/** The task's own solution, run as Harbor runs it: from `/solution`. */
export function oracleAgent(): Agent {
  const oracle = async (context: AgentContext): Promise<void> => {
    const { box, solution } = context;
    if (solution === null) throw new Error("the task has no solution");
    await box.upload(packTaskFolder(solution.solution), SOLUTION_DIRECTORY);
    await runProgram(context, solution.script, [`${SOLUTION_DIRECTORY}/${solution.script}`], solution.env);
  };
  return Object.assign(oracle, { needsSolution: true });
}

/** Does nothing: shows what the tests say about an untouched environment. */
export function nopAgent(): Agent {
  const nop = async (): Promise<void> => undefined;
  return nop;
}

/**
 * A command for the box's `sh`, as the agent's user. `BREAKWATER_INSTRUCTION` has the instruction, unless it is longer than 120,000 bytes;
 * `BREAKWATER_INSTRUCTION_FILE` is the path of a file in the box that has it in any case.
 */
export function shellAgent(command: string): Agent {
  const shell = async (context: AgentContext): Promise<void> => {
    const { box, instruction } = context;
    await box.upload([{ path: INSTRUCTION_FILE, content: instruction }], INSTRUCTION_DIRECTORY);
    await runProgram(context, "the agent's command", ["sh", "-c", command], {
      BREAKWATER_INSTRUCTION_FILE: `${INSTRUCTION_DIRECTORY}/${INSTRUCTION_FILE}`,
      ...(Buffer.byteLength(instruction) <= MAX_VARIABLE_BYTES ? { BREAKWATER_INSTRUCTION: instruction } : {}),
    });
  };
  return shell;
}

async function runProgram(
  { box, log }: AgentContext,
  name: string,
  argv: readonly string[],
  env: Readonly<Record<string, string>>,
): Promise<void> {
  let end = Buffer.alloc(0);
  const { exitCode } = await box.exec(argv, {
    env,
    maxOutputBytes: 0,
    onOutput: (_stream, chunk) => {
      log(chunk);
      end = Buffer.concat([end, chunk]).subarray(-MAX_MESSAGE_BYTES);
    },
  });
  if (exitCode !== 0) throw new AgentProgramError(name, exitCode, end.toString("utf8").trim());
}
