#!/usr/bin/env python3
"""Writes down what the agent can reach, for the tests to compare with what the task allows."""

import json
import signal
import urllib.error
import urllib.request

URLS = [
    "https://example.com/",
]


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
with open("/logs/artifacts/agent.json", "w") as file:
    json.dump({url: look(url) for url in URLS}, file, indent=2)
