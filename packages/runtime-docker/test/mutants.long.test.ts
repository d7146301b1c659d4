/* oxlint-disable vitest/valid-title, vitest/expect-expect -- titles and assertions are data: they come from the mutants */
import { AssertionError } from "node:assert";
import { appendFileSync } from "node:fs";
import {
  areaOf,
  CaseEnvironment,
  type ConformanceCase,
  conformanceCases,
  missing,
} from "@breakwater/conformance/runtime";
import type { RuntimeCapabilities } from "@breakwater/runtime-api";
import { describe, expect, it } from "vitest";
import dockerDriver from "../src/index.ts";
import { DRIVER_MODULE, fixtureImages, image, sabotage, targets } from "./backend.ts";
import { execMutants } from "./mutants/exec.ts";
import { filesMutants } from "./mutants/files.ts";
import { lifecycleMutants } from "./mutants/lifecycle.ts";
import { breakPromise, type Mutant, type SuiteOptions } from "./mutants/mutant.ts";
import { networkAllowlistMutants } from "./mutants/network-allowlist.ts";
import { networkMutants } from "./mutants/network.ts";
import { isolationMutants, leaksMutants, limitsMutants, refusalMutants } from "./mutants/others.ts";
import { readBoundedMutants } from "./mutants/read-bounded.ts";
import { servicesMutants } from "./mutants/services.ts";

/*
 * Is the contract's suite able to fail? For each case the real driver with one promise broken: that case has to go red, by its own assertion.
 * `npm run test:mutants`. With `--neighbours` also the other cases of its area that are quick, which have to stay green unless the mutant says why not.
 */

const mutants: readonly Mutant[] = [
  ...lifecycleMutants,
  ...servicesMutants,
  ...execMutants,
  ...filesMutants,
  ...readBoundedMutants,
  ...networkMutants,
  ...networkAllowlistMutants,
  ...isolationMutants,
  ...limitsMutants,
  ...leaksMutants,
  ...refusalMutants,
];

/** Where `scripts/mutants.ts` wants to read the verdicts. */
const { MUTANT_VERDICTS, MUTANT_NEIGHBOURS } = process.env;
const NEIGHBOURS_AT_ONCE = 4;
/** Cases that are no quick neighbours: they wait, move much or need the machine for themselves. Those that are `alone` are none either. */
const SLOW =
  /^(?:network\.(?!own-loopback|host-|siblings|default|change-(?:announced|state)|allowlist-empty)|exec\.(?:many|long-and-silent|output-slow-reader|never-twice|timeout-(?:kills|spares|keeps))|lifecycle\.(?:lifetime|parallel-boxes|build-image)|files\.(?:upload-many|upload-large|collect-race|download-limit-entries)|isolation\.cannot-starve)/;

const options: SuiteOptions = {
  image,
  network: targets,
  images: await fixtureImages(),
  sabotage,
  driverModule: DRIVER_MODULE,
};
const probed = await dockerDriver().probe();

/** What a driver that claims this has to pass. */
function casesOf(capabilities: RuntimeCapabilities): readonly ConformanceCase[] {
  return conformanceCases.filter(
    ({ needs = [], unless }) =>
      needs.every((need) => need.claimed(capabilities)) && unless?.claimed(capabilities) !== true,
  );
}

