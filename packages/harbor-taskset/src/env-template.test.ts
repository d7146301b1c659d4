import { expect, test } from "vitest";

import { resolveEnv } from "./env-template.ts";

const HOST = { SET: "value", EMPTY: "", "ODD NAME": "odd" };

test.each([
  ["plain", "plain"],
  ["${SET}", "value"],
  ["${EMPTY}", ""],
  ["${EMPTY:-default}", ""],
  ["${UNSET:-default}", "default"],
  ["${UNSET:-}", ""],
  ["${UNSET:-a}b}", "a}b"],
  ["${UNSET:-x}${SET}", "x}${SET"],
  ["${ODD NAME}", "odd"],
  // Everything that is not one template from end to end is literal.
  ["a ${SET}", "a ${SET}"],
  ["${SET} b", "${SET} b"],
  ["${SET}${EMPTY}", "${SET}${EMPTY}"],
  ["$SET", "$SET"],
  ["${SET:x}", "${SET:x}"],
  ["${}", "${}"],
  ["${UNSET:-a\nb}", "${UNSET:-a\nb}"],
  ["${SET}\n", "${SET}\n"],
])("%j becomes %j", (value, expected) => {
  expect(resolveEnv({ KEY: value }, HOST)).toEqual({ env: { KEY: expected }, missing: [] });
});

test("a variable that is not set and has no default is missing, under both its names", () => {
  const { missing } = resolveEnv({ A: "${UNSET}", B: "${SET}", C: "${constructor}" }, HOST);
  expect(missing).toEqual([
    { name: "A", variable: "UNSET" },
    { name: "C", variable: "constructor" },
  ]);
});
