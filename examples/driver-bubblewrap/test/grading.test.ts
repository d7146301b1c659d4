import { describeGrading } from "@breakwater/conformance/grading";
import { bubblewrapDriver } from "../src/index.ts";

const { BREAKWATER_IMAGE = "image.tar", BREAKWATER_OTHER_IMAGE = BREAKWATER_IMAGE } = process.env;

describeGrading({
  driver: () => bubblewrapDriver(),
  image: BREAKWATER_IMAGE,
  // Cases of a declared image ask for a `public` box, which this driver refuses: without `dedicatedImage` they are not run.
  otherImage: BREAKWATER_OTHER_IMAGE,
  // No user namespace lets its root make devices, so nobody can leave one in the reward's place.
  waive: { "grading.obstacle-device": "https://man7.org/linux/man-pages/man7/user_namespaces.7.html" },
});
