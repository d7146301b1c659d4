import type { RuntimeDriver } from "@breakwater/runtime-api";
import { expect, test } from "vitest";
import { type ConformanceMeta, describeRuntime, summarize } from "./describe-runtime.ts";

const never = (): RuntimeDriver => {
  throw new Error("no driver is made for options that are wrong");
};

test("a waiver of a case that does not exist throws when tests are collected", () => {
  const waive = { "exec.no-such-case": "https://example.com/issues/1" };
  expect(() => describeRuntime({ driver: never, image: "x", waive })).toThrow(
    new TypeError('waive: there is no case "exec.no-such-case"; see docs/conformance.md for the ids'),
  );
});

test("a waiver without a link throws", () => {
  expect(() => describeRuntime({ driver: never, image: "x", waive: { "exec.exit-code": "flaky" } })).toThrow(
    /needs a link/,
  );
});

test("the summary names every case that was not run, and calls a waived MUST what it is", () => {
  const meta = (
    id: string,
    outcome: ConformanceMeta["outcome"],
    level: ConformanceMeta["level"] = "MUST",
  ): ConformanceMeta => ({ driver: "acme", id, level, outcome });
  const kept = [meta("a.a", "kept"), meta("a.b", "refused"), meta("a.c", "not-claimed"), meta("a.d", "not-run")];
  expect(summarize("acme", kept)).toBe(
    "conformance acme: conformant; 1 cases run; 1 refusal twins run (a.b); 1 not claimed (a.c); 0 waived; 1 not run: no target or image (a.d)",
  );
  expect(summarize("acme", [...kept, meta("a.e", "waived", "SHOULD")])).toContain(": conformant; 2 cases run");
  expect(summarize("acme", [...kept, meta("a.e", "waived")])).toContain(": not conformant: 1 MUST waived (a.e);");
  expect(summarize("acme", [...kept, meta("a.f", "waiver-stale")])).toContain(": NOT CONFORMANT: 1 broken (a.f);");
});
