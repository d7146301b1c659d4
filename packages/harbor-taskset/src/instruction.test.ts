import { expect, test } from "vitest";

import { joinInstructions, stripCanary } from "./instruction.ts";

test.each([
  ["Do it.\n", "Do it.\n"],
  ["<!-- harbor-canary GUID 1234 -->\n\nDo it.", "Do it."],
  ["# CANARY string\n<!-- Canary -->\n\n\nDo it.", "Do it."],
  ["  # canary  \nDo it.", "Do it."],
  ["\n\nDo it.", "Do it."],
  ["Do it.\n<!-- canary -->", "Do it.\n<!-- canary -->"],
  ["The canary sings.\n", "The canary sings.\n"],
  ["<!-- canary --> Do it.", "<!-- canary --> Do it."],
  ["\n<!-- canary -->\nDo it.", "<!-- canary -->\nDo it."],
  ["", ""],
])("%j becomes %j", (text, stripped) => {
  expect(stripCanary(text)).toBe(stripped);
});

test("further texts follow, one empty line apart", () => {
  expect(joinInstructions("One.\n", ["Two.\n\n", "\nThree."])).toBe("One.\n\nTwo.\n\nThree.");
  expect(joinInstructions("One.\n", [])).toBe("One.\n");
});
