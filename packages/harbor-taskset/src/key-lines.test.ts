import { expect, test } from "vitest";

import { findKeyLines, formatKey, lineOfKey } from "./key-lines.ts";

const TEXT = `# a comment with [not.a.table]
schema_version = "1.4"
artifacts = [
  "/a", # "/not"
  { source = "/b", exclude = ["x", "y"] },
]
text = """
key = "inside a text"
""\\"
"""

[environment]
env.HOST = 'literal = "x"'
"quoted.key" = 1
healthcheck = { command = "test -e '}' ]", retries = 2 }

[[steps]]
name = "one"
[[steps]]
name = "two"
  [steps.verifier]
  timeout_sec = 5
`;

test.each([
  ["schema_version", 2],
  ["artifacts", 3],
  ["artifacts[0]", 4],
  ["artifacts[1].source", 5],
  ["artifacts[1].exclude[1]", 5],
  ["text", 7],
  ["environment", 12],
  ["environment.env.HOST", 13],
  ['environment."quoted.key"', 14],
  ["environment.healthcheck.retries", 15],
  ["steps", 17],
  ["steps[0].name", 18],
  ["steps[1].name", 20],
  ["steps[1].verifier.timeout_sec", 22],
])("%s is in line %d", (key, line) => {
  expect(findKeyLines(TEXT)[key]).toBe(line);
});

test("keys inside of texts and comments are none", () => {
  const lines = findKeyLines(TEXT);
  expect(Object.keys(lines)).not.toContain("key");
  expect(Object.keys(lines)).not.toContain("not.a");
});

test.each([
  ["environment.cpus", 12],
  ["artifacts[1].destination", 5],
  ["artifacts[7].source", 3],
  ['environment."a.b"', 12],
  ["nowhere.at.all", undefined],
])("a key that is not written has its closest relative's line: %s", (key, line) => {
  expect(lineOfKey(findKeyLines(TEXT), key)).toBe(line);
});

test("keys are named as TOML would write them", () => {
  expect(formatKey(["steps", 1, "verifier", "env", "A B"])).toBe('steps[1].verifier.env."A B"');
});

test("text that is not TOML ends as well", () => {
  for (const broken of [
    "[",
    "[[",
    "=",
    "a = [",
    "a = {",
    'a = "',
    "a = '''",
    ".",
    "a.b.",
    "\\",
    "}",
    "]",
    '"'.repeat(50),
    "a = [}",
    "a = {]",
  ]) {
    expect(() => findKeyLines(broken)).not.toThrow();
  }
});
