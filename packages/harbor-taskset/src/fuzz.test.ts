import fc from "fast-check";
import { expect, test } from "vitest";

import { folderMutation, FuzzFolders, readText, taskFileText } from "../test/fuzz-tasks.ts";

/* Few of each here; `test/fuzz.long.test.ts` has many. */

/** A second or two where the machine is not busy. */
const TIMEOUT_MS = 180_000;

test(
  "2,000 mutated task.toml are read or refused, each refusal with its place, its reason and its advice",
  { timeout: TIMEOUT_MS },
  () => {
    const verdicts = { accepted: 0, refused: 0 };
    fc.assert(
      fc.property(taskFileText, (text) => {
        verdicts[readText(text)] += 1;
      }),
      { numRuns: 2000 },
    );
    // Mutations that only ever break everything would show little.
    expect(Math.min(verdicts.accepted, verdicts.refused)).toBeGreaterThan(20);
  },
);

test("100 mutated folders are loaded and planned, or refused", { timeout: TIMEOUT_MS }, async () => {
  await using folders = await FuzzFolders.create();
  const property = fc.asyncProperty(folderMutation, async (mutation) => {
    await folders.load(mutation);
  });
  await expect(fc.assert(property, { numRuns: 100 })).resolves.toBeUndefined();
});
