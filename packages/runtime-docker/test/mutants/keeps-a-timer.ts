import type { RuntimeDriver } from "@breakwater/runtime-api";
import dockerDriver from "../../src/index.ts";
import { withChanges } from "./mutant.ts";

/** For another process: a driver that keeps that process alive although it is disposed. */
export default function keepsATimer(): RuntimeDriver {
  const real = dockerDriver();
  return withChanges<RuntimeDriver>(real, {
    [Symbol.asyncDispose]: async () => {
      await real[Symbol.asyncDispose]();
      setInterval(() => undefined, 1000);
    },
  });
}
