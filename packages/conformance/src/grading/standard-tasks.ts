import type { RuntimeCapabilities } from "@breakwater/runtime-api";
import { dedicatedImageFiles, lookAround } from "./look-around.ts";
import type { DescribeGradingOptions } from "./options.ts";
import type { TaskFileContent } from "./write-task.ts";

/** Where the tests run: in the agent's box, or in a box of their own, from the agent's image, a declared or a built one. */
export type StandardTask = "shared" | "fresh" | "declared" | "built";

export const SEPARATE_TASKS: readonly StandardTask[] = ["fresh", "declared", "built"];

export const STANDARD_TASKS: readonly StandardTask[] = ["shared", ...SEPARATE_TASKS];

/** How cases name them. */
export const TASK_TITLES: Readonly<Record<StandardTask, string>> = {
  shared: "shared",
  fresh: "fresh copy",
  declared: "declared image",
  built: "built image",
};

/**
 * A healthcheck that leaves an old suite and an old reward in every box from this image, also in the verifier's fresh copy: what an image
 * with leftovers would do, without a need to build one.
 */
const STALE =
  "mkdir -p /tests /logs/verifier /var && echo old | tee /tests/stale-test /var/stale-was-made && echo 1 >/logs/verifier/reward.txt";

/** One small task: the agent is to leave an answer in `/app/out`. */
export function standardTask(
  kind: StandardTask,
  options: DescribeGradingOptions,
  capabilities: RuntimeCapabilities,
  dedicatedImage: string | null,
): Readonly<Record<string, TaskFileContent>> {
  const { image, otherImage, reachable } = options;
  const environment = [`docker_image = ${text(image)}`];
  // The old name of the key, in the task whose verifier inherits it.
  if (capabilities.networkModes.includes("no-network")) {
    environment.push(kind === "fresh" ? "allow_internet = false" : 'network_mode = "no-network"');
  }
  if (kind === "fresh" || kind === "shared") {
    environment.push("[environment.healthcheck]", `command = ${text(STALE)}`, "timeout_sec = 120");
  }
  const verifierEnvironment =
    kind === "declared" && dedicatedImage !== null
      ? ["[verifier.environment]", `docker_image = ${text(dedicatedImage)}`, 'network_mode = "public"']
      : [];
  const verifierEnv =
    reachable === undefined
      ? []
      : ["[verifier.env]", `REACHABLE_HOST = ${text(reachable.host)}`, `REACHABLE_PORT = "${reachable.port}"`];
  return {
    "task.toml": [
      'artifacts = ["/app/out"]',
      "[agent]",
      "timeout_sec = 300",
      "[environment]",
      ...environment,
      "[verifier]",
      `environment_mode = "${kind === "shared" ? "shared" : "separate"}"`,
      "timeout_sec = 300",
      ...verifierEnv,
      ...verifierEnvironment,
      "",
    ].join("\n"),
    "instruction.md": "Leave the answer in /app/out/answer.txt.\n",
    "tests/test.sh": lookAround("uploaded"),
    "tests/file-of-task": "part of the task\n",
    ...(kind === "built" ? buildContext(otherImage) : {}),
  };
}

function buildContext(baseImage: string): Readonly<Record<string, TaskFileContent>> {
  const files = Object.entries(dedicatedImageFiles(baseImage));
  return Object.fromEntries(files.map(([path, content]) => [`tests/${path}`, content]));
}

/** A TOML string. */
export function text(value: string): string {
  return JSON.stringify(value);
}
