// npm run interop -- harbor: Harbor's own code, as it is published, on what we write, and ours on what it writes. Needs the docker backend, python3 with venv, and
// PyPI the first time. Harbor needs Python 3.12 or newer, which this machine may not have: it runs in a box of Debian 13, without a network.

import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { arch, homedir, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { up } from "@breakwater/backends/docker";
import { loadTask, oracleAgent, regradeTrial, runJob, type TrialResult } from "@breakwater/harbor-taskset";
import { withRuntime, type Runtime, type RuntimeDriver } from "@breakwater/runtime-api";
import { dockerDriver } from "@breakwater/runtime-docker";
import { extractSpool, packDirectory, spoolArtifact } from "@breakwater/tar";

const VERSION = "0.26.0";
const INSTALL_TIMEOUT_MS = 15 * 60_000;
const TRANSFER_TIMEOUT_MS = 15 * 60_000;
const RUN_TIMEOUT_MS = 20 * 60_000;
const LIMITS = { maxBytes: 100 * 1024 ** 2, maxEntries: 10_000 };

const environment = await up();
process.env["DOCKER_HOST"] = environment.DOCKER_HOST;
const folder = await mkdtemp(join(tmpdir(), "breakwater-harbor-"));
let passed = 0;
let failed = 0;
const check = (what: string, found: unknown, expected: unknown): void => {
  const good = JSON.stringify(found) === JSON.stringify(expected);
  if (good) passed += 1;
  else failed += 1;
  const line = good
    ? `ok ${what}`
    : `FAILED ${what}: expected ${JSON.stringify(expected)}, found ${JSON.stringify(found)}`;
  process.stdout.write(`  ${line}\n`);
};
try {
  await using driver = dockerDriver();
  const [site] = await Promise.all([installHarbor(), writeTasks()]);
  const expected = await runOurs(driver);
  await writeFile(join(folder, "job/expected.json"), JSON.stringify(expected));

  process.stdout.write(`Harbor ${VERSION} on what we write, and at work itself\n`);
  const spec = { image: environment.BREAKWATER_OTHER_IMAGE, network: { initial: { mode: "no-network" } } } as const;
  await withRuntime(driver, spec, async (box) => {
    await Promise.all([
      box.upload(packDirectory(site), "/harbor", { timeoutMs: TRANSFER_TIMEOUT_MS }),
      box.upload(packDirectory(folder), "/work", { timeoutMs: TRANSFER_TIMEOUT_MS }),
      box.upload(packDirectory(import.meta.dirname), "/interop", { timeoutMs: TRANSFER_TIMEOUT_MS }),
    ]);
    const ran = await box.exec(["python3", "/interop/interop.py", "/work/job", "/work/tasks", "/work/out"], {
      env: { PYTHONPATH: "/harbor:/interop", HOME: "/root" },
      timeoutMs: RUN_TIMEOUT_MS,
    });
    const lines = Buffer.concat([ran.stdout, ran.stderr]).toString("utf8").trimEnd().split("\n");
    for (const line of lines) process.stdout.write(`  ${line}\n`);
    passed += lines.filter((line) => line.startsWith("ok ")).length;
    if (ran.exitCode !== 0) failed += 1;
    else await fetchFolder(box, "/work/out/written", join(folder, "written"));
  });
  if (existsSync(join(folder, "written"))) await regradeTheirs(driver);
} finally {
  await rm(folder, { recursive: true, force: true });
}
process.stdout.write(`harbor: ${passed} passed, ${failed} failed\n`);
process.exitCode = failed === 0 ? 0 : 1;

/** Harbor and all that it needs, for the box's Python; made once. */
async function installHarbor(): Promise<string> {
  const cache = join(homedir(), ".cache/breakwater/harbor", VERSION);
  const mark = join(cache, "is-complete");
  const target = join(cache, "site");
  if (existsSync(mark)) return target;
  const run = async (...[command = "", ...args]: readonly string[]): Promise<unknown> =>
    promisify(execFile)(command, args, { timeout: INSTALL_TIMEOUT_MS, maxBuffer: 16 * 1024 ** 2 });
  await rm(cache, { recursive: true, force: true });
  // An older pip takes the versions that fit its own Python; uv takes those that fit the box's.
  await run("python3", "-m", "venv", join(cache, "uv"));
  await run(join(cache, "uv/bin/pip"), "install", "--quiet", "uv");
  const platform = `${arch() === "arm64" ? "aarch64" : "x86_64"}-manylinux_2_28`;
  const forBox = ["--python-version", "3.13", "--python-platform", platform, "--only-binary", ":all:"];
  await run(join(cache, "uv/bin/uv"), "pip", "install", "--quiet", "--target", target, ...forBox, `harbor==${VERSION}`);
  await rm(join(cache, "uv"), { recursive: true, force: true });
  await writeFile(mark, "");
  return target;
}

/** Tasks that are graded by artifacts alone, and with other tests in `tasks/new`: what was right is wrong there. */
async function writeTasks(): Promise<void> {
  const head = (name: string, artifacts: readonly string[]): string =>
    `artifacts = ${JSON.stringify(artifacts)}\n[task]\nname = "org/${name}"\n[environment]\ndocker_image = "${environment.BREAKWATER_IMAGE}"\nnetwork_mode = "no-network"\n[agent]\ntimeout_sec = 300\n[verifier]\ntimeout_sec = 900\n`;
  const grade = (condition: string): string =>
    `#!/bin/bash\nif ${condition}; then echo 1; else echo 0; fi >/logs/verifier/reward.txt\n`;
  const separate = 'environment_mode = "separate"\n';
  for (const [place, first, second] of [
    ["tasks", "41", "2"],
    ["tasks/new", "42", "1"],
  ] as const) {
    const answer = {
      "instruction.md": "Write the answer.\n",
      "solution/solve.sh": "#!/bin/bash\nmkdir -p /app/out\necho 42 >/app/out/answer\nln -s answer /app/out/link\n",
      "tests/test.sh": grade(`[ "$(cat /app/out/link)" = ${first} ] && [ ! -e /app/other ]`),
    };
    const steps = {
      "steps/one/instruction.md": "1\n",
      "steps/one/solution/solve.sh": "#!/bin/bash\nmkdir -p /app\necho 1 >/app/n\n",
      "steps/one/tests/test.sh": grade('[ "$(cat /app/n)" = 1 ]'),
      "steps/two/instruction.md": "2\n",
      "steps/two/solution/solve.sh": "#!/bin/bash\necho done >/logs/artifacts/two\n",
      "steps/two/tests/test.sh": grade(`[ "$(cat /app/n)" = ${second} ] && [ -f /logs/artifacts/two ]`),
    };
    const all: Readonly<Record<string, Readonly<Record<string, string>>>> = {
      answer: { "task.toml": head("answer", ["/app/out"]) + separate, ...answer },
      shared: { "task.toml": head("shared", ["/app/out"]), ...answer },
      broken: {
        "task.toml": head("broken", ["/app/out"]) + separate,
        ...answer,
        "tests/test.sh": "#!/bin/bash\nexit 3\n",
      },
      steps: {
        "task.toml": `${head("steps", ["/app/n"])}${separate}[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n`,
        ...steps,
      },
    };
    for (const [name, files] of Object.entries(all)) {
      for (const [path, content] of Object.entries({ "environment/.keep": "", ...files })) {
        const file = join(folder, place, name, path);
        await mkdir(dirname(file), { recursive: true });
        await writeFile(file, content);
        await chmod(file, path.endsWith(".sh") ? 0o755 : 0o644);
      }
    }
  }
}

/** What Harbor's checks of one trial go by. */
interface Expected {
  readonly kind: string;
  readonly folder: string;
  readonly task: string;
  readonly rewards: TrialResult["rewards"];
  readonly exception: string | null;
  readonly steps: readonly string[] | null;
  readonly manifests: number;
  /** By Harbor, with the task in `tasks/new`; `null`: it is not to try. */
  readonly regraded: TrialResult["rewards"];
}

/** A job of our own: every kind of trial that the files differ for. Harbor gets our trial of a folder where the agent did something. */
async function runOurs(driver: RuntimeDriver): Promise<Readonly<Record<string, Expected>>> {
  const outputDir = join(folder, "job");
  const names = ["answer", "steps", "shared", "broken"];
  const tasks = await Promise.all(names.map((name) => loadTask(join(folder, "tasks", name))));
  const expected: Record<string, Expected> = {};
  const separate = { answer: { reward: 1 }, steps: { reward: 1 } } as const;
  for await (const result of runJob(tasks, { driver, agent: oracleAgent(), outputDir, concurrentTrials: 2 })) {
    const name = result.task.replace("org/", "");
    expected[result.trial] = {
      kind: name,
      folder: name,
      task: result.task,
      rewards: result.rewards,
      exception: name === "broken" ? "RewardFileNotFoundError" : null,
      steps: result.steps?.map((step) => step.name) ?? null,
      manifests: name === "shared" ? 0 : name === "steps" ? 2 : 1,
      regraded: name in separate ? separate[name as keyof typeof separate] : null,
    };
    check(
      `our own run of ${name}`,
      result.rewards,
      { answer: { reward: 0 }, steps: { reward: 0.5 }, shared: { reward: 0 }, broken: null }[name],
    );
  }
  return expected;
}

/** Trials that Harbor wrote, with the tests that find right what was wrong. */
async function regradeTheirs(driver: RuntimeDriver): Promise<void> {
  process.stdout.write("ours on what Harbor writes\n");
  for (const [name, before, rewards] of [
    ["answer", { reward: 0 }, { reward: 1 }],
    ["steps", { reward: 0.5 }, { reward: 1 }],
  ] as const) {
    const task = await loadTask(join(folder, "tasks/new", name));
    const result = await regradeTrial(join(folder, "written", `harbor-${name}`), task, {
      driver,
      outputDir: join(folder, "regraded"),
    });
    check(`${name}: regraded`, [result.error, result.regradedFrom?.rewards, result.rewards], [null, before, rewards]);
    const { agent_info: agent } = JSON.parse(await readFile(join(result.dir ?? "", "result.json"), "utf8")) as {
      agent_info: { name: string };
    };
    check(`${name}: its agent`, agent.name, "oracle");
  }
}

async function fetchFolder(box: Runtime, root: string, target: string): Promise<void> {
  const stream = box.download([root], LIMITS, { timeoutMs: TRANSFER_TIMEOUT_MS });
  const spool = await spoolArtifact(stream, { file: `${target}.tar`, root, ...LIMITS });
  await extractSpool(spool, target);
}
