import { stat } from "node:fs/promises";
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { RuntimeDriver } from "@breakwater/runtime-api";

import { UsageError } from "./exit-codes.ts";

/** Drivers that go by a short name. They are not dependencies: a user installs the one that is needed. */
const SHORT_NAMES: Readonly<Record<string, string>> = {
  docker: "@breakwater/runtime-docker",
  k8s: "@breakwater/runtime-k8s",
};

/**
 * Loads a driver by short name, package name, or path (a file, or a folder with a package.json). The module's default export makes the
 * driver: `() => RuntimeDriver`. Packages are looked for from the working directory first, then beside the CLI.
 */
export async function loadDriver(name: string, workingDirectory: string): Promise<RuntimeDriver> {
  const path = isPath(name);
  const request = path ? resolve(workingDirectory, name) : (SHORT_NAMES[name] ?? name);
  const url = path ? await entryOfPath(request, name) : entryOfPackage(request, name, workingDirectory);
  const module: unknown = await import(url);
  const make = (module as { readonly default?: unknown }).default;
  if (typeof make !== "function") {
    throw new UsageError(
      `--runtime ${name}: ${url} has no default export that makes a driver; export default () => yourDriver(...)`,
    );
  }
  const driver = (await (make as () => unknown)()) as Partial<RuntimeDriver> | undefined;
  if (typeof driver?.create !== "function" || typeof driver.probe !== "function" || typeof driver.name !== "string") {
    throw new UsageError(`--runtime ${name}: what the default export of ${url} returns is not a RuntimeDriver`);
  }
  return driver as RuntimeDriver;
}

function isPath(name: string): boolean {
  return name.startsWith(".") || name.startsWith("/") || name.includes("\\");
}

function entryOfPackage(packageName: string, name: string, workingDirectory: string): string {
  try {
    return pathToFileURL(createRequire(`${workingDirectory}/`).resolve(packageName)).href;
  } catch {
    // Not installed beside the caller's project.
  }
  try {
    return import.meta.resolve(packageName);
  } catch (cause) {
    const known = Object.keys(SHORT_NAMES).join(", ");
    throw new UsageError(
      `--runtime ${name}: the package ${packageName} is not installed; npm install ${packageName} (short names: ${known}; or give a path)`,
      { cause },
    );
  }
}

async function entryOfPath(path: string, name: string): Promise<string> {
  const facts = await stat(path).catch(() => undefined);
  if (facts === undefined) throw new UsageError(`--runtime ${name}: ${path} does not exist`);
  if (facts.isFile()) return pathToFileURL(path).href;
  try {
    return pathToFileURL(createRequire(`${path}/`).resolve(path)).href;
  } catch (cause) {
    throw new UsageError(`--runtime ${name}: ${path} has no package.json with an entry`, { cause });
  }
}
