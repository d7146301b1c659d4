import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import type { AgentContext } from "@breakwater/harbor-taskset";
import { generateText, isStepCount, tool } from "ai";
import { z } from "zod";

import { boxTools, modelSettings, SYSTEM, Transcript } from "./box-tools.ts";

/**
 * An agent on the AI SDK; its model can be any of the SDK's. It runs on the host and works in the box by tools:
 *
 *     breakwater run -p TASK -a ./examples/agents/ai-sdk.ts --ae MODEL=... --ae OPENAI_API_KEY=... [--ae OPENAI_BASE_URL=...]
 */
export default async function aiSdkAgent(context: AgentContext): Promise<void> {
  const { baseURL, apiKey, model, maxSteps } = modelSettings(context);
  const provider = createOpenAICompatible({ name: "openai-compatible", baseURL, apiKey });
  const { exec, read, write } = boxTools(context);
  await using transcript = new Transcript(context);
  transcript.add({ role: "system", content: SYSTEM });
  transcript.add({ role: "user", content: context.instruction });

  const { finishReason } = await generateText({
    model: provider(model),
    system: SYSTEM,
    prompt: context.instruction,
    abortSignal: context.signal,
    stopWhen: isStepCount(maxSteps),
    tools: {
      exec: tool({
        description: "Runs a command with sh and gives its exit code and output.",
        inputSchema: z.object({ command: z.string() }),
        execute: exec,
      }),
      read: tool({
        description: "Gives the content of a file.",
        inputSchema: z.object({ path: z.string() }),
        execute: read,
      }),
      write: tool({
        description: "Writes a file, also over one that is there.",
        inputSchema: z.object({ path: z.string(), content: z.string() }),
        execute: write,
      }),
    },
    onStepFinish: ({ text, toolCalls, toolResults }) => {
      transcript.add({
        role: "assistant",
        content: text,
        toolCalls: toolCalls.map(({ toolName, input }) => ({ toolName, input })),
        toolResults: toolResults.map(({ toolName, output }) => ({ toolName, output })),
      });
    },
  });
  if (finishReason === "tool-calls") throw new Error(`the agent was not done after ${maxSteps} steps (MAX_STEPS)`);
}
