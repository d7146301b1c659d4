"""Runs the agent's code in a process of its own and compares plain text, so that it cannot reach the checks."""

import subprocess
import sys

CASES = {
    "  Hello,  World! ": "hello-world",
    "already-fine": "already-fine",
    "A_b.C/d": "a-b-c-d",
    "100% natural": "100-natural",
    "---": "",
}
PROGRAM = "import sys; sys.path.insert(0, '/app'); from slug import slug; sys.stdout.write(slug(sys.argv[1]))"

for title, expected in CASES.items():
    run = subprocess.run([sys.executable, "-I", "-c", PROGRAM, title], capture_output=True, text=True, timeout=20)
    if run.returncode != 0 or run.stdout != expected:
        sys.exit(f"slug({title!r}): expected {expected!r}, got {run.stdout!r} {run.stderr[-200:]}")
print(f"{len(CASES)} cases passed")
