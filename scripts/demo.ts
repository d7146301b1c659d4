// npm run demo: one task, graded in a box that did not exist while the agent was alive.

import { bringUp } from "./lib/backends.ts";
import { command, seconds, source } from "./lib/command.ts";

const TASK = "examples/tasks/hello-separate";
const TRIAL_TIMEOUT_MS = 15 * 60_000;

/** Two agents: one that solves the task and one that does nothing. The rewards have to differ. */
const agents = [
  { name: "oracle", does: "runs the task's own solution", expected: 1 },
  { name: "nop", does: "does nothing", expected: 0 },
];

process.stdout.write(`An agent works on ${TASK} in one box. The box is removed, and the engine confirms that it is gone.
Only then a second, clean box is made; it gets the one file that the task declares, and the tests, and grades.
`);

const started = performance.now();
const backend = await bringUp("docker");
if (!backend.ok) {
  process.stderr.write("\nThe demo needs a Docker engine (or Podman's Docker API).\n");
  process.exit(1);
}

let asExpected = true;
for (const agent of agents) {
  process.stdout.write(`\nagent ${agent.name} (${agent.does})\n`);
  const args = ["run", "-p", TASK, "--runtime", "docker", "-a", agent.name, "-o", "jobs", "--json"];
  const run = await command(source("packages/breakwater/src/bin.ts", ...args), {
    output: "capture",
    env: backend.env,
    timeoutMs: TRIAL_TIMEOUT_MS,
  });
  const trial = lastTrial(run.stdout);
  if (trial === undefined) {
    process.stderr.write(`${run.stderr}\nNo trial was run (exit code ${run.exitCode}).\n`);
    process.exit(1);
  }
  asExpected &&= trial.reward === agent.expected;
  process.stdout.write(
    `  reward ${trial.reward ?? `none: ${trial.error ?? "?"}`}   ${seconds(trial.durationMs)}   ${trial.dir}\n`,
  );
}

process.stdout.write(`
${asExpected ? "Both rewards are as they should be." : "The rewards are not as they should be: 1 for the oracle, 0 for nop."} ${seconds(performance.now() - started)} in all.
Each folder above has result.json and events.jsonl; the latter shows in which order things happened, with the proofs.

Next: npm test
      npm run -s breakwater -- run -p ${TASK} -a oracle -o jobs
`);
process.exitCode = asExpected ? 0 : 1;

interface TrialLine {
  readonly reward: number | null;
  readonly error: string | null;
  readonly durationMs: number;
  readonly dir: string;
}

/** `--json` prints one line per trial. */
function lastTrial(stdout: string): TrialLine | undefined {
  const line = stdout
    .split("\n")
    .filter((each) => each.startsWith("{"))
    .at(-1);
  return line === undefined ? undefined : (JSON.parse(line) as TrialLine);
}
