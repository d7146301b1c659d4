#!/bin/sh
# The verdict is the reward file, never this script's exit code or output.
if python3 /tests/check_slug.py; then
  echo 1 >/logs/verifier/reward.txt
else
  echo 0 >/logs/verifier/reward.txt
fi
