import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { loadTasks } from "@breakwater/harbor-taskset";

/** `npm run bench -- tasks`: how long a folder of 1,000 tasks takes to load, and what it leaves in memory, a line for each round. */
const TASKS = 1000;
const ROUNDS = 5;
const FILES = {
  "task.toml": `artifacts = ["/app/out"]\n[task]\nname = "bench/NAME"\n[environment]\nmemory_mb = 512\n[environment.env]\nA = "a"\n[verifier]\nenvironment_mode = "separate"\n[[verifier.collect]]\ncommand = "true"\n`,
  "instruction.md": "Do it.\n".repeat(50),
  "environment/Dockerfile": "FROM scratch\n",
  "tests/test.sh": "#!/bin/sh\n",
  "tests/check.py": "print(1)\n".repeat(100),
  "solution/solve.sh": "#!/bin/sh\n",
};

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

const root = await mkdtemp(join(tmpdir(), "breakwater-bench-"));
try {
  for (let number = 0; number < TASKS; number++) {
    const name = `task-${String(number).padStart(4, "0")}`;
    for (const [path, content] of Object.entries(FILES)) {
      const file = join(root, name, path);
      await mkdir(dirname(file), { recursive: true });
      await writeFile(file, content.replace("NAME", name));
    }
  }
  for (let round = 1; round <= ROUNDS; round++) {
    const startedAt = performance.now();
    const { tasks, invalid } = await loadTasks(root);
    const seconds = (performance.now() - startedAt) / 1000;
    const counts = `${tasks.length} tasks, ${invalid.length} invalid`;
    collectGarbage();
    const megabytes = (process.memoryUsage().heapUsed / 1024 ** 2).toFixed(1);
    console.log(`round ${round}: ${counts}: ${seconds.toFixed(2)} s, ${megabytes} MiB of heap`);
  }
} finally {
  await rm(root, { recursive: true, force: true });
}
