#!/usr/bin/env python3
"""Three orders, all different, by the log and by the count."""

import json


def read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


lines = read("/var/log/api/orders.log").splitlines()
try:
    count = json.loads(read("/tmp/stats.json"))["orders"]
except (ValueError, KeyError):
    count = None
reward = int(len(lines) == 3 and len(set(lines)) == 3 and count == 3)
print(f"{len(lines)} lines, {len(set(lines))} different, counted {count}")
with open("/logs/verifier/reward.txt", "w") as file:
    file.write(str(reward))
