// What every package of this workspace has to have, and which ones may use which. Run by `npm run check`.

import { existsSync, globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { dependencyCycle, dependencyNames } from "./lib/dependency-graph.ts";
import { root } from "./lib/command.ts";
import { workspacePackages, type WorkspacePackage } from "./lib/workspace.ts";

const FLOOR = ">=22.19";
const LICENSE = readFileSync(join(root, "LICENSE"), "utf8");

/** The arrows of the layout: what a published package may use at run time. A package that is not here has no place yet. */
const mayUse: Readonly<Record<string, readonly string[]>> = {
  "runtime-api": [],
  "box-helper": [],
  tar: ["runtime-api"],
  "driver-kit": ["runtime-api", "tar", "box-helper"],
  "egress-gateway": ["runtime-api", "tar", "box-helper"],
  "runtime-docker": ["runtime-api", "tar", "box-helper", "driver-kit", "egress-gateway"],
  "runtime-k8s": ["runtime-api", "box-helper", "driver-kit"],
  "runtime-prime": ["runtime-api", "box-helper", "driver-kit"],
  "harbor-taskset": ["runtime-api", "tar"],
  conformance: ["runtime-api", "harbor-taskset"],
  breakwater: ["runtime-api", "harbor-taskset"],
};

/** Every driver has the same files, so that who knows one finds the way in the others. It may have more. */
const driverFiles = [
  "index",
  "options",
  "driver",
  "translate",
  "box",
  "exec",
  "images",
  "probe",
  "report",
  "sweep",
  "errors",
];

const packages = workspacePackages();
const problems: string[] = [];
for (const each of packages) {
  checkDependencies(each);
  if (each.isPublished) checkPublished(each);
  if (each.isPublished && isDriver(each)) checkDriver(each);
}
const cycle = dependencyCycle(new Map(packages.map(({ manifest }) => [manifest.name, dependencyNames(manifest)])));
if (cycle !== undefined) problems.push(`packages depend on each other in a circle: ${cycle.join(" -> ")}`);

for (const problem of problems) process.stdout.write(`${problem}\n`);
process.exitCode = problems.length === 0 ? 0 : 1;

function checkPublished({ folder, shortName, manifest }: WorkspacePackage): void {
  const expect = (isMet: boolean, what: string): void => {
    if (!isMet) problems.push(`${folder}: ${what}`);
  };
  const has = (file: string): boolean => existsSync(join(root, folder, file));
  const expectedName = shortName === "breakwater" ? "breakwater" : `@breakwater/${shortName}`;

  expect(manifest.name === expectedName, `is named ${manifest.name}, not ${expectedName}`);
  expect(has("README.md"), "has no README.md");
  expect(
    has("LICENSE") && readFileSync(join(root, folder, "LICENSE"), "utf8") === LICENSE,
    "LICENSE is not that of the root",
  );
  expect(manifest.license === "MIT", "license is not MIT");
  expect((manifest.description ?? "") !== "", "has no description");
  expect(manifest.type === "module", "type is not module");
  expect(manifest.sideEffects === false, "sideEffects is not false");
  expect(manifest.engines?.["node"] === FLOOR, `engines.node is not ${FLOOR}`);
  expect(manifest.publishConfig?.["access"] === "public", "publishConfig.access is not public");
  expect(manifest.publishConfig?.["provenance"] === true, "publishConfig.provenance is not true");
  expect(manifest.files?.includes("dist") === true && manifest.files.includes("src"), "files lacks dist or src");
  expect(manifest.exports?.["./package.json"] === "./package.json", "exports lacks ./package.json");
  for (const [entry, target] of Object.entries(manifest.exports ?? {})) {
    if (entry === "./package.json") continue;
    const conditions = Object.keys(target as object).join(" ");
    expect(conditions === "@breakwater/source types default", `exports of ${entry} are "${conditions}"`);
    const source = (target as Record<string, string>)["@breakwater/source"] ?? "";
    expect(has(source), `exports of ${entry} name ${source}, which does not exist`);
  }
}

function checkDependencies({ folder, shortName, manifest, isPublished }: WorkspacePackage): void {
  const runtime = { ...manifest.dependencies, ...manifest.peerDependencies, ...manifest.optionalDependencies };
  const ours = new Map(packages.map((each) => [each.manifest.name, each]));
  for (const [name, range] of Object.entries({ ...runtime, ...manifest.devDependencies })) {
    if (ours.has(name) && range !== "workspace:^") problems.push(`${folder}: ${name} is ${range}, not workspace:^`);
  }
  if (!isPublished) return;

  const allowed = mayUse[shortName];
  if (allowed === undefined) {
    problems.push(`${folder}: has no place in the layout; say in scripts/check-packages.ts what it may use`);
    return;
  }
  for (const name of Object.keys(runtime)) {
    const used = ours.get(name);
    if (used !== undefined && !allowed.includes(used.shortName)) problems.push(`${folder}: must not depend on ${name}`);
  }
  if (shortName === "runtime-api" && Object.keys(runtime).length > 0)
    problems.push(`${folder}: must have no dependencies`);

  // knip finds imports that no package.json names; it does not tell a dev dependency from one that users get.
  for (const file of globSync("src/**/*.ts", { cwd: join(root, folder) })) {
    if (/\.test(-d)?\.ts$/.test(file)) continue;
    for (const name of importedPackages(readFileSync(join(root, folder, file), "utf8"))) {
      if (name !== manifest.name && !Object.hasOwn(runtime, name)) {
        problems.push(`${folder}/${file}: imports ${name}, which is not in its dependencies`);
      }
    }
  }
}

function checkDriver({ folder }: WorkspacePackage): void {
  for (const file of driverFiles.map((name) => `src/${name}.ts`)) {
    if (!existsSync(join(root, folder, file))) problems.push(`${folder}: has no ${file}, as every driver has`);
  }
  if (!existsSync(join(root, folder, "test/conformance.test.ts")))
    problems.push(`${folder}: has no test/conformance.test.ts`);
}

function isDriver({ shortName }: WorkspacePackage): boolean {
  return shortName.startsWith("runtime-") && shortName !== "runtime-api";
}

function importedPackages(source: string): ReadonlySet<string> {
  const specifiers = [...source.matchAll(/^(?:import|export)\b[^"';]*\bfrom "([^"]+)";/gm)].map(
    (match) => match[1] ?? "",
  );
  return new Set(
    specifiers
      .filter((specifier) => !specifier.startsWith(".") && !specifier.startsWith("node:"))
      .map((specifier) =>
        specifier
          .split("/")
          .slice(0, specifier.startsWith("@") ? 2 : 1)
          .join("/"),
      ),
  );
}
