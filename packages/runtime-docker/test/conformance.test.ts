import { describeRuntime } from "@breakwater/conformance/runtime";
import dockerDriver from "../src/index.ts";
import { DRIVER_MODULE, fixtureImages, image, sabotage, targets } from "./backend.ts";

describeRuntime({
  driver: dockerDriver,
  image,
  images: await fixtureImages(),
  network: targets,
  sabotage,
  driverModule: DRIVER_MODULE,
});
