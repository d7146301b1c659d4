import { afterAll, expect, it } from "vitest";
import { shellAgent } from "@breakwater/harbor-taskset";
import { outcome, taskFile, Workbench } from "./support/trials.ts";

const MIB = 1024 * 1024;
const SAMPLE_MS = 20;
const bench = new Workbench();
afterAll(() => bench[Symbol.asyncDispose]());

const files = {
  "instruction.md": "Write a large file.",
  "task.toml": taskFile({
    mode: "separate",
    artifacts: ["/data"],
    verifierTimeoutSeconds: 600,
  }),
  "tests/test.sh": '#!/bin/sh\n[ "$(stat -c %s /data/big.bin)" = 1073741824 ] && echo 1 >/logs/verifier/reward.txt\n',
};

it("an artifact of 1 GiB crosses over, and our memory stays flat", { timeout: 900_000 }, async () => {
  const write = (megabytes: number) => shellAgent(`mkdir /data; truncate -s ${megabytes}M /data/big.bin`);
  // The same steps with little, so that what is loaded and compiled on the way does not count.
  await bench.run({ ...files, "tests/test.sh": "#!/bin/sh\n" }, { agent: write(64) });

  const before = process.memoryUsage.rss();
  let peak = before;
  const sampling = setInterval(() => (peak = Math.max(peak, process.memoryUsage.rss())), SAMPLE_MS);
  try {
    const finished = await bench.run(files, { agent: write(1024) });
    expect(outcome(finished)).toBe(1);
    const artifact = finished.result.artifacts.find(({ source }) => source === "/data");
    expect(artifact).toMatchObject({ status: "collected", bytes: 1024 * MIB });
  } finally {
    clearInterval(sampling);
  }
  expect((peak - before) / MIB, "MiB of resident memory more than before").toBeLessThanOrEqual(64);
});
