import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TrialEvent } from "@breakwater/harbor-taskset";
import { dockerDriver } from "@breakwater/runtime-docker";
import { afterAll, describe, expect, test } from "vitest";
import { cli } from "./support/cli.ts";

/*
 * Harbor's matrix of network policies (reference: its example tasks of that name), as tasks that the command line runs: what the agent and the tests
 * each can reach. What is to be seen is data of the tasks themselves (`tests/expected.json`), what was seen is in the rewards. Runs where the backend
 * has a small fake internet; "blocked" says nothing where nothing answers.
 */

const EXAMPLES = join(import.meta.dirname, "../examples/tasks");
const HAS_INTERNET = process.env["BREAKWATER_PUBLIC_NAME"] !== undefined;
const GROUP_TIMEOUT_MS = 20 * 60_000;
const IANA = "www.iana.org";

await using driver = dockerDriver();
const { services } = await driver.probe();
const GROUPS = ["network-static", "network-dynamic", ...(services === "full" ? ["network-services"] : [])];

const jobs = await mkdtemp(join(tmpdir(), "breakwater-matrix-"));
afterAll(() => rm(jobs, { recursive: true, force: true }));

interface Line {
  readonly task: string;
  readonly rewards: Readonly<Record<string, number>> | null;
  readonly error: { readonly message: string } | null;
  readonly dir: string;
}

/** All tasks of a folder of examples, or one. */
async function run(path: string, ...flags: readonly string[]): Promise<readonly Line[]> {
  const args = ["run", "-p", join(EXAMPLES, path), "-a", "oracle", "-n", "2", "-o", jobs, "--json", ...flags];
  const name = ["--job-name", `${path.replace("/", "-")}${flags.join("")}`.replace(/[^a-z-]/g, "")];
  const { exitCode, stdout, stderr } = await cli([...args, ...name], { cwd: jobs, timeoutMs: GROUP_TIMEOUT_MS });
  if (exitCode !== 0) throw new Error(`exit code ${exitCode}: ${stderr}${stdout}`);
  const lines = stdout.trimEnd().split("\n");
  return lines.map((line) => JSON.parse(line) as Line).sort((a, b) => (a.task < b.task ? -1 : 1));
}

async function switches({ dir }: Line): Promise<readonly string[]> {
  const lines = (await readFile(join(dir, "events.jsonl"), "utf8")).trimEnd().split("\n");
  const events = lines.map((line) => JSON.parse(line) as TrialEvent);
  return events
    .filter(({ type }) => type === "network.changed")
    .map(({ details = {} }) => (details["policy"] as { readonly mode: string }).mode);
}

/** What the task's data say, as the tests write it down; of several steps the mean. */
async function expected(group: string, name: string): Promise<Readonly<Record<string, number>>> {
  const task = join(EXAMPLES, group, name);
  const steps = await readdir(join(task, "steps")).catch(() => []);
  const folders = steps.length === 0 ? [task] : steps.map((step) => join(task, "steps", step));
  const rewards: Record<string, number> = { reward: 1 };
  for (const folder of folders) {
    const file = await readFile(join(folder, "tests/expected.json"), "utf8");
    const { agent, sidecar = {}, verifier } = JSON.parse(file) as Record<string, Readonly<Record<string, string>>>;
    for (const [who, seen] of Object.entries({ agent, sidecar, verifier })) {
      for (const [url, status] of Object.entries(seen ?? {})) {
        const key = `${who}: ${url}`;
        rewards[key] = (rewards[key] ?? 0) + (status === "reachable" ? 1 : 0) / folders.length;
      }
    }
  }
  return rewards;
}

/** The policies that are switched to, in order; the tests' last one is not undone, as the box is stopped next. */
const SWITCHES: Readonly<Record<string, readonly string[]>> = {
  "e-a-diff": ["public", "no-network"],
  "e-a-diff-v-match": ["public", "no-network"],
  "e-v-diff": ["no-network"],
  "v-ve-diff": ["allowlist"],
  "shared-allowlist": ["allowlist", "no-network", "allowlist"],
  "e-ve-sa-sv-diff": ["public", "no-network", "allowlist"],
  "sa-sv-diff": ["no-network", "public", "no-network"],
  "sv-sve-diff": ["allowlist"],
  // The first step's tests are in a box that goes on, and the second agent has what those tests had: both are undone.
  "steps-mixed": ["no-network", "public", "no-network", "public"],
};

const EXTRA_HOSTS: readonly (readonly [task: string, flag: string])[] = [
  ["a-allow-agent-host", "--allow-agent-host"],
  ["e-allow-agent-host", "--allow-agent-host"],
  ["e-allow-environment-host", "--allow-environment-host"],
  ["v-allow-verifier-host", "--allow-verifier-host"],
  ["ve-allow-verifier-host", "--allow-verifier-host"],
];

describe.skipIf(!HAS_INTERNET)("the matrix of network policies", () => {
  test.for(GROUPS)(
    "[network.matrix] %s: every observation as listed, and no switch without a difference",
    { timeout: GROUP_TIMEOUT_MS },
    async (group) => {
      const seen: Record<string, unknown> = {};
      const listed: Record<string, unknown> = {};
      for (const line of await run(group)) {
        seen[line.task] = { rewards: line.rewards, error: line.error, switches: await switches(line) };
      }
      for (const name of await readdir(join(EXAMPLES, group))) {
        const rewards = await expected(group, name);
        listed[`breakwater/${group}-${name}`] = { rewards, error: null, switches: SWITCHES[name] ?? [] };
      }
      expect(seen).toEqual(listed);
    },
  );

  test(
    "[network.matrix] hosts are reached only where the caller adds them, and only by whom",
    { timeout: GROUP_TIMEOUT_MS },
    async () => {
      const group = "network-extra-hosts";
      const without = await run(group);
      expect(without.map(({ task, rewards }) => [task, rewards?.["reward"]])).toEqual(
        EXTRA_HOSTS.map(([name]) => [`breakwater/${group}-${name}`, 0]),
      );
      const seen: Record<string, unknown> = {};
      const listed: Record<string, unknown> = {};
      for (const [name, flag] of EXTRA_HOSTS) {
        const [line] = await run(`${group}/${name}`, flag, IANA);
        seen[name] = line?.rewards ?? line?.error;
        listed[name] = await expected(group, name);
      }
      expect(seen).toEqual(listed);
    },
  );
});
