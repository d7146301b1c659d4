import { describeRuntime } from "@breakwater/conformance/runtime";
import { bubblewrapDriver } from "../src/index.ts";

describeRuntime({
  driver: () => bubblewrapDriver(),
  image: process.env["BREAKWATER_IMAGE"] ?? "image.tar",
});
