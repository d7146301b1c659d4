/* oxlint-disable vitest/valid-title -- titles are data: they come from the mutants */
import { AssertionError } from "node:assert";
import { CaseEnvironment, conformanceCases } from "@breakwater/conformance/runtime";
import { afterAll, describe, expect, it } from "vitest";
import dockerDriver from "../src/index.ts";
import { DRIVER_MODULE, fixtureImages, image, sabotage, targets } from "./backend.ts";
import { execMutants } from "./mutants/exec.ts";
import { filesMutants } from "./mutants/files.ts";
import { lifecycleMutants } from "./mutants/lifecycle.ts";
import { breakPromise, type Mutant } from "./mutants/mutant.ts";
import { networkMutants } from "./mutants/network.ts";
import { isolationMutants, leaksMutants, limitsMutants, refusalMutants } from "./mutants/others.ts";
import { readBoundedMutants } from "./mutants/read-bounded.ts";

/*
 * Is the contract's suite able to fail? For each case the real driver with one promise broken: that case has to go red, by its own assertion.
 * `npm run test:mutants`
 */

const mutants: readonly Mutant[] = [
  ...lifecycleMutants,
  ...execMutants,
  ...filesMutants,
  ...readBoundedMutants,
  ...networkMutants,
  ...isolationMutants,
  ...limitsMutants,
  ...leaksMutants,
  ...refusalMutants,
];
/** Cases without a mutant yet: their fault is in another process, or nobody has a target for them. */
const WITHOUT_MUTANT = /^(?:leaks\.sweep-foreign|leaks\.process-ends|network\.public-forbidden)$/;
const options = {
  image,
  network: targets,
  images: await fixtureImages(),
  sabotage,
  driverModule: DRIVER_MODULE,
};
const capabilities = await dockerDriver().probe();
const verdicts = new Map<string, string>();

describe("mutants of the Docker driver", () => {
  it("there is one for every MUST case that this driver has to pass", () => {
    const cases = conformanceCases.filter(
      ({ id, level, needs = [], unless }) =>
        level === "MUST" &&
        !WITHOUT_MUTANT.test(id) &&
        needs.every((need) => need.claimed(capabilities)) &&
        unless?.claimed(capabilities) !== true,
    );
    expect(mutants.map((it) => it.id).toSorted()).toEqual(cases.map((it) => it.id).toSorted());
  });

  for (const mutant of mutants) {
    // Only the sealed engine has servers that boxes may try to reach.
    const prerequisites = conformanceCases.find(({ id }) => id === mutant.id)?.prerequisites ?? [];
    const hasTargets = targets !== undefined || !prerequisites.some((name) => name.startsWith("network."));
    it(
      `[${mutant.id}] is red for a driver that ${mutant.does}`,
      { timeout: 240_000, concurrent: false },
      async ({ skip }) => {
        if (!hasTargets) skip("not run: no server that boxes may try to reach");
        verdicts.set(mutant.id, "NOT CAUGHT");
        const outcome = await outcomeOf(mutant);
        if (outcome === undefined) throw new Error("the case is green");
        verdicts.set(mutant.id, "red, not by an assertion");
        if (!(outcome instanceof AssertionError)) throw outcome;
        verdicts.set(mutant.id, "red, by another assertion");
        expect(outcome.message).toMatch(mutant.says);
        expect(outcome.stack, "it is not the case that complains").toMatch(/conformance\/src\/(?:cases\/|box-tools)/);
        verdicts.set(mutant.id, "red, by its own assertion");
      },
    );
  }

  afterAll(() => {
    const width = Math.max(...mutants.map((it) => it.id.length));
    const lines = mutants.map(
      (it) => `${it.id.padEnd(width)}  ${(verdicts.get(it.id) ?? "not selected").padEnd(26)} a driver that ${it.does}`,
    );
    console.info(["case, verdict, mutant", ...lines].join("\n"));
  });
});

/** What a case says of a broken driver. */
async function outcomeOf(mutant: Mutant): Promise<Error | undefined> {
  const conformanceCase = conformanceCases.find((it) => it.id === mutant.id);
  if (conformanceCase === undefined) throw new TypeError(`there is no case ${mutant.id}`);
  const newDriver = (): ReturnType<typeof dockerDriver> => breakPromise(dockerDriver(), mutant);
  const driver = newDriver();
  const environment = new CaseEnvironment(driver, await driver.probe(), { ...options, driver: newDriver });
  try {
    await environment.run(conformanceCase);
    return undefined;
  } catch (error) {
    return error as Error;
  } finally {
    await environment.close();
  }
}
