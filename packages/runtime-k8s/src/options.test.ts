import { expect, it } from "vitest";
import { parseOptions } from "./options.ts";

it("takes defaults from the environment, and options before them", () => {
  const environment = { BREAKWATER_K8S_NAMESPACE: "boxes", BREAKWATER_HELPER_IMAGE: "helper:1" };
  expect(parseOptions({}, environment)).toMatchObject({
    namespace: "boxes",
    helperImage: "helper:1",
    security: "compat",
  });
  expect(parseOptions({ namespace: "mine" }, environment).namespace).toBe("mine");
});

it("names every mistake", () => {
  const options = { namespace: "Not A Name", nameservers: [], execProtocols: ["v3"], scheduleTimeoutMs: Number.NaN };
  expect(() => parseOptions(options, {})).toThrow(/namespace.*nameservers.*scheduleTimeoutMs.*execProtocols/s);
});