describe("mutants of the Docker driver", () => {
  it("there is one for every MUST case, but for those of capabilities that this driver does not have", () => {
    const ids = new Set(mutants.map((it) => it.id));
    expect(ids.size).toBe(mutants.length);
    const known = new Set(conformanceCases.map(({ id }) => id));
    expect([...ids].filter((id) => !known.has(id))).toEqual([]);
    const without = conformanceCases.filter(({ id, level }) => level === "MUST" && !ids.has(id));
    expect(without.map(({ id }) => id).toSorted()).toEqual(["limits.storage"]);
  });

  for (const mutant of mutants) {
    const cases = casesOf({ ...probed, ...mutant.claims });
    const target = cases.find(({ id }) => id === mutant.id);
    const title = `[${mutant.id}] is red for a driver that ${mutant.does}`;
    it(title, { timeout: 1_800_000, concurrent: false }, async ({ skip }) => {
      if (target === undefined) return skip("not claimed by this driver");
      const suite = { ...options, ...mutant.options?.(options) };
      const absent = missing(target, suite);
      if (absent.length > 0) return skip(`not run: no ${absent.join(", ")}`);
      const needsServers = target.prerequisites?.some((it) => it.startsWith("network.")) ?? false;
      if (targets !== undefined && !needsServers) return skip("needs no servers: run on an engine that has none");

      const verdict: Verdict = { case: mutant.id, mutant: mutant.does, verdict: "NOT CAUGHT", said: "", also: null };
      try {
        await assertCaught(mutant, target, suite, verdict);
        if (MUTANT_NEIGHBOURS !== undefined) await assertNeighboursKept(mutant, cases, suite, verdict);
      } finally {
        if (MUTANT_VERDICTS !== undefined) appendFileSync(MUTANT_VERDICTS, `${JSON.stringify(verdict)}\n`);
      }
    });
  }
});

/** One row of the table. */
interface Verdict {
  readonly case: string;
  readonly mutant: string;
  verdict: string;
  /** The first line of the assertion. */
  said: string;
  /** Other cases that went red, with the reason if there is one; `null`: not tried. */
  also: readonly string[] | null;
}

async function assertCaught(
  mutant: Mutant,
  target: ConformanceCase,
  suite: SuiteOptions,
  verdict: Verdict,
): Promise<void> {
  const [outcome] = await outcomesOf(mutant, [target], suite);
  if (outcome === undefined) throw new Error("the case is green");
  verdict.said = outcome.message.split("\n")[0] ?? "";
  verdict.verdict = "red, not by an assertion";
  if (!(outcome instanceof AssertionError)) throw outcome;
  verdict.verdict = "red, by another assertion";
  expect(outcome.message).toMatch(mutant.says);
  expect(outcome.stack, "it is not the case that complains").toMatch(
    /conformance\/src\/(?:cases\/|box-tools|network-tools|owner-process)/,
  );
  verdict.verdict = "red, by its own assertion";
}

async function assertNeighboursKept(
  mutant: Mutant,
  cases: readonly ConformanceCase[],
  suite: SuiteOptions,
  verdict: Verdict,
): Promise<void> {
  const neighbours = cases.filter(
    (it) =>
      areaOf(it.id) === areaOf(mutant.id) &&
      it.id !== mutant.id &&
      it.alone !== true &&
      !SLOW.test(it.id) &&
      missing(it, suite).length === 0,
  );
  const outcomes = await outcomesOf(mutant, neighbours, suite);
  const red = neighbours.filter((_it, index) => outcomes[index] !== undefined).map(({ id }) => id);
  const reasons = new Map(Object.entries(mutant.also ?? {}));
  verdict.also = red.map((id) => `${id} (${reasons.get(id) ?? "UNEXPECTED"})`);
  const unexpected = neighbours.flatMap(({ id }, index) => {
    const error = outcomes[index];
    return error === undefined || reasons.has(id) ? [] : [`${id}: ${error.message}`];
  });
  if (unexpected.length > 0) console.info(`${mutant.id}: unexpectedly red too:\n${unexpected.join("\n")}`);
  expect(unexpected).toEqual([]);
}

/** What cases say of a broken driver. */
async function outcomesOf(
  mutant: Mutant,
  cases: readonly ConformanceCase[],
  suite: SuiteOptions,
): Promise<readonly (Error | undefined)[]> {
  const newDriver = (): ReturnType<typeof dockerDriver> => breakPromise(dockerDriver(), mutant);
  const driver = newDriver();
  const environment = new CaseEnvironment(driver, await driver.probe(), { ...suite, driver: newDriver });
  const outcomes: (Error | undefined)[] = [];
  const waiting = [...cases.entries()];
  const lane = async (): Promise<void> => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      const [index, it] = next;
      outcomes[index] = await environment.run(it).then(
        () => undefined,
        (error: unknown) => error as Error,
      );
    }
  };
  try {
    await Promise.all(Array.from({ length: NEIGHBOURS_AT_ONCE }, lane));
    return outcomes;
  } finally {
    await environment.close();
  }
}
