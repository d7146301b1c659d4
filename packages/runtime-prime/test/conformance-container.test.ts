import { describeRuntime } from "@breakwater/conformance/runtime";
import { driverModule, fixtureImages, image, reachable, sabotage, waiveContainer } from "./backend.ts";
import containerDriver from "./container-driver.ts";

describeRuntime({
  driver: containerDriver,
  image,
  images: await fixtureImages(),
  network: { reachable },
  sabotage,
  driverModule: driverModule("./container-driver.ts"),
  waive: waiveContainer,
  name: "prime, container",
});
