import { describeRuntime } from "@breakwater/conformance/runtime";
import primeDriver from "../src/index.ts";
import { driverModule, fixtureImages, image, reachable, sabotage, waiveVm } from "./backend.ts";

describeRuntime({
  driver: primeDriver,
  image,
  images: await fixtureImages(),
  network: { reachable },
  sabotage,
  driverModule: driverModule("../src/index.ts"),
  waive: waiveVm,
  name: "prime, VM",
});
