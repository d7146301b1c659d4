import { describeRuntime } from "@breakwater/conformance/runtime";
import { bubblewrapDriver } from "../src/index.ts";
import { endBox, fixtureImages } from "./fixtures.ts";

const image = process.env["BREAKWATER_IMAGE"] ?? "image.tar";

describeRuntime({
  driver: () => bubblewrapDriver(),
  image,
  images: await fixtureImages(image),
  sabotage: { endBox },
  driverModule: { url: new URL("../src/index.ts", import.meta.url) },
});
