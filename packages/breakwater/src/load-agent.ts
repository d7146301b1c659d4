import { stat } from "node:fs/promises";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { nopAgent, oracleAgent, shellAgent, type Agent } from "@breakwater/harbor-taskset";

import { UsageError } from "./exit-codes.ts";

/** `oracle`, `nop`, or the path of a module whose default export is an agent: `(context) => Promise<void>`. */
export async function loadAgent(
  name: string | undefined,
  command: string | undefined,
  workingDirectory: string,
): Promise<Agent> {
  if (command !== undefined) {
    if (name !== undefined) throw new UsageError("--agent and --agent-command exclude each other");
    return shellAgent(command);
  }
  switch (name ?? "oracle") {
    case "oracle":
      return oracleAgent();
    case "nop":
      return nopAgent();
    default:
      return await agentFromModule(name as string, workingDirectory);
  }
}

async function agentFromModule(name: string, workingDirectory: string): Promise<Agent> {
  const path = resolve(workingDirectory, name);
  const facts = await stat(path).catch(() => undefined);
  if (!facts?.isFile()) throw new UsageError(`--agent ${name}: not "oracle" or "nop", and ${path} is not a file`);
  const module: unknown = await import(pathToFileURL(path).href);
  const agent = (module as { readonly default?: unknown }).default;
  if (typeof agent !== "function")
    throw new UsageError(`--agent ${name}: ${path} has no default export that is a function`);
  return agent as Agent;
}
