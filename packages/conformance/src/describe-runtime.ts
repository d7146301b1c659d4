/* oxlint-disable vitest/valid-title, vitest/expect-expect -- titles and assertions are data: they come from the cases */
import type { RuntimeCapabilities } from "@breakwater/runtime-api";
import { afterAll, describe, it } from "vitest";
import { areaOf, type ConformanceCase, DEFAULT_CASE_TIMEOUT_MS } from "./case.ts";
import { CaseEnvironment, missing } from "./context.ts";
import { conformanceCases } from "./list.ts";
import type { DescribeRuntimeOptions } from "./options.ts";
import { checkWaivers } from "./waivers.ts";

const PROBE_TIMEOUT_MS = 60_000;
const CLEANUP_TIMEOUT_MS = 60_000;

/**
 * What became of a case; in `task.meta.conformance` of every test, so that reporters can count.
 *
 * - `kept`, `broken`: it ran. `refused`: a refusal twin ran and the driver refused.
 * - `waived`: it ran and failed, as the waiver says. `waiver-stale`: it ran and passed in spite of it; the run fails.
 * - `not-claimed`: the backend does not claim the capability. `not-run`: the caller gave no target or image for it.
 */
export type ConformanceOutcome =
  | "pending"
  | "kept"
  | "broken"
  | "refused"
  | "waived"
  | "waiver-stale"
  | "not-claimed"
  | "not-run";

export interface ConformanceMeta {
  readonly driver: string;
  readonly id: string;
  readonly level: "MUST" | "SHOULD";
  outcome: ConformanceOutcome;
  /** Why it was not run, or the link of its waiver. */
  readonly note?: string;
}

declare module "vitest" {
  interface TaskMeta {
    conformance?: ConformanceMeta;
  }
}

/**
 * Registers the whole contract as tests of this driver. Skips follow what the driver declares, never what is observed; nothing is
 * retried. Throws `TypeError` for a waiver of a case that does not exist.
 */
export function describeRuntime(options: DescribeRuntimeOptions): void {
  const waive = options.waive ?? {};
  checkWaivers(waive, conformanceCases);
  const driver = options.driver();
  const name = options.name ?? driver.name;

  describe(`runtime contract: ${name}`, async () => {
    const capabilities = await driver.probe({ timeoutMs: PROBE_TIMEOUT_MS });
    const environment = new CaseEnvironment(driver, capabilities, options);
    const metas: ConformanceMeta[] = [];
    const applicable = conformanceCases.filter((it) => it.unless === undefined || !it.unless.claimed(capabilities));

    for (const area of new Set(applicable.map((it) => areaOf(it.id)))) {
      describe(area, () => {
        const cases = applicable.filter((it) => areaOf(it.id) === area);
        // First what may run side by side, then what needs the machine for itself.
        for (const alone of [false, true]) {
          for (const conformanceCase of cases.filter((it) => (it.alone ?? false) === alone)) {
            const meta = newMeta(conformanceCase, name, capabilities, options);
            metas.push(meta);
            register(conformanceCase, meta, environment);
          }
        }
      });
    }

    afterAll(async () => {
      await environment.close();
      console.info(summarize(name, metas));
    }, CLEANUP_TIMEOUT_MS);
  });
}

function register(conformanceCase: ConformanceCase, meta: ConformanceMeta, environment: CaseEnvironment): void {
  const title = `[${conformanceCase.id}] ${conformanceCase.level} ${conformanceCase.title}`;
  const waived = meta.outcome === "pending" && meta.note !== undefined;
  it(
    waived ? `${title} (waived: ${meta.note})` : title,
    {
      concurrent: !(conformanceCase.alone ?? false),
      timeout: (conformanceCase.timeoutMs ?? DEFAULT_CASE_TIMEOUT_MS) + CLEANUP_TIMEOUT_MS,
      fails: waived,
      retry: 0,
      meta: { conformance: meta },
    },
    async (test) => {
      test.task.meta.conformance = meta;
      if (meta.outcome !== "pending") test.skip(meta.note);
      try {
        await environment.run(conformanceCase, test.signal);
        meta.outcome = waived ? "waiver-stale" : conformanceCase.unless === undefined ? "kept" : "refused";
      } catch (error) {
        meta.outcome = waived ? "waived" : "broken";
        throw error;
      }
    },
  );
}

function newMeta(
  { id, level, needs = [], ...rest }: ConformanceCase,
  driver: string,
  capabilities: RuntimeCapabilities,
  options: DescribeRuntimeOptions,
): ConformanceMeta {
  const unclaimed = needs.filter((need) => !need.claimed(capabilities));
  if (unclaimed.length > 0) {
    return {
      driver,
      id,
      level,
      outcome: "not-claimed",
      note: `capability not claimed: ${unclaimed.map((it) => it.name).join(", ")}`,
    };
  }
  const absent = missing({ id, level, ...rest }, options);
  if (absent.length > 0) return { driver, id, level, outcome: "not-run", note: `not run: no ${absent.join(", ")}` };
  const link = options.waive?.[id];
  return { driver, id, level, outcome: "pending", ...(link === undefined ? {} : { note: link }) };
}

/** One line for people: how many cases were run, and every one that was not. */
export function summarize(driver: string, metas: readonly ConformanceMeta[]): string {
  const of = (...outcomes: readonly ConformanceOutcome[]): readonly ConformanceMeta[] =>
    metas.filter((it) => outcomes.includes(it.outcome));
  const named = (label: string, some: readonly ConformanceMeta[]): string =>
    some.length === 0 ? `0 ${label}` : `${some.length} ${label} (${some.map((it) => it.id).join(", ")})`;
  const waivedMust = of("waived").filter((it) => it.level === "MUST");
  const broken = of("broken", "waiver-stale");
  const verdict =
    broken.length > 0
      ? `NOT CONFORMANT: ${named("broken", broken)}`
      : waivedMust.length > 0
        ? `not conformant: ${named("MUST waived", waivedMust)}`
        : "conformant";
  return [
    `conformance ${driver}: ${verdict}`,
    `${of("kept", "broken", "waived", "waiver-stale").length} cases run`,
    named("refusal twins run", of("refused")),
    named("not claimed", of("not-claimed")),
    named("waived", of("waived")),
    named("not run: no target or image", of("not-run")),
    ...(of("pending").length === 0 ? [] : [`${of("pending").length} not selected`]),
  ].join("; ");
}
