import { mkdir, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import { describe, expect, it } from "vitest";
import { excluder } from "./exclude.ts";
import { systemTar, temporaryFolder } from "../test/support.ts";

const FILES = [
  "x",
  "y.py",
  "build/sub/f",
  "build/y.py",
  "a/build/g",
  "a/build.txt",
  "a/b/c/d.py",
  "a/[z]",
  "a/-",
  "node_modules/m/index.js",
  "src/node_modules.txt",
  "src/A.PY",
  "src/.hidden",
  "src/back\\slash",
  "src/ü",
  "src/9",
];
const PATTERNS = [
  ["build"],
  ["build/"],
  ["./build"],
  ["a/build"],
  ["/a"],
  ["a/*"],
  ["b*d"],
  ["sub/f"],
  ["*.py"],
  ["*/y.py"],
  ["**/y.py"],
  ["node_modules"],
  ["node_modules*"],
  ["n*e"],
  ["*e_m*"],
  [".hidden"],
  [".*"],
  ["src/.*"],
  ["[ab]"],
  ["[!a-z]"],
  ["[^a-z]"],
  ["a/[[]z]"],
  ["a/\\[z\\]"],
  ["[]-]"],
  ["[[:digit:]]"],
  ["[[:upper:]].*"],
  ["[a"],
  ["?"],
  ["*"],
  ["."],
  ["\\x"],
  ["src/back\\\\slash"],
  ["ü"],
  ["src/?"],
  ["A"],
  ["c/d.py"],
  ["a/b/"],
  ["x", "*.txt"],
  [],
];

/** GNU tar is the definition; a tar of another kind cannot stand in for it. */
const isGnu = (await systemTar(["--version"])).toString().includes("GNU tar");

describe.runIf(isGnu)("leaves out what GNU tar leaves out", async () => {
  await using folder = await temporaryFolder();
  for (const file of FILES) {
    await mkdir(dirname(`${folder.path}/${file}`), { recursive: true });
    await writeFile(`${folder.path}/${file}`, "");
  }
  const listing = async (patterns: readonly string[]): Promise<readonly string[]> => {
    const archive = await systemTar([
      "-c",
      "-C",
      folder.path,
      ...patterns.map((pattern) => `--exclude=${pattern}`),
      ".",
    ]);
    const names = (await systemTar(["-t", "--quoting-style=literal"], archive)).toString().split("\n");
    return names.map((name) => name.replace(/^\.\//, "").replace(/\/$/, "")).filter((name) => name !== "");
  };
  const all = await listing([]);
  const cases: [string, readonly string[], readonly string[]][] = [];
  for (const patterns of PATTERNS) cases.push([patterns.join(" "), patterns, await listing(patterns)]);

  it.each(cases)("%s", (_title, patterns, kept) => {
    const isExcluded = excluder(patterns);
    expect(all.length).toBeGreaterThan(FILES.length);
    expect(all.filter((path) => !isExcluded(path))).toEqual(kept);
  });
});

it("takes no longer for a pattern that is made to take long", () => {
  const startedAt = performance.now();
  expect(excluder([`${"*a".repeat(200)}b`])("a".repeat(2000))).toBe(false);
  expect(performance.now() - startedAt).toBeLessThan(1000);
});
