/* oxlint-disable vitest/valid-title, vitest/expect-expect -- titles and assertions are data: they come from the cases */
import type { RuntimeCapabilities } from "@breakwater/runtime-api";
import { afterAll, describe, it } from "vitest";
import { type ConformanceMeta, summarize } from "../describe-runtime.ts";
import { builds } from "../needs.ts";
import { checkWaivers } from "../waivers.ts";
import { DEFAULT_GRADING_TIMEOUT_MS, type GradingCase, type GradingContext } from "./case.ts";
import { gradingCases } from "./list.ts";
import type { DescribeGradingOptions } from "./options.ts";
import { Trials } from "./trials.ts";

const PROBE_TIMEOUT_MS = 60_000;
const CLEANUP_TIMEOUT_MS = 120_000;
/** Cases wait for a place of their trials; this is only the last resort. */
const QUEUE_FACTOR = 4;

/**
 * Registers what separate grading promises as tests of whole trials on this driver: one line for each promise. Skips follow what the
 * driver declares, never what is observed; nothing is retried. Throws `TypeError` for a waiver of a case that does not exist.
 */
export function describeGrading(options: DescribeGradingOptions): void {
  checkWaivers(options.waive ?? {}, gradingCases);
  const driver = options.driver();
  const name = options.name ?? driver.name;

  describe(`grading: ${name}`, async () => {
    const capabilities = await driver.probe({ timeoutMs: PROBE_TIMEOUT_MS });
    const trials = new Trials(driver, capabilities, options);
    const lines: Line[] = [];

    for (const gradingCase of gradingCases) {
      const line: Line = {
        meta: newMeta(gradingCase, name, capabilities, options),
        title: gradingCase.title,
        said: "",
      };
      lines.push(line);
      register(gradingCase, line, { options, capabilities, trials });
    }

    afterAll(async () => {
      await trials[Symbol.asyncDispose]();
      console.info(
        [
          ...lines.map(printed),
          summarize(
            `${name}, grading`,
            lines.map(({ meta }) => meta),
          ),
        ].join("\n"),
      );
    }, CLEANUP_TIMEOUT_MS);
  });
}

interface Line {
  readonly meta: ConformanceMeta;
  readonly title: string;
  said: string;
}

function printed({ meta, title, said }: Line): string {
  const note = meta.note ?? said;
  return `${meta.outcome.padEnd(11)}  ${title}${note === "" ? "" : ` (${note})`}`;
}

function register(gradingCase: GradingCase, line: Line, context: GradingContext): void {
  const { meta } = line;
  const title = `[${gradingCase.id}] ${gradingCase.title}`;
  const waived = meta.outcome === "pending" && meta.note !== undefined;
  it(
    waived ? `${title} (waived: ${meta.note})` : title,
    {
      concurrent: true,
      timeout: (gradingCase.timeoutMs ?? DEFAULT_GRADING_TIMEOUT_MS) * QUEUE_FACTOR,
      fails: waived,
      retry: 0,
      meta: { conformance: meta },
    },
    async (test) => {
      test.task.meta.conformance = meta;
      if (meta.outcome !== "pending") test.skip(meta.note);
      try {
        line.said = (await gradingCase.run(context)) ?? "";
        meta.outcome = waived ? "waiver-stale" : "kept";
      } catch (error) {
        meta.outcome = waived ? "waived" : "broken";
        throw error;
      }
    },
  );
}

function newMeta(
  { id, needs = [], dedicatedImage = false }: GradingCase,
  driver: string,
  capabilities: RuntimeCapabilities,
  options: DescribeGradingOptions,
): ConformanceMeta {
  const level = "MUST";
  const unclaimed = needs.filter((need) => !need.claimed(capabilities));
  if (unclaimed.length > 0) {
    const note = `capability not claimed: ${unclaimed.map((it) => it.name).join(", ")}`;
    return { driver, id, level, outcome: "not-claimed", note };
  }
  if (dedicatedImage && options.dedicatedImage === undefined && !builds.claimed(capabilities)) {
    return {
      driver,
      id,
      level,
      outcome: "not-run",
      note: "not run: no dedicatedImage, and the driver cannot build it",
    };
  }
  const link = options.waive?.[id];
  return { driver, id, level, outcome: "pending", ...(link === undefined ? {} : { note: link }) };
}
