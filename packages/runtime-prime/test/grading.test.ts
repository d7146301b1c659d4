import { describeGrading } from "@breakwater/conformance/grading";
import primeDriver from "../src/index.ts";
import { backendRecord, gradingWaive, image, otherImage, reachable } from "./backend.ts";

describeGrading({
  driver: primeDriver,
  image,
  otherImage,
  reachable,
  waive: gradingWaive,
  name: "prime, VM",
  backendRecord,
});
