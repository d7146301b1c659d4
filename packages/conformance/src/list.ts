import { execCases } from "./cases/exec.ts";
import { filesCases } from "./cases/files.ts";
import { isolationCases } from "./cases/isolation.ts";
import { leaksCases } from "./cases/leaks.ts";
import { lifecycleCases } from "./cases/lifecycle.ts";
import { limitsCases } from "./cases/limits.ts";
import { networkAllowlistCases } from "./cases/network-allowlist.ts";
import { networkChangeCases } from "./cases/network-change.ts";
import { networkCases } from "./cases/network.ts";
import { readBoundedCases } from "./cases/read-bounded.ts";
import { refusalCases } from "./cases/refusal.ts";
import { servicesCases, sweepServicesCase } from "./cases/services.ts";
import type { ConformanceCase } from "./case.ts";

/** The whole contract, as data. */
export const conformanceCases: readonly ConformanceCase[] = [
  ...lifecycleCases,
  ...servicesCases,
  ...execCases,
  ...filesCases,
  ...readBoundedCases,
  ...networkCases,
  ...networkAllowlistCases,
  ...networkChangeCases,
  ...isolationCases,
  ...limitsCases,
  ...leaksCases,
  sweepServicesCase,
  ...refusalCases,
];
