import { createServer, type Server } from "node:http";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { json } from "node:stream/consumers";

/** One answer of the model: tools to be called, or the last word. */
export type ScriptedAnswer =
  | { readonly text: string }
  | { readonly tools: readonly (readonly [name: string, input: object])[] };

interface ChatMessage {
  readonly role: string;
  readonly content?: unknown;
}

/** A server on the loopback that speaks OpenAI's chat completions and says what it was told to say, in order; afterwards always the last one. */
export class ScriptedModel implements AsyncDisposable {
  readonly baseURL: string;
  /** What came in, oldest first. */
  readonly requests: {
    readonly authorization: string;
    readonly model: string;
    readonly messages: readonly ChatMessage[];
  }[] = [];
  readonly #server: Server;

  static async start(script: readonly ScriptedAnswer[]): Promise<ScriptedModel> {
    const server = createServer();
    const model = new ScriptedModel(server, script, await listen(server));
    return model;
  }

  private constructor(server: Server, script: readonly ScriptedAnswer[], port: number) {
    this.#server = server;
    this.baseURL = `http://127.0.0.1:${port}/v1`;
    server.on("request", (request, response) => {
      void (async () => {
        const body = (await json(request)) as { readonly model: string; readonly messages: readonly ChatMessage[] };
        const answer = script[Math.min(this.requests.length, script.length - 1)] ?? { text: "" };
        this.requests.push({
          authorization: request.headers.authorization ?? "",
          model: body.model,
          messages: body.messages,
        });
        response.setHeader("Content-Type", "application/json");
        response.end(JSON.stringify(completion(this.requests.length, body.model, answer)));
      })().catch(() => response.destroy());
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((closed) => this.#server.close(closed));
  }
}

async function listen(server: Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
}

function completion(number: number, model: string, answer: ScriptedAnswer): object {
  const calls = "tools" in answer ? answer.tools : [];
  const message = {
    role: "assistant",
    content: "text" in answer ? answer.text : null,
    ...(calls.length === 0
      ? {}
      : {
          tool_calls: calls.map(([name, input], index) => ({
            id: `call_${number}_${index}`,
            type: "function",
            function: { name, arguments: JSON.stringify(input) },
          })),
        }),
  };
  return {
    id: `chatcmpl-${number}`,
    object: "chat.completion",
    created: 0,
    model,
    choices: [{ index: 0, message, finish_reason: calls.length === 0 ? "stop" : "tool_calls" }],
    usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
  };
}
