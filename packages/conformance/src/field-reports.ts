import type { ConformanceCase } from "./case.ts";

/**
 * The reports of the collection about exec, timeouts, transfers, artifacts, teardown, networks, images and start: all that can concern a
 * driver. Others are named by cases too.
 */
export const DRIVER_REPORTS: readonly string[] = (
  "B01 B02 B04 B05 B06 B07 B08 B10 B11 B12 B13 B14 B15 B17 B19 B20 B21 B22 B23 B24 B25 B26 B27 B28 B29 B30 B31 B33 B34 B35 B36 B38 B39 " +
  "B40 B42 B43 B44 B45 B46 B48 B49 B51 B52 B53 B54 B55 B56 B57 B59 B61 B62 B63 B64 B65 B66 B68 B69 B70 B71 B72 B73 B75 B77 B78"
).split(" ");

/** Those among them that no driver can answer for, with the tests that do. Paths from the root of the repository. */
export const REPORTS_OF_THE_TASKSET: Readonly<Record<string, string>> = {
  B39: "packages/harbor-taskset/src/artifacts-declaration.test.ts",
  B45: "packages/tar/src/safe-members.test.ts",
  B77: "packages/harbor-taskset/src/plan-trial.test.ts",
};

/** Which cases cover a report, in their order. */
export function casesByReport(cases: readonly ConformanceCase[]): ReadonlyMap<string, readonly string[]> {
  const reports = new Set([...DRIVER_REPORTS, ...cases.flatMap(({ covers = [] }) => covers)]);
  const covering = (report: string): readonly string[] =>
    cases.filter(({ covers = [] }) => covers.includes(report)).map(({ id }) => id);
  const byNumber = (a: string, b: string): number => Number(a.slice(1)) - Number(b.slice(1));
  return new Map([...reports].toSorted(byNumber).map((report) => [report, covering(report)]));
}
