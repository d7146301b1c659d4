/** The files of a small task, by path. `folder`: its base name, from which the task's name is made. */
export function newTask(folder: string, image: string): Readonly<Record<string, string>> {
  const name = folder.replace(/[^A-Za-z0-9_-]+/g, "-").replace(/^-+|-+$/g, "");
  return {
    "task.toml": `schema_version = "1.4"
# What the agent has to hand in. Nothing else of its box reaches the verifier.
artifacts = ["/app/answer.txt"]

[task]
name = "local/${name === "" ? "task" : name}"
description = "Count the lines of a file"

[agent]
timeout_sec = 600

[environment]
workdir = "/app"
# "public" is the internet, "allowlist" only allowed_hosts.
network_mode = "no-network"
cpus = 1
memory_mb = 512

[verifier]
# The tests run in a fresh copy of this environment, made after the agent's box is gone.
environment_mode = "separate"
timeout_sec = 120
`,
    "instruction.md": "Write the number of lines of `/app/poem.txt` into `/app/answer.txt`, and nothing else.\n",
    "environment/Dockerfile": `FROM ${image}\nCOPY poem.txt /app/poem.txt\n`,
    "environment/poem.txt": "The box is built,\nthe work is done,\nthe box is gone.\n",
    "solution/solve.sh": "#!/bin/sh\nwc -l </app/poem.txt >/app/answer.txt\n",
    "tests/test.sh": `#!/bin/sh
# The verdict is the reward file, never this script's exit code or output.
if [ "$(tr -d '[:space:]' </app/answer.txt)" = 3 ]; then
  echo 1 >/logs/verifier/reward.txt
else
  echo 0 >/logs/verifier/reward.txt
fi
`,
  };
}
