/* oxlint-disable vitest/valid-title -- titles are data: the names of the faults */
import { afterAll, describe, expect, test } from "vitest";
import type { SandboxKind, ServiceFault } from "./faults.ts";
import { Places } from "./trials.ts";

const CLOSE_TIMEOUT_MS = 120_000;
const TRIAL_TIMEOUT_MS = 600_000;

/** A trial for each of them; a fault that is alone says what becomes of it. Prints a table. */
export function describeFaults(kind: SandboxKind, cases: readonly (readonly ServiceFault[])[]): void {
  describe.concurrent(`faults of the service, ${kind}`, () => {
    const places = new Places(kind);
    afterAll(async () => {
      process.stdout.write(`${places.table}\n`);
      await places[Symbol.asyncDispose]();
    }, CLOSE_TIMEOUT_MS);

    for (const faults of cases) {
      const [one, ...more] = faults;
      test(
        faults.map(({ name }) => name).join(" + "),
        async () => {
          const { broken, outcome, result } = await places.run(faults);
          const expected = more.length === 0 ? one?.alone : outcome;
          // The message comes along for whoever reads a failure.
          const said = result.error?.message;
          expect({ broken, outcome, said }).toEqual({ broken: [], outcome: expected, said });
        },
        TRIAL_TIMEOUT_MS,
      );
    }
  });
}
