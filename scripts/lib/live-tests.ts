import { type DriverUnderTest, type LiveRun, testFolder } from "./backends.ts";
import { source } from "./command.ts";
import { runTests, type TestRun } from "./vitest.ts";

export interface LiveTestOptions {
  readonly project: "live" | "long";
  /** What the backend said. */
  readonly env: Readonly<Record<string, string>>;
  /** Only the conformance suites. Default: what the run says. */
  readonly onlySuites?: boolean;
  /** Whether cases that are not usual are run, too. Default is `true`. */
  readonly all?: boolean;
  readonly vitestArgs?: readonly string[];
  readonly timeoutMs: number;
}

/** The live tests of a driver on one of its backends, which is up. */
export async function runLiveTests(
  driver: DriverUnderTest,
  run: LiveRun,
  { project, env, onlySuites = run.onlySuites ?? false, all = true, vitestArgs = [], timeoutMs }: LiveTestOptions,
): Promise<TestRun> {
  const suites = ["conformance", "grading"].map((file) => `${testFolder(driver.name)}/${file}`);
  // Another driver's package has tests of that driver.
  const own = driver.package === undefined ? [`${testFolder(driver.name)}/`] : suites;
  const selection = onlySuites ? suites : run.acceptance && [...own, ...run.acceptance.map((it) => `acceptance/${it}`)];
  const namesFiles = vitestArgs.some((it) => it.includes("/"));
  const others = onlySuites ? [] : ["acceptance/network-"];
  return runTests({
    project,
    reporter: "verbose",
    args: vitestArgs,
    env: { ...env, CONFORMANCE: driver.name },
    through: run.insideNetwork === true ? source("backends/cli.ts", run.backend, "run") : (run.through ?? []),
    timeoutMs,
    ...(selection !== undefined && !namesFiles && { files: selection }),
    ...(run.cases && { files: [...suites, ...others], testName: casesNamed(run.cases) }),
    ...(!all && run.usually && { testName: `${casesNamed(run.usually)}|${NO_CASE}` }),
  });
}

/** A test that is no case has no id in its name. */
const NO_CASE = "^(?!.*\\[[a-z-]+\\.)";

function casesNamed(ids: readonly string[]): string {
  return `\\[(${ids.join("|").replaceAll(".", "\\.")})`;
}
