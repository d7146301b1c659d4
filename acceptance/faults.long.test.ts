import { afterAll, expect, test } from "vitest";
import { shellAgent } from "@breakwater/harbor-taskset";
import { dockerDriver } from "@breakwater/runtime-docker";
import { dockerHost, image } from "./support/backend.ts";
import { SmallEngine } from "./support/small-engine.ts";
import { taskFile, when, Workbench } from "./support/trials.ts";

const workbench = new Workbench();
afterAll(() => workbench[Symbol.asyncDispose]());

test(
  "an engine that dies and does not come back: what cannot be asked for any more is named",
  { timeout: 900_000 },
  async (context) => {
    const reason = SmallEngine.unavailable();
    if (reason !== null) context.skip(reason);
    await using engine = await SmallEngine.start(900, { host: dockerHost, image });
    await using driver = dockerDriver({ host: engine.host });
    const kill = when("agent.started", () => engine.kill());
    const files = {
      "task.toml": taskFile({ mode: "separate" }),
      "instruction.md": "Nothing to do.\n",
      "tests/test.sh": "#!/bin/sh\necho 0 >/logs/verifier/reward.txt\n",
    };
    const trial = await workbench.run(files, { driver, agent: shellAgent("sleep 1000"), onEvent: kill.onEvent });
    await kill.acted();
    expect(trial.result.rewards).toBeNull();
    expect(trial.result.error).toMatchObject({ reason: "infrastructure", retry: "trial" });
    expect(trial.result.leftovers).toHaveLength(1);
    expect(trial.events.map(({ type }) => type)).toContain("teardown.unconfirmed");
    expect(JSON.parse((await trial.file("result.json")) ?? "null")).toMatchObject({
      leftovers: trial.result.leftovers,
    });
  },
);
