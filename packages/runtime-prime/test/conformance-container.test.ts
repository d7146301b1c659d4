import { describeRuntime } from "@breakwater/conformance/runtime";
import { driverModule, fixtureImages, image, sabotage } from "./backend.ts";
import containerDriver from "./container-driver.ts";

describeRuntime({
  driver: containerDriver,
  image,
  images: await fixtureImages(),
  sabotage,
  driverModule: driverModule("./container-driver.ts"),
  name: "prime, container",
});
