import { expect, test } from "vitest";

import { findRepeated, refuseStepName } from "./step-name.ts";

test.each(["one", "step 1", "ünï", "a.b", ".hidden", "console", "comet", "x".repeat(255)])("%j is a name", (name) => {
  expect(refuseStepName(name)).toBeNull();
});

test.each([
  "",
  "  ",
  ".",
  "..",
  "a/b",
  "a\\b",
  "a:b",
  'a"b',
  "a\0b",
  "a\nb",
  "a.",
  "a ",
  "CON",
  "nul.txt",
  "com1",
  "LPT9.log",
  "é".repeat(128),
])("%j is none", (name) => {
  expect(refuseStepName(name)).not.toBeNull();
});

test("names are told apart as the least careful file system does", () => {
  expect(findRepeated(["one", "One", "two", "e\u0301", "\u00e9", "stra\u00dfe", "STRASSE", 3, 3])).toEqual([
    [1, 0],
    [4, 3],
    [6, 5],
  ]);
});
