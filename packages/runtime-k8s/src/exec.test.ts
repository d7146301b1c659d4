import { setTimeout as sleep } from "node:timers/promises";
import type { WebSocket } from "ws";
import { deadline } from "@breakwater/driver-kit";
import { describe, expect, it } from "vitest";
import { fakeApiServer, send, type FakeExec } from "../test/fake-api-server.ts";
import { Cluster } from "./cluster.ts";
import { openExec, type PodExec, StartSlots } from "./exec.ts";
import { parseOptions } from "./options.ts";

const SUCCESS = JSON.stringify({ status: "Success" });
const failure = (reason: string, exitCode?: number): string =>
  JSON.stringify({
    status: "Failure",
    reason,
    message: "the server's words",
    details: exitCode === undefined ? {} : { causes: [{ reason: "ExitCode", message: String(exitCode) }] },
  });

/** Connects to an exec of the fake, and gives what the test wants to know. */
async function against<T>(
  fake: FakeExec,
  work: (exec: PodExec, asked: readonly URLSearchParams[]) => Promise<T>,
): Promise<T> {
  await using server = await fakeApiServer(fake);
  const settings = parseOptions({ kubeconfig: server.kubeconfig }, {});
  const cluster = new Cluster(settings);
  using clock = deadline(undefined, 20_000, { driver: "k8s", operation: "exec", what: "trying an exec" });
  const target = { pod: "a-pod", container: "box", argv: ["/helper", "exec", "a b"] };
  const exec = await openExec(cluster, target, settings.execProtocols, new StartSlots(), clock);
  try {
    return await work(exec, server.asked);
  } finally {
    exec.close();
    await cluster.close();
  }
}

async function textOf(exec: PodExec): Promise<string> {
  let text = "";
  for await (const { stream, chunk } of exec.output) text += `${stream}:${Buffer.from(chunk).toString()};`;
  return text;
}

const outcomeOf = (status: string): Promise<unknown> =>
  against(
    {
      connected: (socket) => {
        send(socket, 3, status);
        socket.close(1000);
      },
    },
    async (exec) => {
      await textOf(exec);
      return exec.outcome();
    },
  );

describe("an exec", () => {
  it("passes arguments as they are and takes the streams apart, empty messages left out", async () => {
    const connected = (socket: WebSocket): void => {
      for (const channel of [1, 2]) send(socket, channel);
      send(socket, 1, "out");
      send(socket, 2, "err");
      send(socket, 255, Buffer.from([1]));
      send(socket, 3, SUCCESS);
      socket.close(1000);
    };
    await against({ connected }, async (exec, asked) => {
      expect(await textOf(exec)).toBe("stdout:out;stderr:err;");
      expect(asked[0]?.getAll("command")).toEqual(["/helper", "exec", "a b"]);
    });
  });

  it("is asked for again while the server refuses it, when nothing has started", async () => {
    const connected = (socket: WebSocket): void => {
      send(socket, 3, SUCCESS);
      socket.close(1000);
    };
    await against({ refuse: [500, 503, 429], connected }, async (exec, asked) => {
      expect(await textOf(exec)).toBe("");
      expect(asked).toHaveLength(4);
    });
  });

  it("is not asked for again when it is refused for good, and the server's reason is told", async () => {
    const refused = against({ refuse: [403], connected: () => undefined }, textOf);
    await expect(refused).rejects.toMatchObject({ status: 403, reason: "Refused", detail: "the fake says 403" });
  });

  it.each([1000, 1011])("that ends with code %d and without a status is an error, never a success", async (code) => {
    const connected = (socket: WebSocket): void => {
      send(socket, 1, "half");
      socket.close(code);
    };
    await against({ connected }, async (exec) => {
      await expect(textOf(exec)).rejects.toThrow(/without a status/);
      expect(await exec.outcome()).toBeNull();
    });
  });

  it("whose connection is cut is an error", async () => {
    await against({ connected: (socket) => socket.terminate() }, async (exec) => {
      await expect(textOf(exec)).rejects.toThrow(/without a status/);
    });
  });

  it("with a message on a channel that there is not is an error of this exec alone", async () => {
    await against({ connected: (socket) => send(socket, 9, "?") }, async (exec) => {
      await expect(textOf(exec)).rejects.toThrow(/channel 9/);
    });
  });

  it("sends input in small messages and no more than the server takes", async () => {
    const sizes: number[] = [];
    const input = Buffer.alloc(3_000_000, "x");
    let received = 0;
    const connected = (socket: WebSocket): void => {
      socket.on("message", (message: Buffer) => {
        sizes.push(message.length);
        received += message.length - 1;
        if (received < input.length) return;
        send(socket, 3, SUCCESS);
        socket.close(1000);
      });
    };
    await against({ connected }, async (exec) => {
      await exec.write(input);
      await textOf(exec);
    });
    expect(received).toBe(input.length);
    expect(Math.max(...sizes)).toBeLessThanOrEqual(64 * 1024 + 1);
  });

  it("waits with input for a server that does not read", async () => {
    await against({ connected: (socket) => socket.pause() }, async (exec) => {
      let sent = 0;
      const sending = (async () => {
        for (; sent < 500; sent++) await exec.write(Buffer.alloc(256 * 1024));
      })().catch(() => undefined);
      // Until the system's buffers are full: then not one more is taken.
      for (let before = -1; before !== sent; await sleep(300)) before = sent;
      expect(sent).toBeLessThan(100);
      exec.close();
      await sending;
    });
  });
});

describe("the server's word about the end", () => {
  it("is not believed where our helper said nothing: output was cut", async () => {
    expect(await outcomeOf(SUCCESS)).toEqual({ exitCode: null });
    expect(await outcomeOf(failure("NonZeroExitCode", 3))).toEqual({ exitCode: null });
  });

  it("is believed about a kill, which leaves our helper no time to speak", async () => {
    expect(await outcomeOf(failure("NonZeroExitCode", 137))).toEqual({ exitCode: 137 });
  });

  it("tells a program that never started from one that ended", async () => {
    expect(await outcomeOf(failure("InternalError"))).toEqual({ exitCode: null, startFailure: "the server's words" });
  });
});
