// npm test                         unit tests, then the live tests of every driver whose backend can be had
// npm run test:long                the same with the tests that take minutes (*.long.test.ts)
// npm run test:packages            of those only the ones that install the packed packages
// npm run conformance -- DRIVER    the live tests of one driver, whose backend must be there; more arguments go to vitest. With PRIME_API_KEY,
//                                  `prime` is tested on the service itself
//
// A driver named in BREAKWATER_FORCE (docker,...) must be tested; with CI=true every driver must.

import { bringUp, drivers, type DriverUnderTest } from "./lib/backends.ts";
import { seconds } from "./lib/command.ts";
import { runLiveTests } from "./lib/live-tests.ts";
import { describeFailures, type TestCounts } from "./lib/vitest-report.ts";
import { runTests, type TestRun } from "./lib/vitest.ts";

const UNIT_TIMEOUT_MS = 15 * 60_000;
const LIVE_TIMEOUT_MS = 90 * 60_000;
const LONG_TIMEOUT_MS = 6 * 60 * 60_000;

interface Part {
  readonly name: string;
  readonly durationMs: number;
  readonly counts?: TestRun;
}

const parts: Part[] = [];
/** What was not tested, and why. */
const notRun: string[] = [];
/** The same where it had to be tested. */
const missing: string[] = [];
/** What was tested on something that only stands in for it. */
const standIns: string[] = [];

const [mode, ...rest] = process.argv.slice(2);
if (mode === "--driver") {
  const [name, ...vitestArgs] = rest;
  const driver = drivers.find((each) => each.name === name);
  if (driver === undefined) {
    process.stderr.write(
      `usage: npm run conformance -- <${drivers.map((each) => each.name).join("|")}> [arguments for vitest]\n`,
    );
    process.exit(2);
  }
  await testDriver(withService(driver), { forced: true, long: false, all: true, vitestArgs });
} else if (mode === "--packages") {
  const docker = drivers.filter(({ name }) => name === "docker");
  for (const driver of docker)
    await testDriver(driver, {
      forced: true,
      long: true,
      onlyLong: true,
      all: false,
      vitestArgs: ["acceptance/packages"],
    });
} else if (mode === undefined || mode === "--long") {
  const long = mode === "--long";
  record("unit", await runTests({ project: "unit", reporter: "default", timeoutMs: UNIT_TIMEOUT_MS }));
  for (const driver of drivers.filter((it) => it.experimental !== true && (long || it.onlyLong !== true)))
    await testDriver(driver, { forced: isForced(driver.name), long, all: long, vitestArgs: [] });
} else {
  process.stderr.write(
    `unknown argument ${mode}; usage: npm test, npm run test:long, npm run test:packages, npm run conformance -- DRIVER\n`,
  );
  process.exit(2);
}
process.exitCode = summarize();

function isForced(driver: string): boolean {
  const named = (process.env["BREAKWATER_FORCE"] ?? "").split(",").map((name) => name.trim());
  return process.env["CI"] === "true" || named.includes(driver);
}

/** The driver on the real service, where there is one and we are let in. */
function withService(driver: DriverUnderTest): DriverUnderTest {
  const { service, name } = driver;
  if (service === undefined) return driver;
  if (process.env[service.variable]) return { ...driver, runs: [service.run] };
  const line = `${service.variable} is not set: ${name} is tested on an emulator, not on the service`;
  process.stdout.write(`\n${line}\n`);
  standIns.push(line);
  return driver;
}

interface DriverOptions {
  /** The long tests and no others. Default is `false`. */
  readonly onlyLong?: boolean;
  readonly forced: boolean;
  readonly long: boolean;
  /** Also the cases that are not usual. Default is `true`. */
  readonly all?: boolean;
  readonly vitestArgs: readonly string[];
}

async function testDriver(driver: DriverUnderTest, options: DriverOptions): Promise<void> {
  const [first, ...others] = driver.runs;
  // Whoever selects tests by hand selects among those of the first run.
  for (const run of options.vitestArgs.length > 0 ? [first] : [first, ...others]) {
    const name = run === first ? driver.name : `${driver.name}, ${run.backend}`;
    const backend = await bringUp(run.backend);
    parts.push({ name: `backend ${run.backend}`, durationMs: backend.durationMs });
    if (!backend.ok) {
      (options.forced ? missing : notRun).push(`not run: ${name}: ${backend.reason}`);
      if (run === first) return;
      continue;
    }
    const { vitestArgs, all = true } = options;
    const tests = { env: backend.env, vitestArgs, all };
    if (options.onlyLong !== true)
      record(name, await runLiveTests(driver, run, { ...tests, project: "live", timeoutMs: LIVE_TIMEOUT_MS }));
    if (options.long && run === first && driver.package === undefined) {
      const long = { ...tests, project: "long", timeoutMs: LONG_TIMEOUT_MS } as const;
      record(`${name}, long`, await runLiveTests(driver, run, long));
    }
  }
}

function record(name: string, run: TestRun): void {
  parts.push({ name, durationMs: run.durationMs, counts: run });
}

function summarize(): number {
  const sum = (key: keyof TestCounts): number => parts.reduce((total, part) => total + (part.counts?.[key] ?? 0), 0);
  const width = Math.max(...parts.map((part) => part.name.length), 0);
  const lines = parts.map(({ name, durationMs, counts }) => {
    const result = counts && `  ${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`;
    return `${name.padEnd(width)}  ${seconds(durationMs).padStart(8)}${result ?? ""}`;
  });
  const failed = sum("failed") + missing.length;
  const failures = describeFailures(parts.map(({ name, counts }) => ({ name, failures: counts?.failures ?? [] })));
  const last = [
    ...(failures === "" ? [] : [failures, ""]),
    ...lines,
    "",
    ...standIns,
    ...notRun,
    ...missing,
    `${sum("passed")} passed, ${failed} failed, ${sum("skipped")} skipped`,
  ];
  process.stdout.write(`\n${last.join("\n")}\n`);
  return failed === 0 ? 0 : 1;
}
