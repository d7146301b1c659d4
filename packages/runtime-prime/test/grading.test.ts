import { describeGrading } from "@breakwater/conformance/grading";
import primeDriver from "../src/index.ts";
import { emulatedSandboxes, image, otherImage } from "./backend.ts";

describeGrading({
  driver: primeDriver,
  image,
  otherImage,
  // Without a server to reach it looks at a box's routes, and a VM is cut off by filters; boxes of the emulator have nothing to reach.
  waive: { "grading.no-network": "https://docs.primeintellect.ai/sandboxes/network-isolation" },
  name: "prime, VM",
  // The emulator's own account of sandboxes, and of what really ran behind them.
  backendRecord: async () => ({
    boxes: async (trial) =>
      (await emulatedSandboxes())
        .filter(({ labels }) => labels.includes(`breakwater.trial=${trial}`))
        .map(({ id, createdAt, terminatedAt, boxRuns }) => ({
          id,
          createdAt: Date.parse(createdAt),
          goneAt: terminatedAt === null || boxRuns ? null : Date.parse(terminatedAt),
        })),
    [Symbol.asyncDispose]: async () => {},
  }),
});
