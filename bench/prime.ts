/**
 * `npm run bench -- prime`: a thousand programs at once in fifty sandboxes of Prime's emulator, through the driver and in the way in which Prime's own client
 * runs a background job: one call starts it, one call a second asks for its exit file, two more fetch its output. Calls as the service counts
 * them, wall time, and memory of the client, a process of its own for each way.
 */
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { type OwnEmulator, startEmulator } from "@breakwater/backends/prime";
import { primeDriver } from "@breakwater/runtime-prime";

const BOXES = 50;
const PROGRAMS = 1000;
/** Programs end at different times, as those of agents do. */
const LEAST_SECONDS = 10;
const SPREAD_SECONDS = 20;
const STARTS_AT_ONCE = 10;
const RUN_TIMEOUT_MS = 15 * 60_000;
/** As Prime's own client waits. */
const POLL_MS = 1000;

type Kind = "vm" | "container";
type Way = "driver" | "sdk";

interface Measured {
  readonly calls: number;
  readonly wallMs: number;
  /** On top of what the process had with all boxes running. */
  readonly memoryMb: number;
}

function secondsOf(program: number): number {
  return LEAST_SECONDS + (program % SPREAD_SECONDS);
}

const [childWay, childKind] = process.argv.slice(2);
if (process.env["BENCH_PRIME_CHILD"] === undefined) await compare();
else process.stdout.write(JSON.stringify(await measure(childWay as Way, childKind as Kind)));

async function compare(): Promise<void> {
  console.log(
    `${PROGRAMS} programs of ${LEAST_SECONDS} to ${LEAST_SECONDS + SPREAD_SECONDS - 1} s at once, ${BOXES} sandboxes`,
  );
  for (const kind of ["vm", "container"] as const) {
    for (const way of ["driver", "sdk"] as const) {
      const { stdout } = await promisify(execFile)(
        process.execPath,
        [...process.execArgv, fileURLToPath(import.meta.url), way, kind],
        { env: { ...process.env, BENCH_PRIME_CHILD: "1" }, timeout: RUN_TIMEOUT_MS, maxBuffer: 1024 * 1024 },
      );
      const { calls, wallMs, memoryMb } = JSON.parse(stdout) as Measured;
      const each = `${(calls / PROGRAMS).toFixed(2).padStart(6)} calls for each program`;
      const took = `${(wallMs / 1000).toFixed(1).padStart(6)} s`;
      const name = way === "driver" ? "the driver" : "the pattern of Prime's client";
      console.log(
        `${kind.padEnd(10)} ${name.padEnd(30)} ${each} ${took} ${String(Math.round(memoryMb)).padStart(5)} MB`,
      );
    }
  }
}

async function measure(way: Way, kind: Kind): Promise<Measured> {
  await using emulator = await startEmulator(process.env["DOCKER_HOST"] ?? "", { boxes: "processes" });
  const image = process.env["BREAKWATER_IMAGE"] ?? "";
  const { run, end } =
    way === "driver" ? await withDriver(emulator, kind, image) : await withClient(emulator, kind, image);
  try {
    await emulator.admin("DELETE", "/requests");
    const before = process.memoryUsage().rss;
    let peak = before;
    const sampler = setInterval(() => {
      peak = Math.max(peak, process.memoryUsage().rss);
    }, 100);
    const startedAt = performance.now();
    await Promise.all(Array.from({ length: PROGRAMS }, async (_, index) => run(index)));
    const wallMs = performance.now() - startedAt;
    clearInterval(sampler);
    const { total } = (await emulator.admin("GET", "/requests")) as { readonly total: number };
    return { calls: total, wallMs, memoryMb: (peak - before) / 1024 / 1024 };
  } finally {
    await end();
  }
}

interface Client {
  /** Runs one program to its end, in a box of its own choice, and checks what it has written. */
  readonly run: (program: number) => Promise<void>;
  readonly end: () => Promise<void>;
}

function assertDone(program: number, exitCode: number | null, output: string): void {
  if (exitCode !== 0 || output !== `done ${program}\n`) throw new Error(`program ${program}: ${exitCode}, ${output}`);
}

async function inTurns<T>(count: number, make: (index: number) => Promise<T>): Promise<readonly T[]> {
  const made: T[] = [];
  for (let at = 0; at < count; at += STARTS_AT_ONCE) {
    const some = Array.from({ length: Math.min(STARTS_AT_ONCE, count - at) }, (_, index) => make(at + index));
    made.push(...(await Promise.all(some)));
  }
  return made;
}

