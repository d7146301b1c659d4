import { describeGrading } from "@breakwater/conformance/grading";
import k8sDriver from "../src/index.ts";
import { image, otherImage, targets } from "./backend.ts";
import { podRecord } from "./pod-record.ts";

describeGrading({
  driver: k8sDriver,
  image,
  otherImage,
  reachable: targets?.reachable,
  backendRecord: podRecord,
});
