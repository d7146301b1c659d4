import { expect, test } from "vitest";
import { dependencyCycle, dependencyNames } from "./dependency-graph.ts";

test("a circle is found and named from its first member on, wherever the search begins", () => {
  const graph = new Map([
    ["app", ["a"]],
    ["a", ["b", "vitest"]],
    ["b", ["c"]],
    ["c", ["a"]],
  ]);
  expect(dependencyCycle(graph)).toEqual(["a", "b", "c", "a"]);
});

test("two ways to the same package are no circle", () => {
  const graph = new Map([
    ["app", ["a", "b"]],
    ["a", ["base"]],
    ["b", ["base"]],
    ["base", []],
  ]);
  expect(dependencyCycle(graph)).toBeUndefined();
});

test("dev and peer dependencies count", () => {
  expect(
    dependencyNames({ name: "x", dependencies: { a: "1" }, devDependencies: { b: "1" }, peerDependencies: { c: "1" } }),
  ).toEqual(["a", "b", "c"]);
});
