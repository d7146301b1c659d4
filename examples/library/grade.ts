import { loadTask, runTrial } from "@breakwater/harbor-taskset";
import { dockerDriver } from "@breakwater/runtime-docker";

const driver = dockerDriver();
const task = await loadTask("examples/tasks/hello-separate");
const result = await runTrial(task, {
  driver,
  outputDir: "jobs",
  agent: async ({ box, instruction }) => {
    process.stdout.write(`${instruction}\n`);
    await box.exec(["sh", "-c", "sed -i 's/.replace.*/.strip()/' /app/slug.py"]); // not good enough
  },
});
await driver[Symbol.asyncDispose]();
process.stdout.write(`reward ${result.reward ?? "none"} ${result.error?.message ?? ""}\n`);
