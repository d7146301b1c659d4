import { expect, test } from "vitest";

import type { BuildFolder, VerifierMode } from "./task.ts";
import { chooseVerifierImage, resolveVerifierMode, type VerifierLevel } from "./verifier-choice.ts";

const level = (mode: VerifierMode | null, hasEnvironment: boolean): VerifierLevel => ({ mode, hasEnvironment });
const nothing = level(null, false);

test.each<[string, VerifierLevel, VerifierLevel | undefined, VerifierMode]>([
  ["nothing", nothing, undefined, "shared"],
  ["shared", level("shared", false), undefined, "shared"],
  ["separate", level("separate", false), undefined, "separate"],
  ["environment", level(null, true), undefined, "separate"],
  ["separate and environment", level("separate", true), undefined, "separate"],
  // Harbor's table for steps
  ["nothing / nothing", nothing, nothing, "shared"],
  ["environment / nothing", level(null, true), nothing, "separate"],
  ["separate / nothing", level("separate", false), nothing, "separate"],
  ["environment / shared", level(null, true), level("shared", false), "shared"],
  ["nothing / environment", nothing, level(null, true), "separate"],
  ["shared / environment", level("shared", false), level(null, true), "separate"],
])("mode: %s", (_, task, step, mode) => {
  expect(resolveVerifierMode(task, step).mode).toBe(mode);
});

const folder = (path: string, definition: boolean): BuildFolder => ({
  path,
  exists: true,
  hasDockerfile: definition,
  hasComposeFile: false,
  compose: null,
});
const task = folder("/t/tests", true);
const step = folder("/t/steps/one/tests", true);
const none = folder("/t/tests", false);

test.each([
  ["declared beats tests/", [{ image: "v:1", tests: task }], { kind: "declared", reference: "v:1" }],
  ["tests/ beats the agent's", [{ image: null, tests: task }], { kind: "build", folder: task }],
  ["the agent's is the last", [{ image: null, tests: none }], { kind: "agent-image" }],
  [
    "step image first",
    [
      { image: "s:1", tests: step },
      { image: "v:1", tests: task },
    ],
    { kind: "declared", reference: "s:1" },
  ],
  [
    "step tests/ beats task image",
    [
      { image: null, tests: step },
      { image: "v:1", tests: task },
    ],
    { kind: "build", folder: step },
  ],
  [
    "task image beats task tests/",
    [
      { image: null, tests: none },
      { image: "v:1", tests: task },
    ],
    { kind: "declared", reference: "v:1" },
  ],
  [
    "task tests/ beats the agent's",
    [
      { image: null, tests: none },
      { image: null, tests: task },
    ],
    { kind: "build", folder: task },
  ],
])("image: %s", (_, levels, choice) => {
  expect(chooseVerifierImage(levels)).toEqual(choice);
});
