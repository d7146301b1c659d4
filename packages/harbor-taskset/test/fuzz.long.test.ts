import fc from "fast-check";
import { expect, test } from "vitest";

import { folderMutation, FuzzFolders, readText, taskFileText, type Verdict } from "./fuzz-tasks.ts";

const TIMEOUT_MS = 30 * 60_000;
/** Reading one takes milliseconds; this is for a machine that is very busy. */
const HANG_MS = 30_000;

test(
  "10,000 mutated task.toml: no crash, no hang, no refusal without place and reason",
  { timeout: TIMEOUT_MS },
  () => {
    const verdicts = { accepted: 0, refused: 0 };
    let longestMs = 0;
    fc.assert(
      fc.property(taskFileText, (text) => {
        const startedAt = performance.now();
        verdicts[readText(text)] += 1;
        longestMs = Math.max(longestMs, performance.now() - startedAt);
      }),
      { numRuns: 10_000 },
    );
    expect(longestMs).toBeLessThan(HANG_MS);
    expect(Math.min(verdicts.accepted, verdicts.refused)).toBeGreaterThan(100);
  },
);

test("10,000 mutated folders: the same, and none is left open", { timeout: TIMEOUT_MS }, async () => {
  await using folders = await FuzzFolders.create();
  const verdicts: Record<Verdict, number> = { accepted: 0, refused: 0 };
  let longestMs = 0;
  await fc.assert(
    fc.asyncProperty(folderMutation, async (mutation) => {
      const startedAt = performance.now();
      verdicts[await folders.load(mutation)] += 1;
      longestMs = Math.max(longestMs, performance.now() - startedAt);
    }),
    { numRuns: 10_000 },
  );
  expect(longestMs).toBeLessThan(HANG_MS);
  expect(Math.min(verdicts.accepted, verdicts.refused)).toBeGreaterThan(100);
});