async function withDriver({ apiKey, url }: OwnEmulator, kind: Kind, image: string): Promise<Client> {
  const driver = primeDriver({ apiKey, baseUrl: url, kind });
  const boxes = await inTurns(BOXES, async () => {
    const box = driver.create({ image });
    await box.start();
    return box;
  });
  return {
    run: async (program) => {
      const argv = ["sh", "-c", `sleep ${secondsOf(program)}; echo done ${program}`];
      const result = await boxes[program % BOXES]?.exec(argv);
      assertDone(program, result?.exitCode ?? null, Buffer.from(result?.stdout ?? []).toString("utf8"));
    },
    end: async () => {
      await driver[Symbol.asyncDispose]();
    },
  };
}

interface Access {
  readonly base: string;
  readonly token: string;
}

/** What Prime's client does, call for call. */
async function withClient({ apiKey, url }: OwnEmulator, kind: Kind, image: string): Promise<Client> {
  const control = async (method: string, path: string, body?: unknown): Promise<Record<string, string>> => {
    const headers = { authorization: `Bearer ${apiKey}`, "content-type": "application/json" };
    const text = body === undefined ? null : JSON.stringify(body);
    const answer = await fetch(`${url}/api/v1${path}`, { method, headers, body: text });
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status}`);
    return (await answer.json()) as Record<string, string>;
  };
  const boxes = await inTurns(BOXES, async (index): Promise<Access> => {
    const spec = { name: `bench-${index}`, docker_image: image, vm: kind === "vm", timeout_minutes: 60 };
    const { id = "" } = await control("POST", "/sandbox", spec);
    while ((await control("GET", `/sandbox/${id}`))["status"] !== "RUNNING") await sleep(200);
    await sleep(200);
    const access = await control("POST", `/sandbox/${id}/auth`);
    return { base: `${access["gateway_url"]}/${access["user_ns"]}/${access["job_id"]}`, token: access["token"] ?? "" };
  });
  const read = async ({ base, token }: Access, path: string): Promise<string | null> => {
    const answer = await fetch(`${base}/read-file?path=${encodeURIComponent(path)}`, {
      headers: { authorization: `Bearer ${token}` },
    });
    if (answer.status === 404) {
      await answer.body?.cancel();
      return null;
    }
    if (!answer.ok) throw new Error(`read-file: ${answer.status}`);
    return ((await answer.json()) as { readonly content: string }).content;
  };
  return {
    run: async (program) => {
      const box = boxes[program % BOXES];
      if (box === undefined) throw new Error("there is no box");
      const job = `/tmp/job_${randomBytes(4).toString("hex")}`;
      const work = `(sleep ${secondsOf(program)}; echo done ${program}) >${job}.stdout.log 2>${job}.stderr.log; echo $? >${job}.exit`;
      await start(kind, box, `nohup sh -c '${work}' </dev/null >/dev/null 2>&1 &`);
      for (;;) {
        const exit = await read(box, `${job}.exit`);
        if (exit !== null && exit.trim() !== "") {
          const output = await read(box, `${job}.stdout.log`);
          await read(box, `${job}.stderr.log`);
          assertDone(program, Number(exit), output ?? "");
          return;
        }
        await sleep(POLL_MS);
      }
    },
    end: async () => undefined,
  };
}

async function start(kind: Kind, { base, token }: Access, command: string): Promise<void> {
  const authorization = `Bearer ${token}`;
  if (kind === "container") {
    const headers = { authorization, "content-type": "application/json" };
    const body = JSON.stringify({ command, working_dir: null, env: {}, timeout: 300 });
    const answer = await fetch(`${base}/exec`, { method: "POST", headers, body });
    if (!answer.ok) throw new Error(`exec: ${answer.status}`);
    await answer.arrayBuffer();
    return;
  }
  const message = Buffer.from(JSON.stringify({ command: { cmd: "/bin/bash", args: ["-c", command] }, stdin: false }));
  const frame = Buffer.alloc(5);
  frame.writeUInt32BE(message.length, 1);
  const answer = await fetch(`${base}/command_session.CommandSession/Start`, {
    method: "POST",
    headers: { authorization, "content-type": "application/connect+json", "connect-protocol-version": "1" },
    body: Buffer.concat([frame, message]),
  });
  if (!answer.ok) throw new Error(`Start: ${answer.status}`);
  await answer.arrayBuffer();
}
