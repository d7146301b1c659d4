/**
 * `npm run bench -- jobs`: 200 short trials of one task, graded in a box of their own, 16 at the same time: trials a minute, and what our process needs for them. With
 * `harbor` (0.26) in the PATH, the same tasks on the same engine by it. `BENCH_TRIALS` and `BENCH_CONCURRENT` change the numbers.
 *
 * Our memory has to be flat: what is in use after trial 200 is compared with what was after trial 20. Exit code 1 if it is not, or if a trial has no reward 1.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { accessSync, constants } from "node:fs";
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { cpus, loadavg, tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { loadTask, oracleAgent, runJob } from "@breakwater/harbor-taskset";
import { dockerDriver } from "@breakwater/runtime-docker";

const TRIALS = Number(process.env["BENCH_TRIALS"] ?? 200);
const CONCURRENT = Number(process.env["BENCH_CONCURRENT"] ?? 16);
const FIRST_LOOK = Math.min(20, Math.floor(TRIALS / 2));
/** More than this between the two looks is a leak: a result or its events are some 50 KiB. */
const MAX_GROWTH_MIB = 8;
const MIB = 1024 ** 2;

const image = process.env["BREAKWATER_IMAGE"];
if (image === undefined) throw new Error("set BREAKWATER_IMAGE, see `npm run backends -- docker env`");

interface Measured {
  readonly who: string;
  readonly good: number;
  readonly seconds: number;
  readonly cpuSeconds: number;
  readonly peakMib: number;
}

/** A short one, with what every task has. */
async function writeTask(folder: string): Promise<void> {
  const files = {
    "task.toml": `artifacts = ["/app"]\n[environment]\ndocker_image = "${image}"\nnetwork_mode = "no-network"\n[verifier]\nenvironment_mode = "separate"\n`,
    "instruction.md": "Leave the answer in /app/answer.txt.\n",
    "tests/test.sh": `#!/bin/sh\nif [ "$(cat /app/answer.txt)" = right ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt\n`,
    "solution/solve.sh": "#!/bin/sh\nmkdir -p /app && echo right >/app/answer.txt\n",
  };
  for (const [path, content] of Object.entries(files)) {
    await mkdir(dirname(join(folder, path)), { recursive: true });
    await writeFile(join(folder, path), content, { mode: path.endsWith(".sh") ? 0o755 : 0o644 });
  }
}

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

/** Of this process, after what nobody needs has been thrown away. */
function inUseMib(): number {
  collectGarbage();
  const { heapUsed, external } = process.memoryUsage();
  return (heapUsed + external) / MIB;
}

async function ours(task: string, outputDir: string): Promise<Measured & { readonly growthMib: number }> {
  await using driver = dockerDriver();
  const loaded = await loadTask(task);
  const startedAt = performance.now();
  const cpuBefore = process.cpuUsage();
  let ended = 0;
  let good = 0;
  let first = Number.NaN;
  let last = Number.NaN;
  const results = runJob([loaded], {
    driver,
    agent: oracleAgent(),
    outputDir,
    attempts: TRIALS,
    concurrentTrials: CONCURRENT,
  });
  for await (const { reward, leftovers, error } of results) {
    ended += 1;
    if (reward === 1 && leftovers.length === 0) good += 1;
    else console.log(`no reward 1: ${error?.code ?? reward} ${error?.message ?? ""}`);
    if (ended === FIRST_LOOK) first = inUseMib();
    // The others are still under way at the first look, and so they are at the second one.
    if (ended === TRIALS - CONCURRENT) last = inUseMib();
  }
  const { user, system } = process.cpuUsage(cpuBefore);
  return {
    who: "breakwater",
    good,
    seconds: (performance.now() - startedAt) / 1000,
    cpuSeconds: (user + system) / 1e6,
    peakMib: process.resourceUsage().maxRSS / 1024,
    growthMib: last - first,
  };
}

function inPath(program: string): boolean {
  return (process.env["PATH"] ?? "").split(delimiter).some((folder) => {
    try {
      accessSync(join(folder, program), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/** CPU time and peak memory of `harbor` itself, without its children, from /proc. */
async function harbors(task: string, outputDir: string): Promise<Measured> {
  const startedAt = performance.now();
  const args = ["run", "-p", task, "-a", "oracle", "-k", String(TRIALS), "-n", String(CONCURRENT), "-o", outputDir];
  const child = spawn("harbor", args, { stdio: ["ignore", "ignore", "inherit"] });
  const ended = once(child, "exit");
  let cpuSeconds = 0;
  let peakMib = 0;
  const look = async (): Promise<void> => {
    try {
      const fields = (await readFile(`/proc/${child.pid}/stat`, "latin1")).replace(/^.*\) /, "").split(" ");
      cpuSeconds = (Number(fields[11]) + Number(fields[12])) / 100;
      const status = await readFile(`/proc/${child.pid}/status`, "utf8");
      peakMib = Number(/VmHWM:\s+(\d+)/.exec(status)?.[1] ?? 0) / 1024;
    } catch {
      // It has ended.
    }
  };
  const timer = setInterval(() => void look(), 500);
  await ended;
  clearInterval(timer);
  const seconds = (performance.now() - startedAt) / 1000;
  let good = 0;
  for (const entry of await readdir(outputDir, { recursive: true })) {
    if (!/[^/]+\/[^/]+\/result\.json$/.test(entry)) continue;
    const result = JSON.parse(await readFile(join(outputDir, entry), "utf8")) as {
      readonly verifier_result?: { readonly rewards?: Readonly<Record<string, number>> | null } | null;
    };
    if (result.verifier_result?.rewards?.["reward"] === 1) good += 1;
  }
  return { who: "harbor", good, seconds, cpuSeconds, peakMib };
}

const folder = await mkdtemp(join(tmpdir(), "breakwater-bench-jobs-"));
try {
  await writeTask(join(folder, "task"));
  console.log(
    `${TRIALS} trials, ${CONCURRENT} at the same time, ${cpus().length} cores, load ${loadavg()[0]?.toFixed(1)} before`,
  );
  const we = await ours(join(folder, "task"), join(folder, "ours"));
  const they = inPath("harbor") ? [await harbors(join(folder, "task"), join(folder, "theirs"))] : [];
  for (const { who, good, seconds, cpuSeconds, peakMib } of [we, ...they]) {
    console.log(
      [
        who.padEnd(10),
        `${((TRIALS / seconds) * 60).toFixed(1)} trials/min`,
        `${good} of ${TRIALS} with reward 1`,
        `${cpuSeconds.toFixed(1)} CPU s of its process (${((cpuSeconds / TRIALS) * 1000).toFixed(0)} ms a trial)`,
        `peak ${peakMib.toFixed(0)} MiB`,
      ].join(", "),
    );
  }
  if (they.length === 0) console.log("not run: harbor is not in the PATH");
  console.log(
    `memory in use after trial ${TRIALS - CONCURRENT} less that after trial ${FIRST_LOOK}: ${we.growthMib.toFixed(1)} MiB`,
  );
  if (we.good < TRIALS || we.growthMib > MAX_GROWTH_MIB) process.exitCode = 1;
} finally {
  await rm(folder, { recursive: true, force: true });
}
