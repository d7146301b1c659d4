import { command, seconds, source } from "./command.ts";

/** A driver that has live tests. */
export interface DriverUnderTest {
  readonly name: string;
  /** The package with its tests, where that is not the one of its name. Its long tests run for the driver of its name only. */
  readonly package?: string;
  /** Not held to its tests yet: they run only when somebody asks for this driver by name. */
  readonly experimental?: boolean;
  /** Tested by `npm run test:long` and when somebody asks for it by name, not by `npm test`. */
  readonly onlyLong?: boolean;
  /** The first one is the driver's own backend, for all its tests; without it nothing of the driver can be tested. */
  readonly runs: readonly [LiveRun, ...LiveRun[]];
  /** The real service, where the backend of `runs` only stands in for it: taken when somebody asks for the driver by name and this variable is set. */
  readonly service?: { readonly variable: string; readonly run: LiveRun };
}

/** Live tests on one backend (`backends/`). */
export interface LiveRun {
  readonly backend: string;
  /** Only the conformance suites: what else there is does not depend on what this backend has of its own. */
  readonly onlySuites?: boolean;
  /** The acceptance tests whose outcome depends on this backend, by their names. Default is all. */
  readonly acceptance?: readonly string[];
  /** Only cases of the conformance suites, and of the acceptance tests of networks, whose ids begin so: those for which this backend has what others have not. */
  readonly cases?: readonly string[];
  /**
   * Cases that `npm test` runs, by the beginnings of their ids: a change should not have to wait longer. All run in `npm run test:long` and when somebody
   * asks for the driver by name. Tests that are no cases always run. Default is all.
   */
  readonly usually?: readonly string[];
  /** The tests run in the network of the backend's own host: what they listen on is the host of the boxes. Default is `false`. */
  readonly insideNetwork?: boolean;
  /** A program that brings tests of its own and runs vitest, given as its arguments. Default: the tests of this repository. */
  readonly through?: readonly string[];
}

export const drivers: readonly DriverUnderTest[] = [
  {
    name: "docker",
    runs: [
      { backend: "docker" },
      // A sealed engine with a small fake internet: what may and may not be reached is tried there only.
      {
        backend: "network",
        cases: ["network.", "isolation.", "grading.no-network", "grading.public-network"],
        insideNetwork: true,
      },
    ],
  },
  {
    name: "podman",
    package: "runtime-docker",
    runs: [
      {
        // Sealed, and with the same fake internet: one backend for everything.
        backend: "podman",
        insideNetwork: true,
        // All of them pass; the others try tasks, rewards and the command line, which know nothing of engines.
        acceptance: ["faults", "large-artifact", "network-matrix", "network-probes"],
      },
    ],
  },
  {
    name: "podman-rootless",
    package: "runtime-docker",
    onlyLong: true,
    runs: [{ backend: "podman-rootless", onlySuites: true, insideNetwork: true }],
  },
  ...["docker-26", "docker-28"].map((name): DriverUnderTest => {
    return {
      name,
      package: "runtime-docker",
      onlyLong: true,
      // What leads out of a box depends on the engine.
      runs: [{ backend: name, acceptance: ["network-probes", "network-gateway"], insideNetwork: true }],
    };
  }),
  {
    name: "k8s",
    experimental: true,
    // The API of the cluster is reached from within the node's network only.
    runs: [{ backend: "kubernetes", onlySuites: true, insideNetwork: true }],
  },
  {
    name: "prime",
    experimental: true,
    runs: [{ backend: "prime", acceptance: ["prime/"] }],
    service: { variable: "PRIME_API_KEY", run: { backend: "prime-service", onlySuites: true } },
  },
  {
    // The example of docs/write-a-driver.md, tested against packed packages as a third party would.
    name: "bubblewrap",
    // Packing, installing and both suites take more than the three minutes that a change should have to wait for it.
    onlyLong: true,
    runs: [{ backend: "bubblewrap", through: ["sh", "examples/driver-bubblewrap/test.sh"] }],
  },
];

/** Where a driver's live tests are. */
export function testFolder(driver: string): string {
  return `packages/${drivers.find(({ name }) => name === driver)?.package ?? `runtime-${driver}`}/test`;
}

export type BackendResult =
  | { readonly ok: true; readonly env: Readonly<Record<string, string>>; readonly durationMs: number }
  | { readonly ok: false; readonly reason: string; readonly durationMs: number };

/** A first run installs an engine and makes base images. */
const UP_TIMEOUT_MS = 30 * 60_000;

/** Stands a backend up and returns the environment variables that tests need to find it. */
export async function bringUp(backend: string): Promise<BackendResult> {
  process.stdout.write(`\nbackend ${backend}\n`);
  // Its steps are worth seeing; what it says on the error stream is the reason when it fails.
  const up = await command(source("backends/cli.ts", backend, "up"), {
    output: "show-stdout",
    timeoutMs: UP_TIMEOUT_MS,
  });
  if (up.exitCode !== 0) {
    const reason = up.timedOut
      ? `not up within ${seconds(UP_TIMEOUT_MS)}`
      : firstLine(up.stderr) || `exit code ${up.exitCode}`;
    process.stdout.write(up.stderr);
    return { ok: false, reason, durationMs: up.durationMs };
  }
  const env = await command(source("backends/cli.ts", backend, "env"), { output: "capture", timeoutMs: 60_000 });
  const durationMs = up.durationMs + env.durationMs;
  if (env.exitCode !== 0)
    return { ok: false, reason: firstLine(env.stderr) || `exit code ${env.exitCode}`, durationMs };
  return { ok: true, env: environment(JSON.parse(env.stdout)), durationMs };
}

function environment(value: unknown): Readonly<Record<string, string>> {
  const entries = Object.entries(value ?? {}).map(([name, text]) => {
    if (typeof text !== "string") throw new TypeError(`backends: the value of ${name} is not a string`);
    return [name, text] as const;
  });
  return Object.fromEntries(entries);
}

function firstLine(text: string): string {
  return text.trim().split("\n")[0] ?? "";
}
