#!/usr/bin/env python3
"""Compares what the agent saw, and what the tests see themselves, with expected.json. Every observation is in the reward file."""

import json
import os
import signal
import time
import urllib.error
import urllib.request

with open("/tests/expected.json") as file:
    EXPECTED = json.load(file)


def look(url):
    """An answer of any kind is an answer of that server: its certificate was checked."""
    signal.alarm(10)  # name resolution has no timeout of its own
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            page = answer.read(100_000)
    except urllib.error.HTTPError:
        return "reachable"
    except OSError:
        return "blocked"
    finally:
        signal.alarm(0)
    return "another page" if url == "https://example.com/" and b"Example Domain" not in page else "reachable"


def too_late(_signal, _frame):
    raise TimeoutError


signal.signal(signal.SIGALRM, too_late)


def written(who):
    try:
        with open(f"/logs/artifacts/{who}.json") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


# The service may still be looking.
until = time.monotonic() + 20
while written("sidecar") is None and time.monotonic() < until:
    time.sleep(0.2)
seen = {who: written(who) for who in ("agent", "sidecar")}
seen["verifier"] = {url: look(url) for url in EXPECTED["verifier"]}
print(json.dumps(seen, indent=2))
left = [path for path in EXPECTED.get("absent", []) if os.path.lexists(path)]
as_expected = not left and all(seen[who] == EXPECTED[who] for who in seen)

rewards = {"reward": int(as_expected)}
for who in seen:
    for url, status in (seen[who] or {}).items():
        rewards[f"{who}: {url}"] = int(status == "reachable")
with open("/logs/verifier/reward.json", "w") as file:
    json.dump(rewards, file)
