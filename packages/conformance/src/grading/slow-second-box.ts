import { setTimeout as sleep } from "node:timers/promises";
import { type Runtime, type RuntimeDriver, RuntimeError } from "@breakwater/runtime-api";
import { delegate } from "./delegate.ts";

const DEFAULT_TIMEOUT_MS = 60_000;

/**
 * The driver, but its second box is never had: what a cluster without a free place does. No real backend can be told to do that, so the
 * start is only waited for, by the rules: until the deadline or the signal, and nothing is left.
 */
export function slowSecondBox(driver: RuntimeDriver): RuntimeDriver {
  let boxes = 0;
  return delegate(driver, {
    create: (spec) => {
      const box = driver.create(spec);
      boxes += 1;
      return boxes === 1 ? box : delegate(box, { start: (options) => neverStarts(box, options) });
    },
    [Symbol.asyncDispose]: async () => undefined,
  });
}

async function neverStarts(box: Runtime, { signal, timeoutMs }: Parameters<Runtime["start"]>[0] = {}): Promise<void> {
  const details = { driver: box.driver, operation: "start", boxId: box.id };
  try {
    await sleep(timeoutMs ?? DEFAULT_TIMEOUT_MS, undefined, signal === undefined ? {} : { signal });
  } catch (cause) {
    throw new RuntimeError({ ...details, code: "ERR_ABORTED", message: "the start was aborted", cause });
  }
  throw new RuntimeError({ ...details, code: "ERR_TIMEOUT", message: `no place for the box within ${timeoutMs} ms` });
}
