import { describeGrading } from "@breakwater/conformance/grading";
import dockerDriver from "../src/index.ts";
import { image, otherImage, targets } from "./backend.ts";
import { engineRecord } from "./engine-record.ts";

describeGrading({
  driver: dockerDriver,
  image,
  otherImage,
  reachable: targets?.reachable,
  backendRecord: engineRecord,
});
