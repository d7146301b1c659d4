import type { TaskFileContent } from "./write-task.ts";

/** What the agent of the standard trials is to leave, and the tests look for. */
export const ANSWER = "forty-two";

/** How many keys `lookAround` writes. */
export const FACTS: number = 15;

/**
 * The verifier of the standard trials. It grades (`reward` is 1 for the right answer), and every other key that it writes is a fact of
 * the box in which it found itself, so that one trial can answer for many cases.
 */
export function lookAround(suite: "uploaded" | "image"): string {
  return `#!/bin/sh
there() { if [ -e "$1" ]; then echo 1; else echo 0; fi; }
says() { if [ "$(cat "$1" 2>/dev/null)" = "$2" ]; then echo 1; else echo 0; fi; }
running() { for it in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <"$it" 2>/dev/null; echo; done | grep -c "$1"; }
route=0
while read -r device destination gateway rest; do
  if [ "$destination" = 00000000 ]; then route=1; fi
done </proc/net/route
reached=-1
if [ -n "$REACHABLE_HOST" ]; then
  reached=0
  if python3 -c 'import os, socket; socket.create_connection((os.environ["REACHABLE_HOST"], int(os.environ["REACHABLE_PORT"])), 20)' 2>/dev/null; then reached=1; fi
fi
cat >/logs/verifier/reward.json <<END
{
  "reward": $(says /app/out/answer.txt ${ANSWER}),
  "convention_artifact": $(says /logs/artifacts/note.txt kept),
  "undeclared_file": $(there /app/undeclared.txt),
  "undeclared_mark": $(there /var/agent-was-here),
  "agent_process": $(running '[s]leep 98765'),
  "python_minor": $(python3 -c 'import sys; print(sys.version_info[1])'),
  "agent_python_minor": $(cat /app/out/python-minor.txt 2>/dev/null || echo -1),
  "uploaded_suite": ${suite === "uploaded" ? 1 : 0},
  "own_file_of_image": $(there /tests/own-file-of-image),
  "file_of_task": $(there /tests/file-of-task),
  "stale_marker": $(there /var/stale-was-made),
  "stale_test": $(there /tests/stale-test),
  "stale_reward": $(there /logs/verifier/reward.txt),
  "default_route": $route,
  "reached": $reached
}
END
`;
}

/** Does the work, and leaves what must not matter: a file, a mark, a process, a planted suite and a planted reward. */
export const HONEST_AGENT: string = `set -e
mkdir -p /app/out /logs/artifacts /tests /logs/verifier
echo ${ANSWER} >/app/out/answer.txt
python3 -c 'import sys; print(sys.version_info[1])' >/app/out/python-minor.txt
echo kept >/logs/artifacts/note.txt
echo mine >/app/undeclared.txt
echo mine >/var/agent-was-here
echo planted >/tests/stale-test
echo 1 >/logs/verifier/reward.txt
setsid sleep 98765 </dev/null >/dev/null 2>&1 &
`;

/** The same with a wrong answer. */
export const WRONG_AGENT: string = HONEST_AGENT.replace(`echo ${ANSWER} `, "echo wrong ");

/**
 * The files of an image that grades by itself, on any Debian-like image with Python: for drivers that cannot build, to be built by other
 * means. `tests/Dockerfile` of the standard trials is the same.
 */
export function dedicatedImageFiles(baseImage: string): Readonly<Record<string, TaskFileContent>> {
  return {
    Dockerfile: `FROM ${baseImage}\nCOPY test.sh own-file-of-image /tests/\n`,
    "test.sh": lookAround("image"),
    "own-file-of-image": "part of the image\n",
  };
}
