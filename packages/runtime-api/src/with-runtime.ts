import type { RuntimeDriver } from "./driver.ts";
import type { OperationOptions, Runtime } from "./runtime.ts";
import type { RuntimeSpecInput } from "./spec.ts";

/**
 * Starts a box, gives it to `use`, and tears it down, confirmed. If `use` throws, its error is what the caller gets; the box is still removed.
 * Throws what `start` and `teardownConfirmed` throw.
 */
export async function withRuntime<T>(
  driver: RuntimeDriver,
  spec: RuntimeSpecInput,
  use: (box: Runtime) => Promise<T>,
  options?: OperationOptions,
): Promise<T> {
  const box = await provisionRuntime(driver, spec, options);
  let result: T;
  try {
    result = await use(box);
  } catch (error) {
    await box[Symbol.asyncDispose]();
    throw error;
  }
  await box.teardownConfirmed();
  return result;
}

/** A started box for `await using`; when it rejects nothing is left. */
export async function provisionRuntime(
  driver: RuntimeDriver,
  spec: RuntimeSpecInput,
  options?: OperationOptions,
): Promise<Runtime> {
  const box = driver.create(spec);
  await box.start(options);
  return box;
}
