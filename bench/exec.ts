/**
 * `npm run bench -- exec`: what one program costs through the driver, beside the same three calls of the Engine API (create, start,
 * inspect) made by hand on the same box, in turns; and the same for a box's start and end. Ratios, as milliseconds depend on the machine.
 */
import { once } from "node:events";
import http from "node:http";
import { dockerDriver } from "@breakwater/runtime-docker";

const ROUNDS = 100;
const BOXES = 10;
const WARM_UP = 5;

interface Comparison {
  readonly what: string;
  readonly ours: readonly number[];
  readonly byHand: readonly number[];
}

/** The smallest client that does what people write by hand. */
class ByHand {
  readonly #socketPath: string;
  readonly #agent: http.Agent = new http.Agent({ keepAlive: true });

  constructor(socketPath: string) {
    this.#socketPath = socketPath;
  }

  async json<T>(method: string, path: string, body?: object): Promise<T> {
    const response = await this.#request(method, path, body, this.#agent);
    const text = (await readAll(response)).toString("utf8");
    if ((response.statusCode ?? 0) >= 400) throw new Error(`${method} ${path}: ${response.statusCode} ${text}`);
    return (text === "" ? null : JSON.parse(text)) as T;
  }

  /** create, start with attached output read to its end, inspect. */
  async exec(
    container: string,
    argv: readonly string[],
  ): Promise<{ readonly exitCode: number; readonly bytes: number }> {
    const { Id } = await this.json<{ readonly Id: string }>("POST", `/containers/${container}/exec`, {
      AttachStdout: true,
      AttachStderr: true,
      User: "0:0",
      Cmd: argv,
    });
    const output = await this.#request("POST", `/exec/${Id}/start`, { Detach: false, Tty: false }, new http.Agent());
    const bytes = (await readAll(output)).length;
    const { ExitCode } = await this.json<{ readonly ExitCode: number }>("GET", `/exec/${Id}/json`);
    return { exitCode: ExitCode, bytes };
  }

  close(): void {
    this.#agent.destroy();
  }

  async #request(
    method: string,
    path: string,
    body: object | undefined,
    agent: http.Agent,
  ): Promise<http.IncomingMessage> {
    const payload = body === undefined ? "" : JSON.stringify(body);
    const headers = { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(payload) };
    const request = http.request({ socketPath: this.#socketPath, method, path, agent, headers });
    request.end(payload);
    const [response] = (await once(request, "response")) as [http.IncomingMessage];
    return response;
  }
}

async function readAll(stream: http.IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream as AsyncIterable<Buffer>) chunks.push(chunk);
  return Buffer.concat(chunks);
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now();
  await work();
  return performance.now() - startedAt;
}

/** Both in turns, each first every other time: whatever else the machine does hits them alike. */
async function inTurns(
  what: string,
  rounds: number,
  warmUp: number,
  ours: () => Promise<unknown>,
  byHand: () => Promise<unknown>,
): Promise<Comparison> {
  const times = { ours: [] as number[], byHand: [] as number[] };
  for (let round = -warmUp; round < rounds; round++) {
    const order = round % 2 === 0 ? (["ours", "byHand"] as const) : (["byHand", "ours"] as const);
    for (const who of order) {
      const took = await timed(who === "ours" ? ours : byHand);
      if (round >= 0) times[who].push(took);
    }
  }
  return { what, ...times };
}

function percentile(times: readonly number[], share: number): number {
  const sorted = times.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

function show({ what, ours, byHand }: Comparison): void {
  const of = (share: number): string => {
    const [mine, theirs] = [percentile(ours, share), percentile(byHand, share)];
    return `${mine.toFixed(1)} ms / ${theirs.toFixed(1)} ms = ${(mine / theirs).toFixed(2)}`;
  };
  console.log(`${what.padEnd(28)} p50 ${of(0.5)}   p90 ${of(0.9)}   (${ours.length} rounds; driver / by hand)`);
}

const host = process.env["DOCKER_HOST"] ?? "unix:///var/run/docker.sock";
const image = process.env["BREAKWATER_IMAGE"];
if (!host.startsWith("unix://") || image === undefined) {
  throw new Error(
    "set DOCKER_HOST to a unix socket and BREAKWATER_IMAGE to an image, see `npm run backends -- docker env`",
  );
}

const driver = dockerDriver({ host });
const engine = new ByHand(host.slice("unix://".length));
const spec = { image, network: { initial: { mode: "no-network" } } } as const;
try {
  const box = driver.create(spec);
  await box.start();
  try {
    show(
      await inTurns(
        "exec true",
        ROUNDS,
        WARM_UP,
        () => box.exec(["true"]),
        () => engine.exec(box.id, ["true"]),
      ),
    );
    const megabyte = ["head", "-c", "1048576", "/dev/zero"];
    show(
      await inTurns(
        "exec, 1 MiB of output",
        ROUNDS / 2,
        WARM_UP,
        () => box.exec(megabyte),
        () => engine.exec(box.id, megabyte),
      ),
    );
  } finally {
    await box.teardownConfirmed();
  }

  show(
    await inTurns(
      "box: start, exec, removal",
      BOXES,
      1,
      async () => {
        const each = driver.create(spec);
        await each.start();
        await each.teardownConfirmed();
      },
      async () => {
        const { Id } = await engine.json<{ readonly Id: string }>("POST", "/containers/create", {
          Image: image,
          Cmd: ["sleep", "600"],
          HostConfig: { NetworkMode: "none", Init: true },
        });
        try {
          await engine.json("POST", `/containers/${Id}/start`);
          await engine.exec(Id, ["true"]);
        } finally {
          await engine.json("DELETE", `/containers/${Id}?force=true`);
        }
      },
    ),
  );
} finally {
  engine.close();
  await driver[Symbol.asyncDispose]();
}
