import { describeFaults } from "./describe-faults.ts";
import { faultsOf, pairsOf } from "./faults.ts";

// Every fault alone, and every two of them.

for (const kind of ["vm", "container"] as const) {
  const faults = faultsOf(kind);
  describeFaults(kind, [...faults.map((fault) => [fault]), ...pairsOf(faults)]);
}
