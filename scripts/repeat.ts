// npm run test:repeat -- DRIVER [TIMES]: the conformance suites of one driver again and again on all its backends (10 times by default). Whatever is red
// once is named. Writes bench/repeats/DRIVER.md after every run, so that it says what was seen when it is ended early.

import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { bringUp, drivers } from "./lib/backends.ts";
import { root, seconds } from "./lib/command.ts";
import { runLiveTests } from "./lib/live-tests.ts";
import { cell, load, now, provenance } from "./lib/provenance.ts";
import type { Failure } from "./lib/vitest-report.ts";
import type { TestRun } from "./lib/vitest.ts";

const TIMEOUT_MS = 60 * 60_000;

interface Row {
  readonly begun: string;
  readonly load: string;
  readonly durationMs: number;
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
  readonly failures: readonly Failure[];
}

const [name, timesText = "10", ...rest] = process.argv.slice(2);
const driver = drivers.find((each) => each.name === name);
const times = Number(timesText);
if (driver === undefined || !Number.isSafeInteger(times) || times < 1 || rest.length > 0) {
  process.stderr.write(`usage: npm run test:repeat -- <${drivers.map((it) => it.name).join("|")}> [times]\n`);
  process.exit(2);
}

const origin = await provenance();
const environments = new Map<string, Readonly<Record<string, string>>>();
for (const { backend } of driver.runs) {
  const up = await bringUp(backend);
  if (!up.ok) {
    process.stderr.write(`not run: ${backend}: ${up.reason}\n`);
    process.exit(1);
  }
  environments.set(backend, up.env);
}

const rows: Row[] = [];
for (let time = 1; time <= times; time += 1) {
  process.stdout.write(`\nrun ${time} of ${times}\n`);
  const before = { begun: now(), load: load() };
  const results: TestRun[] = [];
  for (const run of driver.runs) {
    const env = environments.get(run.backend) ?? {};
    results.push(await runLiveTests(driver, run, { project: "live", env, onlySuites: true, timeoutMs: TIMEOUT_MS }));
  }
  const sum = (of: (result: TestRun) => number): number => results.reduce((total, result) => total + of(result), 0);
  rows.push({
    ...before,
    durationMs: sum((it) => it.durationMs),
    passed: sum((it) => it.passed),
    failed: sum((it) => it.failed),
    skipped: sum((it) => it.skipped),
    failures: results.flatMap((it) => it.failures),
  });
  await mkdir(join(root, "bench/repeats"), { recursive: true });
  await writeFile(join(root, `bench/repeats/${driver.name}.md`), asMarkdown(driver.name));
}
process.stdout.write(`\n${asMarkdown(driver.name)}`);
if (rows.some(({ failed }) => failed > 0)) process.exitCode = 1;

function asMarkdown(of: string): string {
  const lines = rows.map((row, index) => {
    const cells = [index + 1, row.begun, row.load, row.passed, row.failed, row.skipped, seconds(row.durationMs)];
    return `| ${cells.join(" | ")} |`;
  });
  const failures = rows.flatMap((row, index) =>
    row.failures.map((it) => `* run ${index + 1}: ${cell(it.name)}: ${cell(it.error.slice(0, 500))}`),
  );
  const green = rows.filter(({ failed }) => failed === 0).length;
  return `# The suites of ${of}, again and again

Written by \`npm run test:repeat -- ${of} ${times}\`: describeRuntime and describeGrading on ${drivers
    .find((it) => it.name === of)
    ?.runs.map(({ backend }) => `\`${backend}\``)
    .join(" and ")}, nothing retried.

${origin}
* ended: ${now()}

${green} of ${rows.length} runs without a failure${rows.length < times ? ` (${times} were asked for)` : ""}.

| run | begun | load | passed | failed | skipped | took |
| --- | --- | --- | --- | --- | --- | --- |
${lines.join("\n")}

${failures.length === 0 ? "No test failed." : failures.join("\n")}
`;
}
