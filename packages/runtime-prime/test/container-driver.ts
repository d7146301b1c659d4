import type { RuntimeDriver } from "@breakwater/runtime-api";
import { primeDriver } from "../src/index.ts";

/** The same driver with container sandboxes. */
export default function containerDriver(): RuntimeDriver {
  return primeDriver({ kind: "container" });
}
