// npm run test:mutants [-- --neighbours] [-- arguments for vitest]: for each case of the contract a driver with that promise broken. Does the case
// notice? With --neighbours: and do the other cases of its area that are quick stay green? A whole run writes bench/mutants.md.

import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { bringUp } from "./lib/backends.ts";
import { root, seconds, source } from "./lib/command.ts";
import { cell, provenance } from "./lib/provenance.ts";
import { describeFailures } from "./lib/vitest-report.ts";
import { runTests, type TestRun } from "./lib/vitest.ts";

const TIMEOUT_MS = 6 * 60 * 60_000;
const TABLE = join(root, "bench/mutants.md");

/** Of `packages/runtime-docker/test/mutants.long.test.ts`. */
interface Verdict {
  readonly case: string;
  readonly mutant: string;
  readonly verdict: string;
  readonly said: string;
  /** `null`: not tried. */
  readonly also: readonly string[] | null;
}

/** Whatever needs servers that boxes may try to reach runs on the sealed engine, within the network of its host; all else on the other one. */
const runs = [
  { backend: "docker", through: [] },
  { backend: "network", through: source("backends/cli.ts", "network", "run") },
] as const;

const neighbours = process.argv.includes("--neighbours");
const args = process.argv.slice(2).filter((it) => it !== "--neighbours");
const started = performance.now();
const origin = await provenance();
const folder = await mkdtemp(join(tmpdir(), "breakwater-mutants-"));
try {
  const file = join(folder, "verdicts.jsonl");
  const results: (TestRun & { readonly name: string })[] = [];
  for (const { backend: name, through } of runs) {
    const backend = await bringUp(name);
    if (!backend.ok) {
      process.stderr.write(`not run: ${name}: ${backend.reason}\n`);
      process.exitCode = 1;
      continue;
    }
    const env = { ...backend.env, CONFORMANCE: "docker", MUTANT_VERDICTS: file };
    const run = await runTests({
      project: "long",
      reporter: "verbose",
      files: ["packages/runtime-docker/test/mutants"],
      args,
      env: neighbours ? { ...env, MUTANT_NEIGHBOURS: "1" } : env,
      through,
      timeoutMs: TIMEOUT_MS,
    });
    results.push({ ...run, name });
    if (run.exitCode !== 0) process.exitCode = run.exitCode;
  }
  const lines = (await readFile(file, "utf8").catch(() => "")).split("\n").filter((line) => line !== "");
  const verdicts = lines.map((line) => JSON.parse(line) as Verdict);
  process.stdout.write(`\n${describeFailures(results)}\n\n${printed(verdicts)}\n`);
  const took = seconds(performance.now() - started);
  if (args.length === 0) await writeFile(TABLE, asMarkdown(verdicts, origin, took));
} finally {
  await rm(folder, { recursive: true, force: true });
}

function caughtOf(verdicts: readonly Verdict[]): string {
  const caught = verdicts.filter(({ verdict }) => verdict === "red, by its own assertion").length;
  return `${verdicts.length} mutants, ${caught} caught by the case's own assertion`;
}

function printed(verdicts: readonly Verdict[]): string {
  const width = Math.max(...verdicts.map((it) => it.case.length), 0);
  const rows = verdicts.map((it) => {
    const also = it.also === null || it.also.length === 0 ? "" : `; also red: ${it.also.join(", ")}`;
    return `${it.case.padEnd(width)}  ${it.verdict.padEnd(26)}  a driver that ${it.mutant}${also}`;
  });
  return ["case, verdict, mutant", ...rows, "", caughtOf(verdicts)].join("\n");
}

function asMarkdown(verdicts: readonly Verdict[], where: string, took: string): string {
  const rows = verdicts.map(({ case: id, mutant, verdict, said, also }) => {
    const others =
      also === null
        ? "not tried"
        : also.length === 0
          ? "none"
          : also.map((it) => `\`${it.replace(" ", "` ")}`).join(", ");
    return `| \`${id}\` | ${[mutant, verdict, said, others].map(cell).join(" | ")} |`;
  });
  return `# Mutants

Written by \`npm run test:mutants${neighbours ? " -- --neighbours" : ""}\`. For each MUST case that the Docker driver has to pass: the real driver on a real engine with that one
promise broken, what became of the case, and which other cases of its area that are quick went red too.

${where}
* took: ${took}

${caughtOf(verdicts)}.

| case | a driver that | verdict | what the case said | other cases that went red |
| --- | --- | --- | --- | --- |
${rows.join("\n")}
`;
}
