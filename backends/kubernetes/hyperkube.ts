import { createHash } from "node:crypto";
import { mkdir, readFile, rename, rm } from "node:fs/promises";
import { delimiter, join } from "node:path";

import { runCommand } from "../src/command.ts";
import { BackendError } from "../src/errors.ts";
import { withLock } from "../src/lock.ts";
import { exists } from "../src/packages.ts";
import type { Steps } from "../src/steps.ts";

const source = join(import.meta.dirname, "hyperkube");
const files = ["go.mod", "go.sum", "main.go", "netpol.go"] as const;
const version = { gitVersion: "v1.36.3", gitMajor: "1", gitMinor: "36" } as const;
const buildTimeoutMs = 60 * 60_000;
const env: Readonly<Record<string, string>> = {
  PATH: [process.env["PATH"] ?? "", "/usr/local/go/bin"].join(delimiter),
  CGO_ENABLED: "0",
  GOTOOLCHAIN: "local",
  GOFLAGS: "-mod=readonly",
};

/**
 * One program with all of Kubernetes that a node needs, etcd and an enforcer of network policies: built once from published Go modules, then kept in
 * the cache folder under a hash of its sources and of the Go that compiled it. Gives its path.
 *
 * Errors: `MISSING_TOOL` (no Go of the version in go.mod), `COMMAND_FAILED`, `TIMEOUT`.
 */
export async function ensureHyperkube(cacheFolder: string, steps: Steps): Promise<string> {
  const hash = createHash("sha256").update(JSON.stringify(version));
  for (const name of files) hash.update(await readFile(join(source, name)));
  const program = join(
    cacheFolder,
    `hyperkube-${hash
      .update(await goVersion())
      .digest("hex")
      .slice(0, 16)}`,
  );
  await withLock(program, buildTimeoutMs, async () => {
    if (await exists(program)) return;
    await mkdir(cacheFolder, { recursive: true });
    const unfinished = `${program}.${process.pid}`;
    try {
      // Of low priority: it takes all cores for minutes.
      await runCommand(
        [
          "nice",
          "-n",
          "19",
          "go",
          "build",
          "-buildvcs=false",
          "-trimpath",
          "-ldflags",
          linkerFlags(),
          "-o",
          unfinished,
          ".",
        ],
        { timeoutMs: buildTimeoutMs, cwd: source, env },
      );
      await rename(unfinished, program);
    } finally {
      await rm(unfinished, { force: true });
    }
    steps.done(`Kubernetes ${version.gitVersion} built`);
  });
  return program;
}

/** Without a version of its own it reports v0.0.0, and refuses features by it. */
function linkerFlags(): string {
  const values = { ...version, gitTreeState: "clean", gitCommit: "0".repeat(40), buildDate: "2026-07-22T18:07:38Z" };
  const packages = ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"];
  const settings = packages.flatMap((name) =>
    Object.entries(values).map(([key, value]) => `-X ${name}.${key}=${value}`),
  );
  return ["-s", "-w", ...settings].join(" ");
}

async function goVersion(): Promise<string> {
  const wanted = /^go (\d+\.\d+)/m.exec(await readFile(join(source, "go.mod"), "utf8"))?.[1] ?? "";
  const found = await runCommand(["go", "env", "GOVERSION"], { timeoutMs: 30_000, env }).catch((error: unknown) => {
    if (error instanceof BackendError && error.code === "MISSING_TOOL") return undefined;
    throw error;
  });
  if (found !== undefined && isAtLeast(found.stdout.trim(), wanted)) return found.stdout.trim();
  throw new BackendError(
    "MISSING_TOOL",
    `Kubernetes is built with Go ${wanted} or later, and ${found === undefined ? "there is none" : `${found.stdout.trim()} is installed`}`,
    { advice: "install Go, or name a cluster that runs already with BREAKWATER_KUBECONFIG" },
  );
}

/** `go1.26.8` against `1.26`. */
export function isAtLeast(found: string, wanted: string): boolean {
  const numbers = (text: string): number[] => text.replace(/^go/, "").split(".").map(Number);
  const [major = 0, minor = 0] = numbers(found);
  const [wantedMajor = 0, wantedMinor = 0] = numbers(wanted);
  return major > wantedMajor || (major === wantedMajor && minor >= wantedMinor);
}
