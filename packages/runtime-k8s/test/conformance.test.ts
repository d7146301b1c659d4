import { describeRuntime } from "@breakwater/conformance/runtime";
import k8sDriver from "../src/index.ts";
import { DRIVER_MODULE, fixtureImages, image, sabotage, targets } from "./backend.ts";

describeRuntime({
  driver: k8sDriver,
  image,
  images: fixtureImages(),
  network: targets,
  sabotage,
  driverModule: DRIVER_MODULE,
});
