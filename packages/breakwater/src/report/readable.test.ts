import { expect, it } from "vitest";

import { bounded, oneLine, readable, shorten } from "./readable.ts";

it.each([
  ["colours go", "\u001b[1;31mred\u001b[0m", "red"],
  [
    "other escapes are seen",
    "\u001b]0;title\u0007\u001b[2J",
    "\u27e8U+001B\u27e9]0;title\u27e8U+0007\u27e9\u27e8U+001B\u27e9[2J",
  ],
  ["lines and tabs stay", "a\tb\r\nc\n", "a\tb\nc\n"],
  ["a lone return is seen", "50 %\r100 %", "50 %\u27e8U+000D\u27e9100 %"],
  ["text cannot be turned", "abc\u202edef\u2066", "abc\u27e8U+202E\u27e9def\u27e8U+2066\u27e9"],
  ["what is not seen is seen", "a\u200bb\u0085\u0000", "a\u27e8U+200B\u27e9b\u27e8U+0085\u27e9\u27e8U+0000\u27e9"],
  ["markup stays text", "<script>alert(1)</script>", "<script>alert(1)</script>"],
])("%s", (_, text, expected) => {
  expect(readable(text)).toBe(expected);
});

it("keeps both ends of what is too long", () => {
  expect(shorten("x".repeat(10), 10)).toBe("x".repeat(10));
  expect(shorten(`begin${"x".repeat(1000)}end!!`, 10)).toBe("begin\n\u2026 1000 characters are left out \u2026\nend!!");
  expect(oneLine("a\nb \t c".repeat(10), 7)).toBe("a b ca \u2026");
});

it("bounds JSON values of any shape, and says so", () => {
  let cuts = 0;
  const found = bounded(
    { list: [1, 2, 3, 4, 5], "k\u001b": { deep: "y".repeat(50) }, none: null },
    { text: 10, members: 3 },
    () => (cuts += 1),
  );
  expect(found).toEqual({ list: [1, 2, 5], "k\u27e8U+001B\u27e9": { deep: shorten("y".repeat(50), 10) }, none: null });
  expect(cuts).toBe(2);
});
