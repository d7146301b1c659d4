import { expect, test } from "vitest";
import { codeBlocks } from "./documented-code.ts";

test("only TypeScript that is not marked is checked, with the line where it begins", () => {
  const page = [
    "# Page",
    "```ts",
    "const a = 1;",
    "```",
    "```sh",
    "ls",
    "```",
    "```ts no-check",
    "…",
    "```",
    "```ts",
    "b;",
    "```",
  ];
  expect(codeBlocks(page.join("\n"))).toEqual([
    { line: 3, code: "const a = 1;" },
    { line: 12, code: "b;" },
  ]);
});
