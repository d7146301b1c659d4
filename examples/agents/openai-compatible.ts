import type { AgentContext } from "@breakwater/harbor-taskset";
import OpenAI from "openai";

import { boxTools, modelSettings, SYSTEM, Transcript } from "./box-tools.ts";

/**
 * An agent on any server that speaks OpenAI's chat completions. It runs on the host and works in the box by tools:
 *
 *     breakwater run -p TASK -a ./examples/agents/openai-compatible.ts --ae MODEL=... --ae OPENAI_API_KEY=... [--ae OPENAI_BASE_URL=...]
 */
export default async function openaiCompatibleAgent(context: AgentContext): Promise<void> {
  const { baseURL, apiKey, model, maxSteps } = modelSettings(context);
  const client = new OpenAI({ baseURL, apiKey });
  const tools = boxTools(context);
  await using transcript = new Transcript(context);
  const messages: OpenAI.ChatCompletionMessageParam[] = [];
  const say = (message: OpenAI.ChatCompletionMessageParam): void => {
    messages.push(message);
    transcript.add(message);
  };
  say({ role: "system", content: SYSTEM });
  say({ role: "user", content: context.instruction });

  for (let step = 1; step <= maxSteps; step++) {
    const completion = await client.chat.completions.create(
      { model, messages, tools: DEFINITIONS },
      { signal: context.signal },
    );
    const message = completion.choices[0]?.message;
    if (message === undefined) throw new Error("the model's answer has no choices");
    say(message);
    const calls = message.tool_calls ?? [];
    if (calls.length === 0) return;
    for (const call of calls) say({ role: "tool", tool_call_id: call.id, content: await perform(call) });
  }
  throw new Error(`the agent was not done after ${maxSteps} steps (MAX_STEPS)`);

  async function perform(call: OpenAI.ChatCompletionMessageToolCall): Promise<string> {
    if (call.type !== "function" || !Object.hasOwn(tools, call.function.name)) return "error: there is no such tool";
    const { name } = call.function;
    let input: Record<string, unknown>;
    try {
      input = JSON.parse(call.function.arguments) as Record<string, unknown>;
    } catch {
      return "error: the arguments are no JSON";
    }
    const needed = name === "exec" ? ["command"] : name === "read" ? ["path"] : ["path", "content"];
    const missing = needed.find((key) => typeof input[key] !== "string");
    if (missing !== undefined) return `error: ${missing} is not a string`;
    return await tools[name as keyof typeof tools](input as { command: string; path: string; content: string });
  }
}

function definition(name: string, description: string, ...keys: readonly string[]): OpenAI.ChatCompletionTool {
  const properties = Object.fromEntries(keys.map((key) => [key, { type: "string" }]));
  const parameters = { type: "object", properties, required: [...keys], additionalProperties: false };
  return { type: "function", function: { name, description, parameters } };
}

const DEFINITIONS: OpenAI.ChatCompletionTool[] = [
  definition("exec", "Runs a command with sh and gives its exit code and output.", "command"),
  definition("read", "Gives the content of a file.", "path"),
  definition("write", "Writes a file, also over one that is there.", "path", "content"),
];
