import { readFile } from "node:fs/promises";
import { expect, test } from "vitest";
import { gradingCases } from "./list.ts";
import { REWARD_OBSTACLES, REWARD_SHAPES } from "./reward-shapes.ts";

test("the shapes are the table of docs/grading.md, line by line", async () => {
  const page = await readFile(new URL("../../../../docs/grading.md", import.meta.url), "utf8");
  const table = /reward shapes: begin -->(.*)<!-- reward shapes: end/s.exec(page)?.[1] ?? "";
  const lines = [...table.matchAll(/^\| (reward\.(?:json|txt))\s*\| `(".*")`\s*\| `?([^|`]+?)`?\s*\|$/gm)];
  expect(
    lines.map(([, file, content = "", outcome]) => ({ file, content: JSON.parse(content) as unknown, outcome })),
  ).toEqual(REWARD_SHAPES);
  expect(lines.length).toBeGreaterThan(50);
});

test("ids are unique, and outcomes are rewards or reasons", () => {
  const ids = gradingCases.map(({ id }) => id);
  expect(new Set(ids).size).toBe(ids.length);
  for (const id of ids) expect(id).toMatch(/^grading\.[a-z0-9]+(?:-[a-z0-9]+)*$/);
  for (const { outcome } of [...REWARD_SHAPES, ...REWARD_OBSTACLES])
    expect(outcome).toMatch(/^(?:\{.*\}|missing|empty|invalid|crashed)$/);
});
