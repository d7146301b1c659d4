"""Runs every check in a process of its own, and writes all results down: what counts is the key "reward"."""

import json
import subprocess
import sys

CHECKS = {
    "odd": "median([3, 1, 2]) == 2",
    "even": "median([4, 1, 3, 2]) == 2.5",
    "two": "median([1, 2]) == 1.5",
    "one": "median([7]) == 7",
    "negative": "median([-1, -3]) == -2",
    "unsorted": "median([9, 1, 8, 2]) == 5",
    "equal": "median([5, 5, 5, 5]) == 5",
    "floats": "median([0.5, 1.5]) == 1.0",
    "input_kept": "(lambda v: (median(v), v)[1])([2, 1]) == [2, 1]",
    "mean_kept": "mean([1, 2, 3]) == 2",
}
PROGRAM = "import sys; sys.path.insert(0, '/repo'); from stats import mean, median; sys.exit(0 if eval(sys.argv[1]) else 1)"


def holds(check):
    run = subprocess.run([sys.executable, "-I", "-c", PROGRAM, check], capture_output=True, timeout=20)
    return int(run.returncode == 0)


rewards = {name: holds(check) for name, check in CHECKS.items()}
with open("/tmp/applied") as file:
    rewards["applied"] = int(file.read().strip() == "0")
rewards["reward"] = int(all(rewards.values()))
with open("/logs/verifier/reward.json", "w") as file:
    json.dump(rewards, file)
